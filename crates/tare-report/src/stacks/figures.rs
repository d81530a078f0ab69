//! Computes CPU time per operation from samples.
//!
//! In each slice and for each part (system, layer, client) the measured CPU time is divided equally
//! among the part's samples, and by the operations of the slice. The idle polling that the system
//! reports is subtracted in proportion from the stacks in which it may poll ([`may_poll`]): its own
//! code, and calls of epoll that do not wait. A part with CPU time and without samples is "not
//! sampled". So the subsystems add up to the CPU time per operation of system, layer and client
//! without idle polling, which is the figure of `weigh` at the fixed rate.
//!
//! Stacks of waits (off-CPU) are times, which are only divided by the operations of the slice.
//! Their sum is not a cost, because threads without work wait too.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tare_lab::stacks::{KERNEL_SUFFIX, SYSTEM, SampledStack, StackKind, StackSlice};
use tare_stats::methods::student_t;

/// Name of the CPU time of a part without samples.
pub const NOT_SAMPLED: &str = "not sampled";

/// µs per operation: the mean over rounds with its 95 % interval. A single round has no bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub us: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl Figure {
    pub(super) fn of(values: &[f64]) -> Self {
        let known = |bound: f64| bound.is_finite().then_some(bound);
        match student_t(values) {
            Some(one) => Self { us: one.centre, low: known(one.low), high: known(one.high) },
            None => Self { us: 0.0, low: None, high: None },
        }
    }

    /// Whether the interval excludes 0.
    pub fn found(&self) -> bool {
        self.low.is_some_and(|low| low > 0.0) || self.high.is_some_and(|high| high < 0.0)
    }

    /// Half the width of the interval.
    pub fn half_width(&self) -> Option<f64> {
        self.low.zip(self.high).map(|(low, high)| (high - low) / 2.0)
    }
}

/// One subsystem or function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub name: String,
    /// The subsystem of most of a function's time; `None` for a subsystem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
    pub from: Figure,
    pub to: Figure,
    /// `to` less `from`, paired by round.
    pub difference: Figure,
    /// The difference of a function with everything that it calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference_with_callees: Option<Figure>,
}

/// One environment's slices under one workload, by round.
#[derive(Clone, Debug, Default)]
pub struct Side {
    pub environment: String,
    rounds: BTreeMap<u32, Weights>,
    pub samples: u64,
}

/// A slice in µs per operation.
#[derive(Clone, Debug, Default)]
pub(super) struct Weights {
    pub(super) total: f64,
    pub(super) idle: f64,
    pub(super) subsystems: BTreeMap<String, f64>,
    /// (part, folded stack, subsystem).
    pub(super) stacks: BTreeMap<(String, String, String), f64>,
}

/// Whether a system may be polling in this stack: in its own code, or entering, inside or leaving a
/// call of epoll that does not wait. (A ring is polled without a call.) The samples do not show
/// which polls found work.
fn may_poll(folded: &str) -> bool {
    let mut frames = folded.split(';').rev().peekable();
    let mut kernel = Vec::new();
    while let Some(frame) = frames.next_if(|frame| frame.ends_with(KERNEL_SUFFIX)) {
        kernel.push(frame);
    }
    if kernel.is_empty() {
        return true;
    }
    let inside = |word: &str| kernel.iter().any(|frame| frame.contains(word));
    let epoll = inside("_sys_epoll") || inside("do_epoll_wait");
    // Entering: no system call yet, and the caller is a function of epoll.
    let entering = (inside("entry_SYSCALL") || inside("el0_svc"))
        && !kernel.iter().any(|one| one.contains("_sys_") && !one.starts_with("x64_sys_call"))
        && frames.next().is_some_and(|caller| caller.contains("epoll"));
    (epoll || entering) && !inside("schedule")
}

