//! Turns numbers and random words into the bytes of CQL values.
//!
//! Key columns hold exact numbers in their order, so a row that a scan returns reveals which one it
//! is. Other columns hold random bytes, or a number from a distribution.

mod spread;

use tare_cql::types::Type;

pub use spread::{Distribution, DistributionError};

/// The scalar CQL types for which values can be derived: all but counters.
pub(crate) const SCALARS: [&str; 20] = [
    "ascii",
    "bigint",
    "blob",
    "boolean",
    "date",
    "decimal",
    "double",
    "duration",
    "float",
    "inet",
    "int",
    "smallint",
    "text",
    "time",
    "timestamp",
    "timeuuid",
    "tinyint",
    "uuid",
    "varchar",
    "varint",
];

/// Takes the bytes of a value: a request being written, or a cell to compare with.
pub(crate) trait Sink {
    fn bytes(&mut self, bytes: &[u8]);
    /// Takes `length` bytes from words, lowest byte first, and only part of the last word.
    fn words(&mut self, length: usize, word: impl FnMut() -> u64);
    fn repeat(&mut self, byte: u8, length: usize);
}

impl Sink for Vec<u8> {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn words(&mut self, length: usize, mut word: impl FnMut() -> u64) {
        let from = self.len();
        self.resize(from + length, 0);
        let mut words = self[from..].chunks_exact_mut(8);
        for place in &mut words {
            place.copy_from_slice(&word().to_le_bytes());
        }
        let rest = words.into_remainder();
        if !rest.is_empty() {
            rest.copy_from_slice(&word().to_le_bytes()[..rest.len()]);
        }
    }

    #[inline]
    fn repeat(&mut self, byte: u8, length: usize) {
        self.resize(self.len() + length, byte);
    }
}

/// Compares the bytes that it takes with a cell.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    rest: &'a [u8],
    same: bool,
}

impl<'a> Comparison<'a> {
    #[inline]
    pub(crate) fn with(cell: &'a [u8]) -> Self {
        Self { rest: cell, same: true }
    }

    /// Returns whether it took exactly the bytes of the cell.
    #[inline]
    pub(crate) fn is_same(&self) -> bool {
        self.same && self.rest.is_empty()
    }

    #[inline]
    fn take(&mut self, length: usize) -> &'a [u8] {
        match self.rest.split_at_checked(length) {
            Some((head, rest)) => {
                self.rest = rest;
                head
            }
            None => {
                self.same = false;
                &[]
            }
        }
    }
}

impl Sink for Comparison<'_> {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        let head = self.take(bytes.len());
        self.same &= head == bytes;
    }

    #[inline]
    fn words(&mut self, length: usize, mut word: impl FnMut() -> u64) {
        let mut words = self.take(length).chunks_exact(8);
        let mut same = true;
        for place in &mut words {
            same &= place == word().to_le_bytes();
        }
        let rest = words.remainder();
        self.same &= same && (rest.is_empty() || *rest == word().to_le_bytes()[..rest.len()]);
    }

    #[inline]
    fn repeat(&mut self, byte: u8, length: usize) {
        let head = self.take(length);
        self.same &= head.iter().all(|other| *other == byte);
    }
}

/// A short value on the stack, such as a number.
#[derive(Debug)]
pub(crate) struct ShortBytes {
    bytes: [u8; SHORT_MAX],
    length: usize,
}

/// The most bytes of a value that holds a number, and of a whole partition key.
pub(crate) const SHORT_MAX: usize = 128;

impl ShortBytes {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { bytes: [0; SHORT_MAX], length: 0 }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Appends bytes. Bytes beyond the end are cut off, which the limits of tables rule out.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let end = (self.length + bytes.len()).min(SHORT_MAX);
        self.bytes[self.length..end].copy_from_slice(&bytes[..end - self.length]);
        self.length = end;
    }
}

impl Sink for ShortBytes {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }

    #[inline]
    fn words(&mut self, length: usize, mut word: impl FnMut() -> u64) {
        let mut left = length;
        while left > 0 {
            let part = left.min(8);
            self.push(&word().to_le_bytes()[..part]);
            left -= part;
        }
    }

    #[inline]
    fn repeat(&mut self, byte: u8, length: usize) {
        (0..length).for_each(|_| self.push(&[byte]));
    }
}

/// How a type holds a number: in order, and so that the number can be read back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    Boolean,
    Tinyint,
    Smallint,
    Int,
    Bigint,
    Varint,
    Decimal,
    Float,
    Double,
    Timestamp,
    Date,
    Time,
    Duration,
    Uuid,
    Timeuuid,
    Inet,
    /// Big-endian bytes.
    Blob {
        bytes: usize,
    },
    /// Decimal digits behind a prefix.
    Text {
        prefix: Box<str>,
        digits: usize,
    },
}

