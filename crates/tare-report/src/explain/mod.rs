//! A cost by layer: a waterfall, the table of shares, their sum, interactions and doubts, as
//! terminal text and as JSON.
//!
//! `tare_lab::ablation` decides the verdicts: a share is a claim only beyond the noise of the
//! control; a share whose interval contains 0 is "not distinguishable from zero".

use serde_json::{Value, json};
use tare_lab::ablation::{Explanation, Interaction, Plan, Share, Verdict, explain};
use tare_lab::analysis::{Analysis, Interval, pair_costs};
use tare_lab::record::{Phase, Record};
use tare_lab::stacks::StackSlice;
use tare_stats::law;

use crate::doubts::DoubtGroups;
use crate::figures::rounds;
use crate::figures::{clean, interval_or_noise, percent, shorten};
use crate::findings;
use crate::layout::{Paint, Style, grid, paragraph};
use crate::run_conditions;

mod attached;
mod csv;
pub(crate) mod waterfall;

pub use self::attached::{
    AttachedCost, AttachedCosts, AttachedLayer, UsedRecord, attached_json, attached_text,
};
pub use self::csv::csv;

/// Version of the schema of [`json()`]. New fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

/// The explanation of a record as text.
pub fn render(
    record: &Record,
    analysis: &Analysis,
    plan: &Plan,
    stacks: &[StackSlice],
    style: Style,
) -> String {
    let paint = Paint(style);
    let mut out = section(record, plan, paint);
    let statements = findings::statements_by(record, analysis, stacks, Some(plan));
    out.extend(findings::terminal(&statements, record.study.workloads.len() > 1, paint));
    doubts(&mut out, record, analysis, paint);
    let mut text = out.join("\n");
    text.push('\n');
    text
}

/// The question, the method, and the result for each workload.
pub(crate) fn section(record: &Record, plan: &Plan, paint: Paint) -> Vec<String> {
    let mut out = Vec::new();
    out.extend(wrap(&question(plan), paint).iter().map(|line| paint.bold(line)));
    out.extend(wrap(&method(record, plan), paint));
    for workload in &record.study.workloads {
        out.push(String::new());
        match explain(record, plan, &workload.name) {
            None => out.extend(wrap(&nothing_yet(&workload.name), paint)),
            Some(found) => one(&mut out, record, plan, &found, paint),
        }
    }
    out
}

/// The question that the explanation answers.
pub(crate) fn question(plan: &Plan) -> String {
    let (from, to) = (clean(&plan.from), clean(&plan.to));
    format!("Where does the cost of \"{to}\" against \"{from}\" come from?")
}

/// The text while no round is complete.
pub(crate) fn nothing_yet(workload: &str) -> String {
    format!("{}: no result yet, because no round has measured every environment.", clean(workload))
}

/// The explanations of a record by workload, as JSON; see `docs/guides/explain.md`.
pub fn json(record: &Record, analysis: &Analysis, plan: &Plan, stacks: &[StackSlice]) -> String {
    let mut document = json!({
        "schema": "tare-explain",
        "schema_version": SCHEMA_VERSION,
        "doubts": analysis.doubts,
        "seed": record.header.seed,
        "ending": record.header.ending,
        "statements": findings::statements_by(record, analysis, stacks, Some(plan)),
    });
    let found = value(record, plan);
    document["plan"] = found["plan"].clone();
    document["workloads"] = found["workloads"].clone();
    format!("{document:#}")
}

/// `plan`, and the explanation of each workload.
pub(crate) fn value(record: &Record, plan: &Plan) -> Value {
    let workloads: Vec<Value> = record
        .study
        .workloads
        .iter()
        .map(|workload| {
            let found = explain(record, plan, &workload.name);
            let sentence = found.as_ref().map(|found| headline(plan, found));
            json!({ "workload": workload.name, "headline": sentence, "explanation": found })
        })
        .collect();
    json!({ "plan": plan, "workloads": workloads })
}

