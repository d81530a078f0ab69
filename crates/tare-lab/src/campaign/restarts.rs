//! Starts the environments of interleaved slices again during the rounds (`schedule.restarts`), so
//! that the luck of a start (addresses, caches, huge pages) is part of the intervals.
//!
//! Method: the time of the rounds is divided into as many equal parts as there are starts. At the
//! beginning of each part but the first, one environment is started again before each round, the
//! baseline first, until all have been. Slices store the number of their start. The analysis takes
//! pairs of equal numbers, so that parts are independent of each other.
//!
//! Limits: while an environment starts and loads its data, no other one is measured.

use std::time::Duration;

use super::outcome::StartError;
use super::{Campaign, CampaignError, Event, FAILURES_MAX};

/// What is left to start again.
#[derive(Debug)]
pub(super) struct Restarts {
    /// Restarts per environment in the whole campaign, and so far.
    wanted: u32,
    done: u32,
    /// Environments to start again, the next one last.
    waiting: Vec<usize>,
    /// When the rounds began, and their expected time.
    began: Duration,
    expected: Duration,
}

impl Restarts {
    /// Returns whether all environments have had all their starts.
    pub(super) fn are_done(&self) -> bool {
        self.done >= self.wanted && self.waiting.is_empty()
    }

    /// Returns whether the next part begins at this share of the campaign, from 0 to 1.
    fn is_due(&self, share: f64) -> bool {
        let next = f64::from(self.done + 1) / f64::from(self.wanted + 1);
        self.waiting.is_empty() && self.done < self.wanted && share >= next
    }
}

impl Campaign<'_, '_> {
    /// Plans the restarts. A resumed campaign started all environments again, and continues with
    /// the next part.
    pub(super) fn plan_restarts(&mut self) -> Restarts {
        let known = self.writer().record().slices.iter().map(|slice| slice.start).max();
        Restarts {
            wanted: self.study.schedule.restarts,
            done: known.map_or(0, |last| last + 1),
            waiting: Vec::new(),
            began: self.parts.clock.now(),
            expected: self.left(),
        }
    }

    /// Gives each environment of a resumed campaign the number of its new start.
    pub(super) fn count_starts(&mut self) {
        if self.study.schedule.restarts == 0 {
            return;
        }
        let known = self.writer().record().slices.iter().map(|slice| slice.start).max();
        let start = known.map_or(0, |last| last + 1);
        self.members.iter_mut().for_each(|member| member.start = start);
    }

    /// Starts the next environment again, if it is time for that. Called before each round.
    pub(super) fn restart_next(
        &mut self,
        restarts: &mut Restarts,
        round: u32,
    ) -> Result<(), CampaignError> {
        let now = self.parts.clock.now();
        let time = (now - restarts.began).as_secs_f64() / restarts.expected.as_secs_f64().max(1e-9);
        let rounds = f64::from(round) / f64::from(self.study.schedule.rounds.max(1));
        if restarts.is_due(time.max(rounds)) {
            restarts.done += 1;
            restarts.waiting =
                (0..self.members.len()).rev().filter(|index| *index != self.baseline).collect();
            restarts.waiting.push(self.baseline);
        }
        let Some(index) = restarts.waiting.pop() else { return Ok(()) };
        if self.members[index].out {
            return Ok(());
        }
        self.restart(index, restarts.done)
    }

    /// Starts an environment again. If that fails, its slices are void until it is left out.
    fn restart(&mut self, index: usize, start: u32) -> Result<(), CampaignError> {
        self.stop_member(index);
        self.members[index].start = start;
        let name = self.members[index].name().to_string();
        self.observer.event(&Event::Restarting { name: &name, start });
        let started = self.start_member(index).and_then(|()| {
            let running = self.members[index].running.as_mut();
            running
                .map_or(Ok(()), |running| running.environment.freeze())
                .map_err(|source| StartError::Part { step: "freeze", source })
        });
        match started {
            Ok(()) => {
                self.warm_up_one(index);
                Ok(())
            }
            Err(StartError::Ends(error)) => Err(error),
            Err(error) => {
                self.stop_member(index);
                self.count_failure(index, Some(&error.text()), FAILURES_MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_equal_length() {
        let (began, expected) = (Duration::ZERO, Duration::from_secs(100));
        let mut restarts = Restarts { wanted: 3, done: 0, waiting: Vec::new(), began, expected };
        assert!(!restarts.is_due(0.24) && restarts.is_due(0.25));
        restarts.done = 1;
        assert!(!restarts.is_due(0.49) && restarts.is_due(0.5));
        restarts.waiting = vec![1];
        assert!(!restarts.is_due(0.5) && !restarts.are_done());
        (restarts.done, restarts.waiting) = (3, Vec::new());
        assert!(!restarts.is_due(1.0) && restarts.are_done());
    }
}
