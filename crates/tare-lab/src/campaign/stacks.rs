//! The extra rounds: samplers and tracers, which disturb the system, observe each environment at
//! the same fixed rate.
//!
//! The rate is that of the workload's latency phase, or half of the baseline's throughput if the
//! study has no such phase. Well below saturation every environment does the same work, so that a
//! difference in CPU time per operation comes from code and not from load. The study's budget does
//! not include this time.

use std::time::Duration;

use super::measure::{accounts, scope, whole_ns};
use super::{Campaign, CampaignError, Ending, Event, FAILURES_MAX, Stage, error_line};
use crate::PartError;
use crate::doubt::Doubt;
use crate::driver::Edge;
use crate::probe::{Probe, names};
use crate::record::{Phase, Slice};
use crate::schedule::{self, Cell, ScheduledSlice};
use crate::stacks::{
    CLIENT, ExtraRounds, INTERRUPT_CPUS, LAYER, PartCpu, SYSTEM, SampledStack, StackKind,
    StackSampler, StackSlice,
};
use crate::study::ScheduleKind;

/// Share of the baseline's capacity that is the rate if the study gives none.
const RATE_SHARE: f64 = 0.5;
/// Separates the order and the operations of stack slices from those of the rounds.
const SEED_SALT: u64 = 0x57ac_c5ee_d000_0001;
const SEED_SALT_OFF_CPU: u64 = 0x57ac_c5ee_d000_0002;
const SEED_SALT_TRACED: u64 = 0x57ac_c5ee_d000_0003;
const SEED_SALT_INTERRUPT_CPUS: u64 = 0x57ac_c5ee_d000_0004;

