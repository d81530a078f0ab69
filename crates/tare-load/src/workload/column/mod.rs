//! Values of columns outside the key: a pure function of the row's seed and a version.
//!
//! Rows are filled with version 0. A write that must be distinguishable from earlier ones uses its
//! write time as version. The version is mixed into the value's first bytes, and the rest of the
//! value derives from it. So a value reveals its version, and every bit of it can be checked.
//! Values too short for a version and 48 more bits have one version only.
//!
//! Random bytes are the output of a SplitMix64 generator: they do not compress, and cost about a
//! nanosecond per 8 bytes.

use tare_cql::types::Type;
use tare_std::rng::mix64;

use crate::workload::value::{Comparison, Distribution, Form, Sink};

pub(crate) const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
/// Makes the size of a value independent of its bytes.
const SIZE_SALT: u64 = 0x5157_e5a1_7f0c_2d63;

/// A column outside the key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Type,
    content: Content,
    /// The index of its first random word among those of the row.
    first_word: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// `random_share` of the bytes are random, the rest repeats one byte.
    Blob { size: Distribution, random_share: f64 },
    /// The same as printable ASCII, 6 random bits per character.
    Text { size: Distribution, random_share: f64 },
    /// A number from a range, or any number of the type.
    Number { form: Form, range: Option<Distribution> },
}

/// The result of checking a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The value, in this version; `None` where a value has one version only.
    Right(Option<u64>),
    Wrong,
}

impl Column {
    /// Returns a column. `first_word` counts the random words of the columns before.
    pub(crate) fn new(name: String, kind: Type, content: Content, first_word: u64) -> Self {
        Self { name, kind, content, first_word }
    }

    /// Returns the most words that it takes from the row's generator.
    pub(crate) fn words(&self) -> u64 {
        self.bytes_most().div_ceil(8)
    }

    pub(crate) fn bytes_most(&self) -> u64 {
        match &self.content {
            Content::Blob { size, .. } | Content::Text { size, .. } => size.most(),
            Content::Number { .. } => 24,
        }
    }

    /// Returns whether all its values have the same size.
    pub(crate) fn is_fixed_size(&self) -> bool {
        match &self.content {
            Content::Blob { size, .. } | Content::Text { size, .. } => size.least() == size.most(),
            Content::Number { .. } => false,
        }
    }

    /// Returns whether its values hold their version.
    pub(crate) fn has_versions(&self) -> bool {
        match &self.content {
            Content::Blob { size, random_share } => random(size.least(), *random_share) >= 16,
            Content::Text { size, random_share } => random(size.least(), *random_share) >= 24,
            Content::Number { .. } => false,
        }
    }

    /// Appends the value of a row in a version.
    #[inline]
    pub(crate) fn put(&self, row: u64, version: u64, out: &mut impl Sink) {
        let start = row.wrapping_add(self.first_word.wrapping_mul(GOLDEN_GAMMA));
        let version = if self.has_versions() { version } else { 0 };
        self.put_from(start, version, out);
    }

    #[inline]
    fn put_from(&self, start: u64, version: u64, out: &mut impl Sink) {
        // The stream of words; the first one or two carry the version.
        let mut state = start;
        let body =
            if version == 0 { start } else { mix64(start ^ version.wrapping_mul(GOLDEN_GAMMA)) };
        match &self.content {
            Content::Number { form, range } => {
                let word = next(&mut state);
                let number = range.map_or_else(|| form.of_word(word), |range| range.draw(word));
                form.put(number, out);
            }
            Content::Blob { size, random_share } => {
                let size = size_of(size, body);
                let length = random(size, *random_share);
                let mut place = 0u32;
                out.words(cast(length), || {
                    let word = next(&mut state);
                    if place == 0 {
                        place = 1;
                        if version != 0 {
                            state = body;
                        }
                        return word ^ version;
                    }
                    word
                });
                out.repeat(0, cast(size - length));
            }
            Content::Text { size, random_share } => {
                let size = size_of(size, body);
                let length = random(size, *random_share);
                let [low, high] = nibbles(version);
                let mut place = 0u32;
                out.words(cast(length), || {
                    let word = printable(next(&mut state));
                    place += 1;
                    match place {
                        1 => word ^ low,
                        2 => {
                            if version != 0 {
                                state = body;
                            }
                            word ^ high
                        }
                        _ => word,
                    }
                });
                out.repeat(b'-', cast(size - length));
            }
        }
    }

