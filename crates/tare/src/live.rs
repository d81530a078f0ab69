//! What `tare weigh` shows while it runs: on a terminal a bar with the time left and the costs so far,
//! elsewhere plain lines. Everything goes to standard error.
//!
//! Nothing is drawn while a slice is measured: events come between slices only.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tare_lab::campaign::{Event, Observer, Stage};
use tare_report::terminal::{Style, costs_so_far};
use tare_std::units::{significant, thousands};

/// Plain lines say how far it is at most this often.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// A watcher for the terminal at hand.
pub(crate) fn observer(style: Style) -> Box<dyn Observer> {
    if std::io::stderr().is_terminal() {
        Box::new(Bars::new(style))
    } else {
        Box::new(Lines { last: None, style })
    }
}

/// One line about an event that is worth one, on any kind of output.
fn line(event: &Event<'_>) -> Option<String> {
    match event {
        Event::Stage(Stage::Starting) => Some("starting environments".into()),
        Event::Stage(Stage::Calibrating) => Some("finding the baseline's capacity".into()),
        Event::Stage(Stage::SamplingStacks) => Some("sampling stacks".into()),
        Event::Stage(Stage::TearingDown) => Some("removing environments".into()),
        Event::EnvironmentStarted { environment } => {
            let ready = environment.ready_ns.map(|ns| format!(" in {:.0} ms", ns as f64 / 1e6));
            Some(format!("{}: ready{}", environment.spec.name, ready.unwrap_or_default()))
        }
        Event::EnvironmentLeftOut { name, reason } => Some(format!("{name}: left out: {reason}")),
        Event::Calibrated { workload, capacity_per_s, rate_per_s } => Some(format!(
            "{workload}: baseline {} op/s, so the fixed rate is {} op/s",
            significant(*capacity_per_s, 4),
            significant(*rate_per_s, 4)
        )),
        Event::TeardownFailed { name, reason } => Some(format!("{name}: not removed: {reason}")),
        _ => None,
    }
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

struct Lines {
    last: Option<Instant>,
    style: Style,
}

impl Observer for Lines {
    fn event(&mut self, event: &Event<'_>) {
        if let Some(line) = line(event) {
            say(&line);
        }
        if let Event::BlockDone { block, blocks_expected, left, analysis } = event {
            let due = self.last.is_none_or(|last| last.elapsed() >= PLAIN_INTERVAL);
            if due {
                self.last = Some(Instant::now());
                say(&format!(
                    "round {} of at most {blocks_expected}, {} left",
                    block + 1,
                    minutes(*left)
                ));
                for line in costs_so_far(analysis, Style { colour: false, ..self.style }) {
                    say(&format!("  {line}"));
                }
            }
        }
    }
}

struct Bars {
    all: MultiProgress,
    bar: ProgressBar,
    costs: Vec<ProgressBar>,
    style: Style,
}

impl Bars {
    fn new(style: Style) -> Self {
        // Drawn by events only: a drawing thread would run while a slice is measured.
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let bar = all.add(ProgressBar::new(0));
        bar.set_style(bar_style("{bar:30} {msg}"));
        Self { all, bar, costs: Vec::new(), style }
    }

    /// Shows these lines below the bar.
    fn show(&mut self, lines: &[String]) {
        while self.costs.len() < lines.len() {
            let line = self.all.add(ProgressBar::new(0));
            line.set_style(bar_style("{msg}"));
            self.costs.push(line);
        }
        for (bar, line) in self.costs.iter().zip(lines) {
            bar.set_message(line.clone());
        }
    }
}

/// The templates are constants of this file; the default stands in should one be wrong.
fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Observer for Bars {
    fn event(&mut self, event: &Event<'_>) {
        if let Some(line) = line(event) {
            // The lines above the bar are a convenience; the record holds the same.
            self.all.println(line).ok();
        }
        match event {
            Event::EnvironmentStarting { name } => self.bar.set_message(format!("starting {name}")),
            Event::Populating { environment, done, all, .. } => {
                self.bar.set_length(*all);
                self.bar.set_position(*done);
                let (done, all) = (thousands(*done), thousands(*all));
                self.bar.set_message(format!("{environment}: {done} of {all} rows"));
            }
            Event::BlockStarted { block, blocks_expected, left }
            | Event::BlockDone { block, blocks_expected, left, .. } => {
                let done = matches!(event, Event::BlockDone { .. });
                self.bar.set_length(u64::from(*blocks_expected));
                self.bar.set_position(u64::from(*block) + u64::from(done));
                let round = block + u32::from(!done);
                let message =
                    format!("round {round} of at most {blocks_expected}, {} left", minutes(*left));
                self.bar.set_message(message);
                if let Event::BlockDone { analysis, .. } = event {
                    let lines = costs_so_far(analysis, self.style);
                    self.show(&lines);
                }
            }
            Event::Stage(Stage::TearingDown) => {
                for line in &self.costs {
                    line.finish_and_clear();
                }
                self.bar.finish_and_clear();
            }
            _ => {}
        }
    }
}

#[expect(clippy::print_stderr, reason = "progress goes to standard error")]
fn say(line: &str) {
    eprintln!("{line}");
}
