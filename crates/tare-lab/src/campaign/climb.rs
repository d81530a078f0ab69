//! Finds the requests in flight that saturate the baseline, for workloads with
//! `load = "saturate"`.
//!
//! Method: from an eighth of the default, each step doubles what is in flight, and a few
//! closed-loop slices give its operations/s. [`tare_stats::saturation`] has the rules, which are
//! those of `tare disk`. All environments then get this number, so that only
//! their layers differ; the record keeps it with its steps, and a resumed campaign does not climb
//! again.
//!
//! The requests in flight of a load tool are an option of it ([`crate::study::Saturate::option`]).
//!
//! Limits: the baseline alone decides. An environment with longer round trips may need more for its
//! own knee; its loss is then that of a fixed load, as users have it.

use std::time::Duration;

use tare_stats::saturation;

use super::{CALIBRATION_WINDOW_MAX, Campaign, CampaignError, Event, Stage};
use crate::record::Phase;
use crate::schedule::{self, Cell};
use crate::study::{Climb, ClimbEnd, ClimbStep};

/// The first step is the default load divided by this, and the last is the default times
/// `MOST_TIMES`: 8 to 1,024 for each CPU of the system.
const FIRST_DIVISOR: u32 = 8;
const MOST_TIMES: u32 = 16;
/// Slices of a step, whose median counts; one where windows are as long as a second.
const STEP_SLICES: u32 = 3;
const LONG_WINDOW: Duration = Duration::from_secs(1);
/// The share of the budget that all climbs of a study may take.
pub const CLIMB_BUDGET_SHARE: f64 = 0.2;
/// Numbers of the seeds of these slices, beyond those of calibration and warm-up.
const FIRST_SEED: u32 = 16;

/// Returns whether the last steps gained nothing.
fn is_flat(steps: &[ClimbStep]) -> bool {
    saturation::is_flat(steps.iter().map(|step| step.operations_per_s))
}

/// Returns the least load that reaches nearly the best rate.
fn knee(steps: &[ClimbStep]) -> Option<u32> {
    let found = saturation::knee(steps, |step| step.in_flight, |step| step.operations_per_s);
    found.map(|step| step.in_flight)
}

impl Campaign<'_, '_> {
    /// Returns the workloads whose load is still to be found.
    pub(super) fn climbs(&self) -> Vec<usize> {
        let missing = |at: &usize| {
            // Only a closed loop has a knee.
            let workload = Some(&self.workloads[*at]).filter(|workload| !workload.rate_only);
            let saturate = workload.and_then(|workload| workload.load.saturate.as_ref());
            saturate.is_some_and(|saturate| saturate.climb.is_none())
        };
        (0..self.workloads.len()).filter(missing).collect()
    }

    /// Finds the load of these workloads in the baseline, which runs.
    pub(super) fn climb(&mut self, climbing: &[usize], freezes: bool) -> Result<(), CampaignError> {
        if climbing.is_empty() {
            return Ok(());
        }
        self.stage(Stage::Climbing);
        let all = self.study.schedule.budget.mul_f64(CLIMB_BUDGET_SHARE);
        let each = all / u32::try_from(climbing.len()).unwrap_or(u32::MAX);
        for at in climbing {
            let Some(climb) = self.climb_one(*at, freezes, each)? else { return Ok(()) };
            let workload = &mut self.workloads[*at];
            // A climb has at least one step.
            let found = knee(&climb.steps).unwrap_or(workload.in_flight);
            // A climb that ran out of time may have seen the first steps only.
            let least = if climb.end == ClimbEnd::Time { workload.in_flight } else { 1 };
            workload.set_in_flight(found.max(least));
            if let Some(saturate) = &mut workload.load.saturate {
                saturate.climb = Some(climb.clone());
            }
            let workload = workload.clone();
            self.writer().put_workload(*at, &workload)?;
            let saturate = workload.load.saturate.as_ref();
            let option = saturate.and_then(|saturate| saturate.option.as_deref());
            let (in_flight, workload) = (workload.in_flight, workload.name.as_str());
            self.observer.event(&Event::Climbed { workload, in_flight, option, climb: &climb });
        }
        Ok(())
    }

