//! An answer to a request, in any of the protocols.

use tare_cql::frame::Frame;

use crate::protocol::key_value;

/// An answer to a request.
#[derive(Debug)]
pub(crate) enum Answer<'a> {
    Cql(Frame<'a>),
    KeyValue(key_value::Answer<'a>),
}
