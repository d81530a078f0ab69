//! The times of a write.

use tare_store::cells::Content;

/// The times of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteTime {
    /// Timestamp of its cells, in microseconds or whatever the client chose.
    pub(crate) timestamp: i64,
    /// Seconds since the Unix epoch.
    pub(crate) now_s: u32,
    /// Seconds to live; 0 means for ever.
    pub(crate) ttl_s: u32,
}

impl WriteTime {
    /// The content of a cell with a value.
    #[inline]
    pub(crate) fn content<'v>(&self, value: &'v [u8]) -> Content<'v> {
        match self.ttl_s {
            0 => Content::Live(value),
            ttl_s => {
                let expires_s = self.now_s.saturating_add(ttl_s);
                Content::Expiring { value, ttl_s, expires_s }
            }
        }
    }

    /// The content of a deleted cell.
    pub(crate) fn dead(&self) -> Content<'static> {
        Content::Dead { since_s: self.now_s }
    }
}
