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
//! A client encodes a request, a server decodes it, and the answer goes back the same way:
//!
//! ```
//! use tare_cql::frame::{self, Direction};
//! use tare_cql::request::{self, Request, Settings};
//! use tare_cql::response::{self, Response};
//!
//! let mut sent = Vec::new();
//! request::encode_query(&mut sent, 7, "SELECT k FROM ks.t", &Settings::DEFAULT, &[]);
//!
//! let (frame, length) = frame::decode(&sent, Direction::Request, 1 << 20)?.expect("a frame");
//! assert_eq!((frame.stream, length), (7, sent.len()));
//! let request = Request::decode(&frame)?;
//! assert!(matches!(request, Request::Query { statement: "SELECT k FROM ks.t", .. }));
//!
//! let mut answer = Vec::new();
//! response::encode_void(&mut answer, frame.stream);
//! let (frame, _) = frame::decode(&answer, Direction::Response, 1 << 20)?.expect("a whole frame");
//! assert!(matches!(Response::decode(&frame)?, Response::Void));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! **Invariant:** no code here reads a clock, a file or a socket, and no input makes it panic.

pub mod frame;
pub mod framing;
mod opcode;
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
