//! Turns operations into requests, and answers into verdicts.

use std::sync::Arc;

use tare_cql::frame::{Frame, Head, Opcode};
use tare_cql::request::{self, ValuesWriter};
use tare_cql::response::{Response, Row, Rows};
use tare_cql::token::Token;
use tare_cql::wire::{DecodeError, Value};

use crate::access::Protocol;
use crate::protocol::answer::Answer;
use crate::protocol::key_value::{self, KeyValueProtocol, Requests};
use crate::protocol::prepared::Prepared;
use crate::report::stats::ErrorKind;
use crate::workload::column::{Verdict, row_start};
use crate::workload::operation::{Operation, Operations};
use crate::workload::table::RowPosition;
use crate::workload::versions::{ExpectedVersion, Versions, WriteState};
use crate::workload::{Query, QueryKind, Workload};

/// A workload as requests and checks, without its timing.
#[derive(Debug)]
pub(crate) struct Job {
    workload: Arc<Workload>,
    /// Rows derive from this seed and their number.
    row_seed: u64,
    stage: Stage,
    check: Option<Check>,
    /// Rows as values of keys; `None` with CQL.
    key_value: Option<Requests>,
}

#[derive(Debug)]
enum Stage {
    /// Write rows from this number on; the index selects the row.
    Populate {
        first: u64,
    },
    Load(Operations),
}

/// Rows that are written in 1 µs at most. Their write times stay behind the clock, so that a later
/// write has a later time.
const ROWS_PER_US_MAX: u64 = 16;

/// Compares rows that are read with what was written.
#[derive(Debug)]
pub(crate) struct Check {
    /// The first version: the time of the start, in µs since the epoch.
    begin_us: u64,
    versions: Versions,
    /// A missing row may have been deleted.
    has_deletes: bool,
    /// A row may have columns of several versions.
    has_partial_writes: bool,
}

/// Why an operation failed, with what the server said.
pub(crate) type Failure = (ErrorKind, String);

/// What a valid answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerOutcome {
    Done,
    /// There is no row, and none was expected.
    NotFound,
    /// The operation continues with this request.
    Then(Operation),
}

/// What one request asks for.
enum RequestKind {
    Row,
    Columns(usize),
    Read,
    Range,
    Delete,
}

impl Job {
    /// Returns a job that writes rows from `first` on, with write times from `begin_us` on.
    pub(crate) fn populate(workload: Arc<Workload>, seed: u64, first: u64, begin_us: u64) -> Self {
        let check = Check {
            begin_us,
            versions: Versions::new(0, begin_us),
            has_deletes: false,
            has_partial_writes: false,
        };
        let (stage, check) = (Stage::Populate { first }, Some(check));
        Self { workload, row_seed: seed, stage, check, key_value: None }
    }

    /// Returns a job that runs a workload. With `check_from_us` it checks rows, whose versions
    /// begin at this time.
    pub(crate) fn load(
        workload: Arc<Workload>,
        row_seed: u64,
        operations: Operations,
        check_from_us: Option<u64>,
    ) -> Self {
        let check = check_from_us.map(|begin_us| Check {
            begin_us,
            versions: Versions::new(workload.rows, begin_us),
            has_deletes: workload.has_deletes(),
            has_partial_writes: workload.has_partial_writes(),
        });
        Self { workload, row_seed, stage: Stage::Load(operations), check, key_value: None }
    }

    /// Returns the job in the language of a system.
    pub(crate) fn speaking(mut self, protocol: Protocol) -> Self {
        let bytes = usize::try_from(self.workload.row_bytes_most()).unwrap_or(usize::MAX);
        let prefix = &self.workload.key_prefix;
        self.key_value =
            KeyValueProtocol::of(protocol).map(|protocol| protocol.requests(prefix, bytes));
        self
    }

    pub(crate) fn is_populating(&self) -> bool {
        matches!(self.stage, Stage::Populate { .. })
    }

    /// Returns the index of an operation's kind in `Workload::query_names`.
    #[inline]
    pub(crate) fn kind(&self, operation: &Operation) -> usize {
        usize::from(operation.query)
    }