/// Which layer costs the most, in one sentence.
fn headline(plan: &Plan, found: &Explanation) -> String {
    let (from, to) = (clean(&plan.from), clean(&plan.to));
    let claims: Vec<&Share> =
        found.shares.iter().filter(|share| share.verdict == Verdict::Costs).collect();
    let whole = &found.whole_us;
    let (amount, way) = match whole.value < 0.0 {
        true => (micros_interval(&mirrored(whole)), "less"),
        false => (micros_interval(whole), "more"),
    };
    match (found.whole, claims.first()) {
        (Verdict::NotFound | Verdict::WithinNoise, None) => format!(
            "No cost of \"{to}\" against \"{from}\" is beyond the noise: {}.",
            micros_interval(whole)
        ),
        (_, None) => format!(
            "\"{to}\" takes {amount} {way} than \"{from}\", and no single layer's cost is beyond \
             the noise."
        ),
        (_, Some(most)) => {
            let part = most.percent_of_whole;
            let part = part.map_or(String::new(), |part| {
                format!(", {} of the difference", whole_percent(part))
            });
            format!(
                "{} costs the most: {}{part}; \"{to}\" takes {amount} {way} than \"{from}\".",
                clean(&most.name),
                micros_interval(&most.us)
            )
        }
    }
}

/// An explanation as text, for the terminal and the page.
#[derive(Debug)]
pub(crate) struct ExplanationText {
    /// The workload, the figure and the rounds.
    pub(crate) title: String,
    pub(crate) headline: String,
    /// The table of shares.
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// The sum and both ends.
    pub(crate) sums: Vec<String>,
    /// Interactions, the noise, and what was not measured.
    pub(crate) notes: Vec<String>,
}

impl ExplanationText {
    pub(crate) fn new(record: &Record, plan: &Plan, found: &Explanation) -> Self {
        let load = match found.phase {
            Phase::Capacity => "at capacity",
            _ => "at the fixed rate",
        };
        let busy = if found.is_busy_time { "busy " } else { "" };
        let parts = found.shares.iter().any(|share| share.percent_of_whole.is_some());
        let mut head = ["layer", "change", "µs per operation"].map(str::to_string).to_vec();
        head.push(format!("of {}'s", shorten(&clean(&plan.from), 24)));
        head.extend(parts.then(|| "of the difference".to_string()));
        head.push("verdict".to_string());
        let mut all_notes = interactions(found);
        all_notes.extend(notes(plan, found));
        Self {
            title: format!(
                "{}: server {busy}CPU per operation {load}, {}",
                clean(&found.workload),
                rounds(found.rounds)
            ),
            headline: headline(plan, found),
            head,
            rows: found.shares.iter().map(|share| row(share, parts)).collect(),
            sums: vec![sum(found), whole(record, plan, found)],
            notes: all_notes,
        }
    }
}

fn one(out: &mut Vec<String>, record: &Record, plan: &Plan, found: &Explanation, paint: Paint) {
    let text = ExplanationText::new(record, plan, found);
    out.push(paint.bold(&paint.plain(&text.title)));
    out.extend(wrap(&text.headline, paint));
    out.push(String::new());
    out.extend(waterfall::lines(plan, found, paint));
    out.push(String::new());
    let head: Vec<&str> = text.head.iter().map(String::as_str).collect();
    out.extend(grid(&head, &text.rows, paint.0).lines().map(str::to_string));
    out.extend(text.sums.iter().flat_map(|line| wrap(line, paint)));
    out.push(String::new());
    out.extend(text.notes.iter().flat_map(|line| wrap(line, paint)));
}

fn row(share: &Share, parts: bool) -> Vec<String> {
    let of_from = format!("{} %", percent(share.percent_of_from));
    let mut row = vec![clean(&share.name), clean(&share.what), interval(&share.us), of_from];
    if parts {
        let part = share.percent_of_whole;
        row.push(part.map_or("-".to_string(), whole_percent));
    }
    row.push(verdict(share).to_string());
    row
}

/// Negates an interval, so that a gain is above 0.
fn mirrored(us: &Interval) -> Interval {
    Interval { value: -us.value, low: -us.high, high: -us.low, rounds: us.rounds }
}

