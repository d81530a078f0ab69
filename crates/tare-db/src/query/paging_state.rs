//! The paging state: the position at which a page ended. The client keeps it and sends it back,
//! perhaps after the server has restarted; the server keeps nothing.
//!
//! ```text
//! version u8 = 1 | rows that LIMIT still allows u64 | rows of the partition so far u64 | token i64
//! | key length u16 | key | clustering key | crc32c of all before u32
//! ```
//!
//! All numbers are big-endian.

use tare_cql::request::Settings;
use tare_store::read::Row;

use crate::query::failure::Failure;

const VERSION: u8 = 1;

/// The row after which the next page goes on; a filtering read may not have returned it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PagingState {
    /// Rows that LIMIT still allows.
    pub(crate) left: u64,
    /// Rows of its partition that the client has, including this one.
    pub(crate) in_partition: u64,
    pub(crate) token: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) clustering: Vec<u8>,
}

impl PagingState {
    /// Decodes the paging state of a request, if it has one.
    pub(crate) fn of(settings: &Settings<'_>) -> Result<Option<Self>, Failure> {
        let foreign = || {
            Failure::Protocol("Invalid value for the paging state: not one of this server".into())
        };
        settings.paging_state.map(|state| Self::decode(state).ok_or_else(foreign)).transpose()
    }

    /// Moves to a row. `is_same`: its partition is that of the row before.
    #[inline]
    pub(crate) fn move_to(&mut self, row: &Row<'_>, is_same: bool) {
        if !is_same {
            self.token = row.token;
            self.key.clear();
            self.key.extend_from_slice(row.key);
            self.in_partition = 0;
        }
        self.clustering.clear();
        self.clustering.extend_from_slice(row.clustering);
    }

    /// Encodes the state for the client.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(31 + self.key.len() + self.clustering.len());
        out.push(VERSION);
        out.extend_from_slice(&self.left.to_be_bytes());
        out.extend_from_slice(&self.in_partition.to_be_bytes());
        out.extend_from_slice(&self.token.to_be_bytes());
        let length = u16::try_from(self.key.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.key);
        out.extend_from_slice(&self.clustering);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out
    }

    /// Decodes a state; `None` if the bytes are no state of this server.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (rest, crc) = bytes.split_last_chunk()?;
        if crc32c::crc32c(rest) != u32::from_be_bytes(*crc) {
            return None;
        }
        let (&[VERSION], rest) = rest.split_first_chunk()? else { return None };
        let (left, rest) = rest.split_first_chunk()?;
        let (in_partition, rest) = rest.split_first_chunk()?;
        let (token, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (key, clustering) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        Some(Self {
            left: u64::from_be_bytes(*left),
            in_partition: u64::from_be_bytes(*in_partition),
            token: i64::from_be_bytes(*token),
            key: key.to_vec(),
            clustering: clustering.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paging_state_round_trips_and_foreign_bytes_are_refused() {
        let (key, clustering) = (b"key".to_vec(), b"row".to_vec());
        let state = PagingState { left: 5, in_partition: 7, token: -9, key, clustering };
        let bytes = state.encode();
        assert_eq!(PagingState::decode(&bytes), Some(state));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(PagingState::decode(&damaged), None, "byte {at}");
            assert_eq!(PagingState::decode(&bytes[..at]), None);
        }
    }
}