impl Weights {
    fn of(slice: &StackSlice) -> Self {
        let mut weights = Self::default();
        let per_operation = 1e3 * slice.operations as f64;
        if slice.kind == StackKind::OffCpu {
            // These samples are times.
            for stack in &slice.stacks {
                weights.add(stack, stack.samples as f64 / per_operation);
            }
            return weights;
        }
        for cpu in &slice.cpu {
            let stacks = || slice.stacks.iter().filter(|stack| stack.part == cpu.part);
            let samples: u64 = stacks().map(|stack| stack.samples).sum();
            let us = cpu.cpu_ns as f64 / per_operation;
            if samples == 0 {
                *weights.subsystems.entry(NOT_SAMPLED.into()).or_default() += us;
                weights.total += us;
                continue;
            }
            let unit = us / samples as f64;
            let polls = |one: &SampledStack| cpu.part == SYSTEM && may_poll(&one.folded);
            let poll: u64 = stacks().filter(|one| polls(one)).map(|one| one.samples).sum();
            let poll_us = poll as f64 * unit;
            let idle = (cpu.idle_poll_ns as f64 / per_operation).min(poll_us);
            let busy_share = if poll_us > 0.0 { (poll_us - idle) / poll_us } else { 1.0 };
            weights.idle += idle;
            for stack in stacks() {
                let share = if polls(stack) { busy_share } else { 1.0 };
                weights.add(stack, stack.samples as f64 * unit * share);
            }
        }
        weights
    }

    fn add(&mut self, stack: &SampledStack, us: f64) {
        *self.subsystems.entry(stack.subsystem.clone()).or_default() += us;
        let key = (stack.part.clone(), stack.folded.clone(), stack.subsystem.clone());
        *self.stacks.entry(key).or_default() += us;
        self.total += us;
    }
}

impl Side {
    /// The valid slices of one kind, of an environment under a workload.
    pub fn of(slices: &[StackSlice], kind: StackKind, workload: &str, environment: &str) -> Self {
        let mut side = Self { environment: environment.to_string(), ..Self::default() };
        let ours = slices.iter().filter(|slice| {
            slice.environment == environment
                && slice.kind == kind
                && slice.workload == workload
                && slice.void.is_none()
                && slice.operations > 0
        });
        for slice in ours {
            side.rounds.insert(slice.round, Weights::of(slice));
            side.samples += slice.stacks.iter().map(|stack| stack.samples).sum::<u64>();
        }
        side
    }

    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    fn numbers(&self) -> BTreeSet<u32> {
        self.rounds.keys().copied().collect()
    }

    fn values(&self, rounds: &BTreeSet<u32>, value: impl Fn(&Weights) -> f64) -> Vec<f64> {
        rounds.iter().filter_map(|round| self.rounds.get(round)).map(value).collect()
    }

    fn figure(&self, value: impl Fn(&Weights) -> f64) -> Figure {
        Figure::of(&self.values(&self.numbers(), value))
    }

    /// CPU time of system, layer and client without idle polling.
    pub fn total(&self) -> Figure {
        self.figure(|one| one.total)
    }

    /// The subtracted idle polling.
    pub fn idle(&self) -> Figure {
        self.figure(|one| one.idle)
    }

    pub fn subsystem(&self, name: &str) -> Figure {
        self.figure(|one| one.subsystems.get(name).copied().unwrap_or(0.0))
    }

    pub(super) fn subsystems(&self) -> BTreeSet<&str> {
        self.rounds.values().flat_map(|one| one.subsystems.keys()).map(String::as_str).collect()
    }
}

/// Two environments, over the rounds that both have.
#[derive(Clone, Debug)]
pub struct Profile {
    pub from: Side,
    pub to: Side,
    rounds: BTreeSet<u32>,
}

impl Profile {
    /// `None` if they have no round in common.
    pub fn new(from: Side, to: Side) -> Option<Self> {
        let rounds: BTreeSet<u32> = from.numbers().intersection(&to.numbers()).copied().collect();
        (!rounds.is_empty()).then_some(Self { from, to, rounds })
    }

    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    fn row(&self, name: &str, value: impl Fn(&Weights) -> f64) -> Row {
        let from = self.from.values(&self.rounds, &value);
        let to = self.to.values(&self.rounds, &value);
        Row {
            name: name.to_string(),
            subsystem: None,
            from: Figure::of(&from),
            to: Figure::of(&to),
            difference: difference(&from, &to),
            difference_with_callees: None,
        }
    }

    pub fn total(&self) -> Row {
        self.row("sum", |one| one.total)
    }

    pub fn idle(&self) -> Row {
        self.row("idle polling", |one| one.idle)
    }

    /// Every subsystem of either, the largest difference first. They add up to the total.
    pub fn subsystems(&self) -> Vec<Row> {
        let names: BTreeSet<&str> =
            self.from.subsystems().union(&self.to.subsystems()).copied().collect();
        let value = |name: &str| {
            let name = name.to_string();
            move |one: &Weights| one.subsystems.get(&name).copied().unwrap_or(0.0)
        };
        let mut rows: Vec<Row> =
            names.into_iter().map(|name| self.row(name, value(name))).collect();
        by_difference(&mut rows);
        rows
    }

