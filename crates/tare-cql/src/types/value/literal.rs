//! Constants as statements spell them, and their bytes as a value of a column's type.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::number::{decimal, varint_of_digits};
use super::time::{parse_date, parse_time, parse_timestamp};
use super::{Duration, Type, ValueError, shortest};
use crate::wire::{put_bytes, put_count};

/// A constant as written. `Literal::encode` turns it into the bytes of a column's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    Null,
    Boolean(bool),
    Integer(i128),
    /// An integer that does not fit into 128 bits, as written.
    BigInteger(String),
    /// A float as written, because a decimal has digits that a float loses.
    Float(String),
    Duration(Duration),
    Text(String),
    Uuid([u8; 16]),
    Blob(Vec<u8>),
    /// `[a, b]`
    List(Vec<Literal>),
    /// `{a, b}`
    Set(Vec<Literal>),
    /// `{a: b}`; also the empty `{}`, which may be a set as well.
    Map(Vec<(Literal, Literal)>),
    /// `(a, b)`
    Tuple(Vec<Literal>),
}

impl Literal {
    /// The kind of constant, as Cassandra's errors name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Boolean(_) => "BOOLEAN",
            Self::Integer(_) | Self::BigInteger(_) => "INTEGER",
            Self::Float(_) => "FLOAT",
            Self::Duration(_) => "DURATION",
            Self::Text(_) => "STRING",
            Self::Uuid(_) => "UUID",
            Self::Blob(_) => "HEX",
            Self::List(_) => "LIST",
            Self::Set(_) => "SET",
            Self::Map(_) => "MAP",
            Self::Tuple(_) => "TUPLE",
        }
    }

    /// The bytes of this constant as a value of a type; `None` is null.
    pub fn encode(&self, kind: &Type) -> Result<Option<Vec<u8>>, ValueError> {
        if *self == Self::Null {
            return Ok(None);
        }
        let mut out = Vec::new();
        self.encode_into(kind, &mut out).map(|()| Some(out))
    }

    fn encode_into(&self, kind: &Type, out: &mut Vec<u8>) -> Result<(), ValueError> {
        match (self, kind) {
            (_, Type::Frozen(within)) => return self.encode_into(within, out),
            (Self::Null, _) => return Err(ValueError::NullInside),
            (Self::Boolean(value), Type::Boolean) => out.push(u8::from(*value)),
            (Self::Uuid(value), Type::Uuid | Type::Timeuuid) => out.extend_from_slice(value),
            (Self::Blob(value), Type::Blob) => out.extend_from_slice(value),
            (Self::Text(text), _) => return encode_text(text, kind, out),
            (Self::Integer(value), _) => return encode_integer(*value, kind, out),
            (Self::BigInteger(text) | Self::Float(text), Type::Double) => {
                let value: f64 = text.parse().map_err(|_| unreadable(text, kind))?;
                out.extend_from_slice(&value.to_be_bytes());
            }
            (Self::BigInteger(text) | Self::Float(text), Type::Float) => {
                let value: f32 = text.parse().map_err(|_| unreadable(text, kind))?;
                out.extend_from_slice(&value.to_be_bytes());
            }
            (Self::BigInteger(text) | Self::Float(text), Type::Decimal) => {
                let (scale, value) = decimal(text).ok_or_else(|| unreadable(text, kind))?;
                out.extend_from_slice(&scale.to_be_bytes());
                out.extend_from_slice(&value);
            }
            (Self::BigInteger(text), Type::Varint) => {
                let value = varint_of_digits(text).ok_or_else(|| unreadable(text, kind))?;
                out.extend_from_slice(&value);
            }
            (Self::Duration(duration), Type::Duration) => duration.encode(out),
            (Self::List(items), Type::List(element)) | (Self::Set(items), Type::Set(element)) => {
                let mut items = encode_all(items, element)?;
                if matches!(kind, Type::Set(_)) {
                    items.sort();
                    items.dedup();
                }
                put_count(out, items.len());
                items.iter().for_each(|item| put_bytes(out, Some(item)));
            }
            (Self::Map(pairs), Type::Set(_) | Type::Map(..)) if pairs.is_empty() => {
                put_count(out, 0);
            }
            (Self::Map(pairs), Type::Map(key, value)) => {
                let mut sorted = BTreeMap::new();
                for (name, item) in pairs {
                    let mut encoded = (Vec::new(), Vec::new());
                    name.encode_into(key, &mut encoded.0)?;
                    item.encode_into(value, &mut encoded.1)?;
                    sorted.insert(encoded.0, encoded.1);
                }
                put_count(out, sorted.len());
                for (name, item) in &sorted {
                    put_bytes(out, Some(name));
                    put_bytes(out, Some(item));
                }
            }
            (Self::Tuple(items), Type::Tuple(fields)) if items.len() <= fields.len() => {
                for (item, field) in items.iter().zip(fields) {
                    put_bytes(out, item.encode(field)?.as_deref());
                }
            }
            _ => {
                let literal = self.kind();
                return Err(ValueError::Literal { kind: kind.clone(), literal });
            }
        }
        kind.validate(out)
    }
}

