//! The two schedules, the fixed rate, the budget and the early stop.

use std::time::Duration;

use super::member::{Member, StartError};
use super::{
    CALIBRATION_SLICES, CALIBRATION_WINDOW_MAX, Campaign, CampaignError, Ending, Event, Stage,
};
use crate::analysis::{Analysis, analyse_costs};
use crate::record::Phase;
use crate::schedule::{self, Cell, Turn};
use crate::study::ScheduleKind;

/// Time of a slice besides lead-in and window, before one was run: thaw, tail, freeze, commit.
const SLICE_EXTRA_GUESS: Duration = Duration::from_millis(50);

/// Whether every cost's interval is narrower than asked, end to end, in percentage points. The
/// control counts too: while it is wide, nothing is settled. What is out will not get narrower.
fn narrow_enough(analysis: &Analysis, width_percent: f64, members: &[Member]) -> bool {
    let out = |name: &str| members.iter().any(|member| member.out && member.name() == name);
    let mut costs = analysis
        .findings
        .iter()
        .filter(|finding| !finding.baseline && !out(&finding.environment))
        .flat_map(|finding| {
            [&finding.server_cpu_cost, &finding.server_cpu_cost_at_rate, &finding.throughput_cost]
        })
        .flatten()
        .peekable();
    costs.peek().is_some() && costs.all(|cost| cost.percent.high - cost.percent.low < width_percent)
}

impl Campaign<'_, '_> {
    /// All environments up, one of them thawed at a time.
    pub(super) fn slices(&mut self) -> Result<Ending, CampaignError> {
        self.stage(Stage::Starting);
        self.keep_data()?;
        // The baseline first: others are doubted for differing from it.
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.sort_by_key(|index| *index != self.baseline);
        for index in order {
            if self.stopped() {
                return Ok(Ending::Interrupted);
            }
            if let Err(error) = self.start_member(index) {
                self.not_started(index, error)?;
                continue;
            }
            self.doubt_member(index)?;
            let running = self.members[index].running.as_mut();
            if let Some(Err(source)) = running.map(|running| running.environment.freeze()) {
                let error = StartError::Part { step: "freeze", source };
                self.not_started(index, error)?;
            }
        }
        if self.stopped() {
            return Ok(Ending::Interrupted);
        }
        self.warm_up();
        self.calibrate()?;
        self.rounds(|campaign, block, turns| {
            for turn in turns {
                if campaign.stopped() {
                    return Ok(false);
                }
                if !campaign.members[turn.environment].out {
                    campaign.turn(block, turn, true)?;
                }
            }
            Ok(true)
        })
    }

