//! The block cache of a shard: blocks of table files, bounded by bytes, with the eviction of
//! S3-FIFO (Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP 2023).
//!
//! A new block goes into the *small* queue, a tenth of the bytes; only a block that is requested
//! twice while it is there moves on into the *main* queue. So a scan, which requests each block
//! once or twice, passes through that tenth and leaves the rest alone. A block that was evicted
//! from the small queue is remembered for a while without its bytes (the *ghost* queue); if it
//! returns in that time, it goes straight into the main queue. There, blocks that were requested
//! again go round once more. Blocks of indexes and filters go straight into the main queue: each
//! represents about a hundred data blocks and is requested that much more often.
//!
//! A hit counts, and moves and allocates nothing. A block that a read holds is not evicted.
//!
//! Limits: held blocks may exceed the limit, if nothing else is left to evict.

mod ghost;
mod slots;

use std::collections::VecDeque;
use std::rc::Rc;

use crate::table::{Block, BlockAt, Kind};
use ghost::Ghost;
use slots::{Queue, Slots};

/// Assumed cost of a cached block in addition to its bytes: its allocation and the slack of that
/// with its bytes, its slot, its entries in the queues and in the tables of slots and ghosts.
pub const OVERHEAD_BYTES: usize = 160;
/// Share of the bytes that the small queue may have: one in this many.
const SMALL_SHARE: usize = 10;
/// Hits in the small queue after which a block is promoted.
const PROMOTED_AT: u8 = 2;
/// The highest hit count; more hits make no difference.
const HITS_MAX: u8 = 3;

/// Counters and sizes of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    /// Bytes of the blocks, with [`OVERHEAD_BYTES`] each.
    pub bytes: usize,
    pub limit_bytes: usize,
    pub blocks: usize,
}

/// A cache of blocks.
#[derive(Debug)]
pub struct Cache {
    limit_bytes: usize,
    slots: Slots,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    small_bytes: usize,
    main_bytes: usize,
    ghost: Ghost,
    hits: u64,
    misses: u64,
    evictions: u64,
}

impl Cache {
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            slots: Slots::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            ghost: Ghost::default(),
            hits: 0,
            misses: 0,
            evictions: 0,
        }
    }

    /// The block, if it is cached.
    #[inline]
    pub fn get(&mut self, at: BlockAt) -> Option<&Rc<Block>> {
        let Some(slot) = self.slots.find(at) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        let slot = self.slots.get_mut(slot);
        slot.hits = (slot.hits + 1).min(HITS_MAX);
        slot.block.as_ref()
    }

    /// Checks several blocks, and returns which ones are cached and pass. These count as hits. No
    /// step waits for the one before, so that the CPU fetches the memory of all at the same time.
    #[inline]
    pub(crate) fn check_each<const N: usize>(
        &mut self,
        at: [Option<BlockAt>; N],
        mut passes: impl FnMut(&Block) -> bool,
    ) -> [bool; N] {
        let found = at.map(|at| at.and_then(|at| self.slots.find(at)));
        found.map(|slot| {
            let Some(slot) = slot.map(|slot| self.slots.get_mut(slot)) else { return false };
            let passes = slot.block.as_ref().is_some_and(|block| passes(block));
            slot.hits = (slot.hits + u8::from(passes)).min(HITS_MAX);
            self.hits += u64::from(passes);
            passes
        })
    }

    /// Whether the block is cached. This is no hit.
    pub fn contains(&self, at: BlockAt) -> bool {
        self.slots.find(at).is_some()
    }

    /// Inserts a block, and evicts others for it. A block that is larger than the whole cache is
    /// not inserted.
    pub fn insert(&mut self, at: BlockAt, block: Rc<Block>) {
        let bytes = block.bytes() + OVERHEAD_BYTES;
        if bytes > self.limit_bytes || self.contains(at) {
            return;
        }
        self.evict_for(bytes);
        let leads = matches!(block.kind(), Kind::Index | Kind::Filter);
        let queue = if self.ghost.forget(at) || leads { Queue::Main } else { Queue::Small };
        let slot = self.slots.insert(at, block, queue);
        match queue {
            Queue::Small => {
                self.small.push_back(slot);
                self.small_bytes += bytes;
            }
            Queue::Main => {
                self.main.push_back(slot);
                self.main_bytes += bytes;
            }
        }
    }

    /// Drops all blocks of a file.
    pub fn forget(&mut self, file: u64) {
        for slot in 0..self.slots.len() {
            let found = self.slots.get_mut(slot);
            if found.at.file == file && found.block.is_some() {
                let (queue, bytes) = (found.queue, found.bytes());
                // Its queue entry disappears when the queue reaches it.
                self.slots.vacate(slot);
                match queue {
                    Queue::Small => self.small_bytes -= bytes,
                    Queue::Main => self.main_bytes -= bytes,
                }
            }
        }
    }

    /// Changes the limit, and evicts blocks above it.
    pub fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
        self.evict_for(0);
    }

    pub fn statistics(&self) -> CacheStatistics {
        CacheStatistics {
            hits: self.hits,
            misses: self.misses,
            evictions: self.evictions,
            bytes: self.bytes(),
            limit_bytes: self.limit_bytes,
            blocks: self.slots.blocks(),
        }
    }

    fn bytes(&self) -> usize {
        self.small_bytes + self.main_bytes
    }

    /// Evicts until so many bytes fit, or only held blocks are left.
    fn evict_for(&mut self, bytes: usize) {
        // A block is promoted once, and goes round the main queue once for each hit.
        let rounds = usize::from(HITS_MAX) + 2;
        let mut steps = rounds * (self.small.len() + self.main.len());
        while self.bytes() + bytes > self.limit_bytes && steps > 0 {
            steps -= 1;
            let small_is_full = self.small_bytes > self.limit_bytes / SMALL_SHARE;
            let small = small_is_full || self.main.is_empty();
            let moved = if small { self.step_small() } else { self.step_main() };
            if !moved && small {
                self.step_main();
            } else if !moved {
                self.step_small();
            }
        }
    }

    /// Evicts or promotes the oldest block of the small queue. Returns false if it is held.
    fn step_small(&mut self) -> bool {
        let Some(number) = self.small.pop_front() else { return false };
        let slot = self.slots.get_mut(number);
        if slot.block.is_none() {
            self.slots.release(number);
            return true;
        }
        let bytes = slot.bytes();
        if slot.hits >= PROMOTED_AT {
            (slot.hits, slot.queue) = (0, Queue::Main);
            self.small_bytes -= bytes;
            self.main_bytes += bytes;
            self.main.push_back(number);
            return true;
        }
        if slot.is_held() {
            self.small.push_back(number);
            return false;
        }
        let at = slot.at;
        self.small_bytes -= bytes;
        self.evict(number);
        self.ghost.remember(at, self.slots.blocks());
        true
    }

    /// Evicts the oldest block of the main queue, or moves it to the end if it had hits. Returns
    /// false if it is held.
    fn step_main(&mut self) -> bool {
        let Some(number) = self.main.pop_front() else { return false };
        let slot = self.slots.get_mut(number);
        if slot.block.is_none() {
            self.slots.release(number);
            return true;
        }
        if slot.hits > 0 {
            slot.hits -= 1;
            self.main.push_back(number);
            return true;
        }
        if slot.is_held() {
            self.main.push_back(number);
            return false;
        }
        self.main_bytes -= slot.bytes();
        self.evict(number);
        true
    }

    fn evict(&mut self, slot: u32) {
        self.slots.vacate(slot);
        self.slots.release(slot);
        self.evictions += 1;
    }
}

#[cfg(test)]
mod tests;
