//! Handles answers: judges them, passes failures to `recovery`, and gives up broken connections.

use std::sync::atomic::Ordering;

use super::{Source, Worker};
use crate::clock;
use crate::protocol::answer::Answer;
use crate::protocol::connection::{CONTROL, Connection, Slot, State};
use crate::protocol::request::AnswerOutcome;
use crate::protocol::wire::Progress;
use crate::report::stats::{ErrorKind, Stats};

/// When answers came, and whether they count.
struct Arrival {
    now_ns: u64,
    /// Set if the kernel's times are wanted: when it received them, if that is known.
    kernel: Option<Option<u64>>,
    is_open: bool,
    /// Whether the measured window is open.
    in_window: bool,
    window_ns: (u64, u64),
}

impl Arrival {
    /// Counts a successful operation if it ends in the window, and records its times: in an open
    /// loop if it was due in the window.
    #[inline]
    fn record(&self, slot: &Slot, kind: usize, found: bool, stats: &mut Stats) {
        let &Self { now_ns, is_open, window_ns, .. } = self;
        stats.operations += u64::from(self.in_window);
        stats.not_found += u64::from(self.in_window && !found);
        let was_due = slot.intended_ns >= window_ns.0 && slot.intended_ns < window_ns.1;
        if !(if is_open { was_due } else { self.in_window }) {
            return;
        }
        let service_ns = now_ns.saturating_sub(slot.sent_ns);
        let response_ns = is_open.then(|| now_ns.saturating_sub(slot.intended_ns));
        stats.answered(kind, service_ns, response_ns);
        if let Some(received_ns) = self.kernel {
            stats.in_kernel(received_ns.and_then(|ns| slot.in_kernel(ns, is_open)));
        }
    }
}