    /// Returns the operation with this index.
    #[inline]
    pub(crate) fn operation(&self, index: u64) -> Operation {
        let operations = match &self.stage {
            Stage::Populate { first } => {
                return Operation { row: first + index, ..Operation::default() };
            }
            Stage::Load(operations) => operations,
        };
        let mut operation = operations.derive(index);
        if let Some(check) = &self.check {
            operation.version = check.begin_us + 1 + index;
            operation.expected = check.versions.expected(operation.row);
        }
        operation
    }

    /// Returns the statements to prepare, in this order.
    pub(crate) fn statements(&self) -> Vec<String> {
        match self.stage {
            _ if self.key_value.is_some() => Vec::new(),
            Stage::Populate { .. } => self.workload.statements()[..1].to_vec(),
            Stage::Load(_) => self.workload.statements().to_vec(),
        }
    }

    /// Returns which of the statements an operation executes.
    #[inline]
    pub(crate) fn statement(&self, operation: Operation) -> usize {
        self.kind_and_statement(operation).1
    }

    /// Returns the token of the partition that an operation touches, for routing.
    #[inline]
    pub(crate) fn token(&self, operation: Operation) -> Token {
        self.workload.table.token(self.place(operation).partition)
    }

    #[inline]
    fn place(&self, operation: Operation) -> RowPosition {
        let mut place = self.workload.table.place(operation.row);
        if operation.absent {
            // Absent partitions are numbered from the other end.
            let most = self.workload.table.partition_number_most();
            place.partition = most - place.partition;
        }
        place
    }

    #[inline]
    fn query(&self, operation: Operation) -> Option<&Query> {
        match self.stage {
            Stage::Populate { .. } => None,
            Stage::Load(_) => self.workload.queries.get(usize::from(operation.query)),
        }
    }

    /// Returns what the request of an operation does, and by which statement.
    #[inline]
    fn kind_and_statement(&self, operation: Operation) -> (RequestKind, usize) {
        let Some(query) = self.query(operation) else { return (RequestKind::Row, 0) };
        let writes = || match query.columns {
            0 => (RequestKind::Row, 0),
            columns => {
                let first = operation.choice as usize % query.choices;
                (RequestKind::Columns(columns), query.write + first)
            }
        };
        match query.kind {
            QueryKind::Write | QueryKind::Insert => (RequestKind::Row, 0),
            QueryKind::Update => writes(),
            QueryKind::ReadModifyWrite if operation.modifies => writes(),
            QueryKind::Read | QueryKind::ReadModifyWrite => (RequestKind::Read, query.read),
            QueryKind::Slice | QueryKind::Scan => (RequestKind::Range, query.read),
            QueryKind::Delete => (RequestKind::Delete, query.write),
        }
    }

    /// Appends the request of an operation. Returns false if its statement is not prepared.
    #[inline]
    pub(crate) fn encode(
        &self,
        operation: Operation,
        prepared: &Prepared,
        head: impl Into<Head>,
        out: &mut Vec<u8>,
    ) -> bool {
        let (kind, statement) = self.kind_and_statement(operation);
        if let Some(requests) = &self.key_value {
            self.encode_key_value(requests, &kind, operation, out);
            return true;
        }
        let Some(statement) = prepared.statements.get(statement) else { return false };
        let mut settings = statement.settings();
        settings.consistency = self.workload.consistency;
        if let (Some(check), false) =
            (&self.check, matches!(kind, RequestKind::Read | RequestKind::Range))
        {
            let time_us = match self.stage {
                // Later rows have later times, as rows that any client inserts.
                Stage::Populate { first } => {
                    check.begin_us + (operation.row - first) / ROWS_PER_US_MAX
                }
                Stage::Load(_) => operation.version.max(check.begin_us),
            };
            settings.timestamp_us = Some(time_us.cast_signed());
            if matches!(kind, RequestKind::Delete) {
                check.versions.note(operation.row, operation.version, WriteState::DeleteSent);
            }
        }
        let table = &self.workload.table;
        let (place, start) = (self.place(operation), row_start(self.row_seed, operation.row));
        let values = request::execute(out, head, &statement.id, &settings);
        match kind {
            RequestKind::Row => {
                let values = self.put_key(values, place, true);
                self.put_columns(values, 0..table.columns.len(), start, operation.version).finish();
            }
            RequestKind::Columns(count) => {
                let (first, all) = (operation.choice as usize, table.columns.len());
                let columns = (first..first + count).map(|column| column % all);
                let values = self.put_columns(values, columns, start, operation.version);
                self.put_key(values, place, true).finish();
            }
            RequestKind::Read | RequestKind::Delete => {
                self.put_key(values, place, true).finish();
            }
            RequestKind::Range => {
                let is_slice =
                    self.query(operation).is_some_and(|query| query.kind == QueryKind::Slice);
                self.put_key(values, place, is_slice)
                    .value(Value::Bytes(&operation.choice.to_be_bytes()))
                    .finish();
            }
        }
        true
    }

