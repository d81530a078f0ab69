//! Redis's protocol: the messages of a connection.

pub(crate) mod connection;
mod protocol;

pub(crate) use protocol::Answer;
