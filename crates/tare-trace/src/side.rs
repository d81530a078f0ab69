//! The two sides of a connection.

/// The sender of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client = 0,
    Server = 1,
}
