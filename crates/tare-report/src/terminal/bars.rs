//! A chart of the intervals: one line per environment on a common scale, with zero and the band of
//! the A/A control.

use tare_lab::analysis::{Analysis, Cost, Finding};

use crate::figures::{has_place, percent, shorten};
use crate::headline::{Metric, claimed, extent, telling_noise};
use crate::layout::{Paint, columns, pad};

pub(super) struct Bars<'a> {
    rows: Vec<(&'a Finding, &'a Cost)>,
    claims: Vec<bool>,
    noise: Option<f64>,
    metric: Metric,
    paint: Paint,
    /// Ends of the scale, in percent.
    low: f64,
    high: f64,
    /// Columns of the names and of the scale.
    names: usize,
    scale: usize,
}

impl<'a> Bars<'a> {
    /// `None` if there is no cost to draw.
    pub(super) fn new(
        analysis: &Analysis,
        findings: &[&'a Finding],
        metric: Metric,
        paint: Paint,
    ) -> Option<Bars<'a>> {
        let rows: Vec<(&Finding, &Cost)> = findings
            .iter()
            .filter_map(|f| metric.cost(f).map(|cost| (*f, cost)))
            .filter(|(_, cost)| has_place(cost))
            .collect();
        let workload = &rows.first()?.0.workload;
        let claims = rows.iter().map(|(f, _)| claimed(analysis, f, metric)).collect();
        let noise = telling_noise(analysis, workload, metric);
        let (low, high) = extent(rows.iter().map(|(_, cost)| *cost), noise.into_iter());
        let names = rows.iter().map(|(f, _)| columns(&name(f, paint))).max().unwrap_or(0);
        let scale = usize::from(paint.0.width).saturating_sub(names + 4).clamp(20, 80);
        Some(Bars { claims, noise, metric, paint, low, high, names, scale, rows })
    }

    pub(super) fn draw(&self) -> Vec<String> {
        let what = match self.metric {
            Metric::ServerCpu => "Server CPU per operation, cost in %",
            Metric::Throughput => "Throughput lost, in %",
        };
        let band = self.noise.map_or_else(String::new, |noise| {
            format!(" ({} band: A/A noise, within {noise:.1} %)", self.paint.glyph('░'))
        });
        let mut lines = vec![self.paint.plain(what) + &band, self.axis()];
        for (index, (finding, cost)) in self.rows.iter().enumerate() {
            let bar = self.bar(cost);
            let bar = self.paint.cost(bar.trim_end(), Some(cost), self.claims[index]);
            lines.push(format!("  {}  {bar}", pad(&name(finding, self.paint), self.names)));
        }
        lines
    }

    fn axis(&self) -> String {
        let mut axis: Vec<char> = vec![' '; self.scale];
        let mut put = |text: &str, at: usize| {
            let from = at.min(self.scale.saturating_sub(text.chars().count()));
            let to = from + text.chars().count();
            if axis[from.saturating_sub(1)..(to + 1).min(self.scale)].iter().all(|c| *c == ' ') {
                axis.splice(from..to, text.chars());
            }
        };
        let zero = self.column(0.0);
        put("0", zero);
        put(&self.paint.plain(&percent(self.high)), self.scale);
        put(&self.paint.plain(&percent(self.low)), 0);
        format!("  {}  {}", " ".repeat(self.names), axis.into_iter().collect::<String>().trim_end())
    }

    fn bar(&self, cost: &Cost) -> String {
        let mut bar: Vec<char> = vec![' '; self.scale];
        if let Some(noise) = self.noise {
            bar[self.column(-noise)..=self.column(noise)].fill('░');
        }
        bar[self.column(0.0)] = '│';
        let interval = cost.percent;
        let (low, high) = (self.column(interval.low), self.column(interval.high));
        if interval.low.is_finite() && interval.high.is_finite() && low < high {
            bar[low..=high].fill('─');
            bar[low] = '├';
            bar[high] = '┤';
        }
        bar[self.column(interval.value)] = '●';
        bar.into_iter().map(|c| self.paint.glyph(c)).collect()
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "clamped to the scale, which has at most 80 columns"
    )]
    fn column(&self, percent: f64) -> usize {
        let last = (self.scale - 1) as f64;
        let share = (percent - self.low) / (self.high - self.low);
        (share * last).round().clamp(0.0, last) as usize
    }
}

fn name(finding: &Finding, paint: Paint) -> String {
    let name = shorten(&paint.plain(&finding.environment), 28);
    if finding.control { format!("{name} (A/A)") } else { name }
}