impl<'p> Campaign<'_, 'p> {
    /// Runs all extra rounds: first those of each sampler, then those of the tracers.
    pub(super) fn run_extra_rounds(
        &mut self,
        order: ExtraRounds<'p>,
    ) -> Result<Ending, CampaignError> {
        let ExtraRounds { samplers, tracers, rounds, window } = order;
        let mut ending = Ending::RoundsDone;
        for mut sampler in samplers {
            if ending != Ending::Interrupted {
                ending = self.stacks(&mut *sampler, rounds, window)?;
            }
        }
        if ending != Ending::Interrupted && !tracers.is_empty() {
            ending = self.traced(tracers, rounds)?;
        }
        Ok(ending)
    }

    /// Runs all rounds of stack slices. A failure voids its slice. A sampler that fails repeatedly
    /// ends the sampling with a doubt; the rest of the record is not affected.
    fn stacks(
        &mut self,
        sampler: &mut dyn StackSampler,
        rounds: u32,
        window: Duration,
    ) -> Result<Ending, CampaignError> {
        self.stage(Stage::SamplingStacks);
        let kind = sampler.kind();
        let salt = match kind {
            StackKind::OnCpu => SEED_SALT,
            StackKind::OffCpu => SEED_SALT_OFF_CPU,
            StackKind::InterruptCpus => SEED_SALT_INTERRUPT_CPUS,
        };
        let seed = tare_std::rng::mix64(self.seed ^ salt);
        let first = self.writer().stack_rounds(kind)?;
        let mut failures = 0;
        let mut given_up = None;
        let ending =
            self.run_extra(Phase::Latency, seed, first, rounds, |campaign, round, scheduled| {
                let void = campaign.run_stack_slice(round, scheduled, seed, window, sampler)?;
                failures = if void.is_some() { failures + 1 } else { 0 };
                given_up = void.filter(|_| failures >= FAILURES_MAX);
                Ok(given_up.is_none())
            })?;
        if let Some(reason) = given_up {
            self.put_doubt(None, Doubt::ProbeFailed { probe: kind.probe().into(), reason })?;
        }
        Ok(ending)
    }

    /// Runs all rounds of traced slices: ordinary slices with additional probes.
    fn traced(
        &mut self,
        tracers: Vec<Box<dyn Probe + 'p>>,
        rounds: u32,
    ) -> Result<Ending, CampaignError> {
        self.stage(Stage::Tracing);
        for workload in 0..self.study.workloads.len() {
            self.stack_rate(workload);
        }
        let ordinary = self.parts.probes.len();
        self.parts.probes.extend(tracers);
        let freezes = self.study.schedule.kind == ScheduleKind::Slices;
        let seed = tare_std::rng::mix64(self.seed ^ SEED_SALT_TRACED);
        let first = self.writer().traced_rounds()?;
        let ending =
            self.run_extra(Phase::Traced, seed, first, rounds, |campaign, round, scheduled| {
                campaign.run_slice(round, scheduled, freezes).map(|()| true)
            });
        self.parts.probes.truncate(ordinary);
        ending
    }

    /// Runs rounds of slices in random order, until `run` returns false.
    fn run_extra(
        &mut self,
        phase: Phase,
        seed: u64,
        first: u32,
        rounds: u32,
        mut run: impl FnMut(&mut Self, u32, &ScheduledSlice) -> Result<bool, CampaignError>,
    ) -> Result<Ending, CampaignError> {
        let kind = self.study.schedule.kind;
        let trials = kind == ScheduleKind::Trials;
        let workloads = 0..self.study.workloads.len();
        let cells: Vec<Cell> = workloads.map(|workload| Cell { workload, phase }).collect();
        let began = self.parts.clock.now();
        for round in first..first.saturating_add(rounds) {
            let done = round - first;
            let each = (self.parts.clock.now() - began).checked_div(done);
            let left = each.map(|each| each * (rounds - done));
            self.observer.event(&Event::ExtraRoundStarted { round: done, rounds, left });
            let slices_in_order = schedule::round(kind, seed, round, self.members.len(), &cells);
            for group in slices_in_order.chunk_by(|a, b| a.environment == b.environment) {
                let Some(index) = group.first().map(|scheduled| scheduled.environment) else {
                    continue;
                };
                if self.members[index].out {
                    continue;
                }
                // A failed start voids the slices, and they record the reason.
                if trials && !self.stopped() {
                    self.start_member(index).ok();
                }
                for scheduled in group {
                    if self.stopped() {
                        return Ok(Ending::Interrupted);
                    }
                    if !run(self, round, scheduled)? {
                        return Ok(Ending::RoundsDone);
                    }
                }
                if trials {
                    self.stop_member(index);
                    self.put_member(index)?;
                }
            }
        }
        Ok(Ending::RoundsDone)
    }

    /// Runs one stack slice and writes it. Returns why it is void, if it is.
    fn run_stack_slice(
        &mut self,
        round: u32,
        scheduled: &ScheduledSlice,
        seed: u64,
        window: Duration,
        sampler: &mut dyn StackSampler,
    ) -> Result<Option<String>, CampaignError> {
        let workload = scheduled.cell.workload;
        let rate_per_s = self.stack_rate(workload);
        self.announce_slice(scheduled.environment, scheduled.cell);
        let mut slice = StackSlice {
            id: 0,
            round,
            kind: sampler.kind(),
            position: scheduled.position,
            environment: self.members[scheduled.environment].name().to_string(),
            workload: self.study.workloads[workload].name.clone(),
            started_unix_ms: self.parts.clock.unix_ms(),
            window_ns: 0,
            operations: 0,
            rate_per_s: rate_per_s.unwrap_or(0.0),
            event: sampler.event(),
            cpu: Vec::new(),
            stacks: Vec::new(),
            void: None,
        };
        let load_seed = schedule::load_seed(seed, round, scheduled.cell);
        slice.void = match rate_per_s {
            None => Some("the fixed rate is not known".to_string()),
            Some(rate) => {
                let asked = self.order(workload, Some(rate), load_seed, window);
                self.sample(scheduled.environment, &asked, sampler, &mut slice).err()
            }
        };
        self.writer().put_stacks(&slice)?;
        Ok(slice.void)
    }

    /// Returns the rate of a workload's stack slices in operations/s, the same in every
    /// environment.
    fn stack_rate(&mut self, workload: usize) -> Option<f64> {
        if let Some(rate) = self.rates[workload] {
            return Some(rate);
        }
        let baseline = self.members[self.baseline].name().to_string();
        let name = self.study.workloads[workload].name.clone();
        let slices = &self.writer().record().slices;
        let mut reached: Vec<f64> = slices
            .iter()
            .filter(|slice| slice.environment == baseline && slice.workload == name)
            .filter(|slice| slice.void.is_none() && slice.window_ns > 0)
            .map(|slice| slice.operations as f64 * 1e9 / slice.window_ns as f64)
            .collect();
        reached.sort_by(f64::total_cmp);
        let rate = (reached.get(reached.len() / 2)? * RATE_SHARE).floor().max(1.0);
        self.rates[workload] = Some(rate);
        Some(rate)
    }

    /// Measures one slice with the sampler on, into `slice`. The error is the reason why it is
    /// void.
    fn sample(
        &mut self,
        index: usize,
        asked: &crate::driver::SliceOrder,
        sampler: &mut dyn StackSampler,
        slice: &mut StackSlice,
    ) -> Result<(), String> {
        let client = self.parts.driver.pids();
        let member = &mut self.members[index];
        let Some(running) = &mut member.running else {
            return Err(member.start_error.clone().unwrap_or_else(|| "it is not up".into()));
        };
        let begun = sampler.begin(&scope(running, client, Duration::ZERO));
        // `begin` may have chosen the event.
        slice.event = sampler.event();
        let mut edges: Result<(), PartError> = Ok(());
        let freezes = self.study.schedule.kind == ScheduleKind::Slices;
        let measured = match &begun {
            Ok(()) => self
                .measure(index, asked, freezes, &mut |edge: Edge| {
                    if edges.is_ok() {
                        edges = sampler.edge(edge);
                    }
                })
                .map_err(|error| error_line(&error)),
            Err(error) => Err(error_line(&**error)),
        };
        // Always end the sampler, so that it does not keep running.
        let ended: Result<Vec<SampledStack>, PartError> = sampler.end();
        let measured = measured?;
        edges.map_err(|error| error_line(&*error))?;
        slice.stacks = ended.map_err(|error| error_line(&*error))?;
        let account = accounts(measured);
        slice.window_ns = account.window_ns;
        slice.operations = account.operations;
        slice.cpu = part_cpu(&account, slice.kind)?;
        if slice.operations == 0 {
            return Err("no operation ended in the window".into());
        }
        if slice.stacks.is_empty() {
            return Err("no stack was sampled in the window".into());
        }
        Ok(())
    }
}