    /// Climbs with one workload for at most `limit`. Returns nothing if the campaign was stopped.
    fn climb_one(
        &mut self,
        at: usize,
        freezes: bool,
        limit: Duration,
    ) -> Result<Option<Climb>, CampaignError> {
        let began = self.parts.clock.now();
        let default = self.workloads[at].in_flight;
        let most = default.saturating_mul(MOST_TIMES);
        let mut in_flight = (default / FIRST_DIVISOR).max(1);
        let mut steps: Vec<ClimbStep> = Vec::new();
        loop {
            let step_began = self.parts.clock.now();
            match self.climb_step(at, in_flight, freezes) {
                Ok(Some(operations_per_s)) => steps.push(ClimbStep { in_flight, operations_per_s }),
                Ok(None) => return Ok(None),
                // A system or a driver may refuse a load that is far beyond what it needs.
                Err(reason) if !steps.is_empty() => {
                    return Ok(Some(Climb { steps, end: ClimbEnd::Failed { reason } }));
                }
                Err(reason) => {
                    let workload = self.workloads[at].name.clone();
                    return Err(CampaignError::Calibration { workload, reason });
                }
            }
            let now = self.parts.clock.now();
            let end = match () {
                () if is_flat(&steps) => ClimbEnd::Knee,
                () if in_flight >= most => ClimbEnd::Most,
                () if now - began + (now - step_began) > limit => ClimbEnd::Time,
                () => {
                    in_flight = in_flight.saturating_mul(2).min(most);
                    continue;
                }
            };
            return Ok(Some(Climb { steps, end }));
        }
    }

    /// Returns the operations/s of the baseline with this many requests in flight, or nothing if
    /// the campaign was stopped. Fails if every slice does.
    fn climb_step(
        &mut self,
        at: usize,
        in_flight: u32,
        freezes: bool,
    ) -> Result<Option<f64>, String> {
        let window = self.study.schedule.window.min(CALIBRATION_WINDOW_MAX);
        let slices = if window >= LONG_WINDOW { 1 } else { STEP_SLICES };
        let (mut rates, mut failure) = (Vec::new(), None);
        for number in 0..slices {
            if self.stopped() {
                return Ok(None);
            }
            let seed = schedule::calibration_seed(self.seed, at, FIRST_SEED + number);
            let mut order = self.order(at, None, seed, window);
            order.workload.set_in_flight(in_flight);
            self.announce_slice(self.baseline, Cell { workload: at, phase: Phase::Capacity });
            match self.capacity(self.baseline, &order, freezes) {
                Ok(rate) => rates.push(rate),
                Err(reason) => failure = Some(reason),
            }
        }
        rates.sort_by(f64::total_cmp);
        match (rates.get(rates.len() / 2), failure) {
            (None, Some(reason)) => Err(reason),
            (rate, _) => Ok(rate.copied()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Climbs a curve, and returns the number of steps and the result.
    fn climbed(rate: impl Fn(u32) -> f64) -> (usize, u32) {
        let mut steps = Vec::new();
        for in_flight in (0..10).map(|power| 8 << power) {
            steps.push(ClimbStep { in_flight, operations_per_s: rate(in_flight) });
            if is_flat(&steps) {
                break;
            }
        }
        (steps.len(), knee(&steps).unwrap())
    }

    #[test]
    fn knee_of_known_curves() {
        assert_eq!(climbed(|load| f64::from(load.min(64)) * 1e3), (6, 64));
        assert_eq!(climbed(|_| 500.0), (3, 8), "the first step is enough");
        let one_flat_step = |load: u32| if load == 32 { 16.0 } else { f64::from(load.min(128)) };
        assert_eq!(climbed(one_flat_step), (7, 128));
        assert_eq!(climbed(f64::from), (10, 4096), "no knee within the limit");
        let falling = |load: u32| if load <= 64 { f64::from(load) } else { 60.0 };
        assert_eq!(climbed(falling), (6, 64));
        assert_eq!(knee(&[]), None);
    }
}
