//! Recovery from failures, as far as the user asked for it: slow attempts are given up, sent again
//! or doubled, and broken connections are replaced.
//!
//! A successful operation pays one comparison for it. The age of attempts is checked some sixteen
//! times within the shortest of the configured times, so a time-out comes up to a sixteenth late.
//! An attempt that was given up keeps its stream, because its answer may still come; the connection
//! gets another stream instead.

use std::collections::VecDeque;

use super::{Source, Worker};
use crate::access::Recovery;
use crate::protocol::connection::{AttemptRef, Slot};
use crate::report::stats::ErrorKind;
use crate::run::redial::Redialer;
use crate::workload::operation::Operation;

/// The shortest interval between two checks of attempts, in ns.
const SWEEP_NS_MIN: u64 = 250_000;
/// The interval between two looks for new connections, in ns.
const REDIAL_NS: u64 = 5_000_000;
/// A connection counts as broken after so many answers that never came.
const GIVEN_UP_MAX: usize = 4_096;

/// An operation that is to be sent again.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    slot: Slot,
    /// The error of its last attempt.
    kind: ErrorKind,
    message: String,
}

/// The recovery state of one thread.
#[derive(Debug)]
pub(super) struct RecoveryState {
    pub(super) wanted: Recovery,
    /// When attempts are checked next; never if no recovery is configured.
    sweep_ns: u64,
    every_ns: u64,
    again: VecDeque<Retry>,
    redialer: Option<Redialer>,
}

impl RecoveryState {
    pub(super) fn new(wanted: Recovery, redialer: Option<Redialer>) -> Self {
        let shortest = wanted.timeout.into_iter().chain(wanted.speculative).min();
        let every_ns = shortest.map(|time| nanoseconds(time) / 16);
        Self {
            wanted,
            sweep_ns: every_ns.map_or(u64::MAX, |_| 0),
            every_ns: every_ns.map_or(u64::MAX, |ns| ns.max(SWEEP_NS_MIN)),
            again: VecDeque::new(),
            redialer,
        }
    }

    /// Returns when the thread must check again, at the latest.
    #[inline]
    pub(super) fn next_check_ns(&self, now_ns: u64) -> u64 {
        let redialling = self.redialer.as_ref().is_some_and(Redialer::is_busy);
        let redial_ns = if redialling { now_ns + REDIAL_NS } else { u64::MAX };
        self.sweep_ns.min(redial_ns)
    }
}

