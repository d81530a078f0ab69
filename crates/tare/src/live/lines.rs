//! Plain lines: one for each notable event, and the progress at most every ten seconds.

use std::time::{Duration, Instant};

use tare_lab::campaign::{Event, Observer, Stage};
use tare_lab::record::Slice;
use tare_lab::seconds::WINDOW_MIN;
use tare_lab::study::AutoWindow;
use tare_report::rate;
use tare_report::terminal::{Style, costs_so_far};
use tare_std::units::{nanoseconds, rough_duration, significant};

use crate::stream::say;

/// Least time between two lines about progress.
const INTERVAL: Duration = Duration::from_secs(10);

/// A warm-up that is shorter gets no line.
const SHORT: Duration = Duration::from_secs(2);

/// Returns a line about a notable event, for all views.
pub(super) fn line(event: &Event<'_>) -> Option<String> {
    match event {
        Event::Stage(Stage::Starting) => Some("starting environments".into()),
        Event::Stage(Stage::Climbing) => {
            Some("finding the load that saturates the baseline".into())
        }
        Event::Stage(Stage::Calibrating) => Some("finding the baseline's capacity".into()),
        Event::Stage(Stage::SamplingStacks) => Some("sampling stacks".into()),
        Event::Stage(Stage::Tracing) => Some("tracing".into()),
        Event::Stage(Stage::TearingDown) => Some("removing environments".into()),
        Event::EnvironmentStarted { environment } => {
            let ready = environment.ready_ns.map(|ns| format!(" in {:.0} ms", ns as f64 / 1e6));
            Some(format!("{}: ready{}", environment.spec.name, ready.unwrap_or_default()))
        }
        Event::EnvironmentLeftOut { name, reason } => Some(format!("{name}: left out: {reason}")),
        Event::DataSaved { line } => Some((*line).to_string()),
        Event::Climbed { workload, in_flight, option, climb } => {
            let what = option.unwrap_or("in flight");
            Some(format!("{workload}: {in_flight} {what} ({})", tare_report::climb_text(climb)))
        }
        Event::Stage(Stage::ChoosingWindow) => Some("choosing the length of slices".into()),
        Event::WarmingUp { takes } if *takes >= SHORT => {
            Some(format!("warming up for {}", minutes(*takes)))
        }
        Event::WindowChosen { window, chosen } => Some(window_chosen(*window, chosen)),
        Event::Restarting { name, start } => Some(format!("{name}: start {}", start + 1)),
        Event::Calibrated { workload, capacity_per_s, rate_per_s } => Some(format!(
            "{workload}: baseline {} op/s, so the fixed rate is {} op/s",
            significant(*capacity_per_s, 4),
            significant(*rate_per_s, 4)
        )),
        Event::SliceDone { slice, .. } if is_long(slice) => Some(long_slice(slice)),
        Event::TeardownFailed { name, reason } => Some(format!("{name}: not removed: {reason}")),
        _ => None,
    }
}

/// Returns whether a slice gets a line of its own.
fn is_long(slice: &Slice) -> bool {
    Duration::from_nanos(slice.window_ns) >= WINDOW_MIN
}

/// Returns what a slice of a long window found.
fn long_slice(slice: &Slice) -> String {
    let what = format!("{}: {} {}", slice.environment, slice.workload, slice.phase.load());
    if let Some(why) = &slice.void {
        return format!("{what}: void: {why}");
    }
    let window = Duration::from_nanos(slice.window_ns);
    let per_s = rate(slice.operations as f64 / window.as_secs_f64());
    let peak_ns = slice.seconds.load.iter().map(|second| second.max_ns).max();
    let peak = peak_ns.map(|ns| format!(", longest {}", nanoseconds(ns as f64)));
    let time = rough_duration(window);
    format!("{what} for {time}: {per_s} op/s{}", peak.unwrap_or_default())
}

/// Returns the window that was chosen and the noise of those that were tried.
fn window_chosen(window: Duration, auto: &AutoWindow) -> String {
    let tried = auto
        .tried
        .iter()
        .map(|one| format!("{} ms {:.1} %", one.window.as_millis(), one.noise_percent));
    let tried: Vec<String> = tried.collect();
    let chosen = format!("slices of {} ms at capacity", window.as_millis());
    match &auto.kept_because {
        Some(why) => format!("{chosen}: {why}"),
        None => format!("{chosen}; noise of a pair: {}", tried.join(", ")),
    }
}

/// Returns a time as minutes and seconds, such as `3:07`.
pub(super) fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Returns the progress of the rounds with samplers, such as `round 3 of 10, 1:20 left`.
pub(super) fn extra_round(event: &Event<'_>) -> Option<String> {
    let Event::ExtraRoundStarted { round, rounds, left } = event else { return None };
    let left = left.map(|left| format!(", {} left", minutes(left))).unwrap_or_default();
    Some(format!("round {} of {rounds}{left}", round + 1))
}

pub(super) struct LineView {
    last: Option<Instant>,
    style: Style,
}

impl LineView {
    pub(super) fn new(style: Style) -> Self {
        Self { last: None, style }
    }
}

impl Observer for LineView {
    fn event(&mut self, event: &Event<'_>) {
        if let Some(line) = line(event) {
            say(&line);
        }
        if let Some(round) = extra_round(event)
            && self.last.is_none_or(|last| last.elapsed() >= INTERVAL)
        {
            self.last = Some(Instant::now());
            say(&round);
        }
        if let Event::RoundDone { round, rounds_expected, left, analysis } = event {
            let due = self.last.is_none_or(|last| last.elapsed() >= INTERVAL);
            if due {
                self.last = Some(Instant::now());
                say(&format!(
                    "round {} of at most {rounds_expected}, {} left",
                    round + 1,
                    minutes(*left)
                ));
                for line in costs_so_far(analysis, Style { colour: false, ..self.style }) {
                    say(&format!("  {line}"));
                }
            }
        }
    }
}
