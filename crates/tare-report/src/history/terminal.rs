//! A history as terminal text: what changed, then a table with a row per record and a column per
//! environment. The facts that changed between two records stand between their rows.

use super::{Group, History, METHOD, Series, facts_text, minute};
use crate::figures::{clean, has_place, percent, shorten};
use crate::layout::{Paint, Style, columns, pad, paragraph};

/// Columns of a record's time.
const TIME: usize = 16;
/// Most and fewest columns of an environment.
const WIDEST: usize = 22;
const NARROWEST: usize = 10;

/// The history as terminal text, with the newest `last` records of each group.
pub fn terminal(history: &History, last: usize, style: Style) -> String {
    let paint = Paint(style);
    let mut out: Vec<String> = Vec::new();
    for group in &history.groups {
        if !out.is_empty() {
            out.push(String::new());
        }
        heading(&mut out, group, paint);
        for tables in group.series.chunk_by(is_same_table) {
            table(&mut out, group, tables, last, paint);
        }
    }
    if history.groups.is_empty() {
        out.push("no record could be read".to_string());
    }
    let copies = history.copies.iter().map(|(copy, of)| {
        format!("{copy} is a copy of {of} (same start and seed) and counts once")
    });
    paint.list(&mut out, "Copies", copies.collect());
    let unread = history.unreadable.iter().map(|one| one.reason.clone());
    paint.list(&mut out, "Could not be read", unread.collect());
    out.push(String::new());
    out.extend(paragraph(&paint.plain(METHOD), "", style.width));
    out.join("\n") + "\n"
}

fn is_same_table(a: &Series, b: &Series) -> bool {
    a.workload == b.workload && a.metric == b.metric
}

fn heading(out: &mut Vec<String>, group: &Group, paint: Paint) {
    let count = group.records.len();
    let plural = if count == 1 { "" } else { "s" };
    let title = format!("{}: {count} record{plural}", group.title());
    out.push(paint.bold(&paint.plain(&title)));
    out.extend(group.sentences().iter().flat_map(|sentence| paint.indented(sentence)));
}

/// Writes one metric of one workload, in as many tables as the width of the terminal needs.
fn table(out: &mut Vec<String>, group: &Group, all: &[Series], last: usize, paint: Paint) {
    let from = group.records.len().saturating_sub(last);
    let width = |series: &Series| {
        let cells = (from..group.records.len()).map(|at| columns(&cell(series, at)));
        cells.max().unwrap_or(0).max(columns(&series.environment)).clamp(NARROWEST, WIDEST)
    };
    let room = usize::from(paint.0.width).max(TIME + WIDEST + 2) - TIME;
    let mut rest = all;
    while let Some(first) = rest.first() {
        let mut used = 0;
        let fits = rest.iter().take_while(|series| {
            used += width(series) + 2;
            used <= room
        });
        let (now, later) = rest.split_at(fits.count().max(1));
        rest = later;
        out.push(String::new());
        out.push(paint.bold(&paint.plain(&caption(group, first))));
        one_table(out, group, now, from, &width, paint);
    }
}

fn caption(group: &Group, series: &Series) -> String {
    format!("{}: {}, against {}", series.workload, series.metric.unit(), group.baseline)
}

fn one_table(
    out: &mut Vec<String>,
    group: &Group,
    series: &[Series],
    from: usize,
    width: &dyn Fn(&Series) -> usize,
    paint: Paint,
) {
    let head = series.iter().fold(pad("started (UTC)", TIME), |line, one| {
        let name = shorten(&clean(&one.environment), width(one));
        format!("{line}  {}", left(&paint.plain(&name), width(one)))
    });
    let rule: String = std::iter::repeat_n(paint.glyph('─'), columns(&head)).collect();
    out.extend([rule.clone(), head, rule.clone()]);
    if from > 0 {
        out.push(paint.dim(&format!("  {from} older records: --last, --html, --json")));
    }
    for (at, record) in group.records.iter().enumerate().skip(from) {
        if at == from {
            out.extend(note(&about(group, at), paint));
        } else if !group.steps[at].is_empty() {
            out.extend(note(&facts_text(&group.steps[at]), paint));
        }
        let line = series.iter().fold(pad(&minute(record.started_unix_ms), TIME), |line, one| {
            let text = left(&paint.plain(&cell(one, at)), width(one));
            let cost = one.costs[at].as_ref();
            let claimed = cost.is_some_and(super::CostPoint::is_claimed);
            format!("{line}  {}", paint.cost(&text, cost.map(|cost| &cost.cost), claimed))
        });
        out.push(line.trim_end().to_string());
    }
    out.push(rule);
}

/// Text at the right end of its column.
fn left(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(columns(text))))
}

fn note(text: &str, paint: Paint) -> Vec<String> {
    let lines = paragraph(&paint.plain(text), "    ", paint.0.width.saturating_sub(2));
    lines.iter().map(|line| paint.dim(&format!("  {line}"))).collect()
}

/// Kernel, runtimes, Tare and tuning of the first record that is shown.
fn about(group: &Group, at: usize) -> String {
    let record = &group.records[at];
    let mut words: Vec<String> =
        record.kernel.iter().map(|kernel| format!("kernel {kernel}")).collect();
    words.extend(record.versions.iter().map(|(_, version)| shorten(version, 40)));
    words.push(format!("tare {}", record.tare_version));
    words.push(format!("host {}", record.tuning));
    words.join(", ")
}

/// `+62.8 ±1.2`, in brackets if the record does not claim it, and a star where it changed.
fn cell(series: &Series, at: usize) -> String {
    let Some(point) = series.costs.get(at).and_then(Option::as_ref) else {
        return "\u{2013}".to_string();
    };
    if !has_place(&point.cost) {
        return "not known".to_string();
    }
    let interval = &point.cost.percent;
    let half = (interval.high - interval.low) / 2.0;
    let mut text = percent(interval.value);
    if half.is_finite() {
        text += &format!(" \u{b1}{half:.1}");
    }
    if !point.is_claimed() {
        text = format!("({text})");
    }
    if series.claimed_change(at).is_some() { format!("* {text}") } else { text }
}