    /// Checks a cell of a row.
    #[inline]
    pub(crate) fn check(&self, row: u64, cell: &[u8]) -> Verdict {
        let start = row.wrapping_add(self.first_word.wrapping_mul(GOLDEN_GAMMA));
        let version = if self.has_versions() {
            let Some(version) = self.version(start, cell) else { return Verdict::Wrong };
            Some(version)
        } else {
            None
        };
        let mut same = Comparison::with(cell);
        self.put_from(start, version.unwrap_or(0), &mut same);
        if same.is_same() { Verdict::Right(version) } else { Verdict::Wrong }
    }

    /// Returns the version in the first bytes of a cell.
    #[inline]
    fn version(&self, start: u64, cell: &[u8]) -> Option<u64> {
        let mut state = start;
        let (first, rest) = cell.split_first_chunk::<8>()?;
        let first = u64::from_le_bytes(*first);
        if let Content::Text { .. } = self.content {
            let second = u64::from_le_bytes(*rest.first_chunk::<8>()?);
            let low = first ^ printable(next(&mut state));
            let high = second ^ printable(next(&mut state));
            return of_nibbles(low, high);
        }
        Some(first ^ next(&mut state))
    }
}

/// Returns the seed of a row.
#[inline]
pub(crate) fn row_start(seed: u64, key: u64) -> u64 {
    mix64(seed ^ mix64(key.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA)))
}

#[inline]
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN_GAMMA);
    mix64(*state)
}

#[inline]
fn size_of(size: &Distribution, body: u64) -> u64 {
    match *size {
        Distribution::Fixed(size) => size,
        spread => spread.draw(mix64(body ^ SIZE_SALT)),
    }
}

/// Returns how many bytes of a value are random, so that LZ4 leaves `share` of it: a value costs
/// about six besides (a token and two lengths beyond it, one literal of the run, the match's
/// offset: LZ4 block format; and a byte or two until the run is found) and one more for every 255
/// of the run.
#[inline]
fn random(size: u64, share: f64) -> u64 {
    if share >= 1.0 {
        return size;
    }
    let run = size as f64 * (1.0 - share);
    crate::workload::keys::cut(size as f64 * share - 6.0 - run / 255.0 + 0.5).min(size)
}

/// Returns 8 characters from `0` to `o`.
#[inline]
fn printable(word: u64) -> u64 {
    (word & 0x3f3f_3f3f_3f3f_3f3f) + 0x3030_3030_3030_3030
}

/// Returns a version as 4 bits a byte, its lower half first. They change only the lower half of a
/// printable character, whose upper half is 3 to 6 all the same.
#[inline]
fn nibbles(version: u64) -> [u64; 2] {
    let spread = |half: u64| {
        let half = (half | half << 16) & 0x0000_ffff_0000_ffff;
        let half = (half | half << 8) & 0x00ff_00ff_00ff_00ff;
        (half | half << 4) & 0x0f0f_0f0f_0f0f_0f0f
    };
    [spread(version & 0xffff_ffff), spread(version >> 32)]
}

/// Inverts `nibbles`; `None` if other bits are set.
#[inline]
fn of_nibbles(low: u64, high: u64) -> Option<u64> {
    let gather = |word: u64| {
        let word = (word | word >> 4) & 0x00ff_00ff_00ff_00ff;
        let word = (word | word >> 8) & 0x0000_ffff_0000_ffff;
        (word | word >> 16) & 0xffff_ffff
    };
    ((low | high) & 0xf0f0_f0f0_f0f0_f0f0 == 0).then(|| gather(low) | gather(high) << 32)
}

#[inline]
fn cast(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
