//! ERROR (section 9 of the specification): a code, a message, and for some codes a body.

use std::net::IpAddr;

use super::begin;
use crate::frame::{FrameError, Head, Opcode, Version};
use crate::wire::{
    Consistency, DecodeError, Reader, put_byte, put_count, put_inet_address, put_int, put_short,
    put_short_bytes, put_string, put_string_list,
};

/// The replicas that failed. Version 4 has their number, version 5 their addresses and reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failures {
    Count(i32),
    Reasons(Vec<(IpAddr, u16)>),
}

impl Failures {
    fn decode(reader: &mut Reader<'_>, version: Version) -> Result<Self, DecodeError> {
        if version < Version::V5 {
            return reader.int("failures").map(Self::Count);
        }
        let mut reasons = Vec::new();
        for _ in 0..reader.count("number of failures")? {
            reasons.push((reader.inet_address("replica")?, reader.short("reason")?));
        }
        Ok(Self::Reasons(reasons))
    }

    fn encode(&self, out: &mut Vec<u8>, version: Version) {
        match self {
            Self::Count(count) if version < Version::V5 => put_int(out, *count),
            Self::Count(_) => put_int(out, 0),
            Self::Reasons(reasons) => {
                put_count(out, reasons.len());
                for (replica, reason) in reasons.iter().filter(|_| version >= Version::V5) {
                    put_inet_address(out, *replica);
                    put_short(out, *reason);
                }
            }
        }
    }
}

/// The kind of an error, with the details that the protocol has for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind<'a> {
    Server,
    Protocol,
    BadCredentials,
    Unavailable {
        consistency: Consistency,
        required: i32,
        alive: i32,
    },
    Overloaded,
    Bootstrapping,
    Truncate,
    WriteTimeout {
        consistency: Consistency,
        received: i32,
        required: i32,
        write_type: &'a str,
        /// Version 5, if the write type is `CAS`: the number of contentions.
        contentions: Option<u16>,
    },
    ReadTimeout {
        consistency: Consistency,
        received: i32,
        required: i32,
        data_present: bool,
    },
    ReadFailure {
        consistency: Consistency,
        received: i32,
        required: i32,
        failures: Failures,
        data_present: bool,
    },
    FunctionFailure {
        keyspace: &'a str,
        function: &'a str,
        arguments: Vec<&'a str>,
    },
    WriteFailure {
        consistency: Consistency,
        received: i32,
        required: i32,
        failures: Failures,
        write_type: &'a str,
    },
    /// Version 5: writing to change data capture has failed.
    CdcWriteFailure,
    /// Version 5: a conditional write that may or may not have happened.
    CasWriteUnknown {
        consistency: Consistency,
        received: i32,
        required: i32,
    },
    Syntax,
    Unauthorized,
    Invalid,
    Config,
    /// `table` is empty if the keyspace exists already.
    AlreadyExists {
        keyspace: &'a str,
        table: &'a str,
    },
    Unprepared {
        id: &'a [u8],
    },
    /// A code that neither version defines.
    Unknown {
        code: i32,
    },
}

impl<'a> ErrorKind<'a> {
    /// The code on the wire.
    pub fn code(&self) -> i32 {
        match self {
            Self::Server => 0x0000,
            Self::Protocol => 0x000a,
            Self::BadCredentials => 0x0100,
            Self::Unavailable { .. } => 0x1000,
            Self::Overloaded => 0x1001,
            Self::Bootstrapping => 0x1002,
            Self::Truncate => 0x1003,
            Self::WriteTimeout { .. } => 0x1100,
            Self::ReadTimeout { .. } => 0x1200,
            Self::ReadFailure { .. } => 0x1300,
            Self::FunctionFailure { .. } => 0x1400,
            Self::WriteFailure { .. } => 0x1500,
            Self::CdcWriteFailure => 0x1600,
            Self::CasWriteUnknown { .. } => 0x1700,
            Self::Syntax => 0x2000,
            Self::Unauthorized => 0x2100,
            Self::Invalid => 0x2200,
            Self::Config => 0x2300,
            Self::AlreadyExists { .. } => 0x2400,
            Self::Unprepared { .. } => 0x2500,
            Self::Unknown { code } => *code,
        }
    }

