//! A cost by layer: the waterfall and the table of shares, for records of `tare explain`.

use minijinja::Value;
use serde::Serialize;
use tare_lab::ablation::{Explanation, Plan, Verdict, explain};
use tare_lab::record::Record;

use super::svg::{Scale, Svg, TextAnchor};
use crate::explain::waterfall::{bars, extent};
use crate::explain::{ExplanationText, interval, method, micros, nothing_yet, question};
use crate::figures::shorten;

/// Heights in pixels: the label of a row, its bar, the axis.
const LABEL: f64 = 20.0;
const LANE: f64 = 20.0;
const AXIS: f64 = 34.0;

#[derive(Serialize)]
pub(super) struct ExplainView {
    question: String,
    method: String,
    workloads: Vec<WorkloadView>,
}

#[derive(Serialize)]
struct WorkloadView {
    title: String,
    headline: String,
    chart: Option<Value>,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    sentences: Vec<String>,
}

impl ExplainView {
    /// `None` for a record of another command.
    pub(super) fn new(record: &Record) -> Option<Self> {
        let plan = Plan::of_record(record)?;
        let names = record.study.workloads.iter().map(|workload| workload.name.as_str());
        let workloads = names.enumerate().map(|(index, name)| match explain(record, &plan, name) {
            Some(found) => WorkloadView::new(record, &plan, &found, index),
            None => WorkloadView {
                title: nothing_yet(name),
                headline: String::new(),
                chart: None,
                head: Vec::new(),
                rows: Vec::new(),
                sentences: Vec::new(),
            },
        });
        Some(Self {
            question: question(&plan),
            method: method(record, &plan),
            workloads: workloads.collect(),
        })
    }
}

impl WorkloadView {
    fn new(record: &Record, plan: &Plan, found: &Explanation, index: usize) -> Self {
        let text = ExplanationText::new(record, plan, found);
        let chart = chart(plan, found, &format!("waterfall-{index}"));
        Self {
            title: text.title,
            headline: text.headline,
            chart: Some(Value::from_safe_string(chart)),
            head: text.head,
            rows: text.rows,
            sentences: text.sums.into_iter().chain(text.notes).collect(),
        }
    }
}

/// Draws the waterfall: each bar starts at the end of the one before, with its interval as a line
/// through its end.
fn chart(plan: &Plan, found: &Explanation, id: &str) -> String {
    let bars = bars(plan, found);
    let (low, high) = extent(&bars);
    let scale = Scale::linear(low, high);
    let bottom = bars.iter().map(|_| LABEL + LANE).sum::<f64>();
    let texts: Vec<String> = bars
        .iter()
        .map(|bar| match bar.share {
            Some(share) => format!("{}: {} \u{b5}s", bar.name, interval(&share.us)),
            None => format!("{}: {} \u{b5}s", bar.name, micros(bar.end)),
        })
        .collect();
    let description = format!("A bar for each layer. {}", texts.join(". "));
    let title = "Where the cost comes from, \u{b5}s of server CPU per operation";
    let mut svg = Svg::new(id, bottom + AXIS, title, &description);
    for tick in scale.ticks(5) {
        let x = scale.x(tick);
        svg.line(x, 0.0, x, bottom, "grid");
        svg.text(x, bottom + 14.0, TextAnchor::Middle, "tick", &micros(tick));
    }
    let unit = if low > 0.0 {
        "\u{b5}s per operation; does not begin at 0"
    } else {
        "\u{b5}s per operation"
    };
    svg.text(100.0, bottom + 30.0, TextAnchor::End, "tick", unit);
    let mut top = 0.0;
    for (bar, text) in bars.iter().zip(&texts) {
        let class = match bar.share.map(|share| share.verdict) {
            None => "dot base",
            Some(Verdict::Costs) => "dot loss",
            Some(Verdict::Saves) => "dot gain",
            Some(Verdict::WithinNoise | Verdict::NotFound) => "dot none",
        };
        let figure = bar.share.map_or_else(|| micros(bar.end), |share| interval(&share.us));
        svg.text(0.0, top + 15.0, TextAnchor::Start, "label", &shorten(&bar.name, 30));
        svg.text(100.0, top + 15.0, TextAnchor::End, "figure", &figure);
        let (from, to) = (scale.x(bar.start.min(bar.end)), scale.x(bar.start.max(bar.end)));
        // A share of 0 is still visible.
        svg.rect(from, top + LABEL, (to - from).max(0.2), LANE - 4.0, class, text);
        if let Some(share) = bar.share.filter(|share| share.us.is_bounded()) {
            let middle = top + LABEL + (LANE - 4.0) / 2.0;
            let (low, high) =
                (scale.x(bar.start + share.us.low), scale.x(bar.start + share.us.high));
            svg.line(low, middle, high, middle, "median");
        }
        top += LABEL + LANE;
    }
    svg.finish()
}
