//! Reading rows for a SELECT: from one partition or from all, page by page.

use std::ops::ControlFlow;

use tare_cql::response::{Reply, RowsWriter};
use tare_store::{
    End, Next, PartitionRead, Pins, Position, Row, RowRead, Scan, Slice, Store, cells,
};

use crate::failure::Failure;
use crate::plan::{Item, Items, Select};

/// Rows and partitions that one step of a scan looks at, so that other clients are not held up for
/// long.
const STEPS: u32 = 4096;
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
    pub(crate) position: Position,
}

impl Cursor {
    /// As the client keeps it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Position { token, key, clustering } = &self.position;
        let mut out = Vec::with_capacity(32 + key.len());
        out.extend_from_slice(&self.shard.to_be_bytes());
        out.extend_from_slice(&self.left.to_be_bytes());
        out.extend_from_slice(&token.to_be_bytes());
        let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(key);
        out.push(u8::from(clustering.is_some()));
        out.extend_from_slice(clustering.as_deref().unwrap_or_default());
        out
    }

    /// `None` if the bytes are no cursor of this server.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (shard, rest) = bytes.split_first_chunk()?;
        let (left, rest) = rest.split_first_chunk()?;
        let (token, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (key, rest) = rest.split_at_checked(length)?;
        let clustering = match rest {
            [0] => None,
            [1, clustering @ ..] => Some(clustering.to_vec()),
            _ => return None,
        };
        Some(Self {
            shard: u16::from_be_bytes(*shard),
            left: u64::from_be_bytes(*left),
            position: Position { token: i64::from_be_bytes(*token), key: key.to_vec(), clustering },
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
    /// There may be more after this place.
    More(Position),
}

/// Calls `row` with up to `rows` live rows of the range after a cursor; `row` says whether to go
/// on. A scan also stops after a number of steps.
pub(crate) fn read(
    store: &mut Store,
    (table, now_s): (u32, u32),
    range: Range<'_>,
    after: Option<&Cursor>,
    rows: u64,
    mut row: impl FnMut(&Row<'_>) -> bool,
) -> Result<Outcome, Failure> {
    let mut left = rows;
    let mut goes_on = |found: &Row<'_>| {
        left -= 1;
        row(found) && left > 0
    };
    let mut pins = Pins::default();
    match range {
        Range::Partition { token, key, prefix } => {
            let mut end = prefix.to_vec();
            let to = tare_store::read::successor(&mut end).then_some(&end[..]);
            let resumed = after.map(|after| &after.position);
            let resumed = resumed.filter(|after| (after.token, &after.key[..]) == (token, key));
            let after = resumed.and_then(|after| after.clustering.as_deref());
            let slices = &[Slice { from: prefix, to }];
            let read = PartitionRead { table, token, key, slices, reversed: false, after, now_s };
            let mut last = None;
            let end = store.read(&read, &mut pins, |found| {
                if goes_on(&found) {
                    return ControlFlow::Continue(());
                }
                last = Some(found.clustering.to_vec());
                ControlFlow::Break(())
            })?;
            Ok(match end {
                End::Stopped => {
                    Outcome::More(Position { token, key: key.into(), clustering: last })
                }
                End::Done | End::Paused => Outcome::Done,
                End::Missing => return Err(not_in_memory()),
            })
        }
        Range::All => {
            let position = match after {
                Some(after) => after.position.clone(),
                None => Position::at_token(i64::MIN),
            };
            let mut scan = Scan { table, position, to_token: i64::MAX, now_s, steps: STEPS };
            let end = store.scan(&mut scan, &mut pins, |found| {
                if goes_on(&found) { Next::Row } else { Next::Stop }
            })?;
            Ok(match end {
                End::Done => Outcome::Done,
                End::Stopped | End::Paused => Outcome::More(scan.position),
                End::Missing => return Err(not_in_memory()),
            })
        }
    }
}

/// What a client is told until its read can wait for blocks.
fn not_in_memory() -> Failure {
    Failure::Overloaded("the rows are on disk and are being read; try again".into())
}

/// Hands the cells of a row that a SELECT wants to `cell`, in order.
#[inline]
pub(crate) fn project(
    items: &[Item],
    composite: bool,
    row: &Row<'_>,
    mut cell: impl FnMut(Option<&[u8]>),
) {
    let mut indexed: [Option<&[u8]>; INDEXED] = [None; INDEXED];
    for found in cells::iter(row.cells) {
        if let Some(slot) = indexed.get_mut(usize::from(found.column)) {
            *slot = found.value();
        }
    }
    for item in items {
        cell(match *item {
            Item::Partition(index) => key_component(row.key, composite, index),
            Item::Cell(number) => match indexed.get(usize::from(number)) {
                Some(value) => *value,
                None => cells::iter(row.cells).find(|c| c.column == number).and_then(|c| c.value()),
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
    store: &mut Store,
    read: &RowRead<'_>,
    (reply, out): (Reply, &mut Vec<u8>),
) -> Result<(), Failure> {
    let start = out.len();
    let mut writer = RowsWriter::begin(out, reply, &select.columns, None);
    let composite = select.table.partition.len() > 1;
    let found = store.read_row(read, &mut Pins::default(), |row| {
        project(items, composite, &row, |value| writer.cell(value));
        writer.end_row();
    });
    writer.finish();
    let failure = match found {
        Ok(End::Missing) => not_in_memory(),
        Ok(_) => return Ok(()),
        Err(error) => error.into(),
    };
    out.truncate(start);
    Err(failure)
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
    pub(crate) fn add(&mut self, select: &Select, row: &Row<'_>) -> bool {
        if let Items::Columns(items) = &select.items {
            let composite = select.table.partition.len() > 1;
            project(items, composite, row, |value| {
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
        cursor: Option<&Cursor>,
        (reply, out): (Reply, &mut Vec<u8>),
    ) {
        let state = cursor.map(Cursor::encode);
        let columns = &select.columns;
        let mut writer = RowsWriter::begin(out, reply, columns, state.as_deref());
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
