//! Column types: their names in CQL, their options on the wire (section 4.2.5.2), validation and
//! printing of their values (section 6).

mod value;

pub use value::{Duration, Literal, ValueError, varint_digits, varint_of_digits};

use crate::frame::Version;
use crate::wire::{DecodeError, Reader, put_short, put_string};
use std::fmt;

/// Levels of nested types that are decoded; Cassandra's own tables need three.
const NESTING_MAX: usize = 16;

/// The type of a column or of a bind marker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    Ascii,
    Bigint,
    Blob,
    Boolean,
    Counter,
    Date,
    Decimal,
    Double,
    Duration,
    Float,
    Inet,
    Int,
    Smallint,
    Text,
    Time,
    Timestamp,
    Timeuuid,
    Tinyint,
    Uuid,
    Varint,
    List(Box<Type>),
    Set(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Tuple(Vec<Type>),
    /// A collection that is written and read as a whole. The wire format does not distinguish it
    /// from the inner type.
    Frozen(Box<Type>),
    /// A type that is known only by the name of its Java class.
    Custom(String),
}

/// Scalar types with their names and their codes on the wire.
const SCALARS: [(&str, u16, Type); 20] = [
    ("ascii", 0x0001, Type::Ascii),
    ("bigint", 0x0002, Type::Bigint),
    ("blob", 0x0003, Type::Blob),
    ("boolean", 0x0004, Type::Boolean),
    ("counter", 0x0005, Type::Counter),
    ("decimal", 0x0006, Type::Decimal),
    ("double", 0x0007, Type::Double),
    ("float", 0x0008, Type::Float),
    ("int", 0x0009, Type::Int),
    ("timestamp", 0x000b, Type::Timestamp),
    ("uuid", 0x000c, Type::Uuid),
    ("text", 0x000d, Type::Text),
    ("varint", 0x000e, Type::Varint),
    ("timeuuid", 0x000f, Type::Timeuuid),
    ("inet", 0x0010, Type::Inet),
    ("date", 0x0011, Type::Date),
    ("time", 0x0012, Type::Time),
    ("smallint", 0x0013, Type::Smallint),
    ("tinyint", 0x0014, Type::Tinyint),
    ("duration", 0x0015, Type::Duration),
];

const CUSTOM: u16 = 0x0000;
/// Version 3 and earlier sent text with this code; it is still accepted.
const TEXT_OLD: u16 = 0x000a;
const LIST: u16 = 0x0020;
const MAP: u16 = 0x0021;
const SET: u16 = 0x0022;
const UDT: u16 = 0x0030;
const TUPLE: u16 = 0x0031;
/// Version 4 has no code for a duration and names its class.
const DURATION_CLASS: &str = "org.apache.cassandra.db.marshal.DurationType";

impl Type {
    /// The scalar type of this name, without regard to case; `varchar` is another name for `text`.
    pub fn scalar(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("varchar") {
            return Some(Self::Text);
        }
        SCALARS
            .iter()
            .find(|(scalar, ..)| scalar.eq_ignore_ascii_case(name))
            .map(|(.., kind)| kind.clone())
    }

    /// Whether the elements of a column of this type are written and read one by one.
    pub fn is_multi_cell(&self) -> bool {
        matches!(self, Self::List(_) | Self::Set(_) | Self::Map(..))
    }

    /// The type without `frozen<>` around it.
    pub fn unfrozen(&self) -> &Self {
        match self {
            Self::Frozen(within) => within.unfrozen(),
            kind => kind,
        }
    }

    /// Appends the `[option]`.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) {
        match self {
            Self::Duration if version < Version::V5 => {
                put_short(out, CUSTOM);
                put_string(out, DURATION_CLASS);
            }
            Self::List(element) => {
                put_short(out, LIST);
                element.encode(version, out);
            }
            Self::Set(element) => {
                put_short(out, SET);
                element.encode(version, out);
            }
            Self::Map(key, value) => {
                put_short(out, MAP);
                key.encode(version, out);
                value.encode(version, out);
            }
            Self::Tuple(fields) => {
                put_short(out, TUPLE);
                let count = u16::try_from(fields.len()).unwrap_or(u16::MAX);
                put_short(out, count);
                for field in &fields[..usize::from(count)] {
                    field.encode(version, out);
                }
            }
            Self::Frozen(within) => within.encode(version, out),
            Self::Custom(class) => {
                put_short(out, CUSTOM);
                put_string(out, class);
            }
            scalar => {
                let code = SCALARS.iter().find(|(.., kind)| kind == scalar);
                put_short(out, code.map_or(CUSTOM, |(_, code, _)| *code));
            }
        }
    }

    /// Takes an `[option]`. A user-defined type is returned as `Custom` with its CQL name.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::decode_nested(reader, NESTING_MAX)
    }

    fn decode_nested(reader: &mut Reader<'_>, levels: usize) -> Result<Self, DecodeError> {
        let levels = levels.checked_sub(1).ok_or(DecodeError::Nesting { limit: NESTING_MAX })?;
        let nested = |reader: &mut Reader<'_>| Self::decode_nested(reader, levels).map(Box::new);
        Ok(match reader.short("type")? {
            CUSTOM => match reader.string("class of a type")? {
                DURATION_CLASS => Self::Duration,
                class => Self::Custom(class.to_owned()),
            },
            TEXT_OLD => Self::Text,
            LIST => Self::List(nested(reader)?),
            SET => Self::Set(nested(reader)?),
            MAP => Self::Map(nested(reader)?, nested(reader)?),
            TUPLE => {
                let count = reader.short("number of fields")?;
                let mut fields = Vec::new();
                for _ in 0..count {
                    fields.push(Self::decode_nested(reader, levels)?);
                }
                Self::Tuple(fields)
            }
            UDT => {
                let keyspace = reader.string("keyspace of a type")?;
                let name = reader.string("name of a type")?;
                for _ in 0..reader.short("number of fields")? {
                    reader.string("name of a field")?;
                    Self::decode_nested(reader, levels)?;
                }
                Self::Custom(format!("{keyspace}.{name}"))
            }
            code => SCALARS
                .iter()
                .find(|(_, scalar, _)| *scalar == code)
                .map(|(.., kind)| kind.clone())
                .ok_or(DecodeError::Unknown { what: "type", code: u32::from(code) })?,
        })
    }
}

/// The type in the form of CQL and `system_schema.columns`, such as `frozen<map<text, text>>`.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(element) => write!(f, "list<{element}>"),
            Self::Set(element) => write!(f, "set<{element}>"),
            Self::Map(key, value) => write!(f, "map<{key}, {value}>"),
            Self::Frozen(within) => write!(f, "frozen<{within}>"),
            Self::Tuple(fields) => {
                f.write_str("tuple<")?;
                for (position, field) in fields.iter().enumerate() {
                    let comma = if position == 0 { "" } else { ", " };
                    write!(f, "{comma}{field}")?;
                }
                f.write_str(">")
            }
            Self::Custom(class) => write!(f, "'{class}'"),
            scalar => {
                let name = SCALARS.iter().find(|(.., kind)| kind == scalar);
                f.write_str(name.map_or("", |(name, ..)| name))
            }
        }
    }
}
