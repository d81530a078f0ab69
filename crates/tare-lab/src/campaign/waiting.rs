//! Waits for a system: until it answers after its start, and until it is quiet after its load. Both
//! waits poll the system instead of sleeping for a fixed time, and both have a limit.

use std::time::Duration;

use super::member::{Running, with_output};
use super::{Campaign, error_line};
use crate::PartError;
use crate::environment::{Endpoint, Environment};
use crate::system::QUIET_LIMIT;
use crate::system::System;

/// Interval between two checks that a system answers.
const READY_POLL: Duration = Duration::from_millis(50);
/// Interval between two checks that a system is quiet.
const QUIET_POLL: Duration = Duration::from_millis(200);
/// Quiet checks in a row after which a busy system counts as quiet, because a compaction may follow
/// a flush.
const QUIET_POLLS: u32 = 3;

/// Why the campaign stopped waiting for a system.
#[derive(Debug, thiserror::Error)]
enum WaitError {
    #[error("{text}")]
    Ended { text: String },
    #[error("it has not printed {text:?}")]
    NotAnnounced { text: String },
    #[error("{text}")]
    NoAnswer { text: String },
    #[error(
        "still busy {waited_s:.0} s after the load: {pending}; load fewer rows or give it more CPUs"
    )]
    Busy { waited_s: f64, pending: String },
    #[error("the campaign was stopped")]
    Stopped,
}

impl Campaign<'_, '_> {
    /// Waits until every instance of a started system answers.
    ///
    /// # Errors
    /// If the process ends, the time limit passes, or the campaign is stopped.
    pub(super) fn wait_until_ready(
        &self,
        environment: &mut dyn Environment,
        at: &[Endpoint],
        system: &dyn System,
    ) -> Result<(), PartError> {
        let clock = self.parts.clock;
        let limit = system.ready_limit();
        let began = clock.now();
        // False for all checks if the host cannot see the processes.
        let mut was_seen = false;
        let mut waited_for = at.iter();
        let mut next = waited_for.next();
        while let Some(at) = next {
            let announced = system.announces().map_or(Ok(()), |text| {
                let silent = || WaitError::NotAnnounced { text: text.into() };
                environment.log_tail().contains(text).then_some(()).ok_or_else(silent)
            });
            let checked = announced.map_err(PartError::from).and_then(|()| system.ready(at));
            let Err(error) = checked else {
                next = waited_for.next();
                continue;
            };
            let is_there = !environment.processes().system.is_empty();
            if was_seen && !is_there {
                let text = with_output("its process has ended", &environment.log_tail());
                return Err(WaitError::Ended { text }.into());
            }
            was_seen |= is_there;
            let waited = clock.now() - began;
            if waited >= limit {
                let text = format!("{} after {:.0} s", error_line(&*error), waited.as_secs_f64());
                let text = with_output(&text, &environment.log_tail());
                return Err(WaitError::NoAnswer { text }.into());
            }
            if self.stopped() {
                return Err(WaitError::Stopped.into());
            }
            clock.wait(READY_POLL);
        }
        Ok(())
    }

    /// Returns the background work of the first busy instance; `None` if all are quiet.
    fn pending(system: &dyn System, at: &[Endpoint]) -> Result<Option<String>, PartError> {
        for at in at {
            if let Some(pending) = system.pending(at)? {
                return Ok(Some(pending));
            }
        }
        Ok(None)
    }

    /// Waits until a system has no background work left.
    pub(super) fn wait_until_quiet(
        &self,
        running: &Running,
        system: &dyn System,
    ) -> Result<(), PartError> {
        let clock = self.parts.clock;
        let began = clock.now();
        let mut quiet_polls = QUIET_POLLS - 1;
        while !self.stopped() {
            match Self::pending(system, &running.endpoints)? {
                None => quiet_polls += 1,
                Some(pending) => {
                    quiet_polls = 0;
                    let waited = clock.now() - began;
                    if waited >= QUIET_LIMIT {
                        let waited_s = waited.as_secs_f64();
                        return Err(WaitError::Busy { waited_s, pending }.into());
                    }
                }
            }
            if quiet_polls == QUIET_POLLS {
                break;
            }
            clock.wait(QUIET_POLL);
        }
        Ok(())
    }
}
