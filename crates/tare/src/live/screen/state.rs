//! The state of a running study, from its events. Plain data: no clock, no terminal.

use std::collections::VecDeque;
use std::time::Duration;

use tare_lab::analysis::{Analysis, latency};
use tare_lab::campaign::{Event, Stage};
use tare_lab::doubt::Doubt;
use tare_lab::record::{Phase, Slice};
use tare_lab::study::{Study, control_name};
use tare_report::Metric;

use super::keys::Key;

/// Most slices in a sparkline.
const HISTORY: usize = 240;
/// Most lines of the run that are kept; there is about one per environment.
const LINES_MAX: usize = 1000;

/// The status of an environment.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Status {
    Waiting,
    Starting,
    Populating { workload: String, done: u64, all: u64 },
    Ready { after_ns: Option<u64> },
    LeftOut { reason: String },
}

/// The figures of the last slices of an environment under one workload, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Series {
    /// Operations/s of the capacity slices.
    pub(super) throughput_per_s: VecDeque<f64>,
    /// 99th percentile of each latency slice, from the intended start, ns.
    pub(super) response_ns_p99: VecDeque<u64>,
    /// 99th percentile of each capacity slice, from the send, ns.
    pub(super) service_ns_p99: VecDeque<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Environment {
    pub(super) name: String,
    pub(super) status: Status,
    /// One entry per workload.
    pub(super) series: Vec<Series>,
}

impl Environment {
    pub(super) fn has_slices(&self) -> bool {
        self.series.iter().any(|series| {
            !(series.throughput_per_s.is_empty() && series.response_ns_p99.is_empty())
        })
    }
}

/// The running slice.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunningSlice {
    pub(super) environment: String,
    pub(super) workload: String,
    pub(super) phase: Phase,
}

/// A doubt of one kind, with its environments and its number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DoubtEntry {
    /// Empty for a doubt about the whole record.
    pub(super) environments: Vec<String>,
    /// The latest one.
    pub(super) doubt: Doubt,
    pub(super) count: u32,
}

/// What the screen shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Costs,
    Doubts,
    Help,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) budget: Duration,
    pub(super) stage: Stage,
    /// The number of the running or last round, from 1; 0 before the first.
    pub(super) round: u32,
    pub(super) rounds_expected: u32,
    /// Time left, and when it was reported.
    left: Option<(Duration, Duration)>,
    /// In the order of the study, with the control after the baseline.
    pub(super) environments: Vec<Environment>,
    pub(super) workloads: Vec<String>,
    /// Index of the shown workload.
    pub(super) shown: usize,
    pub(super) metric: Metric,
    pub(super) now: Option<RunningSlice>,
    /// Newest first.
    doubts: Vec<DoubtEntry>,
    pub(super) analysis: Option<Analysis>,
    log: VecDeque<String>,
    pub(super) view: View,
    /// Rows scrolled past.
    pub(super) scroll: usize,
    /// Whether the study was requested to stop.
    pub(super) stopping: bool,
}

fn push<T>(series: &mut VecDeque<T>, value: T) {
    if series.len() == HISTORY {
        series.pop_front();
    }
    series.push_back(value);
}

impl State {
    pub(super) fn new(study: &Study) -> Self {
        let workloads: Vec<String> = study.workloads.iter().map(|one| one.name.clone()).collect();
        let mut environments = Vec::new();
        let environment = |name: &str| Environment {
            name: name.to_string(),
            status: Status::Waiting,
            series: vec![Series::default(); workloads.len()],
        };
        for spec in &study.environments {
            environments.push(environment(&spec.name));
            if spec.name == study.baseline {
                environments.push(environment(&control_name(&study.baseline)));
            }
        }
        Self {
            name: study.name.clone(),
            title: study.title.clone(),
            budget: study.schedule.budget,
            stage: Stage::Starting,
            round: 0,
            rounds_expected: study.schedule.rounds,
            left: None,
            environments,
            workloads,
            shown: 0,
            metric: Metric::ServerCpu,
            now: None,
            doubts: Vec::new(),
            analysis: None,
            log: VecDeque::new(),
            view: View::Costs,
            scroll: 0,
            stopping: false,
        }
    }

    /// Updates the state by an event, `now` after the start of the study.
    pub(super) fn update(&mut self, event: &Event<'_>, now: Duration) {
        match event {
            Event::Stage(stage) => {
                self.stage = *stage;
                self.now = None;
            }
            Event::EnvironmentStarting { name } => self.set_status(name, Status::Starting),
            Event::EnvironmentStarted { environment } => {
                let after_ns = environment.ready_ns;
                self.set_status(&environment.spec.name, Status::Ready { after_ns });
            }
            Event::EnvironmentLeftOut { name, reason } => {
                self.set_status(name, Status::LeftOut { reason: (*reason).to_string() });
            }
            Event::Populating { environment, workload, done, all } => {
                let workload = (*workload).to_string();
                let (done, all) = (*done, *all);
                self.set_status(environment, Status::Populating { workload, done, all });
            }
            Event::RoundStarted { round, rounds_expected, left } => {
                self.round = round + 1;
                self.rounds_expected = *rounds_expected;
                self.left = Some((*left, now));
            }
            Event::ExtraRoundStarted { round, rounds, left } => {
                self.round = round + 1;
                self.rounds_expected = *rounds;
                self.left = left.map(|left| (left, now));
            }
            Event::SliceStarting { environment, workload, phase } => {
                self.now = Some(RunningSlice {
                    environment: (*environment).to_string(),
                    workload: (*workload).to_string(),
                    phase: *phase,
                });
            }
            Event::SliceDone { slice, doubts } => {
                self.now = None;
                self.add_slice(slice);
                for doubt in *doubts {
                    self.add_doubt(Some(&slice.environment), doubt);
                }
            }
            Event::Doubted { environment, doubt } => self.add_doubt(*environment, doubt),
            Event::RoundDone { rounds_expected, left, analysis, .. } => {
                self.rounds_expected = *rounds_expected;
                self.left = Some((*left, now));
                self.analysis = Some((*analysis).clone());
            }
            Event::WarmingUp { takes } => self.left = Some((*takes, now)),
            Event::DataSaved { .. }
            | Event::Climbed { .. }
            | Event::Calibrated { .. }
            | Event::WindowChosen { .. }
            | Event::Restarting { .. }
            | Event::TeardownFailed { .. } => {}
        }
    }

