//! The model: the rows of one shard as plain maps. It implements the rules a second time, as simply
//! as possible. It is slow, and has no logs, tables, blocks or memory.
//!
//! The rules are Cassandra's (`Cells.reconcile`, `DeletionTime.deletes`, 5.0): of two cells of a
//! column the later timestamp wins; at the same timestamp, a dead or expiring cell wins over one
//! that never expires; a dead one over an expiring one; then the later death or expiry; then the
//! smaller TTL; then the greater value. A deletion of a row, of a range or of the elements of a
//! column hides everything that is not newer.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The place of a cell in its row: the column and, for an element of a collection, its path.
pub(crate) type Place = (u16, Option<Vec<u8>>);
/// The cells of a row.
pub(crate) type Cells = BTreeMap<Place, Cell>;

/// The column of a row's deletion.
pub(crate) const DELETION: u16 = 0;
/// The column that makes a row exist.
pub(crate) const MARKER: u16 = 1;

/// The content of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Live(Vec<u8>),
    /// A value that expires at `expires_s`, in seconds since the Unix epoch.
    Expiring {
        value: Vec<u8>,
        ttl_s: u32,
        expires_s: u32,
    },
    Dead {
        since_s: u32,
    },
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) timestamp: i64,
    pub(crate) content: Content,
}

/// A deletion of the rows in `[from, to)`; `to` of `None` is the end of the partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Option<Vec<u8>>,
    pub(crate) timestamp: i64,
    pub(crate) deleted_s: u32,
}

/// A change of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Row { clustering: Vec<u8>, cells: Cells },
    Range(Range),
}

/// Table, token and key of a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartitionId {
    pub(crate) table: u32,
    pub(crate) token: i64,
    pub(crate) key: Vec<u8>,
}

/// One change of one partition. Several that are written together survive together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutation {
    pub(crate) partition_id: PartitionId,
    pub(crate) change: Change,
}

/// A row as a reader sees it: the clustering key and the live cells.
pub(crate) type Row = (Vec<u8>, Cells);

/// The rows of a partition and what has been deleted from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partition {
    rows: BTreeMap<Vec<u8>, Cells>,
    ranges: Vec<Range>,
}

/// All rows of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    partitions: BTreeMap<PartitionId, Partition>,
}

impl Cell {
    fn rank(&self) -> (i64, u8, u32, Reverse<u32>, &[u8]) {
        match &self.content {
            Content::Live(value) => (self.timestamp, 0, 0, Reverse(0), value),
            Content::Expiring { value, ttl_s, expires_s } => {
                (self.timestamp, 1, *expires_s, Reverse(*ttl_s), value)
            }
            Content::Dead { since_s } => (self.timestamp, 2, *since_s, Reverse(0), &[]),
        }
    }

    pub(crate) fn lives(&self, now_s: u32) -> bool {
        match self.content {
            Content::Live(_) => true,
            Content::Expiring { expires_s, .. } => now_s < expires_s,
            Content::Dead { .. } => false,
        }
    }
}

impl Change {
    /// The oldest timestamp of the change.
    pub(crate) fn timestamp_min(&self) -> i64 {
        self.timestamps().min().unwrap_or(i64::MAX)
    }

    /// The newest timestamp of the change.
    pub(crate) fn timestamp_max(&self) -> i64 {
        self.timestamps().max().unwrap_or(i64::MIN)
    }

    fn timestamps(&self) -> impl Iterator<Item = i64> {
        let (cells, range) = match self {
            Self::Row { cells, .. } => (Some(cells), None),
            Self::Range(range) => (None, Some(range.timestamp)),
        };
        let cells = cells.into_iter().flat_map(|cells| cells.values().map(|cell| cell.timestamp));
        cells.chain(range)
    }
}

impl Range {
    fn covers(&self, clustering: &[u8]) -> bool {
        *self.from <= *clustering && self.to.as_ref().is_none_or(|to| *clustering < **to)
    }
}

impl Partition {
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Row { clustering, cells } => {
                let row = self.rows.entry(clustering.clone()).or_default();
                for (place, cell) in cells {
                    match row.get_mut(place) {
                        Some(old) if old.rank() >= cell.rank() => {}
                        Some(old) => *old = cell.clone(),
                        None => drop(row.insert(place.clone(), cell.clone())),
                    }
                }
            }
            Change::Range(range) => self.ranges.push(range.clone()),
        }
    }

    /// The rows that a reader sees at a time, in clustering order.
    pub(crate) fn visible(&self, now_s: u32) -> Vec<Row> {
        let mut visible = Vec::new();
        for (clustering, cells) in &self.rows {
            let covering = self.ranges.iter().filter(|range| range.covers(clustering));
            let deletions = covering.map(|range| range.timestamp);
            let deletion = |column| cells.get(&(column, None)).map(|cell| cell.timestamp);
            let deleted = deletions.chain(deletion(DELETION)).max();
            let lives = |(column, path): &Place, cell: &Cell| {
                let emptied = path.as_ref().and_then(|_| deletion(*column));
                *column != DELETION
                    && deleted.max(emptied).is_none_or(|deleted| cell.timestamp > deleted)
                    && cell.lives(now_s)
            };
            let mut alive = cells.clone();
            alive.retain(|place, cell| lives(place, cell));
            if !alive.is_empty() {
                visible.push((clustering.clone(), alive));
            }
        }
        visible
    }
}

impl Model {
    pub(crate) fn apply(&mut self, mutation: &Mutation) {
        let partition = self.partitions.entry(mutation.partition_id.clone()).or_default();
        partition.apply(&mutation.change);
    }

