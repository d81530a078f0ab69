//! Waiting for a system: until it answers once it is started, and until it is quiet once its data
//! is loaded. Both are looked at, never slept through, and both have a limit.

use std::time::Duration;

use super::member::{Running, said};
use super::{Campaign, error_line};
use crate::PartError;
use crate::environment::{Endpoint, Environment};
use crate::system::QUIET_LIMIT;

/// Between two looks at whether a system answers.
const READY_LOOK: Duration = Duration::from_millis(50);
/// Between two looks at whether a system is quiet.
const QUIET_LOOK: Duration = Duration::from_millis(200);
/// So many looks in a row must find a system quiet that was busy: a flush is followed by a compaction.
const QUIET_LOOKS: u32 = 3;

/// Why a system is not waited for any longer.
#[derive(Debug, thiserror::Error)]
enum WaitError {
    #[error("{text}")]
    Ended { text: String },
    #[error("it has not said {text:?}")]
    NotSaid { text: String },
    #[error("{text}")]
    Silent { text: String },
    #[error(
        "it is still busy {waited_s:.0} s after its data was loaded: {pending}; load less, or give it more CPUs"
    )]
    Busy { waited_s: f64, pending: String },
    #[error("the campaign was told to stop")]
    Stopped,
}

impl Campaign<'_, '_> {
    /// Waits until every instance of a started system answers, its process ends, or its limit is over.
    pub(super) fn wait_until_ready(
        &self,
        environment: &mut dyn Environment,
        at: &[Endpoint],
    ) -> Result<(), PartError> {
        let (system, clock) = (self.parts.system, self.parts.clock);
        let limit = system.ready_limit();
        let began = clock.now();
        // Where the host cannot see the processes, none were there either.
        let mut was_seen = false;
        let mut waited_for = at.iter();
        let mut next = waited_for.next();
        while let Some(at) = next {
            let announced = system.announces().map_or(Ok(()), |text| {
                let silent = || WaitError::NotSaid { text: text.into() };
                environment.log_tail().contains(text).then_some(()).ok_or_else(silent)
            });
            let looked = announced.map_err(PartError::from).and_then(|()| system.ready(at));
            let Err(error) = looked else {
                next = waited_for.next();
                continue;
            };
            let is_there = !environment.processes().system.is_empty();
            if was_seen && !is_there {
                let text = said("its process has ended", &environment.log_tail());
                return Err(WaitError::Ended { text }.into());
            }
            was_seen |= is_there;
            let waited = clock.now() - began;
            if waited >= limit {
                let text = format!("{} after {:.0} s", error_line(&*error), waited.as_secs_f64());
                let text = said(&text, &environment.log_tail());
                return Err(WaitError::Silent { text }.into());
            }
            if self.stopped() {
                return Err(WaitError::Stopped.into());
            }
            clock.wait(READY_LOOK);
        }
        Ok(())
    }

    /// What any instance still does.
    fn pending(&self, at: &[Endpoint]) -> Result<Option<String>, PartError> {
        for at in at {
            if let Some(pending) = self.parts.system.pending(at)? {
                return Ok(Some(pending));
            }
        }
        Ok(None)
    }

    /// Waits until a system has nothing left to do of its own accord.
    pub(super) fn wait_until_quiet(&self, running: &Running) -> Result<(), PartError> {
        let clock = self.parts.clock;
        let began = clock.now();
        let mut quiet_looks = QUIET_LOOKS - 1;
        while !self.stopped() {
            match self.pending(&running.endpoints)? {
                None => quiet_looks += 1,
                Some(pending) => {
                    quiet_looks = 0;
                    let waited = clock.now() - began;
                    if waited >= QUIET_LIMIT {
                        let waited_s = waited.as_secs_f64();
                        return Err(WaitError::Busy { waited_s, pending }.into());
                    }
                }
            }
            if quiet_looks == QUIET_LOOKS {
                break;
            }
            clock.wait(QUIET_LOOK);
        }
        Ok(())
    }
}
