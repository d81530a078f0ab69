//! The rows of one table, in memory, ordered by (token, partition key, clustering key).
//!
//! Partitions stand in small sorted buckets, found through a directory that the high bits of the
//! token index (extendible hashing: Fagin et al., TODS 1979, here on bits that keep the order).
//! Murmur3 spreads tokens evenly, so a lookup is one step through the directory and a binary
//! search in at most [`BUCKET_MAX`] entries, a full bucket is split alone, and a scan of the
//! directory meets the partitions in token order. Keys that were made to collide only make their
//! bucket longer.

use std::collections::BTreeMap;

use crate::cells;

/// Partitions in a bucket before it is split.
pub const BUCKET_MAX: usize = 16;
/// Bits of the directory at most: 4 M buckets. Beyond it buckets grow.
const DEPTH_MAX: u32 = 22;
/// What a partition is reckoned to cost beside its bytes: its entry with the slack of its bucket,
/// two allocations.
const PARTITION_OVERHEAD_BYTES: usize = 128;
/// What a clustered row is reckoned to cost beside its bytes.
const ROW_OVERHEAD_BYTES: usize = 80;

/// One partition.
#[derive(Debug)]
pub struct Partition {
    token: i64,
    key: Box<[u8]>,
    rows: Rows,
}

#[derive(Debug)]
enum Rows {
    /// The table has no clustering column.
    One(Box<[u8]>),
    /// By clustering key.
    Many(BTreeMap<Box<[u8]>, Box<[u8]>>),
}

#[derive(Debug)]
struct Bucket {
    /// Bits of the token that all its entries share.
    depth: u32,
    partitions: Vec<Partition>,
}

/// The rows of one table on one shard.
#[derive(Debug)]
pub struct Table {
    /// Indexed by the `depth` highest bits of the biased token.
    directory: Vec<u32>,
    depth: u32,
    buckets: Vec<Bucket>,
    partitions: u64,
}

impl Default for Table {
    fn default() -> Self {
        let bucket = Bucket { depth: 0, partitions: Vec::new() };
        Self { directory: vec![0], depth: 0, buckets: vec![bucket], partitions: 0 }
    }
}

impl Partition {
    pub fn token(&self) -> i64 {
        self.token
    }

    /// The serialised partition key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The rows in clustering order: (clustering key, cells). Without clustering columns there is
    /// one row with an empty clustering key.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        let (one, many) = match &self.rows {
            Rows::One(cells) => (Some((&[][..], &**cells)), None),
            Rows::Many(rows) => (None, Some(rows)),
        };
        let many = many.into_iter().flatten().map(|(key, cells)| (&**key, &**cells));
        one.into_iter().chain(many)
    }

    /// The cells of one row.
    pub fn row(&self, clustering: &[u8]) -> Option<&[u8]> {
        match &self.rows {
            Rows::One(cells) => clustering.is_empty().then_some(cells),
            Rows::Many(rows) => rows.get(clustering).map(|cells| &**cells),
        }
    }
}

impl Table {
    /// Merges cells into a row and returns by how many bytes the table grew; it may shrink.
    /// `scratch` is a buffer that the caller keeps.
    pub fn apply(
        &mut self,
        token: i64,
        key: &[u8],
        clustering: &[u8],
        cells: &[u8],
        scratch: &mut Vec<u8>,
    ) -> isize {
        let bucket = self.bucket_of(token);
        match self.buckets[bucket].find(token, key) {
            Ok(at) => self.buckets[bucket].partitions[at].merge(clustering, cells, scratch),
            Err(at) => {
                let at_bucket = (bucket, at);
                let (bucket, at) = self.make_room(token, key).unwrap_or(at_bucket);
                let rows = if clustering.is_empty() {
                    Rows::One(cells.into())
                } else {
                    Rows::Many(BTreeMap::from([(clustering.into(), cells.into())]))
                };
                let partition = Partition { token, key: key.into(), rows };
                self.buckets[bucket].partitions.insert(at, partition);
                self.partitions += 1;
                signed(partition_bytes(&self.buckets[bucket].partitions[at]))
            }
        }
    }

    /// The partition of a key.
    #[inline]
    pub fn get(&self, token: i64, key: &[u8]) -> Option<&Partition> {
        let bucket = &self.buckets[self.bucket_of(token)];
        bucket.find(token, key).ok().map(|at| &bucket.partitions[at])
    }