    fn encode_key_value(
        &self,
        requests: &Requests,
        kind: &RequestKind,
        operation: Operation,
        out: &mut Vec<u8>,
    ) {
        // Absent rows are numbered from the other end.
        let number = match operation.absent {
            true => key_value::ROWS_MAX - 1 - operation.row,
            false => operation.row,
        };
        match kind {
            RequestKind::Read => requests.get(number, out),
            _ => requests.set(number, out, |out| {
                self.workload.append_row(self.row_seed, operation.row, operation.version, out);
            }),
        }
    }

    /// Returns the values of the key columns: those of the partition, and of the row within.
    #[inline]
    fn put_key<'o, 's>(
        &self,
        mut values: ValuesWriter<'o, 's>,
        place: RowPosition,
        whole: bool,
    ) -> ValuesWriter<'o, 's> {
        let table = &self.workload.table;
        for index in 0..table.partition.len() {
            values = values.value_with(|out| table.put_partition(index, place.partition, out));
        }
        for index in 0..if whole { table.clustering.len() } else { 0 } {
            values = values.value_with(|out| table.put_clustering(index, place.row, out));
        }
        values
    }

    /// Returns the values of these columns of a row, in a version.
    #[inline]
    fn put_columns<'o, 's>(
        &self,
        mut values: ValuesWriter<'o, 's>,
        columns: impl Iterator<Item = usize>,
        start: u64,
        version: u64,
    ) -> ValuesWriter<'o, 's> {
        for column in columns {
            let column = &self.workload.table.columns[column];
            values = values.value_with(|out| column.put(start, version, out));
        }
        values
    }

    /// Checks the answer to the request of an operation.
    #[inline]
    pub(crate) fn judge(
        &self,
        operation: Operation,
        answer: &Answer<'_>,
    ) -> Result<AnswerOutcome, Failure> {
        match answer {
            Answer::Cql(frame) => self.judge_frame(operation, frame),
            Answer::KeyValue(answer) => self.judge_key_value(operation, *answer),
        }
    }

    #[inline]
    fn judge_frame(
        &self,
        operation: Operation,
        frame: &Frame<'_>,
    ) -> Result<AnswerOutcome, Failure> {
        let (kind, _) = self.kind_and_statement(operation);
        match (Response::decode(frame), kind) {
            (
                Ok(Response::Void),
                RequestKind::Row | RequestKind::Columns(_) | RequestKind::Delete,
            ) => {
                self.note(operation);
                Ok(AnswerOutcome::Done)
            }
            (Ok(Response::Rows(rows)), RequestKind::Read) => {
                let found = self.judge_row(operation, &rows)?;
                let goes_on = self
                    .query(operation)
                    .is_some_and(|query| query.kind == QueryKind::ReadModifyWrite);
                Ok(match found {
                    AnswerOutcome::Done if goes_on => {
                        AnswerOutcome::Then(Operation { modifies: true, ..operation })
                    }
                    other => other,
                })
            }
            (Ok(Response::Rows(rows)), RequestKind::Range) => self.judge_range(operation, &rows),
            (other, _) => Err(failure(other, frame.opcode)),
        }
    }

    fn judge_key_value(
        &self,
        operation: Operation,
        answer: key_value::Answer<'_>,
    ) -> Result<AnswerOutcome, Failure> {
        let reads = matches!(self.kind_and_statement(operation).0, RequestKind::Read);
        match answer {
            key_value::Answer::Refused(text) => {
                Err((ErrorKind::Refused, String::from_utf8_lossy(text).into_owned()))
            }
            key_value::Answer::Done if !reads => {
                self.note(operation);
                Ok(AnswerOutcome::Done)
            }
            key_value::Answer::Nothing if reads => self.judge_missing(operation),
            key_value::Answer::Value(_) if reads && operation.absent => {
                Err(differs(operation.row, "a row that was never written"))
            }
            key_value::Answer::Value(value) if reads => match self.is_value(operation.row, value) {
                true => Ok(AnswerOutcome::Done),
                false => Err(differs(operation.row, "another value than was written")),
            },
            _ => Err((ErrorKind::Unexpected, "an answer to another kind of request".into())),
        }
    }

