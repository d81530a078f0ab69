#![forbid(unsafe_code)]
//! CQL without I/O: the native protocol, version 4 (`frame`, `request`, `response`), the values it
//! carries (`types`, `token`), the statements it is asked (`statement`) and what drivers expect to
//! find in the system tables (`system_schema`).
//!
//! Server and client stand on the same codec. Decoders borrow from the bytes received, encoders
//! append to a `Vec<u8>` of the caller; neither allocates for the messages of the hot path
//! (EXECUTE, RESULT Void and Rows). The source for every layout is Cassandra's
//! `doc/native_protocol_v4.spec`.
//!
//! **Invariant:** nothing here reads a clock, a file or a socket, and no input makes it panic.

pub mod frame;
pub mod request;
pub mod response;
pub mod statement;
pub mod system_schema;
pub mod token;
pub mod types;
pub mod wire;

#[cfg(test)]
mod tests;

/// The version of the native protocol that this crate speaks.
pub const PROTOCOL_VERSION: u8 = 4;
/// The version of CQL that the server announces in SUPPORTED and `system.local`.
pub const CQL_VERSION: &str = "3.4.5";