impl Worker<'_> {
    /// Takes the answers of one connection and sends the requests that follow from them.
    pub(super) fn serve(&mut self, index: usize) {
        if !self.connections[index].alive {
            return;
        }
        let progress = match self.connections[index].receive() {
            Ok(progress) => progress,
            Err(error) => {
                return self.drop_connection(index, ErrorKind::Malformed, &error.to_string());
            }
        };
        let now_ns = clock::now_ns();
        let taken = self.take_answers(index, now_ns);
        if !self.failed.is_empty() || !self.beaten.is_empty() {
            self.settle();
        }
        if let Err(reason) = taken {
            return self.drop_connection(index, ErrorKind::Malformed, &reason);
        }
        match progress {
            Progress::Ended => {
                return self.drop_connection(
                    index,
                    ErrorKind::ConnectionClosed,
                    "closed by the server",
                );
            }
            // The edge-triggered queue will not report it again, and other connections come first.
            Progress::More => self.again.push(index),
            Progress::Blocked => {}
        }
        if self.stopped_ns.is_none() && !matches!(self.source, Source::Open(_)) {
            self.fill(index, now_ns);
        }
        self.flush(index);
    }

    /// Judges every complete answer. Fails if the bytes are not answers.
    #[inline]
    fn take_answers(&mut self, index: usize, now_ns: u64) -> Result<(), String> {
        let connection = &mut self.connections[index];
        let came = Arrival {
            now_ns,
            kernel: connection
                .wire
                .kernel_times()
                .is_some()
                .then(|| connection.take_kernel_times()),
            is_open: matches!(self.source, Source::Open(_)),
            in_window: self.crossed > 0 && self.crossed < self.timetable.boundaries.len(),
            window_ns: self.window_ns,
        };
        let mut offset = 0;
        // The earliest intended start among the operations that succeeded.
        let mut served_ns = None::<u64>;
        let result = loop {
            let bytes = &connection.input[offset..];
            let (answer, length) = match Connection::answer_at(connection.key_value, bytes) {
                Ok(Some(found)) => found,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            offset += length;
            let stream = match &answer {
                Answer::Cql(frame) => frame.stream,
                Answer::KeyValue(_) => match connection.order.pop_front() {
                    Some(stream) => stream,
                    None => break Err("an answer without a request".into()),
                },
            };
            let slot =
                usize::try_from(stream).ok().and_then(|place| connection.slots.get_mut(place));
            let Some(slot) = slot else {
                if stream == CONTROL && connection.preparing.is_some() {
                    match connection.end_preparing(offset - length, self.job) {
                        Ok(()) => self.stats.recovery.reprepared += 1,
                        Err(failed) => self.failed.extend(failed),
                    }
                    continue;
                }
                if stream < 0 {
                    continue; // An unrequested event.
                }
                break Err(format!("an answer on stream {stream} without a request"));
            };
            match slot.state {
                State::Waiting => {}
                State::GivenUp => {
                    slot.state = State::Free;
                    connection.free.push(stream);
                    connection.given_up -= 1;
                    self.stats.recovery.unused_answers += 1;
                    continue;
                }
                State::Free | State::AwaitingPrepare => {
                    break Err(format!("an answer on stream {stream} without a request"));
                }
            }
            self.answer_ns = now_ns;
            let (job, operation) = (self.job, slot.operation);
            let judged = job.judge(operation, &answer);
            if let Ok(AnswerOutcome::Then(next)) = judged {
                // The operation began with its first request and ends with the answer to this one.
                slot.operation = next;
                self.beaten.extend(slot.other_attempt.take());
                let head = connection.head(stream);
                let encoded = job.encode(next, &connection.prepared, head, &mut connection.out);
                assert!(encoded, "the engine prepares every statement before the load");
                continue;
            }
            let slot = *slot;
            if let Err((kind, message)) = judged {
                let forgotten = kind == ErrorKind::Server(UNPREPARED);
                if !(forgotten && connection.park(stream, job.statement(operation))) {
                    connection.release(stream);
                    self.failed.push((slot, (kind, message)));
                }
                continue;
            }
            connection.release(stream);
            self.in_flight -= 1;
            let found = judged != Ok(AnswerOutcome::NotFound);
            came.record(&slot, job.kind(&operation), found, &mut self.stats);
            served_ns = Some(served_ns.unwrap_or(u64::MAX).min(slot.intended_ns));
            if let Some(other_attempt) = slot.other_attempt {
                self.stats.recovery.speculative_won += u64::from(slot.is_second);
                self.beaten.push(other_attempt);
            }
            if job.is_populating() {
                self.shared.done.fetch_add(1, Ordering::Relaxed);
            }
        };
        connection.consume(offset);
        if let Some(intended_ns) = served_ns {
            self.note_success(intended_ns, now_ns);
        }
        result
    }

    /// Gives a connection up, and orders a new one if that is wanted.
    #[cold]
    pub(super) fn drop_connection(&mut self, index: usize, kind: ErrorKind, reason: &str) {
        let connection = &mut self.connections[index];
        if !connection.alive {
            return;
        }
        self.queue.forget(connection);
        let lost = connection.give_up();
        if lost.is_empty() {
            self.stats.error(kind, reason, 1);
        }
        self.failed.extend(lost.into_iter().map(|slot| (slot, (kind, reason.to_string()))));
        self.shared.alive.fetch_sub(1, Ordering::Relaxed);
        if self.stopped_ns.is_none() {
            self.redial(index);
        }
        self.settle();
    }

    /// Gives up all requests that still wait for an answer.
    pub(super) fn abandon(&mut self) {
        self.stopped_ns.get_or_insert_with(clock::now_ns);
        for index in 0..self.connections.len() {
            // Nobody awaits answers to attempts that were given up.
            if self.connections[index].is_awaiting() {
                self.drop_connection(
                    index,
                    ErrorKind::NoAnswer,
                    "no answer after the load had ended",
                );
            }
        }
        self.drop_retries();
    }
}

/// The error code for a forgotten statement (CQL protocol, section 9).
const UNPREPARED: i32 = 0x2500;