    /// Every function by its own time, the largest difference first.
    pub fn functions(&self) -> Vec<Row> {
        let mut all: BTreeMap<&str, Function<'_>> = BTreeMap::new();
        let count = self.rounds.len();
        for (at, round) in self.rounds.iter().enumerate() {
            for (which, side) in [&self.from, &self.to].into_iter().enumerate() {
                let Some(weights) = side.rounds.get(round) else { continue };
                for ((_, folded, subsystem), us) in &weights.stacks {
                    let frames: BTreeSet<&str> = folded.split(';').collect();
                    for frame in frames {
                        let one = all.entry(frame).or_insert_with(|| Function::new(count));
                        one.with_callees[which][at] += us;
                    }
                    let leaf = folded.rsplit(';').next().unwrap_or_default();
                    let one = all.entry(leaf).or_insert_with(|| Function::new(count));
                    one.own[which][at] += us;
                    *one.subsystems.entry(subsystem).or_default() += us;
                }
            }
        }
        let mut rows: Vec<Row> = all.into_iter().map(|(name, one)| one.row(name)).collect();
        by_difference(&mut rows);
        rows
    }

    /// Every stack with its weight in each round of both, for the flame graphs.
    pub(super) fn stacks(&self) -> impl Iterator<Item = (usize, usize, &Stack, f64)> {
        self.rounds.iter().enumerate().flat_map(move |(at, round)| {
            [&self.from, &self.to].into_iter().enumerate().flat_map(move |(which, side)| {
                let weights = side.rounds.get(round);
                let stacks = weights.into_iter().flat_map(|weights| &weights.stacks);
                stacks.map(move |(stack, us)| (which, at, stack, *us))
            })
        })
    }
}

/// (part, folded stack, subsystem).
pub(super) type Stack = (String, String, String);

pub(super) fn difference(from: &[f64], to: &[f64]) -> Figure {
    let pairs: Vec<f64> = from.iter().zip(to).map(|(from, to)| to - from).collect();
    Figure::of(&pairs)
}

fn by_difference(rows: &mut [Row]) {
    rows.sort_by(|a, b| b.difference.us.abs().total_cmp(&a.difference.us.abs()));
}

/// µs per operation in each round of both environments.
struct Function<'p> {
    own: [Vec<f64>; 2],
    with_callees: [Vec<f64>; 2],
    subsystems: BTreeMap<&'p str, f64>,
}

impl Function<'_> {
    fn new(rounds: usize) -> Self {
        let zeros = || [vec![0.0; rounds], vec![0.0; rounds]];
        Self { own: zeros(), with_callees: zeros(), subsystems: BTreeMap::new() }
    }

    fn row(self, name: &str) -> Row {
        let largest = self.subsystems.iter().max_by(|a, b| a.1.total_cmp(b.1));
        Row {
            name: name.to_string(),
            subsystem: largest.map(|(name, _)| (*name).to_string()),
            from: Figure::of(&self.own[0]),
            to: Figure::of(&self.own[1]),
            difference: difference(&self.own[0], &self.own[1]),
            difference_with_callees: Some(difference(&self.with_callees[0], &self.with_callees[1])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::may_poll;

    #[test]
    fn polling_is_own_code_and_epoll_that_does_not_wait() {
        let check = |stack: &str, polls: bool| assert_eq!(may_poll(stack), polls, "{stack}");
        let call = "db::epoll::turn;entry_SYSCALL_64_after_hwframe_[k];do_syscall_64_[k]";
        check("run;elapsed", true);
        check(call, true);
        check(&format!("{call};x64_sys_call_[k]"), true);
        check(&format!("{call};syscall_trace_enter_[k];__seccomp_filter_[k]"), true);
        check(&format!("{call};__x64_sys_epoll_pwait_[k];do_epoll_wait_[k]"), true);
        let waits = "__x64_sys_epoll_pwait_[k];do_epoll_wait_[k];schedule_[k];__schedule_[k]";
        check(&format!("{call};{waits}"), false);
        check(&format!("{call};__x64_sys_sendto_[k];tcp_sendmsg_[k]"), false);
        let ring = "syscall;entry_SYSCALL_64_after_hwframe_[k];do_syscall_64_[k]";
        check(ring, false);
        check(&format!("{ring};__do_sys_io_uring_enter_[k]"), false);
        check("", true);
    }
}
