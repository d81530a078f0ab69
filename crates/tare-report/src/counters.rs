//! Counters per operation of each environment against the baseline.
//!
//! The page has one table per workload and phase, with a column per environment; the terminal has
//! one table per environment. Colours do not rate counters, because more of one may be good or bad.

use serde::Serialize;
use tare_lab::analysis::{CounterFinding, Interval, counters};
use tare_lab::record::Record;
use tare_std::units::significant;

use crate::figures::clean;
use crate::layout::{Paint, RowsApart, Style, paragraph, rows_apart};

/// One environment's value of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Cell {
    value: String,
    /// The difference from the baseline; empty for the baseline itself.
    below: String,
    /// `differs`, or `none` for a difference within the noise.
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    name: String,
    /// Whether it is a level, which is not per operation.
    level: bool,
    /// One for each environment.
    cells: Vec<Cell>,
    /// Whether any environment differs beyond the noise.
    differs: bool,
}

/// One workload in one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Table {
    workload: String,
    phase: &'static str,
    /// The baseline first.
    environments: Vec<String>,
    rows: Vec<Row>,
    /// How many differences are expected by chance.
    note: String,
}

/// Every table of a record; empty if it has no counters.
pub(crate) fn tables(record: &Record) -> Vec<Table> {
    let found = counters(record);
    let apart =
        |a: &CounterFinding, b: &CounterFinding| a.workload == b.workload && a.phase == b.phase;
    found.chunk_by(apart).map(|part| table(record, part)).collect()
}

fn table(record: &Record, part: &[CounterFinding]) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for finding in part {
        if !names.contains(&finding.environment.as_str()) {
            names.push(&finding.environment);
        }
    }
    // An environment without the first counters comes late in the list.
    let places: Vec<&str> =
        crate::figures::in_order(record).iter().map(|e| e.spec.name.as_str()).collect();
    let place = |name: &str| places.iter().position(|known| *known == name);
    names.sort_by_key(|name| (*name != record.study.baseline, place(name)));
    let rows = part.chunk_by(|a, b| a.name == b.name).map(|counter| {
        let mut cells = vec![Cell::default(); names.len()];
        for finding in counter {
            if let Some(at) = names.iter().position(|name| *name == finding.environment) {
                cells[at] = Cell::new(finding);
            }
        }
        let differs = cells.iter().any(|cell| cell.class == "differs");
        Row { name: clean(&counter[0].name), level: counter[0].level, cells, differs }
    });
    Table {
        workload: clean(&part[0].workload),
        phase: part[0].phase.load(),
        rows: rows.collect(),
        note: note(record, part),
        environments: names.into_iter().map(clean).collect(),
    }
}

/// The number of differences expected by chance, and the number in the control.
fn note(record: &Record, part: &[CounterFinding]) -> String {
    let control = record.environments.iter().find(|e| e.control).map(|e| e.spec.name.as_str());
    let of_control = |f: &&CounterFinding| Some(f.environment.as_str()) == control;
    let compared = |f: &&CounterFinding| f.difference.is_some();
    let tried = part.iter().filter(compared).filter(of_control).count();
    let by_chance = "One interval in twenty misses the true value, so a few differences are chance";
    if tried == 0 {
        return format!("{by_chance}.");
    }
    let found = part.iter().filter(of_control).filter(|f| f.found).count();
    format!(
        "{by_chance}: the A/A control shows {found} in {tried} counters. A difference within the \
         control's own is grey."
    )
}

impl Cell {
    fn new(finding: &CounterFinding) -> Self {
        let value = number(finding.value.value);
        let Some(difference) = &finding.difference else {
            return Self { value, ..Self::default() };
        };
        let class = if finding.stands_out { "differs" } else { "none" };
        Self { value, below: difference_text(difference, finding.found), class }
    }
}

/// `+0.52 [0.50, 0.54]`, or `none found (±0.5)`, never a bare 0.
pub(crate) fn difference_text(difference: &Interval, found: bool) -> String {
    if !difference.is_bounded() {
        return "not known yet".to_string();
    }
    if !found {
        let within = difference.low.abs().max(difference.high.abs());
        return format!("none found (\u{b1}{})", number(within));
    }
    let sign = if difference.value > 0.0 { "+" } else { "" };
    let Interval { value, low, high, .. } = *difference;
    format!("{sign}{} [{}, {}]", number(value), number(low), number(high))
}