    fn set_status(&mut self, name: &str, status: Status) {
        if let Some(found) = self.environments.iter_mut().find(|one| one.name == name) {
            found.status = status;
        }
    }

    fn add_slice(&mut self, slice: &Slice) {
        let workload = self.workloads.iter().position(|name| *name == slice.workload);
        let environment = self.environments.iter_mut().find(|one| one.name == slice.environment);
        let (Some(workload), Some(environment)) = (workload, environment) else { return };
        if slice.void.is_some() || slice.window_ns == 0 {
            return;
        }
        let series = &mut environment.series[workload];
        let p99 = |histogram: &[u8]| latency(histogram).map(|latency| latency.p99_ns);
        match slice.phase {
            Phase::Capacity => {
                let per_s = slice.operations as f64 * 1e9 / slice.window_ns as f64;
                push(&mut series.throughput_per_s, per_s);
                if let Some(p99) = p99(&slice.service) {
                    push(&mut series.service_ns_p99, p99);
                }
            }
            Phase::Latency => {
                if let Some(p99) = p99(&slice.response) {
                    push(&mut series.response_ns_p99, p99);
                }
            }
            // A traced slice is disturbed, and a search has figures only when it ends.
            Phase::Traced | Phase::Slo => {}
        }
    }

    fn add_doubt(&mut self, environment: Option<&str>, doubt: &Doubt) {
        let environments: Vec<String> = environment.map(str::to_string).into_iter().collect();
        let same =
            |one: &DoubtEntry| one.environments == environments && one.doubt.kind() == doubt.kind();
        let before = self.doubts.iter().position(same).map(|at| self.doubts.remove(at).count);
        self.doubts.insert(
            0,
            DoubtEntry { environments, doubt: doubt.clone(), count: before.unwrap_or(0) + 1 },
        );
    }

    /// Returns the doubts, newest first, with equal doubts of several environments merged; then the
    /// doubts of the analysis so far about the record.
    pub(super) fn doubts(&self) -> Vec<DoubtEntry> {
        let mut all: Vec<DoubtEntry> = Vec::new();
        for one in &self.doubts {
            match all.iter_mut().find(|same| same.doubt == one.doubt) {
                Some(same) => {
                    same.environments.extend(one.environments.iter().cloned());
                    same.count += one.count;
                }
                None => all.push(one.clone()),
            }
        }
        for doubt in self.analysis.iter().flat_map(|analysis| &analysis.doubts) {
            if all.iter().all(|one| one.doubt.kind() != doubt.kind()) {
                all.push(DoubtEntry { environments: Vec::new(), doubt: doubt.clone(), count: 1 });
            }
        }
        all
    }

    /// Returns the time left for rounds, if known.
    pub(super) fn left(&self, now: Duration) -> Option<Duration> {
        self.left.map(|(left, at)| left.saturating_sub(now.saturating_sub(at)))
    }

    pub(super) fn log(&mut self, line: String) {
        if self.log.len() == LINES_MAX {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    /// Returns the lines of the run, oldest first.
    pub(super) fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.log.iter().map(String::as_str)
    }

    /// Applies a key that changes the view.
    pub(super) fn press(&mut self, key: Key) {
        let toggle = |view: View, to: View| if view == to { View::Costs } else { to };
        let workloads = self.workloads.len().max(1);
        match key {
            Key::Help => self.view = toggle(self.view, View::Help),
            Key::Doubts => self.view = toggle(self.view, View::Doubts),
            Key::Close => self.view = View::Costs,
            Key::Metric => {
                self.metric = match self.metric {
                    Metric::ServerCpu => Metric::Throughput,
                    Metric::Throughput => Metric::ServerCpu,
                }
            }
            Key::NextWorkload => self.shown = (self.shown + 1) % workloads,
            Key::PreviousWorkload => self.shown = (self.shown + workloads - 1) % workloads,
            Key::Up => self.scroll = self.scroll.saturating_sub(1),
            Key::Down => self.scroll = self.scroll.saturating_add(1).min(self.scroll_max()),
            Key::Stop | Key::Redraw => return,
        }
        if !matches!(key, Key::Up | Key::Down) {
            self.scroll = 0;
        }
    }

    /// Returns the scroll position of the last row.
    fn scroll_max(&self) -> usize {
        match self.view {
            View::Doubts => self.doubts().len().saturating_sub(1),
            View::Costs | View::Help => self.environments.len().saturating_sub(1),
        }
    }
}
