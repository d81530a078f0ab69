//! Contents of a filter block: a Bloom filter over the tokens of neighbouring partitions.
//!
//! ```text
//! contents  probes u8 | bits
//! ```
//!
//! Each block takes as many tokens as the configured share of false positives allows, and the next
//! tokens go into the next block. So a filter needs no memory for the whole table while it is
//! written, and a lookup needs one page of it. `bits / tokens = -ln(share) / ln(2)^2` and `probes =
//! bits / tokens * ln(2)` (Bloom, CACM 1970; the formulas in Mitzenmacher, Upfal, "Probability and
//! Computing", 5.5.3). All probes come from two halves of one hash (Kirsch, Mitzenmacher, "Less
//! Hashing, Same Performance", 2008). The token is a hash of the key already.

use std::f64::consts::LN_2;

use super::{Damage, ROOM_BYTES};
use tare_std::rng::mix64;

const BITS: usize = (ROOM_BYTES - 1) * 8;
const PROBES_MAX: u8 = 30;
/// Probes that exclude seven of eight absent tokens: half of the bits of a full filter are set.
const PROBES_FIRST: u8 = 3;

/// Collects tokens and builds blocks of them.
#[derive(Debug)]
pub(super) struct Builder {
    tokens: Vec<i64>,
    tokens_max: usize,
    probes: u8,
}

impl Builder {
    /// A builder for a share of false positives, above 0 and below 1.
    pub(super) fn new(false_positives: f64) -> Self {
        let bits_per_token = -false_positives.clamp(1e-9, 0.999).ln() / (LN_2 * LN_2);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "both are positive and small"
        )]
        let (tokens_max, probes) = (
            (BITS as f64 / bits_per_token) as usize,
            (bits_per_token * LN_2).round().clamp(1.0, f64::from(PROBES_MAX)) as u8,
        );
        Self { tokens: Vec::new(), tokens_max, probes }
    }

    pub(super) fn first(&self) -> Option<i64> {
        self.tokens.first().copied()
    }

    /// Adds a token, which must not be below the one before. Returns false if the token needs a new
    /// block; then it was not added. No token is in two blocks.
    pub(super) fn push(&mut self, token: i64) -> bool {
        if self.tokens.last() == Some(&token) {
            return true;
        }
        if self.tokens.len() >= self.tokens_max {
            return false;
        }
        self.tokens.push(token);
        true
    }

    /// Appends the contents of a block with the tokens so far to `out`, and clears the builder.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let from = out.len();
        out.push(self.probes);
        out.resize(from + ROOM_BYTES, 0);
        let bits = &mut out[from + 1..];
        for token in self.tokens.drain(..) {
            for bit in probes(token, self.probes) {
                bits[bit / 8] |= 1 << (bit % 8);
            }
        }
    }
}

/// Whether a token may be in the filter. False is certain. The contents must have been checked.
pub(super) fn may_contain(contents: &[u8], token: i64) -> bool {
    let Some((&count, bits)) = contents.split_first() else { return true };
    probes(token, count).all(|bit| bits[bit / 8] & (1 << (bit % 8)) != 0)
}

/// As [`may_contain`], but by the first probes alone, without a branch between them: where several
/// filters are asked in a row, the CPU fetches the memory of all at the same time.
pub(super) fn may_contain_at_first(contents: &[u8], token: i64) -> bool {
    let Some((&count, bits)) = contents.split_first() else { return true };
    let first = probes(token, count.min(PROBES_FIRST));
    first.fold(true, |all, bit| all & (bits[bit / 8] & (1 << (bit % 8)) != 0))
}

pub(super) fn check(contents: &[u8]) -> Result<(), Damage> {
    let probes = contents.first().copied().unwrap_or(0);
    let sound = contents.len() == ROOM_BYTES && (1..=PROBES_MAX).contains(&probes);
    sound.then_some(()).ok_or(Damage::Structure("the filter has a wrong size"))
}

fn probes(token: i64, count: u8) -> impl Iterator<Item = usize> {
    let hash = mix64(token.cast_unsigned());
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the hash")]
    let (first, step) = (hash as u32, (hash >> 32) as u32 | 1);
    (0..u32::from(count)).map(move |probe| {
        let spread = first.wrapping_add(probe.wrapping_mul(step));
        // Multiplying maps 32 bits evenly onto the range without a division.
        ((u64::from(spread) * BITS as u64) >> 32) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_std::rng::Rng;

    #[test]
    fn filter_keeps_its_false_positive_rate_and_has_no_false_negatives() {
        for wanted in [0.1, 0.01, 0.001] {
            let mut rng = Rng::new(1);
            let mut builder = Builder::new(wanted);
            let mut token = i64::MIN;
            let mut taken = Vec::new();
            while builder.push(token) {
                taken.push(token);
                token = token.saturating_add_unsigned(rng.below(1 << 48));
            }
            let mut contents = Vec::new();
            builder.finish(&mut contents);
            assert_eq!(check(&contents), Ok(()));
            assert!(taken.iter().all(|&token| may_contain(&contents, token)));
            assert!(taken.iter().all(|&token| may_contain_at_first(&contents, token)));
            let tries: Vec<_> = (0..200_000).map(|_| rng.next_u64().cast_signed()).collect();
            let share = |may: fn(&[u8], i64) -> bool| {
                let hits = tries.iter().filter(|&&token| may(&contents, token)).count();
                hits as f64 / tries.len() as f64
            };
            let (all, first) = (share(may_contain), share(may_contain_at_first));
            assert!(all < wanted * 1.3 && all > wanted * 0.7, "{all} for {wanted}");
            assert!(first >= all && first < 0.15, "{first} by the first probes, {all} by all");
        }
    }
}
