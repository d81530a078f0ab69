//! The requests to a store: writes, reads and scans, drawn from a seed. The workload has neither
//! the right answers nor the faults.
//!
//! There are few keys, so that writes conflict; timestamps are coarse, so that they tie; and writes
//! come at most [`LATE_S_MAX`] seconds late, so that a dropped tombstone (its grace period is
//! longer) would not have hidden them.

use tare_std::rng::{Rng, mix64};

use crate::model::{Cell, Cells, Change, Content, DELETION, MARKER, Mutation, PartitionId, Range};

/// The greatest delay of a write, in seconds.
pub(crate) const LATE_S_MAX: u64 = 3;
/// The tables of a store. The first has clustering keys, the second has none.
pub(crate) const TABLES: [u32; 2] = [2, 3];
/// Columns that rows have: the marker and those of the user.
const COLUMNS: std::ops::Range<u16> = MARKER..6;
/// The column whose cells are elements of a collection, and the number of its paths.
const COLLECTION: u16 = 5;
const PATHS: u8 = 4;

/// The requests of one run.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    rng: Rng,
    shape: Shape,
    written: i64,
}

/// Parameters that all requests of a run share.
#[derive(Clone, Debug)]
struct Shape {
    tables: u64,
    partitions: u64,
    rows: u64,
    /// One value in this many is large.
    large_values: u64,
    large_bytes: u64,
    deletions: u64,
    ttls: u64,
    batches: u64,
}

/// A read of a part of a partition.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) partition_id: PartitionId,
    /// `[from, to)`, ascending, without contact; `to` of `None` is the end.
    pub(crate) slices: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(crate) reversed: bool,
    /// Number of rows after which the read stops and continues after the last of them.
    pub(crate) page: Option<usize>,
    /// Set for a read of one row by its whole key, which the only slice has.
    pub(crate) row: Option<ColumnFilter>,
}

/// The requested columns, ascending, or all. An answer may lack the others.
pub(crate) type ColumnFilter = Option<Vec<u16>>;

impl Workload {
    pub(crate) fn new(mut rng: Rng) -> Self {
        let mut pick = |choices: &[u64]| {
            let at = usize::try_from(rng.below(choices.len() as u64)).unwrap_or(0);
            choices[at]
        };
        let shape = Shape {
            tables: pick(&[1, 2]),
            partitions: pick(&[3, 20, 100]),
            rows: pick(&[1, 8, 60]),
            large_values: pick(&[0, 50, 10, 4]),
            large_bytes: pick(&[5_000, 20_000, 100_000]),
            deletions: pick(&[0, 12, 4]),
            ttls: pick(&[0, 8, 2]),
            batches: pick(&[0, 8, 2]),
        };
        Self { rng, shape, written: 0 }
    }

    /// The next write: one or more mutations of one entry. `wall_s` is the present.
    pub(crate) fn write(&mut self, wall_s: u32) -> Vec<Mutation> {
        let batch = self.one_in(self.shape.batches);
        let mutations = if batch { 2 + self.rng.below(5) } else { 1 };
        (0..mutations).map(|_| self.mutation(wall_s)).collect()
    }

    /// The next read.
    pub(crate) fn read(&mut self) -> Read {
        let partition_id = self.partition_id();
        if self.one_in(3) {
            return self.row(partition_id);
        }
        let mut bounds: Vec<Vec<u8>> =
            (0..self.rng.below(3) * 2).map(|_| self.clustering(partition_id.table)).collect();
        bounds.sort();
        bounds.dedup();
        let mut slices: Vec<_> =
            bounds.chunks(2).map(|pair| (pair[0].clone(), pair.get(1).cloned())).collect();
        if slices.is_empty() {
            slices.push((Vec::new(), None));
        }
        let page = self.one_in(3).then(|| 1 + self.index(4));
        Read { partition_id, slices, reversed: self.rng.below(3) == 0, page, row: None }
    }

    fn row(&mut self, partition_id: PartitionId) -> Read {
        let from = self.clustering(partition_id.table);
        let mut to = from.clone();
        to.push(0);
        let columns = (MARKER + 1..COLUMNS.end).filter(|_| self.rng.below(2) == 0).collect();
        let row = Some(if self.one_in(2) { Some(columns) } else { None });
        Read { partition_id, slices: vec![(from, Some(to))], reversed: false, page: None, row }
    }

    fn table(&mut self) -> u32 {
        TABLES[self.index(self.shape.tables)]
    }

    fn mutation(&mut self, wall_s: u32) -> Mutation {
        let partition_id = self.partition_id();
        let change = if self.one_in(self.shape.deletions * 2) {
            Change::Range(self.range(partition_id.table, wall_s))
        } else {
            let clustering = self.clustering(partition_id.table);
            Change::Row { clustering, cells: self.cells(wall_s) }
        };
        Mutation { partition_id, change }
    }