    /// Every partition in order of (token, key).
    pub fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.iter_from(i64::MIN)
    }

    /// Every partition from a token on, in order of (token, key).
    pub fn iter_from(&self, token: i64) -> impl Iterator<Item = &Partition> {
        let first = self.slot_of(token);
        let mut last = None;
        let distinct = move |id: &&u32| last.replace(**id) != Some(**id);
        let buckets = self.directory[first..].iter().filter(distinct);
        buckets
            .flat_map(|&id| self.buckets[id as usize].partitions.iter())
            .skip_while(move |partition| partition.token < token)
    }

    /// How many partitions there are.
    pub fn len(&self) -> u64 {
        self.partitions
    }

    pub fn is_empty(&self) -> bool {
        self.partitions == 0
    }

    fn slot_of(&self, token: i64) -> usize {
        if self.depth == 0 {
            return 0;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most DEPTH_MAX bits")]
        let slot = (biased(token) >> (64 - self.depth)) as usize;
        slot
    }

    #[inline]
    fn bucket_of(&self, token: i64) -> usize {
        self.directory[self.slot_of(token)] as usize
    }

    /// Splits the bucket of a key until there is room in it; returns where the key goes then, or
    /// nothing if there was room.
    fn make_room(&mut self, token: i64, key: &[u8]) -> Option<(usize, usize)> {
        let mut split = false;
        loop {
            let id = self.bucket_of(token);
            let depth = self.buckets[id].depth;
            if self.buckets[id].partitions.len() < BUCKET_MAX || depth == DEPTH_MAX {
                let at = self.buckets[id].find(token, key).unwrap_or_else(|at| at);
                return split.then_some((id, at));
            }
            split = true;
            if depth == self.depth {
                self.directory = self.directory.iter().flat_map(|&id| [id, id]).collect();
                self.depth += 1;
            }
            let bit = 1 << (63 - depth);
            let bucket = &mut self.buckets[id];
            let middle = bucket.partitions.partition_point(|p| biased(p.token) & bit == 0);
            let mut upper = Vec::with_capacity(BUCKET_MAX);
            upper.extend(bucket.partitions.drain(middle..));
            bucket.depth = depth + 1;
            let upper_id = u32::try_from(self.buckets.len()).expect("at most 4 M buckets");
            self.buckets.push(Bucket { depth: depth + 1, partitions: upper });
            let span = 1usize << (self.depth - depth);
            let first = self.slot_of(token) & !(span - 1);
            self.directory[first + span / 2..first + span].fill(upper_id);
        }
    }
}

impl Bucket {
    #[inline]
    fn find(&self, token: i64, key: &[u8]) -> Result<usize, usize> {
        self.partitions.binary_search_by(|p| p.token.cmp(&token).then_with(|| (*p.key).cmp(key)))
    }
}

impl Partition {
    fn merge(&mut self, clustering: &[u8], new: &[u8], scratch: &mut Vec<u8>) -> isize {
        match &mut self.rows {
            Rows::One(old) => replace(old, new, scratch),
            Rows::Many(rows) => match rows.get_mut(clustering) {
                Some(old) => replace(old, new, scratch),
                None => {
                    rows.insert(clustering.into(), new.into());
                    signed(ROW_OVERHEAD_BYTES + clustering.len() + new.len())
                }
            },
        }
    }
}

/// Merges into a row in place where its length stays.
fn replace(old: &mut Box<[u8]>, new: &[u8], scratch: &mut Vec<u8>) -> isize {
    cells::merge(old, new, scratch);
    let grown = signed(scratch.len()) - signed(old.len());
    if grown == 0 {
        old.copy_from_slice(scratch);
    } else {
        *old = scratch.as_slice().into();
    }
    grown
}

/// What a partition is reckoned to occupy, in bytes.
pub(crate) fn partition_bytes(partition: &Partition) -> usize {
    let rows = match &partition.rows {
        Rows::One(cells) => cells.len(),
        Rows::Many(rows) => {
            rows.iter().map(|(key, cells)| ROW_OVERHEAD_BYTES + key.len() + cells.len()).sum()
        }
    };
    PARTITION_OVERHEAD_BYTES + partition.key.len() + rows
}

/// Maps the order of signed tokens onto unsigned numbers.
#[inline]
fn biased(token: i64) -> u64 {
    token.cast_unsigned() ^ (1 << 63)
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).expect("an allocation is at most isize::MAX bytes")
}

#[cfg(test)]
mod tests;