    /// Whole runs: each environment is started afresh, with fresh data, for its turn in a round.
    pub(super) fn trials(&mut self) -> Result<Ending, CampaignError> {
        self.keep_data()?;
        self.calibrate()?;
        if self.stopped() {
            return Ok(Ending::Interrupted);
        }
        self.rounds(|campaign, block, turns| {
            for trial in turns.chunk_by(|a, b| a.environment == b.environment) {
                if campaign.stopped() {
                    return Ok(false);
                }
                if !campaign.trial(block, trial)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// One environment's turns of a round, from a fresh start to its end. False if it was stopped.
    fn trial(&mut self, block: u32, turns: &[Turn]) -> Result<bool, CampaignError> {
        let Some(index) = turns.first().map(|turn| turn.environment) else { return Ok(true) };
        if self.members[index].out {
            return Ok(true);
        }
        let first = self.members[index].record.ready_ns.is_none();
        if let Err(error) = self.start_member(index) {
            // One that never came up cannot; one that did may the next time: its slices are void.
            if first || matches!(error, StartError::Record(_)) {
                self.not_started(index, error)?;
                return Ok(true);
            }
        } else if first {
            self.doubt_member(index)?;
        }
        for turn in turns {
            if self.stopped() {
                return Ok(false);
            }
            if !self.members[index].out {
                self.turn(block, turn, false)?;
            }
        }
        self.stop_member(index);
        self.put_member(index)?;
        Ok(true)
    }

    /// One slice of each workload in each environment that is not recorded: the first touch of
    /// memory, files and caches is paid by nobody's block, and the baseline, which is loaded for
    /// its capacity too, is not the only one that is warm.
    fn warm_up(&mut self) {
        self.stage(Stage::WarmingUp);
        for index in 0..self.members.len() {
            for at in 0..self.study.workloads.len() {
                if self.members[index].out || self.stopped() {
                    continue;
                }
                let seed = schedule::calibration_seed(self.seed, at, CALIBRATION_SLICES);
                let order = self.order(at, None, seed, self.study.schedule.window);
                self.tell_slice(index, Cell { workload: at, phase: Phase::Capacity });
                // What fails here fails in its first slice again, and is written there.
                self.capacity(index, &order, true).ok();
            }
        }
    }

    /// Finds the fixed rate of each workload that has none yet: a share of the median of a few
    /// closed-loop slices of the baseline, the same for every environment, in whole operations/s.
    fn calibrate(&mut self) -> Result<(), CampaignError> {
        let open: Vec<usize> = (0..self.study.workloads.len())
            .filter(|at| schedule::has_latency_phase(&self.study.workloads[*at]))
            .filter(|at| self.rates[*at].is_none())
            .collect();
        if open.is_empty() {
            return Ok(());
        }
        self.stage(Stage::Calibrating);
        let baseline = self.baseline;
        let trials = self.study.schedule.kind == ScheduleKind::Trials;
        if trials && let Err(error) = self.start_member(baseline) {
            return self.not_started(baseline, error);
        }
        if trials {
            self.doubt_member(baseline)?;
        }
        let window = self.study.schedule.window.min(CALIBRATION_WINDOW_MAX);
        for at in open {
            let workload = &self.study.workloads[at];
            let mut rates = Vec::new();
            for number in 0..CALIBRATION_SLICES {
                if self.stopped() {
                    return Ok(());
                }
                let seed = schedule::calibration_seed(self.seed, at, number);
                let order = self.order(at, None, seed, window);
                self.tell_slice(baseline, Cell { workload: at, phase: Phase::Capacity });
                let rate = self.capacity(baseline, &order, !trials).map_err(|reason| {
                    CampaignError::Calibration { workload: workload.name.clone(), reason }
                })?;
                rates.push(rate);
            }
            rates.sort_by(f64::total_cmp);
            let capacity_per_s = rates[rates.len() / 2];
            let rate_per_s = (capacity_per_s * workload.latency_share).floor().max(1.0);
            self.rates[at] = Some(rate_per_s);
            self.writer().put_rate(&workload.name, rate_per_s)?;
            let workload = workload.name.as_str();
            self.observer.event(&Event::Calibrated { workload, capacity_per_s, rate_per_s });
        }
        if trials {
            self.stop_member(baseline);
        }
        Ok(())
    }

    /// Blocks until they are done, narrow enough, out of budget or stopped. `run` runs one block and
    /// says whether it was complete.
    fn rounds(
        &mut self,
        mut run: impl FnMut(&mut Self, u32, &[Turn]) -> Result<bool, CampaignError>,
    ) -> Result<Ending, CampaignError> {
        self.stage(Stage::Measuring);
        let schedule = &self.study.schedule;
        loop {
            let block = self.writer().blocks();
            if self.stopped() {
                return Ok(Ending::Interrupted);
            }
            if block >= schedule.rounds {
                return Ok(Ending::RoundsDone);
            }
            if self.left() < self.block_estimate() {
                return Ok(Ending::BudgetSpent);
            }
            let (blocks_expected, left) = self.expectation(block);
            self.observer.event(&Event::BlockStarted { block, blocks_expected, left });
            let began = self.parts.clock.now();
            let turns =
                schedule::block(schedule.kind, self.seed, block, self.members.len(), &self.cells);
            if !run(self, block, &turns)? {
                return Ok(Ending::Interrupted);
            }
            let unix_ms = self.parts.clock.unix_ms();
            self.writer().finish_block(block, unix_ms)?;
            let analysis = analyse_costs(self.writer().record());
            self.block_times.push(self.parts.clock.now() - began);
            let (blocks_expected, left) = self.expectation(block + 1);
            let analysis = &analysis;
            self.observer.event(&Event::BlockDone { block, blocks_expected, left, analysis });
            let enough = block + 1 >= schedule.rounds_min && schedule.stop_width_percent > 0.0;
            if enough && narrow_enough(analysis, schedule.stop_width_percent, &self.members) {
                return Ok(Ending::IntervalsNarrow);
            }
        }
    }

    /// Budget that is left for blocks: without the time that teardown will take.
    fn left(&self) -> Duration {
        let up = self.members.iter().filter(|member| member.running.is_some()).count();
        let teardown = self.teardown * u32::try_from(up).unwrap_or(u32::MAX);
        let spent = self.parts.clock.now() - self.began;
        self.study.schedule.budget.saturating_sub(spent).saturating_sub(teardown)
    }

    /// Time of the next block: the longest of the last three and a little, or what is planned.
    fn block_estimate(&self) -> Duration {
        let schedule = &self.study.schedule;
        match self.block_times.iter().rev().take(3).max() {
            Some(longest) => longest.mul_f64(1.05),
            None => {
                let members = self.members.iter().filter(|member| !member.out).count();
                let slices = u32::try_from(members * self.cells.len()).unwrap_or(u32::MAX);
                let load = (schedule.window + schedule.lead_in + SLICE_EXTRA_GUESS) * slices;
                match schedule.kind {
                    ScheduleKind::Slices => load,
                    ScheduleKind::Trials => {
                        let starts = u32::try_from(members).unwrap_or(u32::MAX);
                        load + (self.start_time + self.teardown) * starts
                    }
                }
            }
        }
    }

    /// How many blocks there will be in all, and how long they will take, unless it stops early.
    fn expectation(&self, done: u32) -> (u32, Duration) {
        let estimate = self.block_estimate().max(Duration::from_millis(1));
        let rounds = self.study.schedule.rounds.saturating_sub(done);
        let mut fit = 0;
        let (left, mut time) = (self.left(), Duration::ZERO);
        while fit < rounds && time + estimate <= left {
            time += estimate;
            fit += 1;
        }
        (done + fit, time)
    }
}
