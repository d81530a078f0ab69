//! From operation to request, and from answer to verdict.

use tare_cql::frame::{Frame, Head, Opcode};
use tare_cql::request;
use tare_cql::response::{Response, Rows};
use tare_cql::token::Token;
use tare_cql::wire::{DecodeError, Value};

use crate::connection::Prepared;
use crate::keys::{Operation, Operations};
use crate::rows::{Row, Shape};
use crate::stats::ErrorKind;

/// What is asked of the system, apart from when.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) shape: Shape,
    /// Rows derive from this and their key.
    pub(crate) row_seed: u64,
    /// Compare every row read with what was written.
    pub(crate) verify: bool,
    /// None: the index is the key and every operation writes.
    pub(crate) operations: Option<Operations>,
}

/// Why an answer is none, with what the server said.
pub(crate) type Failure = (ErrorKind, String);

impl Job {
    /// The kinds of operations, as they are named in results and logs.
    pub(crate) const KINDS: &[&str] = &["read", "write"];

    /// The place of an operation's kind in `KINDS`.
    #[inline]
    pub(crate) fn kind(&self, operation: &Operation) -> usize {
        usize::from(operation.write)
    }

    pub(crate) fn is_populating(&self) -> bool {
        self.operations.is_none()
    }

    /// The operation of an index.
    #[inline]
    pub(crate) fn operation(&self, index: u64) -> Operation {
        match &self.operations {
            Some(operations) => operations.derive(index),
            None => Operation { key: index, write: true },
        }
    }

    /// The statements that operations execute, to be prepared in this order.
    pub(crate) fn statements(&self) -> Vec<String> {
        vec![self.shape.insert(), self.shape.select()]
    }

    /// Which of the statements an operation executes.
    pub(crate) fn statement(&self, operation: Operation) -> usize {
        usize::from(!operation.write)
    }

    /// The token of the partition that an operation touches, for who knows the way there.
    #[inline]
    pub(crate) fn token(&self, operation: Operation) -> Token {
        Token::of(&operation.key.to_be_bytes())
    }

    /// Appends the request of an operation. False if its statement is not prepared.
    #[inline]
    pub(crate) fn encode(
        &self,
        operation: Operation,
        prepared: &Prepared,
        head: impl Into<Head>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Operation { key, write } = operation;
        let Some(statement) = prepared.statements.get(self.statement(operation)) else {
            return false;
        };
        let key_bytes = key.to_be_bytes();
        let settings = statement.settings();
        let mut values =
            request::execute(out, head, &statement.id, &settings).value(Value::Bytes(&key_bytes));
        if write {
            let row = Row::new(&self.shape, self.row_seed, key);
            for column in 0..self.shape.columns {
                values = values.value_with(|out| row.write_column(column, out));
            }
        }
        values.finish();
        true
    }

    /// Whether an answer is the one to the request of an operation.
    #[inline]
    pub(crate) fn judge(&self, operation: Operation, frame: &Frame<'_>) -> Result<(), Failure> {
        match Response::decode(frame) {
            Ok(Response::Void) if operation.write => Ok(()),
            Ok(Response::Rows(rows)) if !operation.write => {
                if rows.is_empty() {
                    return Err(missing(operation.key));
                }
                if self.verify { self.check_row(&rows, operation.key) } else { Ok(()) }
            }
            other => Err(failure(other, frame.opcode)),
        }
    }

    /// Compares a row with what was written under its key.
    #[inline]
    fn check_row(&self, rows: &Rows<'_>, key: u64) -> Result<(), Failure> {
        let row = Row::new(&self.shape, self.row_seed, key);
        let mut cells = rows.cells();
        for column in 0..self.shape.columns {
            if !cells.next().flatten().is_some_and(|bytes| row.column_is(column, bytes)) {
                return Err(differs(key, column));
            }
        }
        Ok(())
    }
}

#[cold]
fn missing(key: u64) -> Failure {
    (ErrorKind::RowMissing, format!("no row with key {key}"))
}

#[cold]
fn differs(key: u64, column: u32) -> Failure {
    (ErrorKind::RowDiffers, format!("column c{column} of the row with key {key}"))
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
