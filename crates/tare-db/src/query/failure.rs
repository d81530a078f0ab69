//! The errors that a client receives when its request fails.

use tare_cql::frame::Head;
use tare_cql::response::{ErrorKind, encode_error};
use tare_cql::wire::Consistency;
use tare_store::{LogError, ReadError, WriteError};

/// A failed request; the kinds are those of the protocol (section 9 of its specification).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Syntax(String),
    Invalid(String),
    Protocol(String),
    Overloaded(String),
    Server(String),
    BadCredentials(String),
    /// The options of a keyspace or table are invalid.
    Config(String),
    Unauthorized(String),
    /// The consistency level needs more replicas than are alive.
    Unavailable {
        consistency: Consistency,
        required: i32,
        alive: i32,
    },
    Unprepared([u8; 16]),
    AlreadyExists {
        keyspace: String,
        table: String,
    },
}

impl Failure {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// Appends the error frame.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, head: impl Into<Head>) {
        let head = head.into();
        let (kind, message) = match self {
            Self::Syntax(message) => (ErrorKind::Syntax, message.as_str()),
            Self::Invalid(message) => (ErrorKind::Invalid, message.as_str()),
            Self::Protocol(message) => (ErrorKind::Protocol, message.as_str()),
            Self::Overloaded(message) => (ErrorKind::Overloaded, message.as_str()),
            Self::Server(message) => (ErrorKind::Server, message.as_str()),
            Self::BadCredentials(message) => (ErrorKind::BadCredentials, message.as_str()),
            Self::Config(message) => (ErrorKind::Config, message.as_str()),
            Self::Unauthorized(message) => (ErrorKind::Unauthorized, message.as_str()),
            Self::Unavailable { consistency, required, alive } => {
                let (consistency, required, alive) = (*consistency, *required, *alive);
                let kind = ErrorKind::Unavailable { consistency, required, alive };
                let message = format!("Cannot achieve consistency level {}", consistency.name());
                return encode_error(out, head, &kind, &message);
            }
            Self::Unprepared(id) => {
                (ErrorKind::Unprepared { id }, "no statement of this id is prepared; prepare it")
            }
            Self::AlreadyExists { keyspace, table } => {
                // Some clients look for these words of Cassandra.
                let message = match table.as_str() {
                    "" => format!("Cannot add existing keyspace \"{keyspace}\""),
                    table => format!(
                        "Cannot add already existing table \"{table}\" to keyspace \"{keyspace}\""
                    ),
                };
                let kind = ErrorKind::AlreadyExists { keyspace, table };
                return encode_error(out, head, &kind, &message);
            }
        };
        encode_error(out, head, &kind, message);
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        let message = error.to_string();
        match error {
            WriteError::MemoryFull { .. } | WriteError::Log(LogError::Behind { .. }) => {
                Self::Overloaded(message)
            }
            WriteError::KeyTooLong { .. } => Self::Invalid(message),
            WriteError::Log(_) => Self::Server(message),
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Server(tare_std::error_line(&error))
    }
}
