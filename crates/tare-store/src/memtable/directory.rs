//! The partitions of one table, ordered by (token, key).
//!
//! Small sorted buckets hold the partitions; a directory indexed by the high bits of the token
//! finds the bucket (extendible hashing: Fagin et al., TODS 1979, here on bits that keep the
//! order). Murmur3 spreads tokens evenly, so a lookup is one step through the directory and a
//! binary search in at most [`BUCKET_MAX`] entries, a full bucket is split by itself, and a scan of
//! the directory returns the partitions in token order. The directory stays small compared to its
//! buckets for any tokens: keys that were made to collide turn their bucket into a chain, which is
//! searched from its start.

use super::arena::{Arena, Handle, Slab};

/// Partitions that a bucket holds before it is split.
const BUCKET_MAX: usize = 16;
/// Bits that the directory may have: 4 M buckets.
const DEPTH_MAX: u8 = 22;
/// Bits that the directory may have in addition to those that would number its buckets. Evenly
/// spread tokens need about three, and one for each doubling of the shards, because each shard has
/// a range of the ring.
const DEPTH_SPARE: u8 = 8;
const NONE: u32 = u32::MAX;

/// A partition: its key and the position of its rows (a packed [`super::Rows`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct Partition {
    pub(super) token: i64,
    pub(super) key: Handle,
    pub(super) rows: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    partitions: [Partition; BUCKET_MAX],
    length: u8,
    /// Number of leading bits of the token that all its entries share.
    depth: u8,
    /// The next bucket of a chain.
    overflow: u32,
}

/// The partitions of one table.
#[derive(Debug)]
pub(super) struct Directory {
    /// Buckets, indexed by the `depth` highest bits of the biased token.
    slots: Vec<u32>,
    depth: u8,
    buckets: u32,
}

/// The position of a partition, or the one for inserting it. Splits move partitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartitionPosition {
    slot: usize,
    bucket: u32,
    at: usize,
}

impl Bucket {
    const EMPTY: Self = Self {
        partitions: [Partition { token: 0, key: Handle(0), rows: 0 }; BUCKET_MAX],
        length: 0,
        depth: 0,
        overflow: NONE,
    };

    fn length(&self) -> usize {
        usize::from(self.length)
    }

    fn is_full(&self) -> bool {
        self.length() == BUCKET_MAX
    }

    #[inline]
    fn search(&self, arena: &Arena, token: i64, key: &[u8]) -> Result<usize, usize> {
        self.partitions[..self.length()].binary_search_by(|partition| {
            partition.token.cmp(&token).then_with(|| arena.get(partition.key).cmp(key))
        })
    }

    fn insert(&mut self, at: usize, partition: Partition) {
        let length = self.length();
        self.partitions.copy_within(at..length, at + 1);
        self.partitions[at] = partition;
        self.length += 1;
    }

    /// Moves the entries from `at` on into a new bucket of the same kind.
    fn split_off(&mut self, at: usize) -> Self {
        let mut upper = *self;
        upper.partitions.copy_within(at..self.length(), 0);
        let moved = self.length() - at;
        (upper.length, self.length) = (narrow(moved), narrow(at));
        upper
    }
}

fn narrow(length: usize) -> u8 {
    u8::try_from(length).expect("a bucket has 16 places")
}

impl Directory {
    pub(super) fn new(buckets: &mut Slab<Bucket>) -> Self {
        Self { slots: vec![buckets.push(Bucket::EMPTY)], depth: 0, buckets: 1 }
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }

    /// The position of a partition, or the one for inserting it.
    #[inline]
    pub(super) fn find(
        &self,
        buckets: &Slab<Bucket>,
        arena: &Arena,
        token: i64,
        key: &[u8],
    ) -> Result<PartitionPosition, PartitionPosition> {
        let slot = self.slot_of(token);
        let mut number = self.slots[slot];
        loop {
            let bucket = buckets.get(number);
            match bucket.search(arena, token, key) {
                Ok(at) => return Ok(PartitionPosition { slot, bucket: number, at }),
                Err(at) if at == bucket.length() && bucket.overflow != NONE => {
                    number = bucket.overflow;
                }
                Err(at) => return Err(PartitionPosition { slot, bucket: number, at }),
            }
        }
    }

