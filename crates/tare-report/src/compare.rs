//! Two or more records side by side: the same environment by name, its cost in each, and by how
//! much the costs differ from the first record's.
//!
//! The records are independent of each other. A cost is a ratio to its own record's baseline, so
//! two costs are compared as the ratio of these ratios, in log space, which takes out how fast
//! either machine is. The interval of the difference combines the two 95 % intervals without
//! assuming that they are symmetric (MOVER: Zou and Donner, "Construction of confidence limits
//! about effect measures: a general approach", Statistics in Medicine 27, 2008).

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use serde_json::{Value, json};
use tare_lab::analysis::{Analysis, Cost, Finding, Interval};
use tare_lab::record::Record;

use crate::figures::{Room, cost, shorten, utc};
use crate::headline::{Metric, headline};
use crate::terminal::{Paint, Style, paragraph};

/// A record with the name it is shown by, such as its file's.
pub type Named = (String, Record, Analysis);

const ASSUMPTION: &str = "Difference: cost ratio of the later record over that of the first, as a percentage; above 0 the environment costs more than in the first record. Its 95 % interval combines both records' intervals in log space and assumes that the records are independent.";

/// One environment under one workload in all records.
struct Row<'a> {
    workload: &'a str,
    environment: &'a str,
    control: bool,
    /// One per record.
    costs: Vec<Option<&'a Cost>>,
    /// One per record; the first has none.
    differences: Vec<Option<Cost>>,
}

/// The comparison as terminal text.
pub fn terminal(records: &[Named], style: Style) -> String {
    let paint = Paint(style);
    let mut out: Vec<String> = Vec::new();
    for (index, (name, record, analysis)) in records.iter().enumerate() {
        out.push(paint.bold(&paint.plain(&format!("{}. {name}", letter(index)))));
        let when = utc(record.header.started_unix_ms);
        out.push(paint.plain(&format!("   study {}, {when}", record.study.name)));
        let sentence =
            paint.plain(&format!("{}.", headline(record, analysis).trim_end_matches('.')));
        let width = style.width.saturating_sub(3);
        out.extend(paragraph(&sentence, "", width).iter().map(|line| format!("   {line}")));
    }
    for metric in Metric::ALL {
        let rows = rows(records, metric);
        if rows.is_empty() {
            continue;
        }
        out.push(String::new());
        out.push(paint.bold(match metric {
            Metric::ServerCpu => "Cost in server CPU per operation",
            Metric::Throughput => "Throughput lost",
        }));
        out.push(table(records, &rows, paint));
    }
    out.push(String::new());
    out.extend(paragraph(&paint.plain(ASSUMPTION), "", style.width));
    for (title, lines) in [
        ("Only in some records", only_in_some(records)),
        ("The studies differ", study_differences(records)),
        ("The hosts differ", host_lines(records)),
    ] {
        if !lines.is_empty() {
            out.push(String::new());
            out.push(paint.bold(title));
            out.extend(lines.iter().map(|line| paint.plain(&format!("  {line}"))));
        }
    }
    out.join("\n") + "\n"
}

/// The comparison as JSON. Schema: `docs/reference/record-json.md`.
pub fn json(records: &[Named]) -> String {
    let described: Vec<Value> = records
        .iter()
        .map(|(name, record, analysis)| {
            json!({
                "name": name,
                "study": record.study.name,
                "baseline": record.study.baseline,
                "started_unix_ms": record.header.started_unix_ms,
                "blocks": analysis.blocks,
                "headline": headline(record, analysis),
            })
        })
        .collect();
    let mut costs = Vec::new();
    for metric in Metric::ALL {
        for row in rows(records, metric) {
            costs.push(json!({
                "metric": match metric {
                    Metric::ServerCpu => "server_cpu_per_operation",
                    Metric::Throughput => "throughput",
                },
                "workload": row.workload,
                "environment": row.environment,
                "control": row.control,
                "costs": row.costs,
                "differences_to_first": row.differences,
            }));
        }
    }
    let hosts: Vec<Value> = host_differences(records)
        .into_iter()
        .map(|(section, key, values)| json!({ "section": section, "key": key, "values": values }))
        .collect();
    let document = json!({
        "schema": "tare-comparison",
        "schema_version": crate::json::SCHEMA_VERSION,
        "records": described,
        "costs": costs,
        "assumption": ASSUMPTION,
        "only_in_some": only_in_some(records),
        "study_differences": study_differences(records),
        "host_differences": hosts,
    });
    format!("{document:#}")
}

