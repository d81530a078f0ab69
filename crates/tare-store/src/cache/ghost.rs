//! The ghost queue: the blocks that were recently evicted from the small queue.
//!
//! It is a table of hashes with the time of their eviction, counted in evictions. It remembers a
//! block until as many blocks have been evicted as the cache holds. Two blocks with the same slot
//! displace each other, which only costs a missed promotion.

use super::slots::hash;
use crate::table::BlockAt;

const TABLE_MIN: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Ghost {
    /// Hash and time, by the low bits of the hash; the length is a power of two.
    table: Vec<(u64, u64)>,
    /// Number of evictions so far; 0 in the table means empty.
    time: u64,
    /// Number of evictions for which a block is remembered.
    span: u64,
}

impl Ghost {
    /// Remembers a block, while the cache holds `blocks`.
    pub(super) fn remember(&mut self, at: BlockAt, blocks: usize) {
        let size = (blocks * 2).next_power_of_two().max(TABLE_MIN);
        if size > self.table.len() {
            let old = std::mem::replace(&mut self.table, vec![(0, 0); size]);
            for entry in old {
                let place = self.place(entry.0);
                self.table[place] = entry;
            }
        }
        self.time += 1;
        self.span = blocks as u64;
        let hash = hash(at);
        let place = self.place(hash);
        self.table[place] = (hash, self.time);
    }

    /// Forgets a block. Returns whether it was remembered.
    pub(super) fn forget(&mut self, at: BlockAt) -> bool {
        if self.table.is_empty() {
            return false;
        }
        let hash = hash(at);
        let place = self.place(hash);
        let (found, time) = self.table[place];
        if found != hash || time == 0 || self.time - time > self.span {
            return false;
        }
        self.table[place] = (0, 0);
        true
    }

    fn place(&self, hash: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let place = hash as usize & (self.table.len() - 1);
        place
    }
}