/// Returns the CPU time that the stacks of a slice divide, by part.
fn part_cpu(account: &Slice, kind: StackKind) -> Result<Vec<PartCpu>, String> {
    if kind == StackKind::InterruptCpus {
        let name = names::INTERRUPT_CPUS_BUSY_NS;
        let busy = account.counters.iter().find(|counter| counter.name == name);
        let busy = busy.ok_or("no probe counted the time of the interrupt CPUs")?;
        let cpu_ns = whole_ns(busy.value);
        return Ok(vec![PartCpu { part: INTERRUPT_CPUS.into(), cpu_ns, idle_poll_ns: 0 }]);
    }
    let layer = account.layer_cpu_ns.iter().map(|(_, ns)| ns).sum();
    let parts = [
        (SYSTEM, account.system_cpu_ns, account.idle_poll_cpu_ns()),
        (LAYER, layer, 0),
        (CLIENT, account.client_cpu_ns, 0),
    ];
    let known = parts.into_iter().filter(|(_, cpu_ns, _)| *cpu_ns > 0);
    let part = |(part, cpu_ns, idle_poll_ns): (&str, u64, u64)| PartCpu {
        part: part.into(),
        cpu_ns,
        idle_poll_ns,
    };
    Ok(known.map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::measure::empty;
    use crate::probe::Counter;

    #[test]
    fn interrupt_cpus_have_their_own_time() {
        let mut slice = empty(Phase::Latency);
        slice.system_cpu_ns = 7;
        let name = names::INTERRUPT_CPUS_BUSY_NS.to_string();
        slice.counters.push(Counter { name, value: 3e6 });
        let found = part_cpu(&slice, StackKind::InterruptCpus).unwrap();
        let part = INTERRUPT_CPUS.to_string();
        assert_eq!(found, [PartCpu { part, cpu_ns: 3_000_000, idle_poll_ns: 0 }]);
        let found = part_cpu(&slice, StackKind::OnCpu).unwrap();
        assert_eq!(found, [PartCpu { part: SYSTEM.into(), cpu_ns: 7, idle_poll_ns: 0 }]);
    }
}
