//! Prepared statements by id. A cache holds a bounded number of them; when it is full, the least
//! recently used one goes, as in Cassandra. A client that executes it is answered `Unprepared` and
//! prepares it again.
//!
//! All shards share one cache of texts, and each shard has a cache of its plans with their texts. A
//! statement that a shard keeps using stays in the shard's cache, whatever leaves the shared one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

/// Prepared statements that a cache holds at most.
const PREPARED_MAX: usize = 10_000;

/// The id of a prepared statement: a hash of its keyspace and its text.
pub(crate) type StatementId = [u8; 16];

/// The keyspace in use and the text of a prepared statement.
pub(crate) type PreparedText = Arc<(Option<String>, String)>;

/// A cache of prepared statements.
///
/// A use only stores its time in the entry, so that executing a statement costs one lookup. The
/// heap holds each id once, under a time that may be too early; eviction corrects such times as it
/// meets them, so that it removes exactly the least recently used entry.
#[derive(Debug)]
pub(crate) struct StatementCache<V> {
    entries: BTreeMap<StatementId, Entry<V>>,
    heap: BinaryHeap<Reverse<(u64, StatementId)>>,
    /// Number of uses so far, which serves as the time.
    uses: u64,
    entries_max: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    used: u64,
}

impl<V> Default for StatementCache<V> {
    fn default() -> Self {
        Self::new(PREPARED_MAX)
    }
}

impl<V> StatementCache<V> {
    fn new(entries_max: usize) -> Self {
        Self { entries: BTreeMap::new(), heap: BinaryHeap::new(), uses: 0, entries_max }
    }

    /// The entry of an id, which becomes the most recently used one.
    #[inline]
    pub(crate) fn get(&mut self, id: &StatementId) -> Option<&V> {
        let entry = self.entries.get_mut(id)?;
        self.uses += 1;
        entry.used = self.uses;
        Some(&entry.value)
    }

    /// Inserts or replaces an entry, which becomes the most recently used one.
    pub(crate) fn insert(&mut self, id: StatementId, value: V) {
        self.uses += 1;
        let entry = Entry { value, used: self.uses };
        if self.entries.insert(id, entry).is_none() {
            self.heap.push(Reverse((self.uses, id)));
        }
        if self.entries.len() > self.entries_max {
            self.evict();
        }
    }

    /// Removes the least recently used entry.
    fn evict(&mut self) {
        while let Some(Reverse((used, id))) = self.heap.pop() {
            match self.entries.get(&id) {
                Some(entry) if entry.used > used => self.heap.push(Reverse((entry.used, id))),
                _ => {
                    self.entries.remove(&id);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> StatementId {
        [number; 16]
    }

    #[test]
    fn full_cache_evicts_the_least_recently_used_statement() {
        let mut cache = StatementCache::new(3);
        (0..3).for_each(|number| cache.insert(id(number), number));
        assert_eq!(cache.get(&id(0)), Some(&0));
        cache.insert(id(3), 3);
        assert_eq!(cache.get(&id(1)), None);
        assert_eq!(cache.get(&id(2)), Some(&2));
        cache.insert(id(4), 4);
        assert_eq!(cache.get(&id(0)), None);
        // A statement that is prepared again counts as used and takes no second place.
        cache.insert(id(3), 33);
        cache.insert(id(5), 5);
        assert_eq!(cache.get(&id(2)), None);
        assert_eq!(cache.get(&id(3)), Some(&33));
        assert_eq!((cache.entries.len(), cache.heap.len()), (3, 3));
    }

    #[test]
    fn eviction_agrees_with_a_list_in_order_of_use() {
        let mut cache = StatementCache::new(8);
        let mut model: Vec<u8> = Vec::new();
        let mut random = tare_std::rng::Rng::new(7);
        for _ in 0..5_000 {
            let number = u8::try_from(random.next_u64() % 24).unwrap();
            let known = model.iter().position(|other| *other == number);
            assert_eq!(cache.get(&id(number)).copied(), known.map(|_| number));
            match known {
                Some(at) => drop(model.remove(at)),
                None => {
                    cache.insert(id(number), number);
                    if model.len() == 8 {
                        model.remove(0);
                    }
                }
            }
            model.push(number);
        }
    }
}