/// By how much `other` costs more than `first`, in percent of the first's ratio.
pub(crate) fn difference(first: &Cost, other: &Cost, metric: Metric) -> Option<Cost> {
    // Both ways, a larger loss is a larger logarithm of the slow-down.
    let log = |percent: f64| match metric {
        Metric::ServerCpu => (1.0 + percent / 100.0).ln(),
        Metric::Throughput => -(1.0 - percent / 100.0).ln(),
    };
    let back = |log: f64| match metric {
        Metric::ServerCpu => log.exp_m1() * 100.0,
        Metric::Throughput => -(-log).exp_m1() * 100.0,
    };
    let logs = |cost: &Cost| [cost.percent.low, cost.percent.value, cost.percent.high].map(log);
    let ([low_a, a, high_a], [low_b, b, high_b]) = (logs(first), logs(other));
    if [low_a, a, high_a, low_b, b, high_b].iter().any(|x| !x.is_finite()) {
        return None;
    }
    let between = b - a;
    let low = between - (b - low_b).hypot(high_a - a);
    let high = between + (high_b - b).hypot(a - low_a);
    let percent = Interval {
        value: back(between),
        low: back(low),
        high: back(high),
        blocks: first.percent.blocks.min(other.percent.blocks),
    };
    Some(Cost {
        percent,
        found: low > 0.0 || high < 0.0,
        within_percent: percent.low.abs().max(percent.high.abs()),
    })
}

/// Environments that the first record and at least one other have, in the order of the first.
fn rows(records: &[Named], metric: Metric) -> Vec<Row<'_>> {
    let Some((_, _, first)) = records.first() else { return Vec::new() };
    let mut rows = Vec::new();
    for finding in first.findings.iter().filter(|f| !f.baseline) {
        let same =
            |f: &&Finding| f.environment == finding.environment && f.workload == finding.workload;
        let costs: Vec<Option<&Cost>> = records
            .iter()
            .map(|(_, _, analysis)| {
                analysis.findings.iter().find(same).and_then(|f| metric.cost(f))
            })
            .collect();
        if costs.iter().flatten().count() < 2 {
            continue;
        }
        let differences = costs
            .iter()
            .enumerate()
            .map(|(index, other)| match (index, costs[0], other) {
                (1.., Some(first), Some(other)) => difference(first, other, metric),
                _ => None,
            })
            .collect();
        rows.push(Row {
            workload: &finding.workload,
            environment: &finding.environment,
            control: finding.control,
            costs,
            differences,
        });
    }
    rows
}

fn table(records: &[Named], rows: &[Row<'_>], paint: Paint) -> String {
    let rule = LineStyle::none().fill(paint.glyph('─')).junction(paint.glyph('─'));
    let several = rows.iter().any(|row| row.workload != rows[0].workload);
    let mut header = vec!["environment".to_string()];
    header.extend((0..records.len()).map(|index| format!("{} [95 %]", letter(index))));
    header.extend((1..records.len()).map(|index| format!("{} over A [95 %]", letter(index))));
    let mut table = Table::new();
    table.load_style(TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule));
    table.set_header(header.iter().enumerate().map(|(index, text)| {
        let alignment = if index == 0 { CellAlignment::Left } else { CellAlignment::Right };
        Cell::new(text).set_alignment(alignment)
    }));
    for row in rows {
        let mut name = shorten(row.environment, 28);
        if several {
            name = format!("{name}, {}", shorten(row.workload, 12));
        }
        if row.control {
            name.push_str(" (A/A)");
        }
        let text = |of: Option<&Cost>| of.map_or_else(|| "-".to_string(), |c| cost(c, Room::Short));
        let costs = row.costs.iter().map(|c| text(*c));
        let differences = row.differences.iter().skip(1).map(|d| text(d.as_ref()));
        let cells = costs
            .chain(differences)
            .map(|text| Cell::new(paint.plain(&text)).set_alignment(CellAlignment::Right));
        table.add_row([Cell::new(paint.plain(&name))].into_iter().chain(cells));
    }
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(paint.0.width.max(40));
    table.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>().join("\n")
}

fn letter(index: usize) -> char {
    u8::try_from(index).ok().filter(|i| *i < 26).map_or('?', |i| char::from(b'A' + i))
}

fn only_in_some(records: &[Named]) -> Vec<String> {
    let mut known: Vec<&str> = Vec::new();
    for finding in records.iter().flat_map(|(_, _, analysis)| &analysis.findings) {
        if !known.contains(&finding.environment.as_str()) {
            known.push(&finding.environment);
        }
    }
    let mut lines = Vec::new();
    for environment in known {
        let has =
            |analysis: &Analysis| analysis.findings.iter().any(|f| f.environment == environment);
        let letters: Vec<String> = (0..records.len())
            .filter(|index| has(&records[*index].2))
            .map(|index| letter(index).to_string())
            .collect();
        if letters.len() < records.len() {
            lines.push(format!("{environment}: {}", letters.join(", ")));
        }
    }
    lines
}