impl Worker<'_> {
    /// Handles slow attempts, operations to be sent again, and new connections.
    #[inline]
    pub(super) fn recover(&mut self, now_ns: u64) {
        if now_ns >= self.recoverer.sweep_ns {
            self.recoverer.sweep_ns = now_ns + self.recoverer.every_ns;
            self.sweep(now_ns);
        }
        if self.recoverer.redialer.as_ref().is_some_and(Redialer::is_busy) {
            self.take_connections(now_ns);
        }
        if !self.recoverer.again.is_empty() {
            self.send_again();
        }
    }

    /// Decides what happens to failed attempts, and to those that another attempt has beaten.
    #[cold]
    pub(super) fn settle(&mut self) {
        while let Some(other_attempt) = self.beaten.pop() {
            if let Some(connection) = self.connections.get_mut(other_attempt.connection) {
                connection.give_up_attempt(other_attempt.stream);
            }
        }
        for (slot, (kind, message)) in std::mem::take(&mut self.failed) {
            self.fail(slot, kind, message);
        }
    }

    fn fail(&mut self, slot: Slot, kind: ErrorKind, message: String) {
        // The second attempt decides, if there is one.
        if let Some(other_attempt) =
            slot.other_attempt.and_then(|other_attempt| self.waiting(other_attempt))
        {
            other_attempt.other_attempt = None;
            return;
        }
        let may_retry = slot.retries < self.recoverer.wanted.retries && kind.may_pass();
        if may_retry && self.stopped_ns.is_none() {
            self.stats.recovery.retries += 1;
            let retries = slot.retries + 1;
            let (other_attempt, is_second, had_other_attempt) = (None, false, false);
            let slot = Slot { retries, other_attempt, is_second, had_other_attempt, ..slot };
            self.recoverer.again.push_back(Retry { slot, kind, message });
            return;
        }
        self.count(&slot, kind, &message);
    }

    /// Counts an operation that has failed for good.
    fn count(&mut self, slot: &Slot, kind: ErrorKind, message: &str) {
        self.in_flight -= 1;
        self.stats.error(kind, message, 1);
        self.note_failure(slot.intended_ns);
        if self.job.is_populating() {
            self.shared.done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Counts operations that were to be sent again as failed, because the load has ended.
    pub(super) fn drop_retries(&mut self) {
        for Retry { slot, kind, message } in std::mem::take(&mut self.recoverer.again) {
            self.count(&slot, kind, &message);
        }
    }

    fn waiting(&mut self, other_attempt: AttemptRef) -> Option<&mut Slot> {
        let connection = self.connections.get_mut(other_attempt.connection)?;
        let slot = connection.slots.get_mut(usize::try_from(other_attempt.stream).ok()?)?;
        slot.is_awaited().then_some(slot)
    }

    fn send_again(&mut self) {
        if self.stopped_ns.is_some() {
            return self.drop_retries();
        }
        while let Some(Retry { slot, kind, message }) = self.recoverer.again.pop_front() {
            if !self.attempt(None, slot) {
                // No connection works just now.
                self.recoverer.again.push_front(Retry { slot, kind, message });
                break;
            }
        }
        self.flush_given();
    }

    /// Makes another attempt, over the next connection in turn that is not `other_than`.
    fn attempt(&mut self, other_than: Option<usize>, slot: Slot) -> bool {
        let count = self.connections.len();
        let turn = self.turn;
        let index = (0..count)
            .map(|offset| (turn + offset) % count)
            .find(|&index| self.connections[index].alive && Some(index) != other_than);
        let Some(index) = index else { return false };
        self.turn = index + 1;
        let connection = &mut self.connections[index];
        connection.extend();
        let Some(stream) = connection.take_stream(slot) else { return false };
        if let Some(first) =
            slot.other_attempt.and_then(|other_attempt| self.waiting(other_attempt))
        {
            first.other_attempt = Some(AttemptRef { connection: index, stream });
            first.had_other_attempt = true;
        }
        self.encode_on(index, stream, slot.operation);
        true
    }

    fn sweep(&mut self, now_ns: u64) {
        let Recovery { timeout, speculative, .. } = self.recoverer.wanted;
        let timeout_ns = timeout.map_or(u64::MAX, nanoseconds);
        let speculative_ns = speculative.map_or(u64::MAX, nanoseconds);
        let (mut slow, mut late) = (Vec::new(), Vec::new());
        for (index, connection) in self.connections.iter().enumerate() {
            for (stream, slot) in (0..).zip(&connection.slots) {
                let age_ns = now_ns.saturating_sub(slot.attempt_ns);
                if !slot.is_awaited() || slot.attempt_ns == 0 {
                    continue;
                }
                if age_ns >= timeout_ns {
                    late.push(AttemptRef { connection: index, stream });
                } else if age_ns >= speculative_ns && !slot.had_other_attempt {
                    slow.push(AttemptRef { connection: index, stream });
                }
            }
        }
        for attempt in &late {
            // The state may have changed: it may have been one of two attempts, of which the other
            // was just given up.
            let Some(slot) = self.waiting(*attempt).copied() else { continue };
            self.connections[attempt.connection].give_up_attempt(attempt.stream);
            self.stats.recovery.timeouts += 1;
            let message = format!("no answer within {:?}", timeout.unwrap_or_default());
            self.fail(slot, ErrorKind::TimedOut, message);
        }
        for index in 0..self.connections.len() {
            if self.connections[index].given_up > GIVEN_UP_MAX {
                let reason = format!("more than {GIVEN_UP_MAX} requests were never answered");
                self.drop_connection(index, ErrorKind::NoAnswer, &reason);
            }
        }
        if self.stopped_ns.is_none() {
            for first in slow {
                let Some(slot) = self.waiting(first).copied() else { continue };
                let second = Slot {
                    other_attempt: Some(first),
                    is_second: true,
                    had_other_attempt: true,
                    ..slot
                };
                if self.attempt(Some(first.connection), second) {
                    self.stats.recovery.speculative += 1;
                }
            }
        }
        if !late.is_empty() {
            self.refill(now_ns);
        }
        self.flush_given();
    }

    /// Closed loop: sends other operations in place of those that were given up.
    fn refill(&mut self, now_ns: u64) {
        if self.stopped_ns.is_some() || matches!(self.source, Source::Open(_)) {
            return;
        }
        for index in 0..self.connections.len() {
            self.fill(index, now_ns);
            self.flush(index);
        }
    }

    /// Orders a replacement of a broken connection.
    pub(super) fn redial(&mut self, index: usize) {
        if let Some(redialer) = &mut self.recoverer.redialer {
            redialer.order(index);
        }
    }

    /// Takes new connections into use.
    fn take_connections(&mut self, now_ns: u64) {
        while let Some((index, connection)) =
            self.recoverer.redialer.as_mut().and_then(Redialer::take)
        {
            if self.stopped_ns.is_some() || self.queue.watch(index, &connection).is_err() {
                continue;
            }
            self.connections[index] = connection;
            self.connections[index].reserve(self.limits[index]);
            if let Some(routing) = &mut self.routing {
                routing.moved(index, &self.connections[index]);
            }
            self.shared.alive.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.stats.recovery.reconnects += 1;
            if !matches!(self.source, Source::Open(_)) {
                self.fill(index, now_ns);
            }
            self.flush(index);
        }
    }

    /// Encodes the request of an operation on a stream that was reserved for it.
    fn encode_on(&mut self, index: usize, stream: i16, operation: Operation) {
        let connection = &mut self.connections[index];
        let head = connection.head(stream);
        let encoded = self.job.encode(operation, &connection.prepared, head, &mut connection.out);
        assert!(encoded, "every connection is prepared before it is used");
        self.given.push(index);
    }

    fn flush_given(&mut self) {
        while let Some(index) = self.given.pop() {
            self.flush(index);
        }
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