fn verdict(share: &Share) -> &'static str {
    match share.verdict {
        Verdict::Costs => "costs",
        Verdict::Saves => "gains",
        Verdict::WithinNoise => "within the noise of the A/A control",
        Verdict::NotFound => "not distinguishable from zero",
    }
}

/// `3.10 + 0.95 − 0.02 = 4.03 µs per operation`.
fn sum(found: &Explanation) -> String {
    let mut text = String::new();
    let mut rounded = 0;
    for (index, share) in found.shares.iter().enumerate() {
        let value = share.us.value;
        rounded += hundredths(value);
        match (index, value < 0.0) {
            (0, _) => text.push_str(&micros(value)),
            (_, false) => text.push_str(&format!(" + {}", micros(value))),
            (_, true) => text.push_str(&format!(" \u{2212} {}", micros(-value))),
        }
    }
    let whole = found.whole_us.value;
    let off = if rounded == hundredths(whole) { "" } else { " (the parts are rounded)" };
    format!("The shares add up: {text} = {} µs per operation{off}.", micros(whole))
}

/// Both ends, their difference, and the same difference as a cost of `tare weigh`.
fn whole(record: &Record, plan: &Plan, found: &Explanation) -> String {
    let name = |end: usize| plan.environments.get(end).map_or("", |one| one.environment.as_str());
    let (from, to) = (name(0), name(plan.environments.len() - 1));
    let cost = pair_costs(record, &found.workload, to, from).and_then(|both| both.cpu);
    let cost = cost.map_or(String::new(), |cost| {
        format!(
            "; as a cost (paired ratios, as tare weigh has it): {}",
            interval_or_noise(
                &cost,
                (found.whole == Verdict::WithinNoise).then_some(law::Verdict::WithinNoise)
            )
        )
    });
    format!(
        "{}: {} µs; {}: {} µs; difference {}{cost}.",
        clean(&plan.from),
        interval(&found.from_us),
        clean(&plan.to),
        interval(&found.to_us),
        micros_interval(&found.whole_us)
    )
}

fn interactions(found: &Explanation) -> Vec<String> {
    let named: Vec<&Interaction> = found.interactions.iter().filter(|one| one.named).collect();
    let mut lines: Vec<String> = named.iter().map(|one| interaction(one)).collect();
    if named.is_empty() && !found.interactions.is_empty() {
        let largest = found.interactions.first().map_or(String::new(), |one| {
            let (first, second) = (clean(&one.first), clean(&one.second));
            format!("; the largest: {first} with {second}, {}", micros_interval(&one.us))
        });
        lines.push(format!("Interactions: none beyond the noise{largest}."));
    }
    if !found.pairs_not_measured.is_empty() {
        let pair = |(a, b): &(String, String)| format!("{} with {}", clean(a), clean(b));
        let pairs: Vec<String> = found.pairs_not_measured.iter().map(pair).collect();
        lines
            .push(format!("Interactions that the drawn orders do not show: {}.", pairs.join(", ")));
    }
    lines
}

fn interaction(one: &Interaction) -> String {
    let more = if one.us.value > 0.0 { "more" } else { "less" };
    format!(
        "Interaction: {} and {} together cost {more} than each alone, by {} (p = {}, corrected for \
         all pairs).",
        clean(&one.first),
        clean(&one.second),
        micros_interval(&one.us),
        if one.probability < 0.001 {
            "0.001 or less".into()
        } else {
            format!("{:.3}", one.probability)
        }
    )
}

