//! The slots of a cache, found by a hash table with linear probing. The standard library's table
//! hashes differently in every process, and runs of the simulator have to be repeatable.

use std::rc::Rc;

use super::OVERHEAD_BYTES;
use crate::table::{Block, BlockAt};
use tare_std::rng::mix64;

const NONE: u32 = u32::MAX;
const TABLE_MIN: usize = 64;

/// The queue that a slot is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Small,
    Main,
}

/// A slot for one block.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) at: BlockAt,
    /// The block; empty if the slot was vacated but is still in a queue.
    pub(super) block: Option<Rc<Block>>,
    pub(super) hits: u8,
    pub(super) queue: Queue,
}

impl Slot {
    pub(super) fn bytes(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.bytes() + OVERHEAD_BYTES)
    }

    /// Whether a read holds the block.
    pub(super) fn is_held(&self) -> bool {
        self.block.as_ref().is_some_and(|block| Rc::strong_count(block) > 1)
    }
}

/// All slots, and the table that finds them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Numbers of slots by hash; the length is a power of two, and at most half is used.
    table: Vec<u32>,
    blocks: usize,
}

impl Slots {
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("a cache has fewer than 2^32 blocks")
    }

    /// Number of slots with a block.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    #[inline]
    pub(super) fn find(&self, at: BlockAt) -> Option<u32> {
        let mut place = self.home(at)?;
        loop {
            let slot = self.table[place];
            if slot == NONE {
                return None;
            }
            if self.slots[slot as usize].at == at {
                return Some(slot);
            }
            place = self.after(place);
        }
    }

    /// Puts a block into a slot. The block must not be in one already.
    pub(super) fn insert(&mut self, at: BlockAt, block: Rc<Block>, queue: Queue) -> u32 {
        if (self.blocks + 1) * 2 > self.table.len() {
            self.grow();
        }
        let filled = Slot { at, block: Some(block), hits: 0, queue };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = filled;
                slot
            }
            None => {
                self.slots.push(filled);
                self.len() - 1
            }
        };
        self.link(slot);
        self.blocks += 1;
        slot
    }

    /// Takes the block out of a slot, so that it is not found any more.
    pub(super) fn vacate(&mut self, slot: u32) -> Option<Rc<Block>> {
        let at = self.slots[slot as usize].at;
        let block = self.slots[slot as usize].block.take();
        self.blocks -= 1;
        let mut place = self.home(at)?;
        while self.table[place] != slot {
            place = self.after(place);
        }
        // Entries that it displaced move back, so that no gap hides them.
        let mut gap = place;
        loop {
            place = self.after(place);
            let moved = self.table[place];
            if moved == NONE {
                break;
            }
            let Some(home) = self.home(self.slots[moved as usize].at) else { break };
            let mask = self.table.len() - 1;
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(gap) & mask {
                self.table[gap] = moved;
                gap = place;
            }
        }
        self.table[gap] = NONE;
        block
    }

    /// Frees a vacated slot that is in no queue any more.
    pub(super) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    fn grow(&mut self) {
        let size = (self.table.len() * 2).max(TABLE_MIN);
        self.table.clear();
        self.table.resize(size, NONE);
        for slot in 0..self.len() {
            if self.slots[slot as usize].block.is_some() {
                self.link(slot);
            }
        }
    }

    fn link(&mut self, slot: u32) {
        let Some(mut place) = self.home(self.slots[slot as usize].at) else { return };
        while self.table[place] != NONE {
            place = self.after(place);
        }
        self.table[place] = slot;
    }

    /// The preferred position of a block's number; `None` while there is no table.
    fn home(&self, at: BlockAt) -> Option<usize> {
        let mask = self.table.len().checked_sub(1)?;
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let home = hash(at) as usize & mask;
        Some(home)
    }

    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.table.len() - 1)
    }
}

/// A hash of a block's position.
pub(super) fn hash(at: BlockAt) -> u64 {
    mix64(mix64(at.file) ^ u64::from(at.page))
}
