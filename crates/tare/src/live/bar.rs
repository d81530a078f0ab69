//! A progress bar with the time left, and the costs so far below it. It is drawn at events only: a
//! drawing thread would run while a slice is measured.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tare_lab::campaign::{Event, Observer, Stage};
use tare_report::terminal::{Style, costs_so_far};
use tare_std::units::thousands;

use super::lines::{extra_round, line, minutes};

pub(super) struct BarView {
    all: MultiProgress,
    bar: ProgressBar,
    costs: Vec<ProgressBar>,
    style: Style,
}

impl BarView {
    pub(super) fn new(style: Style) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let bar = all.add(ProgressBar::new(0));
        bar.set_style(bar_style("{bar:30} {msg}"));
        Self { all, bar, costs: Vec::new(), style }
    }

    /// Shows lines below the bar.
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

/// Returns the style of a template. The templates are constants; the default replaces an invalid
/// one.
fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Observer for BarView {
    fn event(&mut self, event: &Event<'_>) {
        if let Some(line) = line(event) {
            // A failure does not matter: the record holds the same information.
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
            Event::RoundStarted { round, rounds_expected, left }
            | Event::RoundDone { round, rounds_expected, left, .. } => {
                let done = matches!(event, Event::RoundDone { .. });
                self.bar.set_length(u64::from(*rounds_expected));
                self.bar.set_position(u64::from(*round) + u64::from(done));
                let number = round + u32::from(!done);
                let message =
                    format!("round {number} of at most {rounds_expected}, {} left", minutes(*left));
                self.bar.set_message(message);
                if let Event::RoundDone { analysis, .. } = event {
                    let lines = costs_so_far(analysis, self.style);
                    self.show(&lines);
                }
            }
            Event::ExtraRoundStarted { round, rounds, .. } => {
                self.bar.set_length(u64::from(*rounds));
                self.bar.set_position(u64::from(*round));
                self.bar.set_message(extra_round(event).unwrap_or_default());
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
