//! Protocols from the client's side: sockets, TLS and frames, connections, the nodes of a cluster,
//! and what requests and answers mean. CQL everywhere, and keys and values in `key_value`.

pub(crate) mod answer;
pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod kernel_times;
pub(crate) mod key_value;
pub(crate) mod prepared;
pub(crate) mod request;
pub(crate) mod sharding;
pub(crate) mod tls;
pub(crate) mod wire;