    fn cells(&mut self, wall_s: u32) -> Cells {
        let expires = self.one_in(self.shape.ttls);
        // An expired cell counts as dead, and of two cells that tie the dead one wins, even if the
        // other lives longer. Whether that has happened depends on the store (as in Cassandra), so
        // expiring cells never tie.
        let timestamp = match expires {
            true => self.timestamp(wall_s) + 10 + self.count(),
            false => self.timestamp(wall_s),
        };
        let dead = Content::Dead { since_s: wall_s };
        if self.one_in(self.shape.deletions * 2) {
            return Cells::from([((DELETION, None), Cell { timestamp, content: dead })]);
        }
        let mut cells = Cells::new();
        let paths = (0..PATHS).map(|path| (COLLECTION, Some(vec![path; usize::from(path)])));
        let plain = COLUMNS.filter(|column| *column != COLLECTION).map(|column| (column, None));
        for place in plain.chain(paths) {
            if self.rng.below(2) == 0 {
                continue;
            }
            let column = place.0;
            let is_marker = column == MARKER;
            let content = if !is_marker && self.one_in(self.shape.deletions) {
                dead.clone()
            } else {
                let value = if is_marker { Vec::new() } else { self.value() };
                #[expect(clippy::cast_possible_truncation, reason = "below 60")]
                let ttl_s = 1 + self.rng.below(60) as u32;
                match expires {
                    true => Content::Expiring { value, ttl_s, expires_s: wall_s + ttl_s },
                    false => Content::Live(value),
                }
            };
            cells.insert(place, Cell { timestamp, content });
        }
        if self.one_in(3) {
            // The elements replace those that were there before.
            let timestamp = timestamp - 1;
            cells.insert((COLLECTION, None), Cell { timestamp, content: dead });
        }
        if cells.is_empty() {
            let content = Content::Live(self.value());
            cells.insert((2, None), Cell { timestamp, content });
        }
        cells
    }

    fn range(&mut self, table: u32, wall_s: u32) -> Range {
        let (mut from, mut to) = (Vec::new(), None);
        match self.rng.below(4) {
            // The whole partition.
            0 => {}
            // All rows with the same first part of the clustering key.
            1 => {
                let prefix = self.clustering(table).first().copied().unwrap_or(0);
                (from, to) = (vec![prefix], Some(vec![prefix + 1]));
            }
            _ => {
                let (a, b) = (self.clustering(table), self.clustering(table));
                if a < b {
                    (from, to) = (a, Some(b));
                } else {
                    from = a;
                }
            }
        }
        Range { from, to, timestamp: self.timestamp(wall_s), deleted_s: wall_s }
    }

    /// A value that no other write has: its first bytes count.
    fn value(&mut self) -> Vec<u8> {
        let number = self.count();
        let large = self.one_in(self.shape.large_values);
        let bound = if large { self.shape.large_bytes } else { 40 };
        let length = self.rng.below(bound) + 8;
        let mut value = number.to_le_bytes().to_vec();
        // Half of the values compress well, the other half not at all.
        let compresses = self.rng.below(2) == 0;
        let mut filler = self.rng.next_u64();
        while (value.len() as u64) < length {
            value.extend_from_slice(&filler.to_le_bytes());
            if !compresses {
                filler = mix64(filler);
            }
        }
        value
    }

    fn partition_id(&mut self) -> PartitionId {
        let table = self.table();
        let key = self.rng.below(self.shape.partitions);
        // Some tokens belong to two keys.
        let token = mix64(if key % 7 == 1 { key - 1 } else { key }).cast_signed();
        PartitionId { table, token, key: key.to_be_bytes()[6..].to_vec() }
    }

    /// A clustering key that is no prefix of another.
    fn clustering(&mut self, table: u32) -> Vec<u8> {
        if table != TABLES[0] {
            return Vec::new();
        }
        let row = self.rng.below(self.shape.rows);
        #[expect(clippy::cast_possible_truncation, reason = "at most 60 rows")]
        let (first, second) = ((row / 8) as u8, (row % 8) as u8);
        vec![first, 0x80, second]
    }

    fn timestamp(&mut self, wall_s: u32) -> i64 {
        let late_s = self.rng.below(LATE_S_MAX);
        let micros = (u64::from(wall_s) - late_s) * 1_000_000 + self.rng.below(3);
        micros.cast_signed()
    }

    fn count(&mut self) -> i64 {
        self.written += 1;
        self.written
    }

    fn one_in(&mut self, chance: u64) -> bool {
        chance > 0 && self.rng.below(chance) == 0
    }

    fn index(&mut self, bound: u64) -> usize {
        usize::try_from(self.rng.below(bound)).unwrap_or(0)
    }
}