    /// The rows of one partition that a reader sees.
    pub(crate) fn read(&self, partition_id: &PartitionId, now_s: u32) -> Vec<Row> {
        self.partitions
            .get(partition_id)
            .map_or_else(Vec::new, |partition| partition.visible(now_s))
    }

    /// Every partition that was ever written to, in order.
    pub(crate) fn partition_ids(&self) -> impl Iterator<Item = &PartitionId> {
        self.partitions.keys()
    }
}

/// A description of the difference between two answers; `None` if there is none.
pub(crate) fn difference(expected: &[Row], found: &[Row]) -> Option<String> {
    if expected == found {
        return None;
    }
    for (index, pair) in expected.iter().zip(found).enumerate() {
        let ((clustering, cells), (other, others)) = pair;
        if clustering != other {
            return Some(format!("row {index} is {other:02x?}, expected {clustering:02x?}"));
        }
        if cells != others {
            let mut places = cells.keys().chain(others.keys());
            let place = places.find(|place| cells.get(*place) != others.get(*place));
            let place = place.cloned().unwrap_or_default();
            let (expected, found) = (cells.get(&place), others.get(&place));
            return Some(format!(
                "row {index} ({clustering:02x?}) holds {} in column {place:?}, expected {}",
                describe(found),
                describe(expected)
            ));
        }
    }
    Some(format!("{} rows, expected {}", found.len(), expected.len()))
}

fn describe(cell: Option<&Cell>) -> String {
    let Some(cell) = cell else { return "nothing".into() };
    let value = |value: &[u8]| match value {
        [a, b, c, d, ..] => format!("{} bytes {a:02x}{b:02x}{c:02x}{d:02x}..", value.len()),
        short => format!("{short:02x?}"),
    };
    match &cell.content {
        Content::Live(bytes) => format!("{} at {}", value(bytes), cell.timestamp),
        Content::Expiring { value: bytes, expires_s, .. } => {
            format!("{} at {} until {expires_s} s", value(bytes), cell.timestamp)
        }
        Content::Dead { .. } => format!("a deletion at {}", cell.timestamp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(timestamp: i64, content: Content) -> Cells {
        BTreeMap::from([((2, None), Cell { timestamp, content })])
    }

    fn row(clustering: &[u8], cells: Cells) -> Change {
        Change::Row { clustering: clustering.to_vec(), cells }
    }

    fn visible(changes: &[Change], now_s: u32) -> Vec<Vec<u8>> {
        let mut partition = Partition::default();
        changes.iter().for_each(|change| partition.apply(change));
        let mut again = Partition::default();
        changes.iter().rev().chain(changes).for_each(|change| again.apply(change));
        assert_eq!(partition.visible(now_s), again.visible(now_s), "order and repetition");
        let value = |row: &Row| match &row.1[&(2, None)].content {
            Content::Live(value) | Content::Expiring { value, .. } => value.clone(),
            Content::Dead { .. } => panic!("a reader sees a dead cell"),
        };
        partition.visible(now_s).iter().map(value).collect()
    }

    #[test]
    fn later_writes_deletions_and_greater_values_win() {
        let live = |t, value: &[u8]| row(b"a", cell(t, Content::Live(value.to_vec())));
        let dead = |t| row(b"a", cell(t, Content::Dead { since_s: 9 }));
        assert_eq!(visible(&[live(1, b"x"), live(2, b"a")], 0), [b"a"]);
        assert_eq!(visible(&[live(2, b"x"), live(2, b"y")], 0), [b"y"]);
        assert!(visible(&[live(2, b"x"), dead(2)], 0).is_empty());
        assert_eq!(visible(&[live(3, b"x"), dead(2)], 0), [b"x"]);
    }

    #[test]
    fn expiring_cell_wins_a_tie_and_then_disappears() {
        let content = Content::Expiring { value: b"t".to_vec(), ttl_s: 5, expires_s: 15 };
        let expiring = row(b"a", cell(2, content));
        let live = row(b"a", cell(2, Content::Live(b"x".to_vec())));
        assert_eq!(visible(&[live.clone(), expiring.clone()], 14), [b"t"]);
        assert!(visible(&[live, expiring], 15).is_empty(), "it does not give way to the older");
    }

    #[test]
    fn deletions_hide_cells_that_are_not_newer() {
        let live = |key: &[u8], t| row(key, cell(t, Content::Live(key.to_vec())));
        let range = |from: &[u8], to: Option<&[u8]>, timestamp| {
            let (from, to) = (from.to_vec(), to.map(<[u8]>::to_vec));
            Change::Range(Range { from, to, timestamp, deleted_s: 0 })
        };
        let rows = [live(b"a", 1), live(b"b", 2), live(b"c", 3)];
        let with = |change: Change| {
            let changes: Vec<Change> = rows.iter().cloned().chain([change]).collect();
            visible(&changes, 0)
        };
        assert_eq!(with(range(b"", None, 2)), [b"c"]);
        assert_eq!(with(range(b"b", Some(b"c"), 9)), [b"a", b"c"]);
        let deletion = Cell { timestamp: 3, content: Content::Dead { since_s: 0 } };
        let place = |path: &[u8]| (2, Some(path.to_vec()));
        let element = |t| Cell { timestamp: t, content: Content::Live(b"v".to_vec()) };
        let elements = Cells::from([(place(b"a"), element(3)), (place(b"b"), element(4))]);
        let emptied = Cells::from([((2, None), deletion.clone())]);
        let mut partition = Partition::default();
        [row(b"d", elements), row(b"d", emptied)].iter().for_each(|c| partition.apply(c));
        assert_eq!(partition.visible(0)[0].1, Cells::from([(place(b"b"), element(4))]));
        assert_eq!(with(row(b"c", BTreeMap::from([((DELETION, None), deletion)]))), [b"a", b"b"]);
    }
}