const DAY_NS: u64 = 86_400_000_000_000;
/// Days are counted from the middle of the range (CQL protocol, section 6.5).
const EPOCH_DAY: u32 = 1 << 31;
/// Random times and timestamps stay below 2 to this power: timestamps end in the year 2109.
const TIMESTAMP_BITS: u32 = 42;

impl Form {
    /// Returns the form of a scalar type; blobs and texts have `size` bytes. `None` for counters
    /// and for types that are not scalar.
    pub(crate) fn of(kind: &Type, size: usize, prefix: &str) -> Option<Self> {
        Some(match kind {
            Type::Boolean => Self::Boolean,
            Type::Tinyint => Self::Tinyint,
            Type::Smallint => Self::Smallint,
            Type::Int => Self::Int,
            Type::Bigint => Self::Bigint,
            Type::Varint => Self::Varint,
            Type::Decimal => Self::Decimal,
            Type::Float => Self::Float,
            Type::Double => Self::Double,
            Type::Timestamp => Self::Timestamp,
            Type::Date => Self::Date,
            Type::Time => Self::Time,
            Type::Duration => Self::Duration,
            Type::Uuid => Self::Uuid,
            Type::Timeuuid => Self::Timeuuid,
            Type::Inet => Self::Inet,
            Type::Blob => Self::Blob { bytes: size },
            Type::Ascii | Type::Text => {
                Self::Text { prefix: prefix.into(), digits: size.saturating_sub(prefix.len()) }
            }
            _ => return None,
        })
    }

    /// Returns how many numbers it can hold, from 0 on.
    pub(crate) fn capacity(&self) -> u64 {
        match self {
            Self::Boolean => 2,
            Self::Tinyint => 1 << 7,
            Self::Smallint => 1 << 15,
            Self::Int | Self::Date => 1 << 31,
            Self::Inet => 1 << 32,
            Self::Float => 1 << 24,
            Self::Double => 1 << 53,
            Self::Time => DAY_NS,
            Self::Uuid => 1 << 62,
            Self::Timeuuid => 1 << 60,
            Self::Bigint | Self::Varint | Self::Decimal | Self::Timestamp => 1 << 63,
            Self::Duration => 1 << 14,
            Self::Blob { bytes } => u32::try_from(8 * bytes)
                .ok()
                .and_then(|bits| 1u64.checked_shl(bits))
                .unwrap_or(u64::MAX),
            Self::Text { digits, .. } => u32::try_from(*digits)
                .ok()
                .and_then(|digits| 10u64.checked_pow(digits))
                .unwrap_or(u64::MAX),
        }
    }

    /// Returns the most bytes of a value.
    pub(crate) fn bytes_most(&self) -> usize {
        match self {
            Self::Blob { bytes } => *bytes,
            Self::Text { prefix, digits } => prefix.len() + digits,
            _ => 16,
        }
    }

    /// Returns whether it can hold every 64-bit number.
    pub(crate) fn holds_any(&self) -> bool {
        match self {
            Self::Bigint => true,
            Self::Blob { bytes } => *bytes >= 8,
            Self::Text { digits, .. } => *digits >= 20,
            _ => false,
        }
    }

    /// Maps a random word to a number.
    #[inline]
    pub(crate) fn of_word(&self, word: u64) -> u64 {
        match self {
            Self::Boolean => word & 1,
            Self::Tinyint => word & 0xff,
            Self::Smallint => word & 0xffff,
            Self::Int | Self::Inet => word & 0xffff_ffff,
            Self::Bigint => word,
            Self::Timestamp => word >> (64 - TIMESTAMP_BITS),
            Self::Time => word % DAY_NS,
            other => word % other.capacity(),
        }
    }