    /// Adds a partition that does not exist yet.
    pub(super) fn insert(
        &mut self,
        buckets: &mut Slab<Bucket>,
        arena: &Arena,
        partition: Partition,
    ) {
        let (token, key) = (partition.token, arena.get(partition.key));
        loop {
            let position = match self.find(buckets, arena, token, key) {
                Ok(position) | Err(position) => position,
            };
            let bucket = buckets.get_mut(position.bucket);
            if !bucket.is_full() {
                bucket.insert(position.at, partition);
                return;
            }
            self.buckets += 1;
            if bucket.depth < self.depth_allowed() {
                self.split(buckets, token);
            } else {
                let upper = bucket.split_off(BUCKET_MAX / 2);
                let upper = buckets.push(upper);
                buckets.get_mut(position.bucket).overflow = upper;
            }
        }
    }

    fn depth_allowed(&self) -> u8 {
        let bits = u32::BITS - self.buckets.leading_zeros();
        u8::try_from(bits).map_or(DEPTH_MAX, |bits| (bits + DEPTH_SPARE).min(DEPTH_MAX))
    }

    /// The first partition that is not before (token, key).
    pub(super) fn first_from(
        &self,
        buckets: &Slab<Bucket>,
        arena: &Arena,
        token: i64,
        key: &[u8],
    ) -> Option<PartitionPosition> {
        match self.find(buckets, arena, token, key) {
            Ok(position) => Some(position),
            Err(position) => self.at_or_after(buckets, position),
        }
    }

    /// The next partition in order.
    pub(super) fn next(
        &self,
        buckets: &Slab<Bucket>,
        position: PartitionPosition,
    ) -> Option<PartitionPosition> {
        self.at_or_after(buckets, PartitionPosition { at: position.at + 1, ..position })
    }

    fn at_or_after(
        &self,
        buckets: &Slab<Bucket>,
        mut position: PartitionPosition,
    ) -> Option<PartitionPosition> {
        loop {
            let bucket = buckets.get(position.bucket);
            if position.at < bucket.length() {
                return Some(position);
            }
            if bucket.overflow != NONE {
                position = PartitionPosition { bucket: bucket.overflow, at: 0, ..position };
                continue;
            }
            let span = 1 << (self.depth - bucket.depth);
            let slot = (position.slot & !(span - 1)) + span;
            let bucket = *self.slots.get(slot)?;
            position = PartitionPosition { slot, bucket, at: 0 };
        }
    }

    #[inline]
    fn slot_of(&self, token: i64) -> usize {
        if self.depth == 0 {
            return 0;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most DEPTH_MAX bits")]
        let slot = (biased(token) >> (64 - self.depth)) as usize;
        slot
    }

    /// Splits the bucket of a token, or its whole chain.
    fn split(&mut self, buckets: &mut Slab<Bucket>, token: i64) {
        let lower = self.slots[self.slot_of(token)];
        let depth = buckets.get(lower).depth;
        if depth == self.depth {
            self.slots = self.slots.iter().flat_map(|&bucket| [bucket, bucket]).collect();
            self.depth += 1;
        }
        let (mut partitions, mut numbers) = (Vec::new(), Vec::new());
        let mut number = lower;
        while number != NONE {
            let bucket = buckets.get(number);
            partitions.extend_from_slice(&bucket.partitions[..bucket.length()]);
            numbers.push(number);
            number = bucket.overflow;
        }
        numbers.push(buckets.push(Bucket::EMPTY));
        numbers.reverse();
        let bit = 1 << (63 - depth);
        let middle = partitions.partition_point(|p| biased(p.token) & bit == 0);
        let (below, above) = partitions.split_at(middle);
        fill_chain(buckets, &mut numbers, depth + 1, below);
        let upper = fill_chain(buckets, &mut numbers, depth + 1, above);
        let span = 1usize << (self.depth - depth);
        let first = self.slot_of(token) & !(span - 1);
        self.slots[first + span / 2..first + span].fill(upper);
    }
}

/// Writes partitions into buckets taken from the end of `numbers`, and returns the first. One more
/// bucket than before is enough for both halves.
fn fill_chain(
    buckets: &mut Slab<Bucket>,
    numbers: &mut Vec<u32>,
    depth: u8,
    partitions: &[Partition],
) -> u32 {
    let mut take = || numbers.pop().expect("there are enough buckets for two chains");
    let mut chain = vec![take()];
    let pieces = partitions.chunks(BUCKET_MAX).collect::<Vec<_>>();
    chain.extend(pieces.iter().skip(1).map(|_| take()));
    for (at, &number) in chain.iter().enumerate() {
        let piece = pieces.get(at).copied().unwrap_or_default();
        let bucket = buckets.get_mut(number);
        bucket.partitions[..piece.len()].copy_from_slice(piece);
        bucket.length = narrow(piece.len());
        bucket.depth = depth;
        bucket.overflow = chain.get(at + 1).copied().unwrap_or(NONE);
    }
    chain[0]
}

impl PartitionPosition {
    #[inline]
    pub(super) fn partition(self, buckets: &Slab<Bucket>) -> &Partition {
        &buckets.get(self.bucket).partitions[self.at]
    }

