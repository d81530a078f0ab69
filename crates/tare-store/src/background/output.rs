//! A table file that is being written: created, written front to back, cut to its length, synced.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use super::OpFailure;
use crate::chunk::Chunk;
use crate::io::{Completion, FileId, Op, OpId, OpKind, Owner};
use crate::table::{Table, TableWriter, WriterOptions};

/// Writes that may be under way.
const WRITES_MAX: usize = 2;
/// Chunks that may be written or wait, before no more rows are taken.
const CHUNKS_MAX: usize = 4;

/// The state of the file. Each step waits for all operations of the step before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Write,
    Truncate,
    Sync,
    Done,
}

/// A table file that is being written.
#[derive(Debug)]
pub(crate) struct Output {
    owner: Owner,
    file: u64,
    reserved_bytes: u64,
    writer: TableWriter,
    chunks: VecDeque<(u64, Chunk)>,
    /// The written table, when all rows have come; the inner option is empty if there were none.
    table: Option<Option<Rc<Table>>>,
    step: Step,
    in_flight: usize,
    /// Number of operations so far.
    count: u16,
    written_bytes: u64,
    failed: Option<OpFailure>,
}

impl Output {
    /// A file for which so many bytes are reserved at once, so that a full disk is found before the
    /// work is done; 0 reserves none.
    pub(crate) fn new(owner: Owner, options: WriterOptions, reserved_bytes: u64) -> Self {
        Self {
            owner,
            file: options.file,
            reserved_bytes,
            writer: TableWriter::new(options),
            chunks: VecDeque::new(),
            table: None,
            step: Step::Create,
            in_flight: 0,
            count: 0,
            written_bytes: 0,
            failed: None,
        }
    }

    pub(crate) fn file(&self) -> u64 {
        self.file
    }

    /// Whether there is room for more rows.
    pub(crate) fn takes_rows(&self) -> bool {
        let open = self.table.is_none() && self.failed.is_none();
        open && self.chunks.len() + self.in_flight < CHUNKS_MAX
    }

    /// The writer, while it takes rows.
    pub(crate) fn writer(&mut self) -> Option<&mut TableWriter> {
        self.takes_rows().then_some(&mut self.writer)
    }

    /// Takes the chunks that the writer has filled.
    pub(crate) fn collect(&mut self) {
        while let Some(chunk) = self.writer.next_chunk() {
            self.chunks.push_back(chunk);
        }
    }

    /// Ends the table after its last row.
    pub(crate) fn finish(&mut self) {
        self.table = Some(self.writer.finish().map(Rc::new));
        self.collect();
        self.advance();
    }

    pub(crate) fn next_op(&mut self) -> Option<Op> {
        if self.failed.is_some() {
            return None;
        }
        let kind = match self.step {
            Step::Create if self.in_flight == 0 => {
                OpKind::Create { size_bytes: self.reserved_bytes }
            }
            Step::Write if self.in_flight < WRITES_MAX => {
                let (offset, chunk) = self.chunks.pop_front()?;
                OpKind::Write { offset, chunk, sync: false }
            }
            Step::Truncate if self.in_flight == 0 => {
                OpKind::Truncate { length: self.written_bytes }
            }
            Step::Sync if self.in_flight == 0 => OpKind::Sync,
            _ => return None,
        };
        self.in_flight += 1;
        let id = OpId::of_table(self.owner, self.file, 0, self.count);
        self.count = self.count.wrapping_add(1);
        Some(Op { id, file: FileId::Table(self.file), kind })
    }

    pub(crate) fn complete(&mut self, completion: Completion) {
        self.in_flight -= 1;
        let wanted = completion.chunk.as_ref().map_or(0, Chunk::len);
        let result = match completion.result {
            Ok(length) if length < wanted => Err(io::ErrorKind::WriteZero.into()),
            other => other,
        };
        if let Err(error) = result {
            self.failed.get_or_insert(OpFailure::from(error));
        }
        // Operations that were under way beside a failed one have no effect any more.
        if self.failed.is_some() {
            return;
        }
        self.written_bytes += wanted as u64;
        self.step = match self.step {
            Step::Create => Step::Write,
            Step::Truncate => Step::Sync,
            Step::Sync => Step::Done,
            other => other,
        };
        self.advance();
    }

    /// Goes to the next step when all operations have ended.
    fn advance(&mut self) {
        let all = self.table.is_some() && self.chunks.is_empty() && self.in_flight == 0;
        if self.step == Step::Write && all {
            if let Some(Some(table)) = &self.table {
                assert_eq!(table.file_bytes(), self.written_bytes, "all pages have been written");
            }
            let longer = self.reserved_bytes > self.written_bytes;
            self.step = if longer { Step::Truncate } else { Step::Sync };
        }
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The table when it is durable; the inner option is empty if it has no rows.
    pub(crate) fn done(&self) -> Option<Option<Rc<Table>>> {
        if self.step == Step::Done { self.table.clone() } else { None }
    }

    /// The reason of a failure, once no operation is under way.
    pub(crate) fn take_failure(&mut self) -> Option<OpFailure> {
        if self.in_flight == 0 { self.failed.take() } else { None }
    }

    /// Number of operations under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }
}