    /// Appends the bytes of a number below the capacity, or of any number if it holds any.
    #[inline]
    pub(crate) fn put(&self, number: u64, out: &mut impl Sink) {
        #[expect(clippy::cast_possible_truncation, reason = "numbers lie below the capacity")]
        match self {
            Self::Boolean | Self::Tinyint => out.bytes(&[number as u8]),
            Self::Smallint => out.bytes(&(number as u16).to_be_bytes()),
            Self::Int | Self::Inet => out.bytes(&(number as u32).to_be_bytes()),
            Self::Bigint | Self::Timestamp | Self::Time => out.bytes(&number.to_be_bytes()),
            Self::Varint => out.bytes(shortest(&wide(number))),
            Self::Decimal => {
                out.bytes(&[0; 4]);
                out.bytes(shortest(&wide(number)));
            }
            Self::Float => out.bytes(&(number as f32).to_be_bytes()),
            Self::Double => out.bytes(&(number as f64).to_be_bytes()),
            Self::Date => out.bytes(&(EPOCH_DAY | number as u32).to_be_bytes()),
            // Months, days and nanoseconds, each so small that its vint is one byte, twice the
            // number (CQL protocol v5, section 6.6).
            Self::Duration => {
                let part =
                    |shift: u32, bits: u32| ((number >> shift & ((1 << bits) - 1)) * 2) as u8;
                out.bytes(&[part(0, 4), part(4, 5), part(9, 5)]);
            }
            Self::Uuid => out.bytes(&uuid(number)),
            Self::Timeuuid => out.bytes(&timeuuid(number)),
            Self::Blob { bytes } => {
                let number = number.to_be_bytes();
                out.repeat(0, bytes.saturating_sub(8));
                out.bytes(&number[8usize.saturating_sub(*bytes)..]);
            }
            Self::Text { prefix, digits } => {
                out.bytes(prefix.as_bytes());
                put_digits(number, *digits, out);
            }
        }
    }

    /// Reads the number in a value; `None` if it holds none.
    pub(crate) fn number(&self, cell: &[u8]) -> Option<u64> {
        let whole = |bytes: &[u8]| {
            let (high, low) = bytes.split_at_checked(bytes.len().saturating_sub(8))?;
            high.iter()
                .all(|byte| *byte == 0)
                .then(|| low.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)))
        };
        let number = match self {
            Self::Decimal => whole(cell.get(4..)?)?,
            Self::Float => super::keys::cut(f64::from(f32::from_be_bytes(cell.try_into().ok()?))),
            Self::Double => super::keys::cut(f64::from_be_bytes(cell.try_into().ok()?)),
            Self::Date => u64::from(u32::from_be_bytes(cell.try_into().ok()?) ^ EPOCH_DAY),
            Self::Uuid => u64::from_be_bytes(cell.get(8..)?.try_into().ok()?) & ((1 << 62) - 1),
            Self::Timeuuid => {
                let time = u64::from_be_bytes(cell.get(..8)?.try_into().ok()?);
                time >> 32 | (time >> 16 & 0xffff) << 32 | (time & 0xfff) << 48
            }
            Self::Duration => {
                let [months, days, nanoseconds] = *cell else { return None };
                [(nanoseconds, 9), (days, 4), (months, 0)]
                    .iter()
                    .fold(0, |number, (part, shift)| number | u64::from(part / 2) << shift)
            }
            Self::Text { prefix, .. } => {
                let digits = std::str::from_utf8(cell).ok()?.strip_prefix(&**prefix)?;
                digits.parse().ok()?
            }
            _ => whole(cell)?,
        };
        // Each number has exactly one value; another value of the same number belongs to no row.
        let mut same = Comparison::with(cell);
        self.put(number, &mut same);
        same.is_same().then_some(number)
    }
}

/// Returns a number with a byte for its sign.
fn wide(number: u64) -> [u8; 9] {
    let mut bytes = [0; 9];
    bytes[1..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Returns two's complement without redundant leading bytes.
fn shortest(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let [0, second, ..] = rest
        && *second < 0x80
    {
        rest = &rest[1..];
    }
    rest
}

/// Returns a UUID of version 4 with the number in its last 62 bits.
fn uuid(number: u64) -> [u8; 16] {
    let high = tare_std::rng::mix64(number) & !0xf000 | 0x4000;
    let low = number & ((1 << 62) - 1) | 1 << 63;
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

/// Returns a UUID of version 1 with the number as its time in steps of 100 ns.
fn timeuuid(number: u64) -> [u8; 16] {
    let (low, middle, high) = (number << 32, (number >> 32 & 0xffff) << 16, number >> 48 & 0xfff);
    let time = low | middle | 0x1000 | high;
    (u128::from(time) << 64 | 0x8000_0000_0000_0001).to_be_bytes()
}

/// Appends decimal digits with leading zeros, `digits` of them.
fn put_digits(number: u64, digits: usize, out: &mut impl Sink) {
    let mut text = [b'0'; 20];
    let mut rest = number;
    for place in text.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *place = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
    out.repeat(b'0', digits.saturating_sub(20));
    out.bytes(&text[20usize.saturating_sub(digits)..]);
}

#[cfg(test)]
mod tests;