/// Three digits at any size: `0.00123`, `4.6e-5`, `812`, `1.24M`.
fn number(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        x if !x.is_finite() => return "?".to_string(),
        0.0 => return "0".to_string(),
        x if x < 0.000_999_5 => format!("{x:.1e}"),
        x if x < 999.5 => significant(x, 3),
        x if x < 999.5e3 => format!("{}k", significant(x / 1e3, 3)),
        x if x < 999.5e6 => format!("{}M", significant(x / 1e6, 3)),
        x => format!("{}G", significant(x / 1e9, 3)),
    };
    if value < 0.0 { format!("\u{2212}{text}") } else { text }
}

const READING: &str = "Each counter per operation (a level as it is), over all rounds; the \
                       difference from the baseline is paired within each round, with its 95 % \
                       interval. docs/reference/probes.md describes each counter.";

/// The counters of a record as terminal text.
pub fn terminal(record: &Record, style: Style) -> String {
    let paint = Paint(style);
    let tables = tables(record);
    if tables.is_empty() {
        return "The record holds no counters.\n".to_string();
    }
    let mut out: Vec<String> = vec![paint.bold("Counters per operation")];
    out.extend(paragraph(&paint.plain(READING), "", style.width));
    for table in &tables {
        for at in 1..table.environments.len() {
            out.push(String::new());
            let (name, base) = (&table.environments[at], &table.environments[0]);
            let title = format!("{name} against {base}: {}, {}", table.workload, table.phase);
            out.push(paint.bold(&paint.plain(&title)));
            out.push(environment(table, at, style));
        }
        out.extend(paragraph(&paint.plain(&table.note), "", style.width));
    }
    out.join("\n") + "\n"
}

/// The table of one environment and the baseline.
fn environment(table: &Table, at: usize, style: Style) -> String {
    let here = |row: &&Row| !row.cells[at].value.is_empty();
    let shown: Vec<&Row> = table.rows.iter().filter(here).collect();
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|row| {
            let cell = &row.cells[at];
            let level = if row.level { " (level)" } else { "" };
            let name = format!("{}{level}", row.name);
            vec![name, row.cells[0].value.clone(), cell.value.clone(), cell.below.clone()]
        })
        .collect();
    let names = [&table.environments[0], &table.environments[at]];
    let head = ["counter", names[0], names[1], "difference [95 %]"];
    let RowsApart { head, rows } = rows_apart(&head, &rows, style);
    let mut text = head;
    for (row, line) in shown.iter().zip(rows) {
        match row.cells[at].class {
            "none" => text.push_str(&Paint(style).dim(&line)),
            _ => text.push_str(&line),
        }
    }
    text.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.000_046, "4.6e-5"),
            (-0.012_34, "\u{2212}0.0123"),
            (812.4, "812"),
            (1_240_000.0, "1.24M"),
            (8.59e9, "8.59G"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn difference_not_found_is_never_zero() {
        let interval = |low, high| Interval { value: (low + high) / 2.0, low, high, rounds: 12 };
        assert_eq!(difference_text(&interval(-0.5, 0.25), false), "none found (\u{b1}0.500)");
        assert_eq!(difference_text(&interval(1.0, 3.0), true), "+2.00 [1.00, 3.00]");
        assert_eq!(
            difference_text(&interval(-3.0, -1.0), true),
            "\u{2212}2.00 [\u{2212}3.00, \u{2212}1.00]"
        );
        let one = interval(f64::NEG_INFINITY, f64::INFINITY);
        assert_eq!(difference_text(&one, false), "not known yet");
    }

    #[test]
    fn the_baseline_comes_first_and_the_control_next() {
        let (record, _) = crate::fixture::quick();
        let tables = tables(&record);
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].environments[..2], ["native", "native again"]);
        let (record, _) = crate::fixture::empty();
        assert_eq!(terminal(&record, Style::new(false, 100)), "The record holds no counters.\n");
    }
}
