//! The two schedules, the fixed rate, the budget and the early stop.

use std::time::Duration;

use super::member::Member;
use super::outcome::StartError;
use super::{
    CALIBRATION_SLICES, CALIBRATION_WINDOW_MAX, Campaign, CampaignError, Ending, Event, Stage,
};
use crate::analysis::claims::CostKind;
use crate::analysis::{Analysis, Finding, analyse_costs};
use crate::record::Phase;
use crate::schedule::{self, Cell, ScheduledSlice};
use crate::study::ScheduleKind;

/// Expected time of a slice in addition to lead-in and window: thaw, tail, freeze, commit.
pub const SLICE_EXTRA_GUESS: Duration = Duration::from_millis(50);

/// Returns whether every cost's interval is narrower than `width_percent`, end to end, in
/// percentage points. The control counts too: while it is wide, no cost is settled. Environments
/// that were left out do not count, because their intervals stay as they are.
fn all_intervals_narrow(analysis: &Analysis, width_percent: f64, members: &[Member]) -> bool {
    let out = |name: &str| members.iter().any(|member| member.out && member.name() == name);
    // A search that has not settled yet has no cost.
    let searches = |finding: &Finding| finding.slo.as_ref().is_some_and(|slo| slo.cost.is_none());
    let others = || analysis.findings.iter().filter(|f| !f.baseline && !out(&f.environment));
    if others().any(searches) {
        return false;
    }
    let kinds =
        [CostKind::ServerCpu, CostKind::ServerCpuAtRate, CostKind::Throughput, CostKind::Slo];
    let mut costs =
        others().flat_map(|finding| kinds.map(|kind| kind.cost(finding))).flatten().peekable();
    costs.peek().is_some() && costs.all(|cost| cost.percent.high - cost.percent.low < width_percent)
}

/// The latest analysis of a running campaign.
struct Analysed {
    analysis: Analysis,
    ended: Duration,
    took: Duration,
}

impl Analysed {
    /// Whether it is time for the next one. An analysis reads all slices so far, so after thousands
    /// of short ones it takes as long as a slice. It takes at most 5 % of the time of a campaign.
    fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.ended) >= self.took * 19
    }
}

impl Campaign<'_, '_> {
    /// Runs the schedule `slices`: all environments run, and only one at a time is thawed.
    pub(super) fn slices(&mut self) -> Result<Ending, CampaignError> {
        self.stage(Stage::Starting);
        self.save_data()?;
        // The baseline first: doubts about the others depend on its settings.
        // What the caller has left out does not start.
        let starts = |index: &usize| !self.members[*index].out;
        let mut order: Vec<usize> = (0..self.members.len()).filter(starts).collect();
        order.sort_by_key(|index| *index != self.baseline);
        for index in order {
            if self.stopped() {
                return Ok(Ending::Interrupted);
            }
            if let Err(error) = self.start_member(index) {
                self.handle_start_error(index, error)?;
                continue;
            }
            self.put_environment_doubts(index)?;
            let running = self.members[index].running.as_mut();
            if let Some(Err(source)) = running.map(|running| running.environment.freeze()) {
                let error = StartError::Part { step: "freeze", source };
                self.handle_start_error(index, error)?;
            }
        }
        if self.stopped() {
            return Ok(Ending::Interrupted);
        }
        self.count_starts();
        self.warm_up()?;
        self.choose_window()?;
        self.find_loads()?;
        self.rounds(|campaign, round, slices_in_order| {
            for scheduled in slices_in_order {
                if campaign.stopped() {
                    return Ok(false);
                }
                if !campaign.members[scheduled.environment].out {
                    campaign.run_slice(round, scheduled, true)?;
                }
            }
            Ok(true)
        })
    }

