#![forbid(unsafe_code)]
//! CQL without I/O: the native protocol, versions 4 and 5 (`frame`, `request`, `response`), the
//! transport of its messages (`framing`, `segment`, `tls`), its values (`types`, `token`), its
//! statements (`statement`), and the system tables that drivers expect (`system_schema`).
//!
//! Server and client use the same codec. Decoders borrow from the received bytes, encoders append
//! to a `Vec<u8>` of the caller; neither allocates for the messages of the hot path (EXECUTE,
//! RESULT Void and Rows). The source for every layout is Cassandra's `doc/native_protocol_v4.spec`
//! and `native_protocol_v5.spec`.
//!
//! **Invariant:** no code here reads a clock, a file or a socket, and no input makes it panic.

pub mod frame;
pub mod framing;
pub mod request;
pub mod response;
pub mod segment;
pub mod statement;
pub mod system_schema;
pub mod tls;
pub mod token;
pub mod types;
pub mod wire;

#[cfg(test)]
mod tests;

/// The version of CQL that the server announces in SUPPORTED and `system.local`.
pub const CQL_VERSION: &str = "3.4.5";
