//! The progress view of `tare load` on standard error: on a terminal one line with a heat strip
//! below it, updated every second; elsewhere plain lines.
//!
//! It is drawn at events, on the thread that collects the counts of the load threads. There is no
//! drawing thread.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tare_load::histogram::Histogram;
use tare_load::load::{Interval, LoadEvent};
use tare_load::search::SearchRun;
use tare_std::units::{nanoseconds, significant, thousands};

use crate::stream::say;

/// The strip starts at 10 µs and has five cells per factor of ten.
const STRIP_START_NS: f64 = 1e4;
const CELLS_PER_DECADE: u32 = 5;
const CELLS: u32 = 6 * CELLS_PER_DECADE;
/// From no operations to the cell with the most.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// The progress view of a load.
pub(crate) struct LoadView {
    /// None if standard error is no terminal.
    bar: Option<ProgressBar>,
}

impl LoadView {
    pub(crate) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // The template is a constant; the default replaces an invalid one.
            let style = ProgressStyle::with_template("{msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar }
    }

    pub(crate) fn event(&mut self, event: &LoadEvent<'_>) {
        let text = match event {
            LoadEvent::Populating { table, done, all } => {
                format!("{} of {} rows in {table}", thousands(*done), thousands(*all))
            }
            LoadEvent::Interval(interval) => match &self.bar {
                Some(_) => format!("{}\n{}", line(interval), strip(interval.histogram)),
                None => line(interval),
            },
            LoadEvent::Tried(tried) => {
                let text = search_line(tried);
                match &self.bar {
                    Some(bar) => bar.println(text),
                    None => say(&text),
                }
                return;
            }
        };
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => say(&text),
        }
    }

    /// Clears the view, so that the result can be printed.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(interval: &Interval<'_>) -> String {
    let latency = &interval.latency;
    let name = if interval.is_open { "response" } else { "service" };
    let ns = |ns: u64| nanoseconds(ns as f64);
    let cpu_us = interval.client_cpu_us_per_operation;
    format!(
        "{:>4.0} s  {:>9.0} op/s  {name} p50 {}, p99 {}, p99.9 {}, max {}  client {} µs/op, {:.0} % CPU  \
         errors {}",
        interval.end.as_secs_f64(),
        interval.throughput_per_s,
        ns(latency.p50_ns),
        ns(latency.p99_ns),
        ns(latency.p999_ns),
        ns(latency.max_ns),
        cpu_us.map_or_else(|| "-".into(), |us| significant(us, 3)),
        100.0 * interval.client_cpu_share,
        thousands(interval.failed),
    )
}

/// Returns the latencies of an interval as a strip from 10 µs to 10 s, in steps of 58 %. A darker
/// cell has more operations, by the logarithm of their number. The cells at both ends include all
/// beyond.
fn strip(histogram: &Histogram) -> String {
    let mut cells = String::new();
    let most = f64::from(u32::try_from(histogram.len()).unwrap_or(u32::MAX)).ln_1p();
    let mut from_ns = 0;
    for cell in 1..=CELLS {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "10 s in ns")]
        let to_ns =
            (STRIP_START_NS * 10f64.powf(f64::from(cell) / f64::from(CELLS_PER_DECADE))) as u64;
        let to_ns = if cell == CELLS { u64::MAX } else { to_ns };
        let count = match histogram.is_empty() {
            true => 0,
            false => histogram.count_between(from_ns, to_ns.saturating_sub(1)),
        };
        let share = if count == 0 { 0.0 } else { (count as f64).ln_1p() / most };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 4")]
        let shade = (share * (SHADES.len() - 1) as f64).ceil() as usize;
        cells.push(SHADES[shade.min(SHADES.len() - 1)]);
        from_ns = to_ns;
    }
    format!("        10 µs │{cells}│ 10 s")
}

/// Returns a line about one run of a search.
fn search_line(tried: &SearchRun) -> String {
    let latencies: Vec<String> = tried
        .latencies_ns
        .iter()
        .map(|ns| ns.map_or_else(|| "never".into(), |ns| nanoseconds(ns as f64)))
        .collect();
    format!(
        "{} {:>9} op/s: {}  {}",
        if tried.confirms { "confirming" } else { "bracketing" },
        significant(tried.rate_per_s, 4),
        if tried.holds { "holds " } else { "breaks" },
        latencies.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_load::histogram;

    #[test]
    fn strip_is_darkest_at_the_most_operations() {
        let mut times = histogram::new();
        assert_eq!(strip(&times), format!("        10 µs │{}│ 10 s", " ".repeat(30)));
        (0..10_000).for_each(|_| histogram::record(&mut times, 120_000));
        histogram::record(&mut times, 3_000);
        histogram::record(&mut times, 60_000_000_000);
        let text = strip(&times);
        let cells: Vec<char> = text.split('│').nth(1).unwrap().chars().collect();
        assert_eq!(cells.len(), 30);
        // 120 µs is in the sixth cell: 100 to 158 µs.
        assert_eq!((cells[0], cells[5], cells[29]), ('░', '█', '░'), "{text}");
        assert_eq!(cells.iter().filter(|&&cell| cell != ' ').count(), 3, "{text}");
    }
}
