//! Connections: the reactor that carries out I/O, the sessions that speak CQL's native protocol,
//! TLS, compression and logins.

pub mod auth;
pub(crate) mod balance;
pub(crate) mod guard;
pub(crate) mod reactor;
pub(crate) mod session;
pub(crate) mod tls;
pub(crate) mod transport;
