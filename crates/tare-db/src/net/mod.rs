//! Connections: the reactor that carries out I/O, the sessions that speak CQL's native protocol,
//! TLS, compression and logins.

pub(crate) mod access;
pub mod auth;
pub(crate) mod balancer;
pub(crate) mod reactor;
pub(crate) mod session;
pub(crate) mod tls;
pub(crate) mod transport;
