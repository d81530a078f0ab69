//! Connections: the reactor that carries out I/O, the transport of messages, TLS, compression and
//! the users who may log in.

pub mod auth;
pub(crate) mod balancer;
pub(crate) mod reactor;
pub(crate) mod tls;
pub(crate) mod transport;
pub(crate) mod wakeup;
