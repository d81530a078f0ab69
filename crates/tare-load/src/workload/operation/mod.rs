//! Derives operations: a pure function of (seed, index), so that any operation of any run can be
//! derived again.
//!
//! The kinds of operations are dealt in blocks of 16,384 indices. Each block has exactly the number
//! of each kind that its weight asks for, in a random order of its own. So the number of rows
//! inserted before an index follows from the index alone.

use tare_std::rng::{Rng, mix64};

use crate::workload::keys::{Keys, Sampler};
use crate::workload::value::Distribution;
use crate::workload::versions::ExpectedVersion;
use crate::workload::{QueryKind, Workload};

/// One operation, as kept while it is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operation {
    /// The number of the row.
    pub(crate) row: u64,
    /// The version that a write writes: 0, or its time in µs since the epoch.
    pub(crate) version: u64,
    /// What a read must find.
    pub(crate) expected: ExpectedVersion,
    /// How many rows a slice or scan reads, or which columns an update writes.
    pub(crate) choice: u32,
    /// The index among the workload's queries.
    pub(crate) query: u8,
    /// The row is absent.
    pub(crate) absent: bool,
    /// The second request of a read-modify-write.
    pub(crate) modifies: bool,
}

/// Which of several loaders this is. Each has rows of its own: a slice of the existing rows, and
/// every n-th inserted row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Counted from 0.
    index: u64,
    count: u64,
    /// Keys that are drawn at random come from the rows of all loaders.
    draws_from_all: bool,
}

/// A text that does not name a part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write which loader this is of how many, such as 2/5")]
pub struct PartError;

impl Part {
    pub const ALL: Self = Self { index: 0, count: 1, draws_from_all: false };

    /// Returns a part of a load that is to have the keys of one loader: sequential keys, rows to
    /// populate and inserted rows are divided among `count` loaders, and keys that are drawn at
    /// random come from all rows. Loaders count from 0.
    ///
    /// # Panics
    /// If `index` is not below `count`.
    pub fn of_one_load(index: u32, count: u32) -> Self {
        assert!(index < count, "loader {index} of {count}");
        Self { index: index.into(), count: count.into(), draws_from_all: true }
    }

    /// Returns the first of its rows and how many there are.
    pub(crate) fn of(self, rows: u64) -> (u64, u64) {
        let cut = |index: u64| {
            let product = u128::from(rows) * u128::from(index) / u128::from(self.count);
            u64::try_from(product).unwrap_or(rows)
        };
        (cut(self.index), cut(self.index + 1) - cut(self.index))
    }
}

impl std::str::FromStr for Part {
    type Err = PartError;

    fn from_str(text: &str) -> Result<Self, PartError> {
        let (index, count) = text.split_once('/').ok_or(PartError)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| PartError);
        let (index, count) = (number(index)?, number(count)?);
        let good = (1..=count).contains(&index) && count <= 1 << 20;
        good.then(|| Self { index: index - 1, count, draws_from_all: false }).ok_or(PartError)
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

/// The number of indices in a block, and the bits of a position in it.
const BLOCK: u64 = 1 << BLOCK_BITS;
const BLOCK_BITS: u32 = 14;

/// Derives the operations of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Operations {
    seed: u64,
    /// The rows of all loaders.
    rows: u64,
    part: Part,
    queries: Vec<Share>,
    /// How many rows a block inserts.
    inserts: u64,
}

/// A query's share of a block: positions from `begin` to `end`.
#[derive(Clone, Debug, PartialEq)]
struct Share {
    begin: u64,
    end: u64,
    query: u8,
    kind: QueryKind,
    /// The first of the existing rows that it touches, and their number.
    first: u64,
    count: u64,
    sampler: Sampler,
    misses: f64,
    limit: Distribution,
    choices: u64,
}

impl Operations {
    /// Returns the operations of one of several loaders.
    ///
    /// # Panics
    /// If the part has no row.
    pub fn new(workload: &Workload, seed: u64, part: Part) -> Self {
        let own = part.of(workload.rows);
        assert!(own.1 > 0, "a workload needs at least one row to draw keys from");
        let total: f64 = workload.queries.iter().map(|query| query.weight).sum();
        let (mut queries, mut weight, mut begin, mut inserts) = (Vec::new(), 0.0, 0, 0);
        for (position, query) in (0u8..).zip(&workload.queries) {
            weight += query.weight;
            let end =
                crate::workload::keys::cut((weight / total * BLOCK as f64).round()).min(BLOCK);
            if end == begin {
                continue;
            }
            if query.kind == QueryKind::Insert {
                inserts += end - begin;
            }
            let draws = part.draws_from_all && query.keys != Keys::Sequential;
            let (first, count) = if draws { (0, workload.rows) } else { own };
            queries.push(Share {
                first,
                count,
                begin,
                end,
                query: position,
                kind: query.kind,
                sampler: Sampler::new(query.keys, count),
                misses: query.misses,
                limit: query.limit,
                choices: query.choices as u64,
            });
            begin = end;
        }
        // Loaders draw different operations over the same rows.
        let seed = seed ^ part.index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { seed, rows: workload.rows, part, queries, inserts }
    }

    /// Returns the operation with this index.
    #[inline]
    pub(crate) fn derive(&self, index: u64) -> Operation {
        let block = index / BLOCK;
        let mut place = index % BLOCK;
        let share = match self.queries.as_slice() {
            [one] => one,
            several => {
                place = scatter(place, mix64(self.seed ^ block));
                let found = several.iter().position(|share| place < share.end);
                &several[found.unwrap_or(several.len() - 1)]
            }
        };
        let mut rng = Rng::stream(self.seed, index);
        let row = if share.kind == QueryKind::Insert {
            let ordinal = block * self.inserts + (place - share.begin);
            self.inserted(ordinal)
        } else {
            // Inserts of the block before may still be in flight.
            let newest = self.inserts * block.saturating_sub(1);
            let drawn = share.sampler.draw(index, &mut rng, newest);
            match drawn.checked_sub(share.count) {
                None => share.first + drawn,
                Some(ordinal) => self.inserted(ordinal),
            }
        };
        let choice = match share.kind {
            QueryKind::Slice | QueryKind::Scan => share.limit.draw(rng.next_u64()),
            _ if share.choices > 1 => rng.below(share.choices),
            _ => 0,
        };
        Operation {
            row,
            choice: u32::try_from(choice).unwrap_or(u32::MAX),
            query: share.query,
            absent: share.misses > 0.0 && rng.next_f64() < share.misses,
            ..Operation::default()
        }
    }

    /// Returns the number of the row that the operation with this index touches.
    #[inline]
    pub fn row(&self, index: u64) -> u64 {
        self.derive(index).row
    }

    /// Returns the number of a row that this loader inserts.
    #[inline]
    fn inserted(&self, ordinal: u64) -> u64 {
        self.rows + ordinal * self.part.count + self.part.index
    }
}

/// Permutes the positions of a block, differently for every key, by steps that can each be undone.
#[inline]
fn scatter(place: u64, key: u64) -> u64 {
    const MASK: u64 = BLOCK - 1;
    let mut x = (place ^ key) & MASK;
    x = x.wrapping_mul(key >> 16 | 1) & MASK;
    x ^= x >> 7;
    x = x.wrapping_mul(0x2c1b_3c6d) & MASK;
    x ^= x >> 5;
    x = x.wrapping_add(key >> 40) & MASK;
    x = x.wrapping_mul(0x297a_2d39) & MASK;
    x ^ x >> 7
}

#[cfg(test)]
mod tests;
