//! A compaction: merges some files of one table into one, without data that has been dead for long
//! enough.

use std::rc::Rc;

use super::output::Output;
use super::rewrite::{Progress, Rewrite};
use super::windows::Windows;
use super::{OpFailure, STEP_BYTES};
use crate::cells::Purge;
use crate::io::{Completion, Op, OpId, Owner};
use crate::read::stored::Stored;
use crate::row_source::Step;
use crate::table::{Cursor, Table, WriterOptions};

/// Bounds on the bytes that one input is read at a time.
const READ_BYTES_MIN: usize = 16 << 10;
const READ_BYTES_MAX: usize = 256 << 10;

/// Inputs that a compaction may have: their number has eight bits in an operation's id.
pub(crate) const INPUTS_MAX: usize = 64;

/// Why a compaction was aborted.
#[derive(Debug)]
pub(crate) enum AbortReason {
    /// The new table could not be written.
    Output(OpFailure),
    /// An input could not be read.
    Input,
    /// The table was dropped.
    Dropped,
}

/// A compaction that is under way.
#[derive(Debug)]
pub(crate) struct Compaction {
    table: u32,
    inputs: Vec<Rc<Table>>,
    purge: Purge,
    windows: Windows,
    /// Sources that have not all reached their first partitions yet.
    opening: Vec<Stored>,
    rewrite: Option<Rewrite<Stored, Windows>>,
    output: Output,
    reads: usize,
    /// Number of reads so far.
    count: u16,
    read_bytes: u64,
    aborted: Option<AbortReason>,
}

impl Compaction {
    /// A compaction of tables into one file, which reads `read_bytes` of all inputs together at a
    /// time.
    pub(crate) fn new(
        inputs: Vec<Rc<Table>>,
        options: WriterOptions,
        read_bytes: usize,
        purge: Purge,
    ) -> Self {
        let bytes = (read_bytes / inputs.len().max(1)).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        let windows = Windows::new(inputs.iter().map(|input| input.file()), bytes);
        let blocks = bytes / crate::table::PAGE_BYTES;
        let cursor =
            |input: &Rc<Table>| Stored::new(Cursor::new(Rc::clone(input)).with_read_ahead(blocks));
        let opening = inputs.iter().map(cursor).collect();
        let reserved_bytes = inputs.iter().map(|input| input.file_bytes()).sum();
        let table = options.table;
        let output = Output::new(Owner::Compaction, options, reserved_bytes);
        Self {
            table,
            inputs,
            purge,
            windows,
            opening,
            rewrite: None,
            output,
            reads: 0,
            count: 0,
            read_bytes: 0,
            aborted: None,
        }
    }

    /// The table whose rows are compacted.
    pub(crate) fn table(&self) -> u32 {
        self.table
    }

    /// The number of the new file, which also identifies the compaction's operations.
    pub(crate) fn file(&self) -> u64 {
        self.output.file()
    }

    pub(crate) fn inputs(&self) -> &[Rc<Table>] {
        &self.inputs
    }

    pub(crate) fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.file_bytes()).sum()
    }

    pub(crate) fn into_inputs(self) -> Vec<Rc<Table>> {
        self.inputs
    }

    /// Number of operations under way.
    pub(crate) fn ops(&self) -> usize {
        self.reads + self.output.in_flight()
    }

    /// Bytes read and written so far.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.read_bytes, self.output.written_bytes())
    }

    /// Whether a step can make progress now.
    pub(crate) fn can_step(&self) -> bool {
        self.aborted.is_none()
            && (self.rewrite.is_some() || !self.opening.is_empty())
            && !self.windows.is_waiting()
            && self.output.takes_rows()
    }

    /// Does one slice of work.
    pub(crate) fn step(&mut self) {
        if !self.opening.is_empty() {
            return self.open();
        }
        let (Some(rewrite), Some(writer)) = (&mut self.rewrite, self.output.writer()) else {
            return;
        };
        match rewrite.step(&mut self.windows, writer, STEP_BYTES) {
            Ok(Progress::Done) => {
                self.rewrite = None;
                self.output.finish();
            }
            Ok(Progress::Paused | Progress::Missing) => self.output.collect(),
            Err(_) => self.abort_for_input(),
        }
    }

    /// Moves all sources to their first partitions.
    fn open(&mut self) {
        let mut all = true;
        for cursor in &mut self.opening {
            match cursor.open(i64::MIN, &[], &mut self.windows) {
                Ok(step) => all &= step == Step::Ready,
                Err(_) => return self.abort_for_input(),
            }
        }
        if all {
            let sources = std::mem::take(&mut self.opening);
            self.rewrite = Some(Rewrite::new(sources, self.purge));
        }
    }

    fn abort_for_input(&mut self) {
        self.aborted.get_or_insert(AbortReason::Input);
    }

    /// Aborts the compaction, because its table was dropped. It ends as soon as no operation is
    /// under way.
    pub(crate) fn abandon(&mut self) {
        self.aborted = Some(AbortReason::Dropped);
    }

    pub(crate) fn next_op(&mut self) -> Option<Op> {
        if self.aborted.is_some() {
            return None;
        }
        if let Some((input, file, kind)) = self.windows.next_op() {
            self.reads += 1;
            self.count = self.count.wrapping_add(1);
            let part = u8::try_from(input + 1).unwrap_or(u8::MAX);
            let id = OpId::of_table(Owner::Compaction, self.file(), part, self.count);
            return Some(Op { id, file, kind });
        }
        self.output.next_op()
    }

    /// Takes the completion of an operation.
    pub(crate) fn complete(&mut self, completion: Completion) {
        let (_, part) = completion.id.table_part();
        let Some(input) = usize::from(part).checked_sub(1) else {
            return self.output.complete(completion);
        };
        self.reads -= 1;
        let Completion { chunk, result, .. } = completion;
        let length = result.as_ref().map_or(0, |&length| length);
        self.read_bytes += length as u64;
        // After a short read the block is damaged.
        let bytes = chunk.as_ref().map_or(&[][..], |chunk| &chunk.bytes()[..length]);
        if result.is_err() || self.windows.feed(input, bytes).is_err() {
            self.abort_for_input();
        }
    }

    /// The new table when it is durable; the inner option is empty if no row is left.
    pub(crate) fn done(&self) -> Option<Option<Rc<Table>>> {
        self.output.done()
    }

    /// The reason why an aborted compaction has ended, once no operation is under way.
    pub(crate) fn take_abort_reason(&mut self) -> Option<AbortReason> {
        if self.ops() > 0 {
            return None;
        }
        let failed = self.output.take_failure().map(AbortReason::Output);
        self.aborted.take().or(failed)
    }
}
