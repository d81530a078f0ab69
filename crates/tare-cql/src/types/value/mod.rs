//! Values: validates those of clients, prints those of tables, and encodes those of statements
//! (section 6 of the specification).

use super::Type;
use crate::wire::Reader;
use std::fmt;
use std::net::IpAddr;

mod duration;
mod literal;
mod number;
#[cfg(test)]
mod tests;
mod time;

pub use duration::Duration;
pub use literal::Literal;
pub use number::{varint_digits, varint_of_digits};

/// Why bytes or a literal are no value of a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("expected {expected} bytes for a value of type {kind}, got {length}")]
    Length { kind: Type, expected: &'static str, length: usize },
    #[error("the bytes are no value of type {kind}")]
    Content { kind: Type },
    #[error("invalid {literal} constant for a value of type {kind}")]
    Literal { kind: Type, literal: &'static str },
    #[error("{value} is out of range for type {kind}")]
    Range { kind: Type, value: i128 },
    #[error("unable to read '{text}' as {kind}")]
    Text { kind: Type, text: String },
    #[error("null is not supported inside collections")]
    NullInside,
}

impl Type {
    /// Checks that bytes are a value of this type. As in Cassandra, empty bytes are a value of
    /// every type except collections, date, time, smallint and tinyint.
    #[inline]
    pub fn validate(&self, bytes: &[u8]) -> Result<(), ValueError> {
        match self {
            Self::Blob | Self::Custom(_) => Ok(()),
            Self::Text => match std::str::from_utf8(bytes) {
                Ok(_) => Ok(()),
                Err(_) => Err(self.content()),
            },
            Self::Ascii if bytes.is_ascii() => Ok(()),
            Self::Ascii => Err(self.content()),
            Self::Smallint => self.length(bytes, "2", bytes.len() == 2),
            Self::Tinyint => self.length(bytes, "1", bytes.len() == 1),
            Self::Date => self.length(bytes, "4", bytes.len() == 4),
            Self::Time => {
                let Ok(nanoseconds) = bytes.try_into().map(i64::from_be_bytes) else {
                    return self.length(bytes, "8", false);
                };
                if (0..86_400_000_000_000).contains(&nanoseconds) {
                    Ok(())
                } else {
                    Err(self.content())
                }
            }
            Self::List(_) | Self::Set(_) | Self::Map(..) | Self::Tuple(_) => self.check(bytes),
            Self::Frozen(within) => within.validate(bytes),
            _ if bytes.is_empty() => Ok(()),
            Self::Bigint | Self::Counter | Self::Double | Self::Timestamp => {
                self.length(bytes, "8 or 0", bytes.len() == 8)
            }
            Self::Int | Self::Float => self.length(bytes, "4 or 0", bytes.len() == 4),
            Self::Boolean => self.length(bytes, "1 or 0", bytes.len() == 1),
            Self::Uuid => self.length(bytes, "16 or 0", bytes.len() == 16),
            Self::Timeuuid => {
                self.length(bytes, "16 or 0", bytes.len() == 16)?;
                if bytes[6] >> 4 == 1 { Ok(()) } else { Err(self.content()) }
            }
            Self::Inet => self.length(bytes, "4, 16 or 0", matches!(bytes.len(), 4 | 16)),
            Self::Decimal => self.length(bytes, "at least 5", bytes.len() > 4),
            Self::Duration => self.length(bytes, "at least 3", bytes.len() > 2),
            Self::Varint => Ok(()),
        }
    }

    #[cold]
    fn content(&self) -> ValueError {
        ValueError::Content { kind: self.clone() }
    }

    #[inline]
    fn length(&self, bytes: &[u8], expected: &'static str, fits: bool) -> Result<(), ValueError> {
        if fits {
            Ok(())
        } else {
            Err(ValueError::Length { kind: self.clone(), expected, length: bytes.len() })
        }
    }

    /// Collections and tuples: a count and `[bytes]` for each part. A tuple has no count and may
    /// end early.
    fn check(&self, bytes: &[u8]) -> Result<(), ValueError> {
        let mut reader = Reader::new(bytes);
        let content = |_| self.content();
        if let Self::Tuple(fields) = self {
            for field in fields {
                if reader.rest().is_empty() {
                    break;
                }
                if let Some(bytes) = reader.bytes("field").map_err(content)? {
                    field.validate(bytes)?;
                }
            }
            return reader.end().map_err(content);
        }
        for _ in 0..reader.count("number of parts").map_err(content)? {
            for kind in self.part_types() {
                match reader.bytes("part of a value").map_err(content)? {
                    Some(bytes) => kind.validate(bytes)?,
                    None => return Err(ValueError::NullInside),
                }
            }
        }
        reader.end().map_err(content)
    }

    /// The parts of a valid value, each with its type: the elements of a list or set, keys and
    /// values of a map in turn, the fields of a tuple. Only a field can be null. A scalar has none.
    pub fn parts<'t, 'v>(&'t self, bytes: &'v [u8]) -> Vec<(&'t Type, Option<&'v [u8]>)> {
        let kind = self.unfrozen();
        let mut reader = Reader::new(bytes);
        if let Self::Tuple(fields) = kind {
            let mut part = || reader.bytes("field").ok().flatten();
            return fields.iter().map(|field| (field, part())).collect();
        }
        let mut parts = Vec::new();
        if kind.is_multi_cell() {
            for _ in 0..reader.count("number of parts").unwrap_or(0) {
                for kind in kind.part_types() {
                    parts.push((kind, reader.bytes("part").ok().flatten()));
                }
            }
        }
        parts
    }

    /// The types of one element: key and value of a map.
    fn part_types(&self) -> impl Iterator<Item = &Type> {
        let (first, second): (Option<&Type>, Option<&Type>) = match self {
            Self::List(element) | Self::Set(element) => (Some(element), None),
            Self::Map(key, value) => (Some(key), Some(value)),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The value as a CQL literal; bytes that are no value of the type print as a blob.
    ///
    /// ```
    /// use tare_cql::types::Type;
    ///
    /// let numbers = Type::Set(Box::new(Type::Int));
    /// let bytes = [0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 42];
    /// numbers.validate(&bytes)?;
    /// assert_eq!(numbers.print(&bytes).to_string(), "{42}");
    /// assert_eq!(Type::Int.print(&[1, 2]).to_string(), "0x0102");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn print<'a>(&'a self, bytes: &'a [u8]) -> impl fmt::Display + use<'a> {
        fmt::from_fn(move |f| {
            if self.validate(bytes).is_err() {
                return write_blob(f, bytes);
            }
            self.write(f, bytes)
        })
    }

    /// Prints validated bytes.
    fn write(&self, f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
        match self {
            Self::Ascii | Self::Text => {
                write!(f, "'{}'", String::from_utf8_lossy(bytes).replace('\'', "''"))
            }
            Self::Frozen(within) => within.write(f, bytes),
            Self::List(_) | Self::Set(_) | Self::Map(..) | Self::Tuple(_) => {
                self.write_parts(f, bytes)
            }
            Self::Blob | Self::Custom(_) | Self::Decimal | Self::Duration => write_blob(f, bytes),
            // Cassandra's own tools print nothing here, which is easy to overlook.
            _ if bytes.is_empty() => f.write_str("''"),
            Self::Bigint | Self::Counter | Self::Int | Self::Smallint | Self::Tinyint => {
                write!(f, "{}", signed(bytes))
            }
            Self::Varint if bytes.len() <= 16 => write!(f, "{}", signed(bytes)),
            Self::Varint => f.write_str(&varint_digits(bytes)),
            Self::Timestamp => time::write_timestamp(f, low_i64(bytes)),
            Self::Date => time::write_date(f, low_i64(bytes) & 0xffff_ffff),
            Self::Time => time::write_time(f, low_i64(bytes)),
            Self::Boolean => write!(f, "{}", bytes != [0]),
            Self::Double => {
                let bytes = bytes.try_into().unwrap_or_default();
                write_float(f, f64::from_be_bytes(bytes))
            }
            Self::Float => {
                let value = f32::from_be_bytes(bytes.try_into().unwrap_or_default());
                // Through the shortest text, because 0.1 would become 0.10000000149011612.
                write_float(f, value.to_string().parse().unwrap_or(f64::from(value)))
            }
            Self::Inet => match bytes {
                &[a, b, c, d] => write!(f, "'{}'", IpAddr::from([a, b, c, d])),
                rest => {
                    let octets: [u8; 16] = rest.try_into().unwrap_or_default();
                    write!(f, "'{}'", IpAddr::from(octets))
                }
            },
            Self::Uuid | Self::Timeuuid => {
                for (position, byte) in bytes.iter().enumerate() {
                    let dash = if matches!(position, 4 | 6 | 8 | 10) { "-" } else { "" };
                    write!(f, "{dash}{byte:02x}")?;
                }
                Ok(())
            }
        }
    }

    fn write_parts(&self, f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
        let (open, close) = match self {
            Self::List(_) => ("[", "]"),
            Self::Tuple(_) => ("(", ")"),
            _ => ("{", "}"),
        };
        f.write_str(open)?;
        let mut reader = Reader::new(bytes);
        if let Self::Tuple(fields) = self {
            for (position, field) in fields.iter().enumerate() {
                let Ok(part) = reader.bytes("field") else { break };
                f.write_str(if position == 0 { "" } else { ", " })?;
                match part {
                    Some(part) => field.write(f, part)?,
                    None => f.write_str("null")?,
                }
            }
            return f.write_str(close);
        }
        for position in 0..reader.count("number of parts").unwrap_or(0) {
            f.write_str(if position == 0 { "" } else { ", " })?;
            for (place, kind) in self.part_types().enumerate() {
                f.write_str(if place == 0 { "" } else { ": " })?;
                kind.write(f, reader.bytes("part").ok().flatten().unwrap_or_default())?;
            }
        }
        f.write_str(close)
    }
}

fn write_blob(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_str("0x")?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn write_float(f: &mut fmt::Formatter<'_>, value: f64) -> fmt::Result {
    if value.is_nan() {
        f.write_str("NaN")
    } else if value.is_infinite() {
        f.write_str(if value > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        write!(f, "{value:?}")
    }
}

/// A big-endian two's complement number of 1 to 16 bytes.
fn signed(bytes: &[u8]) -> i128 {
    let sign = if bytes.first().is_some_and(|byte| *byte >= 0x80) { -1 } else { 0 };
    bytes.iter().fold(sign, |value, byte| value << 8 | i128::from(*byte))
}

fn low_i64(bytes: &[u8]) -> i64 {
    i64::try_from(signed(bytes)).unwrap_or_default()
}

/// The two's complement without leading bytes that only repeat the sign.
fn shortest(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let [first, second, ..] = rest
        && ((*first == 0 && *second < 0x80) || (*first == 0xff && *second >= 0x80))
    {
        rest = &rest[1..];
    }
    rest
}
