//! A flush: writes a frozen memtable into one table file for each table that has rows in it.

use std::rc::Rc;

use super::output::Output;
use super::rewrite::{Progress, Rewrite};
use super::{MemoryShares, OpFailure, STEP_BYTES, ratio};
use crate::cells::Purge;
use crate::io::{Completion, Op, Owner};
use crate::memtable::{Cursor, Memtable};
use crate::options::TableOptions;
use crate::table::{Table, WriterOptions};

/// A flush drops no deletions, because tables may hold the data that they delete.
const NOTHING: Purge = Purge { now_s: 0, gc_before_s: 0, timestamp_below: i64::MIN };

/// A flush that is under way.
#[derive(Debug)]
pub(crate) struct Flush {
    memtable: Rc<Memtable>,
    log_sequence: u64,
    /// Tables that have not begun.
    tables: Vec<u32>,
    current: Option<Current>,
    done: Vec<Rc<Table>>,
    /// Bytes of rows that have been written, approximately.
    stepped_bytes: usize,
    /// Files without rows.
    empty: Vec<u64>,
}

#[derive(Debug)]
struct Current {
    table: u32,
    rewrite: Option<Rewrite<Cursor<Rc<Memtable>>, ()>>,
    output: Output,
}

impl Flush {
    /// The memtable holds all groups of the log below `log_sequence` that were not flushed before.
    pub(crate) fn new(memtable: Rc<Memtable>, log_sequence: u64) -> Self {
        let tables = memtable.tables().collect();
        Self {
            memtable,
            log_sequence,
            tables,
            current: None,
            done: Vec::new(),
            stepped_bytes: 0,
            empty: Vec::new(),
        }
    }

    pub(crate) fn log_sequence(&self) -> u64 {
        self.log_sequence
    }

    pub(crate) fn memtable(&self) -> &Rc<Memtable> {
        &self.memtable
    }

    /// The share that has been written, 0 to 1, rather too low than too high.
    pub(crate) fn progress(&self) -> f64 {
        ratio(self.stepped_bytes, self.memtable.bytes())
    }

    /// Whether a step can make progress now.
    pub(crate) fn can_step(&self) -> bool {
        match &self.current {
            Some(current) => current.rewrite.is_some() && current.output.takes_rows(),
            None => !self.tables.is_empty(),
        }
    }

    /// Does one slice of work. A new file takes its number from `next_file`.
    pub(crate) fn step(
        &mut self,
        schema: impl Fn(u32) -> Option<TableOptions>,
        next_file: &mut u64,
        shares: MemoryShares,
    ) {
        let Some(current) = &mut self.current else {
            let Some(table) = self.tables.pop() else { return };
            if let Some(options) = schema(table) {
                let options = options.for_writer(*next_file, table, shares.chunk_bytes);
                *next_file += 1;
                self.begin(table, options);
            }
            return;
        };
        let (Some(rewrite), Some(writer)) = (&mut current.rewrite, current.output.writer()) else {
            return;
        };
        self.stepped_bytes += STEP_BYTES;
        match rewrite.step(&mut (), writer, STEP_BYTES) {
            Ok(Progress::Done) => {
                current.rewrite = None;
                current.output.finish();
            }
            Ok(Progress::Paused | Progress::Missing) => current.output.collect(),
            // The source is in memory.
            Err(error) => unreachable!("a memtable cannot be read: {error}"),
        }
    }

    fn begin(&mut self, table: u32, options: WriterOptions) {
        let cursor = Cursor::new(Rc::clone(&self.memtable), table);
        let rewrite = Some(Rewrite::new(vec![cursor], NOTHING));
        let output = Output::new(Owner::Flush, options, 0);
        self.current = Some(Current { table, rewrite, output });
    }

    pub(crate) fn next_op(&mut self) -> Option<Op> {
        self.current.as_mut()?.output.next_op()
    }

    /// Takes the completion of an operation. Returns the bytes of a table that has become durable.
    /// After a failure the table begins again in another file; the number is that of the leftover.
    pub(crate) fn complete(&mut self, completion: Completion) -> Result<u64, (OpFailure, u64)> {
        let Some(current) = &mut self.current else { return Ok(0) };
        current.output.complete(completion);
        if let Some(failed) = current.output.take_failure() {
            let file = current.output.file();
            self.tables.push(current.table);
            self.current = None;
            return Err((failed, file));
        }
        let Some(table) = current.output.done() else { return Ok(0) };
        let bytes = table.as_ref().map_or(0, |table| table.file_bytes());
        match table {
            Some(table) => self.done.push(table),
            None => self.empty.push(current.output.file()),
        }
        self.current = None;
        Ok(bytes)
    }

    /// The tables, when all of them are durable, and the files without rows.
    pub(crate) fn finished(&mut self) -> Option<(Vec<Rc<Table>>, Vec<u64>)> {
        let all = self.current.is_none() && self.tables.is_empty();
        all.then(|| (std::mem::take(&mut self.done), std::mem::take(&mut self.empty)))
    }
}