    /// Changes the position of the partition's rows.
    pub(super) fn set_rows(self, buckets: &mut Slab<Bucket>, rows: u32) {
        buckets.get_mut(self.bucket).partitions[self.at].rows = rows;
    }
}

/// Maps the order of signed tokens onto unsigned numbers.
#[inline]
fn biased(token: i64) -> u64 {
    token.cast_unsigned() ^ (1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tokens that fill few buckets, so that splits at every depth, chains and collisions occur.
    fn tokens() -> impl Strategy<Value = i64> {
        prop_oneof![
            any::<i64>(),
            -3i64..3,
            Just(i64::MIN),
            Just(i64::MAX),
            (0u32..64).prop_map(|b| 1 << b)
        ]
    }

    proptest! {
        #[test]
        fn partitions_are_found_and_come_in_order(
            keys in proptest::collection::btree_set((tokens(), 0u8..60), 0..400),
            shuffle: u64,
            from in (tokens(), 0u8..60),
        ) {
            let (mut buckets, mut arena) = (Slab::default(), Arena::default());
            let mut directory = Directory::new(&mut buckets);
            let mut order: Vec<_> = keys.iter().copied().collect();
            order.sort_by_key(|(token, key)| {
                tare_std::rng::mix64(token.cast_unsigned() ^ u64::from(*key) ^ shuffle)
            });
            for (token, key) in &order {
                let handle = arena.put(&[*key]);
                let partition = Partition { token: *token, key: handle, rows: 7 };
                prop_assert!(directory.find(&buckets, &arena, *token, &[*key]).is_err());
                directory.insert(&mut buckets, &arena, partition);
            }
            let walk = |mut position: Option<PartitionPosition>| {
                let mut found = Vec::new();
                while let Some(at) = position {
                    let partition = at.partition(&buckets);
                    found.push((partition.token, arena.get(partition.key)[0]));
                    position = directory.next(&buckets, at);
                }
                found
            };
            let all: Vec<_> = keys.iter().copied().collect();
            let first = directory.first_from(&buckets, &arena, i64::MIN, &[]);
            prop_assert_eq!(walk(first), all.clone());
            let first = directory.first_from(&buckets, &arena, from.0, &[from.1]);
            prop_assert_eq!(walk(first), keys.range(from..).copied().collect::<Vec<_>>());
            for (token, key) in all {
                prop_assert!(directory.find(&buckets, &arena, token, &[key]).is_ok());
            }
            prop_assert!(directory.find(&buckets, &arena, 77, b"none").is_err());
        }
    }

    #[test]
    fn spread_tokens_keep_buckets_small() {
        let (mut buckets, mut arena) = (Slab::default(), Arena::default());
        let mut directory = Directory::new(&mut buckets);
        let mut rng = tare_std::rng::Rng::new(5);
        let key = arena.put(b"k");
        for _ in 0..50_000 {
            let token = rng.next_u64().cast_signed();
            directory.insert(&mut buckets, &arena, Partition { token, key, rows: 0 });
        }
        let used = buckets.bytes() / size_of::<Bucket>();
        assert!(used < 50_000 / 8, "{used}");
        assert!(directory.slots.iter().all(|&bucket| buckets.get(bucket).overflow == NONE));
    }
}