    /// Runs the schedule `trials`: each environment starts fresh, with fresh data, in each round.
    pub(super) fn trials(&mut self) -> Result<Ending, CampaignError> {
        self.save_data()?;
        self.find_loads()?;
        if self.stopped() {
            return Ok(Ending::Interrupted);
        }
        self.rounds(|campaign, round, slices_in_order| {
            for trial in slices_in_order.chunk_by(|a, b| a.environment == b.environment) {
                if campaign.stopped() {
                    return Ok(false);
                }
                if !campaign.trial(round, trial)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Runs all slices of one environment in a round, from a fresh start to its end. Returns false
    /// if the campaign was stopped.
    fn trial(
        &mut self,
        round: u32,
        slices_in_order: &[ScheduledSlice],
    ) -> Result<bool, CampaignError> {
        let Some(index) = slices_in_order.first().map(|scheduled| scheduled.environment) else {
            return Ok(true);
        };
        if self.members[index].out {
            return Ok(true);
        }
        let first = self.members[index].record.ready_ns.is_none();
        if let Err(error) = self.start_member(index) {
            // An environment that never started cannot start. One that started before may start
            // again: only its slices of this round are void.
            if first || matches!(error, StartError::Ends(_)) {
                self.handle_start_error(index, error)?;
                return Ok(true);
            }
        } else if first {
            self.put_environment_doubts(index)?;
        }
        for scheduled in slices_in_order {
            if self.stopped() {
                return Ok(false);
            }
            if !self.members[index].out {
                self.run_slice(round, scheduled, false)?;
            }
        }
        self.stop_member(index);
        self.put_member(index)?;
        Ok(true)
    }

    /// Runs slices of each workload in each environment without recording them: one, or as many as
    /// the study wants. No recorded round then pays for the first touch of memory, files and
    /// caches, and the baseline, which calibration loads too, is not the only warm environment.
    fn warm_up(&mut self) -> Result<(), CampaignError> {
        self.stage(Stage::WarmingUp);
        let members = self.members.iter().filter(|member| !member.out).count();
        let all = u32::try_from(members * self.study.workloads.len()).unwrap_or(u32::MAX);
        let takes = self.study.schedule.warm_up_time(all, SLICE_EXTRA_GUESS);
        self.observer.event(&Event::WarmingUp { takes });
        for _ in 0..self.study.schedule.warm_up_turns() {
            for index in 0..self.members.len() {
                self.warm(index);
                self.check_attached(index)?;
            }
        }
        Ok(())
    }

    /// Warms up one environment that was started again.
    pub(super) fn warm_up_one(&mut self, index: usize) {
        (0..self.study.schedule.warm_up_turns()).for_each(|_| self.warm(index));
    }

    /// Runs one slice of each workload in an environment without recording it.
    fn warm(&mut self, index: usize) {
        for at in 0..self.study.workloads.len() {
            if self.members[index].out || self.stopped() {
                continue;
            }
            let seed = schedule::calibration_seed(self.seed, at, CALIBRATION_SLICES);
            let order = self.order(at, None, seed, self.study.schedule.window_at_rate());
            self.announce_slice(index, Cell { workload: at, phase: Phase::Capacity });
            // A failure here repeats in the first recorded slice, which reports it.
            self.capacity(index, &order, true).ok();
        }
    }

    /// Finds the loads and the fixed rates that the study leaves open, in the baseline.
    fn find_loads(&mut self) -> Result<(), CampaignError> {
        let climbing = self.climbs();
        let open: Vec<usize> = (0..self.study.workloads.len())
            .filter(|at| schedule::has_latency_phase(&self.study.workloads[*at]))
            .filter(|at| self.rates[*at].is_none())
            .collect();
        if open.is_empty() && climbing.is_empty() {
            return Ok(());
        }
        let baseline = self.baseline;
        let trials = self.study.schedule.kind == ScheduleKind::Trials;
        if trials && let Err(error) = self.start_member(baseline) {
            return self.handle_start_error(baseline, error);
        }
        if trials {
            self.put_environment_doubts(baseline)?;
        }
        self.climb(&climbing, !trials)?;
        self.calibrate(&open, !trials)?;
        if trials {
            self.stop_member(baseline);
        }
        Ok(())
    }

    /// Finds the fixed rates of these workloads. A rate is a share of the median of a few
    /// closed-loop slices of the baseline, in whole operations/s, and is the same for every
    /// environment.
    fn calibrate(&mut self, open: &[usize], freezes: bool) -> Result<(), CampaignError> {
        if open.is_empty() {
            return Ok(());
        }
        self.stage(Stage::Calibrating);
        let baseline = self.baseline;
        let window = self.study.schedule.window_at_rate().min(CALIBRATION_WINDOW_MAX);
        for at in open.iter().copied() {
            let workload = &self.study.workloads[at];
            let (mut rates, mut failure) = (Vec::new(), None);
            for number in 0..CALIBRATION_SLICES {
                if self.stopped() {
                    return Ok(());
                }
                let seed = schedule::calibration_seed(self.seed, at, number);
                let order = self.order(at, None, seed, window);
                self.announce_slice(baseline, Cell { workload: at, phase: Phase::Capacity });
                match self.capacity(baseline, &order, freezes) {
                    Ok(rate) => rates.push(rate),
                    Err(reason) => {
                        self.check_attached(baseline)?;
                        failure = Some(reason);
                    }
                }
            }
            rates.sort_by(f64::total_cmp);
            let enough = rates.len() * 2 > CALIBRATION_SLICES as usize;
            if let Some(reason) = failure.filter(|_| !enough) {
                self.refuse_attached(baseline, &reason)?;
                let workload = workload.name.clone();
                return Err(CampaignError::Calibration { workload, reason });
            }
            let capacity_per_s = rates[rates.len() / 2];
            let rate_per_s = (capacity_per_s * workload.latency_share).floor().max(1.0);
            self.rates[at] = Some(rate_per_s);
            self.writer().put_rate(&workload.name, rate_per_s)?;
            let workload = workload.name.as_str();
            self.observer.event(&Event::Calibrated { workload, capacity_per_s, rate_per_s });
        }
        Ok(())
    }

    /// Runs rounds until all are done, the intervals are narrow, the budget is spent or the
    /// campaign is stopped. `run` runs one round and returns whether it was complete.
    fn rounds(
        &mut self,
        mut run: impl FnMut(&mut Self, u32, &[ScheduledSlice]) -> Result<bool, CampaignError>,
    ) -> Result<Ending, CampaignError> {
        self.stage(Stage::Measuring);
        let schedule = &self.study.schedule;
        let mut restarts = self.plan_restarts();
        let mut analysed: Option<Analysed> = None;
        let most = self.rounds_most();
        let mut next_look = schedule.rounds_min;
        loop {
            let round = self.writer().rounds();
            if self.stopped() {
                return Ok(Ending::Interrupted);
            }
            if round >= most {
                return Ok(Ending::RoundsDone);
            }
            if self.left() < self.round_estimate() {
                return Ok(Ending::BudgetSpent);
            }
            let (rounds_expected, left) = self.expectation(round);
            self.observer.event(&Event::RoundStarted { round, rounds_expected, left });
            self.restart_next(&mut restarts, round)?;
            let began = self.parts.clock.now();
            let cells = self.cells_of(round);
            let slices_in_order =
                schedule::round(schedule.kind, self.seed, round, self.members.len(), &cells);
            if !run(self, round, &slices_in_order)? {
                return Ok(Ending::Interrupted);
            }
            let unix_ms = self.parts.clock.unix_ms();
            self.writer().finish_round(round, unix_ms)?;
            let is_due = analysed.as_ref().is_none_or(|last| last.is_due(self.parts.clock.now()));
            let latest = match analysed.take().filter(|_| !is_due) {
                Some(last) => last,
                None => {
                    let began = self.parts.clock.now();
                    let analysis = analyse_costs(self.writer().record());
                    let ended = self.parts.clock.now();
                    Analysed { analysis, ended, took: ended - began }
                }
            };
            self.round_times.push(self.parts.clock.now() - began);
            let (rounds_expected, left) = self.expectation(round + 1);
            let analysis = &analysed.insert(latest).analysis;
            self.observer.event(&Event::RoundDone { round, rounds_expected, left, analysis });
            if let Some(goal) = self.parts.goal {
                if round + 1 >= next_look && restarts.are_done() {
                    next_look = (round + 1).saturating_add((round + 1).div_ceil(2));
                    if (goal.is_reached)(self.writer().path()) {
                        return Ok(Ending::GoalReached);
                    }
                }
                continue;
            }
            let enough = is_due
                && restarts.are_done()
                && round + 1 >= schedule.rounds_min
                && schedule.stop_width_percent > 0.0;
            if enough && all_intervals_narrow(analysis, schedule.stop_width_percent, &self.members)
            {
                return Ok(Ending::IntervalsNarrow);
            }
        }
    }

    /// Returns the number of rounds after which the campaign ends.
    fn rounds_most(&self) -> u32 {
        match self.parts.goal {
            Some(goal) => goal.rounds.unwrap_or(u32::MAX),
            None => self.study.schedule.rounds,
        }
    }

    /// Returns the cells of a round. With a short window at capacity, not every round has slices at
    /// a fixed rate, which take longer.
    fn cells_of(&self, round: u32) -> Vec<Cell> {
        let has_rates = round.is_multiple_of(self.rounds_between_rates());
        let cells = self.cells.iter().filter(|cell| has_rates || cell.phase == Phase::Capacity);
        cells.copied().collect()
    }

    fn rounds_between_rates(&self) -> u32 {
        let (at_rate, window) = (self.window(Phase::Latency), self.window(Phase::Capacity));
        let times = at_rate.as_millis() / window.as_millis().max(1);
        u32::try_from(times).unwrap_or(1).max(1)
    }

    /// Returns the budget left for rounds, without the time for teardown.
    pub(super) fn left(&self) -> Duration {
        let up = self.members.iter().filter(|member| member.running.is_some()).count();
        let teardown = self.teardown * u32::try_from(up).unwrap_or(u32::MAX);
        let spent = self.parts.clock.now() - self.began;
        self.study.schedule.budget.saturating_sub(spent).saturating_sub(teardown)
    }

    /// Estimates the time of the next round: 5 % above the longest of the last three rounds; before
    /// the first one, the planned time.
    fn round_estimate(&self) -> Duration {
        let schedule = &self.study.schedule;
        match self.usual_round() {
            Some(usual) => usual.mul_f64(1.05),
            None => {
                let members = self.members.iter().filter(|member| !member.out).count();
                let slices = u32::try_from(members * self.cells.len()).unwrap_or(u32::MAX);
                let window = self.window(Phase::Latency);
                let load = (window + schedule.lead_in + SLICE_EXTRA_GUESS) * slices;
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

    /// Returns the longest of the last three rounds, or the mean of the last ones if they differ in
    /// length because only some have slices at a fixed rate.
    fn usual_round(&self) -> Option<Duration> {
        let every = self.rounds_between_rates();
        let count = usize::try_from(every).unwrap_or(1).max(3);
        let last = || self.round_times.iter().rev().take(count);
        if every == 1 {
            return last().max().copied();
        }
        let count = u32::try_from(last().count()).ok().filter(|count| *count > 0)?;
        Some(last().sum::<Duration>() / count)
    }

    /// Estimates the total number of rounds, and the time left for them, without an early stop.
    fn expectation(&self, done: u32) -> (u32, Duration) {
        let estimate = self.round_estimate().max(Duration::from_millis(1));
        let rounds = self.rounds_most().saturating_sub(done);
        let mut fit = 0;
        let (left, mut time) = (self.left(), Duration::ZERO);
        while fit < rounds && time + estimate <= left {
            time += estimate;
            fit += 1;
        }
        (done + fit, time)
    }
}