    fn decode(code: i32, reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        Ok(match code {
            0x0000 => Self::Server,
            0x000a => Self::Protocol,
            0x0100 => Self::BadCredentials,
            0x1000 => Self::Unavailable {
                consistency: reader.consistency()?,
                required: reader.int("required replicas")?,
                alive: reader.int("alive replicas")?,
            },
            0x1001 => Self::Overloaded,
            0x1002 => Self::Bootstrapping,
            0x1003 => Self::Truncate,
            0x1100 => {
                let consistency = reader.consistency()?;
                let received = reader.int("received answers")?;
                let required = reader.int("required answers")?;
                let write_type = reader.string("write type")?;
                let counted = version >= Version::V5 && write_type == "CAS";
                let contentions = if counted { Some(reader.short("contentions")?) } else { None };
                Self::WriteTimeout { consistency, received, required, write_type, contentions }
            }
            0x1200 => Self::ReadTimeout {
                consistency: reader.consistency()?,
                received: reader.int("received answers")?,
                required: reader.int("required answers")?,
                data_present: reader.byte("data present")? != 0,
            },
            0x1300 => Self::ReadFailure {
                consistency: reader.consistency()?,
                received: reader.int("received answers")?,
                required: reader.int("required answers")?,
                failures: Failures::decode(reader, version)?,
                data_present: reader.byte("data present")? != 0,
            },
            0x1400 => Self::FunctionFailure {
                keyspace: reader.string("keyspace")?,
                function: reader.string("function")?,
                arguments: reader.string_list("argument types")?.collect(),
            },
            0x1500 => Self::WriteFailure {
                consistency: reader.consistency()?,
                received: reader.int("received answers")?,
                required: reader.int("required answers")?,
                failures: Failures::decode(reader, version)?,
                write_type: reader.string("write type")?,
            },
            0x1600 => Self::CdcWriteFailure,
            0x1700 => Self::CasWriteUnknown {
                consistency: reader.consistency()?,
                received: reader.int("received answers")?,
                required: reader.int("required answers")?,
            },
            0x2000 => Self::Syntax,
            0x2100 => Self::Unauthorized,
            0x2200 => Self::Invalid,
            0x2300 => Self::Config,
            0x2400 => Self::AlreadyExists {
                keyspace: reader.string("keyspace")?,
                table: reader.string("table")?,
            },
            0x2500 => Self::Unprepared { id: reader.short_bytes("id of the prepared statement")? },
            code => Self::Unknown { code },
        })
    }

    fn encode(&self, out: &mut Vec<u8>, version: Version) {
        match self {
            Self::Unavailable { consistency, required, alive } => {
                put_short(out, *consistency as u16);
                put_int(out, *required);
                put_int(out, *alive);
            }
            Self::WriteTimeout { consistency, received, required, write_type, contentions } => {
                put_short(out, *consistency as u16);
                put_int(out, *received);
                put_int(out, *required);
                put_string(out, write_type);
                if version >= Version::V5 && *write_type == "CAS" {
                    put_short(out, contentions.unwrap_or(0));
                }
            }
            Self::CasWriteUnknown { consistency, received, required } => {
                put_short(out, *consistency as u16);
                put_int(out, *received);
                put_int(out, *required);
            }
            Self::ReadTimeout { consistency, received, required, data_present } => {
                put_short(out, *consistency as u16);
                put_int(out, *received);
                put_int(out, *required);
                put_byte(out, u8::from(*data_present));
            }
            Self::ReadFailure { consistency, received, required, failures, data_present } => {
                put_short(out, *consistency as u16);
                put_int(out, *received);
                put_int(out, *required);
                failures.encode(out, version);
                put_byte(out, u8::from(*data_present));
            }
            Self::FunctionFailure { keyspace, function, arguments } => {
                put_string(out, keyspace);
                put_string(out, function);
                put_string_list(out, arguments);
            }
            Self::WriteFailure { consistency, received, required, failures, write_type } => {
                put_short(out, *consistency as u16);
                put_int(out, *received);
                put_int(out, *required);
                failures.encode(out, version);
                put_string(out, write_type);
            }
            Self::AlreadyExists { keyspace, table } => {
                put_string(out, keyspace);
                put_string(out, table);
            }
            Self::Unprepared { id } => put_short_bytes(out, id),
            Self::Server
            | Self::Protocol
            | Self::BadCredentials
            | Self::Overloaded
            | Self::Bootstrapping
            | Self::Truncate
            | Self::CdcWriteFailure
            | Self::Syntax
            | Self::Unauthorized
            | Self::Invalid
            | Self::Config
            | Self::Unknown { .. } => {}
        }
    }
}

/// The body of ERROR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorBody<'a> {
    pub kind: ErrorKind<'a>,
    pub message: &'a str,
}

impl<'a> ErrorBody<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        let code = reader.int("error code")?;
        let message = reader.string("error message")?;
        Ok(Self { kind: ErrorKind::decode(code, reader, version)?, message })
    }
}

/// Appends ERROR. The message is for people.
pub fn encode_error(out: &mut Vec<u8>, head: impl Into<Head>, kind: &ErrorKind<'_>, message: &str) {
    let head = head.into();
    let start = begin(out, head, Opcode::Error);
    put_int(out, kind.code());
    put_string(out, message);
    kind.encode(out, head.version);
    start.finish(out);
}

impl FrameError {
    /// Appends the protocol error for the client, on a connection that speaks `version`. An unknown
    /// version is answered in the nearest known one, because a peer that knows a version knows the
    /// adjacent ones.
    pub fn answer(&self, version: Version, out: &mut Vec<u8>) {
        let version = match *self {
            Self::Version { version, .. } if version > Version::V5 as u8 => Version::V5,
            Self::Version { .. } => Version::V4,
            _ => version,
        };
        let head = Head { version, stream: self.stream() };
        encode_error(out, head, &ErrorKind::Protocol, &self.to_string());
    }
}