/// What makes two studies ask different questions.
fn study_differences(records: &[Named]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |what: &str, values: Vec<String>| {
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            let values: Vec<String> = values
                .iter()
                .enumerate()
                .map(|(index, value)| format!("{} {value}", letter(index)))
                .collect();
            lines.push(format!("{what}: {}", values.join(" | ")));
        }
    };
    let each = |of: &dyn Fn(&Record) -> String| -> Vec<String> {
        records.iter().map(|(_, record, _)| of(record)).collect()
    };
    add("baseline", each(&|r| r.study.baseline.clone()));
    add("system", each(&|r| r.study.system.name.clone()));
    add("system options", each(&|r| format!("{:?}", r.study.system.options)));
    add("driver", each(&|r| r.study.driver.clone()));
    add("schedule", each(&|r| format!("{:?}", r.study.schedule.kind).to_lowercase()));
    add("CPUs of the system", each(&|r| r.cpu_plan.system.len().to_string()));
    add("tare", each(&|r| r.header.tare_version.clone()));
    let workloads = || records.iter().flat_map(|(_, r, _)| &r.study.workloads);
    let mut names: Vec<&str> = workloads().map(|w| w.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let Some(example) = workloads().next() else { return lines };
    let keys: Vec<String> = match json!(example) {
        Value::Object(fields) => fields.into_iter().map(|(key, _)| key).collect(),
        _ => Vec::new(),
    };
    for name in names {
        let find = |record: &Record| {
            record.study.workloads.iter().find(|w| w.name == name).map(|w| json!(w))
        };
        if records.iter().any(|(_, record, _)| find(record).is_none()) {
            let there =
                |r: &Record| if find(r).is_some() { "present" } else { "absent" }.to_string();
            add(&format!("workload {name}"), each(&there));
            continue;
        }
        for key in &keys {
            let text = |record: &Record| {
                find(record).map_or_else(String::new, |workload| workload[key.as_str()].to_string())
            };
            add(&format!("workload {name}, {key}"), each(&text));
        }
    }
    lines
}

/// Host facts that are not the same in all records: section, key, one value per record.
fn host_differences(records: &[Named]) -> Vec<(&str, &str, Vec<Option<&str>>)> {
    let mut keys: Vec<(&str, &str)> = Vec::new();
    for fact in records.iter().flat_map(|(_, record, _)| &record.host) {
        let key = (fact.section.as_str(), fact.key.as_str());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.into_iter()
        .map(|(section, key)| {
            let value = |(_, record, _): &'_ Named| -> Option<usize> {
                record.host.iter().position(|f| f.section == section && f.key == key)
            };
            let values = records
                .iter()
                .map(|named| value(named).map(|at| named.1.host[at].value.as_str()))
                .collect();
            (section, key, values)
        })
        .filter(|(_, _, values): &(_, _, Vec<Option<&str>>)| {
            values.windows(2).any(|pair| pair[0] != pair[1])
        })
        .collect()
}

fn host_lines(records: &[Named]) -> Vec<String> {
    host_differences(records)
        .into_iter()
        .map(|(section, key, values)| {
            let values: Vec<String> = values
                .iter()
                .enumerate()
                .map(|(index, value)| format!("{} {}", letter(index), value.unwrap_or("absent")))
                .collect();
            format!("{section}, {key}: {}", values.join(" | "))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn cost_of(value: f64, low: f64, high: f64) -> Cost {
        let percent = Interval { value, low, high, blocks: 12 };
        Cost { percent, found: low > 0.0 || high < 0.0, within_percent: low.abs().max(high.abs()) }
    }

    #[test]
    fn equal_costs_differ_by_nothing() {
        let a = cost_of(20.0, 18.0, 22.0);
        for metric in Metric::ALL {
            let none = difference(&a, &a, metric).unwrap();
            assert!(!none.found && none.percent.value.abs() < 1e-9, "{none:?}");
        }
    }

    #[test]
    fn the_difference_is_the_ratio_of_the_ratios() {
        let (a, b) = (cost_of(10.0, 9.0, 11.0), cost_of(32.0, 31.0, 33.0));
        let more = difference(&a, &b, Metric::ServerCpu).unwrap();
        assert!((more.percent.value - 20.0).abs() < 1e-9 && more.found, "{more:?}");
        // 0.9 of the baseline against 0.45 of it: half of what the first keeps is lost.
        let (a, b) = (cost_of(10.0, 9.0, 11.0), cost_of(55.0, 54.0, 56.0));
        let lost = difference(&a, &b, Metric::Throughput).unwrap();
        assert!((lost.percent.value - 50.0).abs() < 1e-9 && lost.percent.low < 50.0, "{lost:?}");
    }

    #[test]
    fn wide_intervals_hide_a_difference_and_missing_ones_forbid_it() {
        let (a, b) = (cost_of(10.0, 0.0, 20.0), cost_of(15.0, 5.0, 25.0));
        assert!(!difference(&a, &b, Metric::ServerCpu).unwrap().found);
        let unknown = cost_of(10.0, f64::NAN, f64::NAN);
        assert!(difference(&a, &unknown, Metric::ServerCpu).is_none());
        assert!(difference(&a, &cost_of(100.0, 100.0, 100.0), Metric::Throughput).is_none());
    }

    #[test]
    fn records_of_any_kind_can_be_compared() {
        let all = [fixture::quick(), fixture::empty(), fixture::hostile(), fixture::single_block()];
        let named: Vec<Named> =
            all.into_iter().map(|(record, analysis)| ("x".to_string(), record, analysis)).collect();
        for records in [&named[..], &named[..1], &named[1..2], &named[..0]] {
            let text = terminal(records, Style::new(false, 140));
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
            assert!(serde_json::from_str::<Value>(&json(records)).is_ok());
        }
    }
}
