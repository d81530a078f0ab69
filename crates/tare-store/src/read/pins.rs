//! The blocks that a read waits for, and holds until it is done.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use smallvec::SmallVec;

use super::{LookupMemo, Position};
use crate::cache::Cache;
use crate::table::{Block, BlockAt, BlockSource, TableError};

/// A block that is being fetched, shared by all reads that wait for it.
#[derive(Debug)]
pub struct Fetch {
    at: BlockAt,
    done: OnceCell<Result<Rc<Block>, TableError>>,
    /// The numbers of the reads to wake. Most blocks have one, which needs no memory of its own.
    waiting: RefCell<SmallVec<[usize; 2]>>,
}

impl Fetch {
    pub fn new(at: BlockAt) -> Self {
        Self { at, done: OnceCell::new(), waiting: RefCell::default() }
    }

    pub fn at(&self) -> BlockAt {
        self.at
    }

    /// Sets the result. Only the first call counts.
    pub fn finish(&self, result: Result<Rc<Block>, TableError>) {
        let _ = self.done.set(result);
    }

    pub fn is_done(&self) -> bool {
        self.done.get().is_some()
    }

    /// Takes the numbers of the reads to wake.
    pub(crate) fn take_waiting(&self) -> SmallVec<[usize; 2]> {
        self.waiting.take()
    }
}

/// The blocks that a read found missing: first wanted, then under way, then held, so that the read
/// cannot miss them again.
#[derive(Debug, Default)]
pub struct Pins {
    wanted: Vec<BlockAt>,
    fetches: Vec<Rc<Fetch>>,
    /// The row that an interrupted read of a partition has passed, whether it was visible or not.
    passed: Option<Position>,
    /// Results of lookups that a read of one row need not repeat.
    pub(crate) memo: LookupMemo,
}

impl Pins {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next block that was noted as missing, for the store to fetch.
    pub fn next_wanted(&mut self) -> Option<BlockAt> {
        self.wanted.pop()
    }

    /// Waits for a block.
    pub fn wait_for(&mut self, fetch: Rc<Fetch>) {
        self.fetches.push(fetch);
    }

    /// Whether all awaited blocks have come or failed, so that the read can go on.
    pub fn is_ready(&self) -> bool {
        self.wanted.is_empty() && self.fetches.iter().all(|fetch| fetch.is_done())
    }

    /// Waits under this number of a read: when an awaited block comes or fails, the number is in
    /// [`crate::Store::take_woken`].
    pub fn wait_as(&self, read: usize) {
        for fetch in self.fetches.iter().filter(|fetch| !fetch.is_done()) {
            fetch.waiting.borrow_mut().push(read);
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Keeps the row that a read of a partition has passed.
    pub(crate) fn pass(&mut self, token: i64, key: &[u8], clustering: &[u8]) {
        let (key, clustering) = (key.to_vec(), Some(clustering.to_vec()));
        self.passed = Some(Position { token, key, clustering });
    }

    /// Takes the row that a read of this partition has passed.
    #[inline]
    pub(crate) fn take_passed(&mut self, token: i64, key: &[u8]) -> Option<Vec<u8>> {
        let passed = self.passed.take()?;
        let is_here = (passed.token, &passed.key[..]) == (token, key);
        passed.clustering.filter(|_| is_here)
    }

    /// Drops the blocks that have come. The read has moved on, and a long read must not hold all
    /// blocks that it has passed.
    pub fn forget_done(&mut self) {
        self.fetches.retain(|fetch| !fetch.is_done());
    }

    fn find(&self, at: BlockAt) -> Option<&Fetch> {
        self.fetches.iter().find(|fetch| fetch.at == at).map(|fetch| &**fetch)
    }

    fn want(&mut self, at: BlockAt) {
        if self.find(at).is_none() && !self.wanted.contains(&at) {
            self.wanted.push(at);
        }
    }
}

/// Blocks from the cache; the pins note the missing ones.
#[derive(Debug)]
pub struct Cached<'a> {
    pub cache: &'a mut Cache,
    pub pins: &'a mut Pins,
}

impl BlockSource for Cached<'_> {
    #[inline]
    fn get(&mut self, at: BlockAt) -> Result<Option<Rc<Block>>, TableError> {
        // The pins come first, so that a block that the read fetched itself does not count as a
        // hit.
        if let Some(result) = self.pins.find(at).and_then(|fetch| fetch.done.get()) {
            return result.clone().map(Some);
        }
        let found = self.cache.get(at).cloned();
        if found.is_none() {
            self.pins.want(at);
        }
        Ok(found)
    }

    fn expect(&mut self, at: BlockAt) {
        if !self.cache.contains(at) {
            self.pins.want(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(page: u32) -> BlockAt {
        BlockAt { file: 1, page, pages: 1 }
    }

    #[test]
    fn pins_note_wait_and_hold() {
        let (mut cache, mut pins) = (Cache::new(1 << 20), Pins::new());
        let mut source = Cached { cache: &mut cache, pins: &mut pins };
        assert!(source.get(at(1)).unwrap().is_none());
        source.expect(at(2));
        assert!(source.get(at(1)).unwrap().is_none());
        assert!(!pins.is_ready());
        let wanted: Vec<_> = std::iter::from_fn(|| pins.next_wanted()).collect();
        assert_eq!(wanted, [at(2), at(1)], "each once");
        let fetches: Vec<_> = wanted.into_iter().map(|at| Rc::new(Fetch::new(at))).collect();
        fetches.iter().for_each(|fetch| pins.wait_for(Rc::clone(fetch)));
        assert!(!pins.is_ready());
        fetches[1].finish(Ok(Rc::new(Block::for_test(10))));
        let error = Block::decode(at(2), &[0; 4096]).unwrap_err();
        fetches[0].finish(Err(error));
        assert!(pins.is_ready());
        let mut source = Cached { cache: &mut cache, pins: &mut pins };
        assert_eq!(source.get(at(1)).unwrap().unwrap().bytes(), 10);
        assert!(matches!(source.get(at(2)), Err(TableError::Damaged { offset: 8192, .. })));
        assert_eq!(cache.statistics().hits, 0, "what a read fetched itself is no hit");
    }
}
