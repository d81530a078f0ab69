//! What is counted: operations, errors by kind, latencies, the client's own CPU time.

use std::collections::BTreeMap;

use crate::histogram::{self, Histogram};

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ErrorKind {
    /// The server answered with an ERROR of this code (CQL protocol, section 9).
    Server(i32),
    /// A read found no row although one was written.
    RowMissing,
    /// A read returned other bytes than were written.
    RowDiffers,
    /// The answer was not one to the request.
    Unexpected,
    /// The connection ended before the answer.
    ConnectionClosed,
    /// What came was not the protocol; the connection was given up.
    Garbage,
    /// No answer within the time that is waited after the load has ended.
    NoAnswer,
}

impl ErrorKind {
    /// A name without a number where the number means something.
    pub(crate) fn name(self) -> String {
        let server = match self {
            Self::RowMissing => return "row missing".into(),
            Self::RowDiffers => return "row differs from what was written".into(),
            Self::Unexpected => return "unexpected answer".into(),
            Self::ConnectionClosed => return "connection closed".into(),
            Self::Garbage => return "garbage on the connection".into(),
            Self::NoAnswer => return "no answer".into(),
            Self::Server(code) => code,
        };
        let name = match server {
            0x0000 => "server error",
            0x000A => "protocol error",
            0x0100 => "bad credentials",
            0x1000 => "unavailable",
            0x1001 => "overloaded",
            0x1002 => "bootstrapping",
            0x1003 => "truncate error",
            0x1100 => "write timeout",
            0x1200 => "read timeout",
            0x1300 => "read failure",
            0x1400 => "function failure",
            0x1500 => "write failure",
            0x2000 => "syntax error",
            0x2100 => "unauthorized",
            0x2200 => "invalid",
            0x2300 => "configuration error",
            0x2400 => "already exists",
            0x2500 => "unprepared",
            other => return format!("server answered error {other:#06x}"),
        };
        format!("server answered {name}")
    }
}

/// Errors of one kind: how many, and what the first of them said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Errors {
    pub(crate) count: u64,
    pub(crate) first: String,
}

/// What one thread, or all of them, saw in one stretch of time.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    /// When the stretch began and ended, on the clock of `clock::now_ns`.
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    /// Operations that ended well between begin and end.
    pub(crate) operations: u64,
    pub(crate) errors: BTreeMap<ErrorKind, Errors>,
    /// Operations that were due before the end of the window and had not been sent at its end.
    pub(crate) unsent: u64,
    /// CPU time of the load threads between begin and end.
    pub(crate) cpu_ns: u64,
    /// Open loop only: from the intended start, all operations due in the stretch.
    pub(crate) response: Histogram,
    /// From the send.
    pub(crate) service: Histogram,
    /// Open loop only: how much later than intended operations were sent.
    pub(crate) late_ns_sum: u64,
    pub(crate) late_ns_max: u64,
}

impl Stats {
    pub(crate) fn new() -> Self {
        Self {
            begin_ns: 0,
            end_ns: 0,
            operations: 0,
            errors: BTreeMap::new(),
            unsent: 0,
            cpu_ns: 0,
            response: histogram::new(),
            service: histogram::new(),
            late_ns_sum: 0,
            late_ns_max: 0,
        }
    }

    /// Length of the stretch in ns.
    pub(crate) fn window_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    pub(crate) fn error(&mut self, kind: ErrorKind, message: &str, count: u64) {
        if count == 0 {
            return;
        }
        let errors = self.errors.entry(kind).or_default();
        if errors.count == 0 {
            errors.first = message.into();
        }
        errors.count += count;
    }

    /// Adds what another thread saw in the same stretch, or what happened in the next one.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.begin_ns = if self.begin_ns == 0 { other.begin_ns } else { self.begin_ns };
        self.end_ns = self.end_ns.max(other.end_ns);
        self.operations += other.operations;
        self.unsent += other.unsent;
        self.cpu_ns += other.cpu_ns;
        self.late_ns_sum += other.late_ns_sum;
        self.late_ns_max = self.late_ns_max.max(other.late_ns_max);
        histogram::merge(&mut self.response, &other.response);
        histogram::merge(&mut self.service, &other.service);
        for (&kind, errors) in &other.errors {
            self.error(kind, &errors.first, errors.count);
        }
    }

    /// Errors as (kind, count).
    pub(crate) fn errors_by_kind(&self) -> Vec<(String, u64)> {
        self.errors.iter().map(|(kind, errors)| (kind.name(), errors.count)).collect()
    }
}
