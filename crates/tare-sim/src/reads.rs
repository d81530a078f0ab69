//! Reads that wait for the device: the rows that they have returned, and the rows that they may
//! return.
//!
//! The shard changes while a read waits. Each of its rows must equal the row at some moment between
//! the read's start and its end; rows that did not change meanwhile must be exact, and so must the
//! order. A cell that expires meanwhile may be there or not: a compaction may have dropped it.

use std::collections::BTreeSet;

use crate::engine::{Engine, PartialRead, Progress};
use crate::history::History;
use crate::model::{Cell, Cells, Mutation, Place, Row, difference};
use crate::violation::Violation;
use crate::workload::Read;

/// Reads that may wait at the same time.
const READS_MAX: usize = 8;
/// Calls after which a read that does not have to wait must have ended.
const CALLS_MAX: usize = 10_000;

/// A read under way.
#[derive(Debug)]
struct ActiveRead {
    read: Read,
    reading: PartialRead,
    now_s: u32,
    begun_ns: u64,
    /// The right answer at its start, with all columns, and after each change of its partition
    /// since.
    versions: Vec<Vec<Row>>,
}

/// The reads of a shard that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    active: Vec<ActiveRead>,
}

/// The result of a read: its rows, or the reason why it failed and when it had begun.
pub(crate) type ReadResult = Result<Vec<Row>, (Progress, u64)>;

impl Reads {
    pub(crate) fn has_room(&self) -> bool {
        self.active.len() < READS_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Drops all reads, because the crash has disconnected their clients.
    pub(crate) fn clear(&mut self) {
        self.active.clear();
    }

    /// Starts a read at this second and moment.
    pub(crate) fn begin(&mut self, read: Read, history: &History, (now_s, begun_ns): (u32, u64)) {
        let versions = vec![expected(&read, history, now_s)];
        let reading = PartialRead::default();
        self.active.push(ActiveRead { read, reading, now_s, begun_ns, versions });
    }

    /// Notes a write that the store has accepted.
    pub(crate) fn wrote(&mut self, mutations: &[Mutation], history: &History) {
        for read_ in &mut self.active {
            if mutations.iter().any(|mutation| mutation.partition_id == read_.read.partition_id) {
                read_.versions.push(expected(&read_.read, history, read_.now_s));
            }
        }
    }

    /// Continues every read at this second. Returns those that have ended, after a check.
    pub(crate) fn step(
        &mut self,
        engine: &mut Engine,
        wall_s: u32,
    ) -> Result<Vec<ReadResult>, Violation> {
        let mut ended = Vec::new();
        let mut at = 0;
        while let Some(read_) = self.active.get_mut(at) {
            match step(read_, engine)? {
                Progress::Missing => at += 1,
                Progress::Done => {
                    let mut read_ = self.active.remove(at);
                    project(&read_.read, &mut read_.reading.rows);
                    check(&read_, wall_s)?;
                    ended.push(Ok(read_.reading.rows));
                }
                failed => {
                    let begun_ns = self.active.remove(at).begun_ns;
                    ended.push(Err((failed, begun_ns)));
                }
            }
        }
        Ok(ended)
    }
}

fn step(read_: &mut ActiveRead, engine: &mut Engine) -> Result<Progress, Violation> {
    for _ in 0..CALLS_MAX {
        match engine.read(&read_.read, &mut read_.reading, read_.now_s) {
            Progress::Paused => {}
            progress => return Ok(progress),
        }
    }
    Err(Violation::Livelock { under_way: 0, turns: CALLS_MAX })
}

fn expected(read: &Read, history: &History, now_s: u32) -> Vec<Row> {
    let mut rows = history.now().read(&read.partition_id, now_s);
    rows.retain(|(clustering, _)| {
        let inside = |(from, to): &(Vec<u8>, Option<Vec<u8>>)| {
            from <= clustering && to.as_ref().is_none_or(|to| clustering < to)
        };
        read.slices.iter().any(inside)
    });
    if read.reversed {
        rows.reverse();
    }
    rows
}

/// Removes the columns that were not requested, because an answer may lack them. Whether a row
/// exists has to be right in any case.
fn project(read: &Read, rows: &mut [Row]) {
    let Some(Some(wanted)) = &read.row else { return };
    rows.iter_mut().for_each(|(_, cells)| cells.retain(|(column, _), _| wanted.contains(column)));
}

/// Removes the cells that had expired at a second.
fn without_expired(cells: &mut Cells, wall_s: u32) {
    cells.retain(|_, cell| cell.lives(wall_s));
}

fn check(read_: &ActiveRead, wall_s: u32) -> Result<(), Violation> {
    let ActiveRead { read, reading, versions, .. } = read_;
    let wrong = |difference: String| {
        let partition = format!("{:02x?}", read.partition_id);
        Err(Violation::WrongRead { partition, difference })
    };
    let (mut versions, mut found) = (versions.clone(), reading.rows.clone());
    for (clustering, cells) in &found {
        let was_there = |(place, cell): (&Place, &Cell)| {
            let mut rows = versions.iter().flatten().filter(|(key, _)| key == clustering);
            cell.lives(wall_s) || rows.any(|(_, cells)| cells.get(place) == Some(cell))
        };
        if !cells.iter().all(was_there) {
            return wrong(format!("row {clustering:02x?} never had an expired cell of it"));
        }
    }
    let mut vanishing = BTreeSet::new();
    for version in &mut versions {
        version.iter_mut().for_each(|(_, cells)| without_expired(cells, wall_s));
        let gone = version.extract_if(.., |(_, cells)| cells.is_empty());
        vanishing.extend(gone.map(|(clustering, _)| clustering));
        project(read, version);
    }
    found.iter_mut().for_each(|(_, cells)| without_expired(cells, wall_s));
    found.retain(|(clustering, cells)| !cells.is_empty() || !vanishing.contains(clustering));
    let found = &found;
    if let [exact] = &versions[..] {
        return difference(exact, found).map_or(Ok(()), wrong);
    }
    let ascends = |pair: &[Row]| match read.reversed {
        false => pair[0].0 < pair[1].0,
        true => pair[0].0 > pair[1].0,
    };
    if !found.windows(2).all(ascends) {
        return wrong("rows are not in order".into());
    }
    for row in found {
        if !versions.iter().any(|version| version.contains(row)) {
            return wrong(format!("row {:02x?} never had these cells", row.0));
        }
    }
    for row in &versions[0] {
        if versions.iter().all(|version| version.contains(row)) && !found.contains(row) {
            return wrong(format!("row {:02x?} is missing", row.0));
        }
    }
    Ok(())
}