fn encode_all(items: &[Literal], kind: &Type) -> Result<Vec<Vec<u8>>, ValueError> {
    items
        .iter()
        .map(|item| {
            let mut encoded = Vec::new();
            item.encode_into(kind, &mut encoded).map(|()| encoded)
        })
        .collect()
}

fn unreadable(text: &str, kind: &Type) -> ValueError {
    ValueError::Text { kind: kind.clone(), text: text.to_owned() }
}

fn encode_text(text: &str, kind: &Type, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let unreadable = || unreadable(text, kind);
    match kind {
        Type::Text => {}
        Type::Ascii if text.is_ascii() => {}
        Type::Inet => {
            match text.parse().map_err(|_| unreadable())? {
                IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
                IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
            }
            return Ok(());
        }
        Type::Timestamp => {
            let milliseconds = parse_timestamp(text).ok_or_else(unreadable)?;
            out.extend_from_slice(&milliseconds.to_be_bytes());
            return Ok(());
        }
        Type::Date => {
            let days = parse_date(text).ok_or_else(unreadable)?;
            out.extend_from_slice(&days.to_be_bytes());
            return Ok(());
        }
        Type::Time => {
            let nanoseconds = parse_time(text).ok_or_else(unreadable)?;
            out.extend_from_slice(&nanoseconds.to_be_bytes());
            return Ok(());
        }
        Type::Ascii => return Err(unreadable()),
        _ => return Err(ValueError::Literal { kind: kind.clone(), literal: "STRING" }),
    }
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn encode_integer(value: i128, kind: &Type, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let range = || ValueError::Range { kind: kind.clone(), value };
    match kind {
        Type::Bigint | Type::Counter | Type::Timestamp | Type::Time => {
            let value = i64::try_from(value).map_err(|_| range())?;
            out.extend_from_slice(&value.to_be_bytes());
            return kind.validate(out).map_err(|_| range());
        }
        Type::Int => {
            out.extend_from_slice(&i32::try_from(value).map_err(|_| range())?.to_be_bytes());
        }
        Type::Date => {
            out.extend_from_slice(&u32::try_from(value).map_err(|_| range())?.to_be_bytes());
        }
        Type::Smallint => {
            out.extend_from_slice(&i16::try_from(value).map_err(|_| range())?.to_be_bytes());
        }
        Type::Tinyint => {
            out.extend_from_slice(&i8::try_from(value).map_err(|_| range())?.to_be_bytes());
        }
        Type::Varint => out.extend_from_slice(shortest(&value.to_be_bytes())),
        #[expect(clippy::cast_precision_loss, reason = "rounded, as Cassandra does")]
        Type::Double => out.extend_from_slice(&(value as f64).to_be_bytes()),
        #[expect(clippy::cast_precision_loss, reason = "rounded, as Cassandra does")]
        Type::Float => out.extend_from_slice(&(value as f32).to_be_bytes()),
        Type::Decimal => {
            // A scale of 0, then the number.
            put_count(out, 0);
            out.extend_from_slice(shortest(&value.to_be_bytes()));
        }
        _ => return Err(ValueError::Literal { kind: kind.clone(), literal: "INTEGER" }),
    }
    Ok(())
}