    /// Returns whether a value is that of a row, in any version: the server's order of two writes
    /// in flight is not known. Without a check, only its size counts.
    fn is_value(&self, row: u64, mut value: &[u8]) -> bool {
        if self.key_value.as_ref().is_none_or(|requests| requests.value_bytes != value.len()) {
            return false;
        }
        let columns = self.workload.table.columns.iter();
        let mut cells = columns.map(|column| {
            let bytes = usize::try_from(column.bytes_most()).unwrap_or(usize::MAX);
            let (cell, rest) = value.split_at(bytes.min(value.len()));
            value = rest;
            cell
        });
        self.check.is_none() || self.workload.is_row(self.row_seed, row, &mut cells)
    }

    /// Judges the answer that there is no row.
    #[inline]
    fn judge_missing(&self, operation: Operation) -> Result<AnswerOutcome, Failure> {
        let excused = operation.absent || !self.must_be_there(operation);
        if excused { Ok(AnswerOutcome::NotFound) } else { Err(missing(operation.row)) }
    }

    /// Remembers an acknowledged write.
    #[inline]
    fn note(&self, operation: Operation) {
        let (Some(check), Some(query)) = (&self.check, self.query(operation)) else { return };
        let done =
            if query.kind == QueryKind::Delete { WriteState::Deleted } else { WriteState::Written };
        check.versions.note(operation.row, operation.version, done);
    }

    #[inline]
    fn judge_row(&self, operation: Operation, rows: &Rows<'_>) -> Result<AnswerOutcome, Failure> {
        let mut all = rows.iter();
        let Some(row) = all.next() else { return self.judge_missing(operation) };
        if operation.absent || all.next().is_some() {
            return Err(differs(operation.row, "a row that was never written"));
        }
        if let Some(check) = &self.check {
            self.check_row(check, &row, 0, operation.row, operation.expected)?;
        }
        Ok(AnswerOutcome::Done)
    }

    /// Returns whether the row must exist.
    fn must_be_there(&self, operation: Operation) -> bool {
        let was_filled = operation.row < self.workload.rows;
        match operation.expected {
            ExpectedVersion::Written(_) => true,
            ExpectedVersion::Open | ExpectedVersion::Deleted(_) => false,
            // Another row took the entry, so nothing is known of this one.
            ExpectedVersion::Unknown => {
                let forgets = |check: &Check| !check.versions.is_exact(self.workload.rows);
                was_filled
                    && (!self.workload.has_deletes()
                        || self.check.as_ref().is_some_and(|check| !forgets(check)))
            }
        }
    }

    /// Compares a row with what was written. Its first `skip` cells are the key.
    #[inline]
    fn check_row(
        &self,
        check: &Check,
        row: &Row<'_>,
        skip: usize,
        number: u64,
        expected: ExpectedVersion,
    ) -> Result<(), Failure> {
        let start = row_start(self.row_seed, number);
        let mut cells = row.cells();
        (0..skip).for_each(|_| {
            cells.next();
        });
        let (mut least, mut most) = (u64::MAX, 0);
        for column in &self.workload.table.columns {
            match cells.next() {
                Some(Some(cell)) => match column.check(start, cell) {
                    Verdict::Right(Some(version)) => {
                        least = least.min(version);
                        most = most.max(version);
                    }
                    Verdict::Right(None) => {}
                    Verdict::Wrong => return Err(wrong_column(number, &column.name)),
                },
                // This column's row was deleted or not inserted yet when other columns of it were
                // updated.
                Some(None)
                    if check.has_partial_writes
                        && (check.has_deletes || number >= self.workload.rows) =>
                {
                    least = 0;
                }
                _ => return Err(wrong_column(number, &column.name)),
            }
        }
        if least == u64::MAX {
            return Ok(()); // No column holds a version.
        }
        let seen = if check.has_partial_writes { most } else { least };
        match expected {
            ExpectedVersion::Written(expected) if seen < expected => {
                Err(stale(number, seen, expected))
            }
            ExpectedVersion::Deleted(expected) if most < expected => {
                Err(stale(number, most, expected))
            }
            _ => Ok(()),
        }
    }

