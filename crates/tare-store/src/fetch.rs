//! Blocks that reads wait for: each is read once, however many reads wait, then checked, cached,
//! and given to all of them.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use slab::Slab;

use crate::cache::Cache;
use crate::chunk::Chunk;
use crate::io::{Completion, FileId, Op, OpId, OpKind, Owner};
use crate::pages::Pages;
use crate::read::{Fetch, Pins};
use crate::table::{Block, BlockAt, Kind, PAGE_BYTES, Table, TableError};

/// A read of a block that waits or is under way. It keeps the table, so that its file is not
/// removed.
#[derive(Debug)]
struct Read {
    fetch: Rc<Fetch>,
    _table: Rc<Table>,
}

#[derive(Debug, Default)]
pub(crate) struct Fetches {
    reads: Slab<Read>,
    by_block: BTreeMap<BlockAt, usize>,
    queue: VecDeque<usize>,
    pages: Pages,
    /// The reads that waited for a block that has come.
    woken: Vec<usize>,
    counts: Fetched,
}

/// Number of blocks that were read from disk for a waiting read, since the start. A damaged block
/// counts in the total only, because its kind is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) blocks: u64,
    pub(crate) index_blocks: u64,
    pub(crate) filter_blocks: u64,
    pub(crate) bytes: u64,
}

impl Fetches {
    /// Begins to read the blocks that a read has noted as missing; `table` finds tables by their
    /// files.
    pub(crate) fn fetch(&mut self, pins: &mut Pins, table: impl Fn(u64) -> Option<Rc<Table>>) {
        while let Some(at) = pins.next_wanted() {
            if let Some(&slot) = self.by_block.get(&at)
                && let Some(read) = self.reads.get(slot)
            {
                pins.wait_for(Rc::clone(&read.fetch));
                continue;
            }
            // The table was replaced meanwhile: the next try uses the new one.
            let Some(table) = table(at.file) else { continue };
            let fetch = Rc::new(Fetch::new(at));
            pins.wait_for(Rc::clone(&fetch));
            let slot = self.reads.insert(Read { fetch, _table: table });
            self.by_block.insert(at, slot);
            self.queue.push_back(slot);
        }
    }

    pub(crate) fn next_op(&mut self) -> Option<Op> {
        let slot = self.queue.pop_front()?;
        let at = self.reads.get(slot)?.fetch.at();
        let one_page = at.bytes() == PAGE_BYTES;
        let chunk = if one_page { self.pages.take() } else { Chunk::zeroed(at.bytes()) };
        let kind = OpKind::Read { offset: at.offset(), chunk };
        let id = OpId::new(Owner::Fetch, slot as u64);
        Some(Op { id, file: FileId::Table(at.file), kind })
    }

    /// Takes the completion of an operation.
    pub(crate) fn complete(&mut self, completion: Completion, cache: &mut Cache) {
        let slot = usize::try_from(completion.id.number()).unwrap_or(usize::MAX);
        let Some(Read { fetch, .. }) = self.reads.try_remove(slot) else { return };
        let at = fetch.at();
        self.by_block.remove(&at);
        let chunk = completion.chunk.unwrap_or_default();
        let result = if chunk.len() == PAGE_BYTES {
            let page = self.pages.filled(chunk);
            completion.result.map(|length| Block::of_page(at, page, length))
        } else {
            let bytes = chunk.bytes();
            completion.result.map(|length| Block::decode(at, &bytes[..length.min(bytes.len())]))
        };
        let result = result.unwrap_or_else(|error| {
            let source = Arc::new(error);
            Err(TableError::Read { file: at.file, offset: at.offset(), source })
        });
        let result = result.map(Rc::new);
        self.counts.blocks += 1;
        self.counts.bytes += at.bytes() as u64;
        if let Ok(block) = &result {
            match block.kind() {
                Kind::Index => self.counts.index_blocks += 1,
                Kind::Filter => self.counts.filter_blocks += 1,
                Kind::Data | Kind::Top | Kind::Footer => {}
            }
            cache.insert(at, Rc::clone(block));
        }
        fetch.finish(result);
        self.woken.extend(fetch.take_waiting());
    }

    /// Takes the numbers of the reads that waited for a block that has come since the last time.
    pub(crate) fn take_woken(&mut self) -> std::vec::Drain<'_, usize> {
        self.woken.drain(..)
    }

    /// Whether any read waits for a block.
    pub(crate) fn is_busy(&self) -> bool {
        !self.by_block.is_empty()
    }

    /// The counts of the blocks that were read.
    pub(crate) fn counts(&self) -> Fetched {
        self.counts
    }
}
