//! The server or the client of the exchange that [`crate::kernel`] measures.

use std::net::TcpStream;
use std::time::Instant;

/// One side of all connections.
pub(crate) struct Side {
    pub(crate) streams: Vec<TcpStream>,
    /// Bytes of each message that it sends, and of each that it receives.
    pub(crate) send: usize,
    pub(crate) expect: usize,
    /// A client ends then; a server when its connections are closed.
    pub(crate) end: Option<Instant>,
}

impl Side {
    pub(crate) fn is_client(&self) -> bool {
        self.end.is_some()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }
}