/// The method: the steps and the orders.
pub(crate) fn method(record: &Record, plan: &Plan) -> String {
    let orders = match plan.is_complete() {
        true if plan.orders_possible == 1 => "the only order".to_string(),
        true => format!("all {} orders", plan.orders_possible),
        false => format!(
            "{} of the {} orders (drawn with seed {}, in pairs of opposites)",
            plan.orders.len(),
            plan.orders_possible,
            plan.seed
        ),
    };
    let mut text = format!(
        "{} added one at a time in {orders}, over {} environments; a layer's share is the mean of \
         what it adds (Shapley's value).",
        match plan.steps.len() {
            1 => "1 step".to_string(),
            steps if plan.steps.iter().all(|step| step.changes.len() == 1) => {
                format!("{steps} layers")
            }
            steps => format!("{steps} steps"),
        },
        plan.environments.len()
    );
    let name = |step: usize| plan.steps.get(step).map_or(String::new(), |step| clean(&step.name()));
    for (first, second) in &plan.needs {
        text.push_str(&format!(" {} comes only after {}.", name(*second), name(*first)));
    }
    for step in plan.steps.iter().filter(|step| step.changes.len() > 1) {
        text.push_str(&format!(
            " {} cannot be separated here and are one step.",
            clean(&step.name())
        ));
    }
    match &record.header.ending {
        Some(ending) => text.push_str(&format!(" Ended: {}.", clean(ending))),
        None => text.push_str(" Not finished."),
    }
    if let Some(guest) = run_conditions::guest(record) {
        text.push_str(&format!(" Measured inside a guest: {}.", clean(&guest)));
    }
    text
}

fn notes(plan: &Plan, found: &Explanation) -> Vec<String> {
    let mut lines = Vec::new();
    lines.push(match found.noise_us {
        Some(noise) => format!(
            "A/A control: two copies of the starting environment differ by at most {} µs per operation; \
             nothing smaller is claimed.",
            micros(noise)
        ),
        None => "There is no A/A control, so the noise is unknown.".to_string(),
    });
    let mut left = Vec::new();
    if found.rounds_incomplete > 0 {
        let (one, environments) = (rounds(found.rounds_incomplete), plan.environments.len());
        left.push(format!("{one} left out that lack one of the {environments} environments"));
    }
    if found.pulled > 0.0 {
        left.push(format!(
            "{:.1} % of the figures were outliers and were pulled back",
            100.0 * found.pulled
        ));
    }
    if !left.is_empty() {
        lines.push(format!("{}.", left.join("; ")));
    }
    if !plan.is_complete() {
        lines.push(
            "The shares are those of the drawn orders; their intervals say nothing about the orders \
             that were not drawn."
                .to_string(),
        );
    }
    lines
}

fn doubts(out: &mut Vec<String>, record: &Record, analysis: &Analysis, paint: Paint) {
    let marks = DoubtGroups::of(record, analysis);
    for (index, mark) in marks.0.iter().enumerate() {
        if index == 0 {
            out.extend([String::new(), paint.bold("Doubts")]);
        }
        let text = format!("{}. {}", mark.brief().join("; "), mark.short_advice);
        let lines = paragraph(&paint.plain(&text), "", paint.0.width.saturating_sub(4));
        out.extend(lines.iter().map(|line| format!("  {line}")));
    }
}

fn wrap(text: &str, paint: Paint) -> Vec<String> {
    paragraph(&paint.plain(text), "", paint.0.width)
}

/// Two decimals, so that sums agree, with a true minus below 0.
pub(crate) fn micros(us: f64) -> String {
    let text = format!("{:.2}", us.abs());
    if us < 0.0 && text != "0.00" { format!("\u{2212}{text}") } else { text }
}

/// `63 %`, and never `-0 %`.
fn whole_percent(percent: f64) -> String {
    let text = format!("{:.0}", percent.abs());
    if percent < 0.0 && text != "0" { format!("\u{2212}{text} %") } else { format!("{text} %") }
}

fn hundredths(us: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    let rounded = (us * 100.0).round() as i64;
    rounded
}

/// `3.10 [2.95, 3.25]`.
pub(crate) fn interval(us: &Interval) -> String {
    match us.is_bounded() {
        true => format!("{} [{}, {}]", micros(us.value), micros(us.low), micros(us.high)),
        false => format!("{} [no interval]", micros(us.value)),
    }
}

/// `3.10 µs [2.95, 3.25]`.
fn micros_interval(us: &Interval) -> String {
    match us.is_bounded() {
        true => format!("{} µs [{}, {}]", micros(us.value), micros(us.low), micros(us.high)),
        false => format!("{} µs [no interval]", micros(us.value)),
    }
}

#[cfg(test)]
mod tests;
