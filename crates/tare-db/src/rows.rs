//! Reading rows for a SELECT: from one partition or from all, page by page.

use tare_cql::response::RowsWriter;
use tare_store::{Partition, Table, cells};

use crate::plan::{Item, Items, Select};

/// Partitions that one step of a scan looks at, so that other clients are not held up for long.
const STEP_PARTITIONS: usize = 2048;
/// Rows of one answer at most, in bytes of cells.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Columns that are found without a search.
const INDEXED: usize = 64;

/// Where a page ended: the row after which the next one goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) shard: u16,
    /// Rows that LIMIT still allows.
    pub(crate) left: u64,
    pub(crate) token: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) clustering: Vec<u8>,
}

impl Cursor {
    /// As the client keeps it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20 + self.key.len() + self.clustering.len());
        out.extend_from_slice(&self.shard.to_be_bytes());
        out.extend_from_slice(&self.left.to_be_bytes());
        out.extend_from_slice(&self.token.to_be_bytes());
        let length = u16::try_from(self.key.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.key);
        out.extend_from_slice(&self.clustering);
        out
    }

    /// `None` if the bytes are no cursor of this server.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (shard, rest) = bytes.split_first_chunk()?;
        let (left, rest) = rest.split_first_chunk()?;
        let (token, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (key, clustering) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        Some(Self {
            shard: u16::from_be_bytes(*shard),
            left: u64::from_be_bytes(*left),
            token: i64::from_be_bytes(*token),
            key: key.to_vec(),
            clustering: clustering.to_vec(),
        })
    }
}

/// What to read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Range<'a> {
    /// Rows of one partition whose clustering key starts with the prefix.
    Partition {
        token: i64,
        key: &'a [u8],
        prefix: &'a [u8],
    },
    All,
}

/// How a piece of reading ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// There may be more after this row: (token, key, clustering).
    More(i64, Vec<u8>, Vec<u8>),
}

/// Calls `row` with up to `rows` live rows of the range after a cursor; `row` says whether to go
/// on. Also stops after a number of partitions.
pub(crate) fn read(
    table: &Table,
    range: Range<'_>,
    after: Option<&Cursor>,
    rows: u64,
    mut row: impl FnMut(&Partition, &[u8]) -> bool,
) -> Outcome {
    let mut left = rows;
    let mut visit = |partition: &Partition, prefix: &[u8]| {
        let resumed = after.filter(|a| a.token == partition.token() && *a.key == *partition.key());
        for (clustering, row_cells) in partition.rows() {
            if !clustering.starts_with(prefix)
                || resumed.is_some_and(|after| clustering <= &after.clustering[..])
                || !cells::is_live(row_cells)
            {
                continue;
            }
            if left == 0 || !row(partition, row_cells) {
                return Some(clustering.to_vec());
            }
            left -= 1;
            if left == 0 {
                return Some(clustering.to_vec());
            }
        }
        None
    };
    match range {
        Range::Partition { token, key, prefix } => {
            let Some(partition) = table.get(token, key) else { return Outcome::Done };
            match visit(partition, prefix) {
                Some(clustering) => Outcome::More(token, key.to_vec(), clustering),
                None => Outcome::Done,
            }
        }
        Range::All => {
            let from = after.map_or(i64::MIN, |after| after.token);
            for (index, partition) in table.iter_from(from).enumerate() {
                let passed = after.is_some_and(|after| {
                    (partition.token(), partition.key()) < (after.token, &after.key[..])
                        // Without a clustering key the row after which to go on is the partition.
                        || (after.clustering.is_empty()
                            && (partition.token(), partition.key()) == (after.token, &after.key[..]))
                });
                if passed {
                    continue;
                }
                let end = visit(partition, &[]);
                if end.is_some() || index >= STEP_PARTITIONS {
                    let last = || partition.rows().next_back().map(|(key, _)| key.to_vec());
                    let clustering = end.or_else(last).unwrap_or_default();
                    let key = partition.key().to_vec();
                    return Outcome::More(partition.token(), key, clustering);
                }
            }
            Outcome::Done
        }
    }
}

/// Hands the cells of a row that a SELECT wants to `cell`, in order.
#[inline]
pub(crate) fn project(
    items: &[Item],
    partition: &Partition,
    composite: bool,
    row: &[u8],
    mut cell: impl FnMut(Option<&[u8]>),
) {
    let mut indexed: [Option<&[u8]>; INDEXED] = [None; INDEXED];
    for found in cells::iter(row) {
        if let Some(slot) = indexed.get_mut(usize::from(found.column)) {
            *slot = found.value;
        }
    }
    for item in items {
        cell(match *item {
            Item::Partition(index) => key_component(partition.key(), composite, index),
            Item::Cell(number) => match indexed.get(usize::from(number)) {
                Some(value) => *value,
                None => cells::iter(row).find(|c| c.column == number).and_then(|c| c.value),
            },
        });
    }
}

/// One component of a serialised partition key. A composite key is a run of
/// `length u16, bytes, 0` (Cassandra's CompositeType).
pub(crate) fn key_component(key: &[u8], composite: bool, index: usize) -> Option<&[u8]> {
    if !composite {
        return Some(key);
    }
    let mut rest = key;
    for skip in (0..=index).rev() {
        let (length, after) = rest.split_first_chunk()?;
        let (component, after) =
            after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        if skip == 0 {
            return Some(component);
        }
        rest = after.get(1..)?;
    }
    None
}

/// Answers a SELECT of one whole row: the hot path, which copies from the row into the frame.
#[inline]
pub(crate) fn answer_row(
    select: &Select,
    items: &[Item],
    table: Option<&Table>,
    (token, key, clustering): (i64, &[u8], &[u8]),
    skip_metadata: bool,
    (stream, out): (i16, &mut Vec<u8>),
) {
    let mut writer = RowsWriter::begin(out, stream, &select.columns, skip_metadata, None);
    if let Some(partition) = table.and_then(|table| table.get(token, key))
        && let Some(row) = partition.row(clustering)
        && cells::is_live(row)
    {
        let composite = select.table.partition.len() > 1;
        project(items, partition, composite, row, |value| writer.cell(value));
        writer.end_row();
    }
    writer.finish();
}

/// Rows that are being collected for one answer.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// Encoded cells, each with its length.
    pub(crate) cells: Vec<u8>,
    pub(crate) rows: u64,
}

impl Collected {
    /// Adds a row. False if the answer is as long as it may be.
    pub(crate) fn add(&mut self, select: &Select, partition: &Partition, row: &[u8]) -> bool {
        if let Items::Columns(items) = &select.items {
            let composite = select.table.partition.len() > 1;
            project(items, partition, composite, row, |value| {
                tare_cql::wire::put_bytes(&mut self.cells, value);
            });
        }
        self.rows += 1;
        self.cells.len() < ANSWER_BYTES_MAX
    }

    /// Writes the frame.
    pub(crate) fn answer(
        &self,
        select: &Select,
        skip_metadata: bool,
        cursor: Option<&Cursor>,
        (stream, out): (i16, &mut Vec<u8>),
    ) {
        let state = cursor.map(Cursor::encode);
        let columns = &select.columns;
        let mut writer = RowsWriter::begin(out, stream, columns, skip_metadata, state.as_deref());
        if select.items == Items::Count {
            writer.cell(Some(&self.rows.to_be_bytes()));
            writer.end_row();
        } else {
            writer.cells_encoded(&self.cells);
            (0..self.rows).for_each(|_| writer.end_row());
        }
        writer.finish();
    }
}