    /// Checks a slice or scan: every row must be one that was written, in order; a slice must have
    /// no gaps.
    fn judge_range(&self, operation: Operation, rows: &Rows<'_>) -> Result<AnswerOutcome, Failure> {
        let is_slice = self.query(operation).is_some_and(|query| query.kind == QueryKind::Slice);
        if rows.len() as u64 > u64::from(operation.choice) {
            return Err(differs(operation.row, "more rows than requested"));
        }
        if let Some(check) = &self.check {
            let mut follower = RangeCheck::new(self, operation, is_slice && !check.has_deletes);
            for row in rows {
                let number = follower.take(&row)?;
                let skip = self.workload.table.width() - self.workload.table.columns.len();
                self.check_row(check, &row, skip, number, ExpectedVersion::Unknown)?;
            }
            follower.end(rows.len())?;
        }
        Ok(if rows.is_empty() { AnswerOutcome::NotFound } else { AnswerOutcome::Done })
    }
}

/// Checks the order of the rows of a slice or a scan.
struct RangeCheck<'a> {
    job: &'a Job,
    operation: Operation,
    /// The next row of the partition, if none may be missing.
    next: Option<RowPosition>,
    last: Option<RowPosition>,
}

impl<'a> RangeCheck<'a> {
    fn new(job: &'a Job, operation: Operation, whole: bool) -> Self {
        let next = (whole && !operation.absent).then(|| job.place(operation));
        Self { job, operation, next, last: None }
    }

    /// Returns the number of a row.
    fn take(&mut self, row: &Row<'_>) -> Result<u64, Failure> {
        let table = &self.job.workload.table;
        let place = table.place_of(&mut row.cells());
        let number = place.and_then(|place| table.row_at(place));
        let (Some(place), Some(number)) = (place, number) else {
            return Err(differs(self.operation.row, "a row with a key that was never written"));
        };
        let in_order =
            self.last.is_none_or(|last| last.partition != place.partition || last.row < place.row);
        if !in_order {
            return Err(differs(number, "not in the order of its partition"));
        }
        if let Some(next) = &mut self.next {
            if place.partition != next.partition || place.row < next.row {
                return Err(differs(number, "a row that was not requested"));
            }
            for lacking in next.row..place.row {
                Self::may_lack(self.job, RowPosition { row: lacking, ..place })?;
            }
            next.row = place.row + 1;
        }
        self.last = Some(place);
        Ok(number)
    }

    /// Checks what must have come by the last row.
    fn end(&self, rows: usize) -> Result<(), Failure> {
        let Some(next) = self.next else { return Ok(()) };
        let wanted = u64::from(self.operation.choice).saturating_sub(rows as u64);
        let end = self.job.workload.table.rows_per_partition.min(next.row.saturating_add(wanted));
        (next.row..end).try_for_each(|row| Self::may_lack(self.job, RowPosition { row, ..next }))
    }

    fn may_lack(job: &Job, place: RowPosition) -> Result<(), Failure> {
        match job.workload.table.row_at(place) {
            Some(number) if number < job.workload.rows => Err(missing(number)),
            _ => Ok(()),
        }
    }
}

#[cold]
fn missing(row: u64) -> Failure {
    (ErrorKind::RowMissing, format!("no row {row}"))
}

#[cold]
fn differs(row: u64, what: &str) -> Failure {
    (ErrorKind::RowDiffers, format!("row {row}: {what}"))
}

#[cold]
fn wrong_column(row: u64, column: &str) -> Failure {
    (ErrorKind::RowDiffers, format!("column {column} of row {row}"))
}

#[cold]
fn stale(row: u64, found: u64, expected: u64) -> Failure {
    (
        ErrorKind::RowStale,
        format!("row {row} as written at {found} µs, not at {expected} µs or later"),
    )
}

#[cold]
fn failure(answer: Result<Response<'_>, DecodeError>, opcode: Opcode) -> Failure {
    match answer {
        Ok(Response::Error(error)) => {
            (ErrorKind::Server(error.kind.code()), error.message.to_string())
        }
        Ok(_) => (ErrorKind::Unexpected, format!("the answer is {opcode:?}")),
        Err(error) => (ErrorKind::Unexpected, error.to_string()),
    }
}
