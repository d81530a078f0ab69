//! ERROR (section 9 of the specification): a code, a message, and for some codes a body.

use super::begin;
use crate::frame::Opcode;
use crate::wire::{
    Consistency, DecodeError, Reader, put_byte, put_int, put_short, put_short_bytes, put_string,
    put_string_list,
};

/// What went wrong, with what the protocol tells about it.
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
        failures: i32,
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
        failures: i32,
        write_type: &'a str,
    },
    Syntax,
    Unauthorized,
    Invalid,
    Config,
    /// `table` is empty where the keyspace exists.
    AlreadyExists {
        keyspace: &'a str,
        table: &'a str,
    },
    Unprepared {
        id: &'a [u8],
    },
    /// A code that version 4 does not define.
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
            Self::Syntax => 0x2000,
            Self::Unauthorized => 0x2100,
            Self::Invalid => 0x2200,
            Self::Config => 0x2300,
            Self::AlreadyExists { .. } => 0x2400,
            Self::Unprepared { .. } => 0x2500,
            Self::Unknown { code } => *code,
        }
    }

    fn decode(code: i32, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
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
            0x1100 => Self::WriteTimeout {
                consistency: reader.consistency()?,
                received: reader.int("received answers")?,
                required: reader.int("required answers")?,
                write_type: reader.string("write type")?,
            },
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
                failures: reader.int("failures")?,
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
                failures: reader.int("failures")?,
                write_type: reader.string("write type")?,
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

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Unavailable { consistency, required, alive } => {
                put_short(out, *consistency as u16);
                put_int(out, *required);
                put_int(out, *alive);
            }
            Self::WriteTimeout { consistency, received, required, write_type } => {
                put_short(out, *consistency as u16);
                put_int(out, *received);
                put_int(out, *required);
                put_string(out, write_type);
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
                put_int(out, *failures);
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
                put_int(out, *failures);
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
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let code = reader.int("error code")?;
        let message = reader.string("error message")?;
        Ok(Self { kind: ErrorKind::decode(code, reader)?, message })
    }
}

/// Appends ERROR. The message is for people.
pub fn encode_error(out: &mut Vec<u8>, stream: i16, kind: &ErrorKind<'_>, message: &str) {
    let start = begin(out, stream, Opcode::Error);
    put_int(out, kind.code());
    put_string(out, message);
    kind.encode(out);
    start.finish(out);
}
