//! The layers around a system that runs already, with their costs in records of the same host, as
//! terminal text and as JSON.
//!
//! Every figure is one of a record: a claim with its interval, or the bound of what was not found.

use serde::Serialize;
use serde_json::{Value, json};
use tare_lab::analysis::Interval;

use super::SCHEMA_VERSION;
use crate::figures::{clean, micros, percent, percent_interval, utc, with_interval};
use crate::findings::LayerCost;
use crate::layout::{Style, grid, paragraph};

/// A system that runs already, and what the layers around it cost.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AttachedCosts {
    /// What the user named, such as `container docker:db`.
    pub target: String,
    /// What it is, in words.
    pub what: String,
    /// The TCP ports on which it listens.
    pub ports: Vec<u16>,
    pub layers: Vec<AttachedLayer>,
    /// The records whose figures are used.
    pub records: Vec<UsedRecord>,
    pub notes: Vec<String>,
}

/// A layer around the system, or the settings of its host.
#[derive(Clone, Debug, Serialize)]
pub struct AttachedLayer {
    pub name: String,
    /// What was found.
    pub found: String,
    /// The flag or setting that removes it; empty if there is none.
    pub flag: &'static str,
    pub costs: Vec<AttachedCost>,
    /// The command that measures it, if no record holds its cost.
    pub measure: Option<String>,
}

/// The cost of a layer in one of the records.
#[derive(Clone, Debug, Serialize)]
pub struct AttachedCost {
    /// Index in the list of records.
    pub record: usize,
    #[serde(flatten)]
    pub cost: LayerCost,
}

/// A record of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsedRecord {
    /// Its file.
    pub name: String,
    pub study: String,
    /// The system that was measured.
    pub system: String,
    pub started_unix_ms: u64,
    /// The kernel, if it was another one than now.
    pub other_kernel: Option<String>,
}

impl AttachedCosts {
    /// The largest claimed costs first, then what was not found, then what was not measured.
    pub fn sort(&mut self) {
        let most = |layer: &AttachedLayer| {
            let costs = layer.costs.iter().map(|one| size(&one.cost));
            costs.fold(f64::NEG_INFINITY, f64::max)
        };
        self.layers.sort_by(|a, b| most(b).total_cmp(&most(a)));
    }
}

/// The largest claimed cost in percent. A gain is below 0; without a claim it is 0.
fn size(cost: &LayerCost) -> f64 {
    let claimed = [
        cost.cpu_percent.filter(|_| cost.cpu_claimed),
        cost.throughput_percent.filter(|_| cost.throughput_claimed),
    ];
    let sizes = claimed.into_iter().flatten().map(|figure| figure.value);
    sizes.max_by(f64::total_cmp).unwrap_or(0.0)
}

/// The layers and their costs as text.
pub fn attached_text(found: &AttachedCosts, style: Style) -> String {
    let mut lines = paragraph(&headline(found), "", style.width);
    let ports: Vec<String> = found.ports.iter().map(u16::to_string).collect();
    let what = format!("{}, TCP port {}", clean(&found.what), ports.join(", "));
    lines.extend(paragraph(&what, "", style.width));
    let rows: Vec<Vec<String>> = found.layers.iter().flat_map(rows).collect();
    let head = ["layer", "found", "CPU per operation", "throughput", "workload", "flag", "record"];
    lines.push(grid(&head, &rows, style).trim_end().to_string());
    for (number, record) in found.records.iter().enumerate() {
        lines.extend(paragraph(&record_line(number, record), "    ", style.width));
    }
    for note in &found.notes {
        lines.extend(paragraph(note, "  ", style.width));
    }
    lines.join("\n") + "\n"
}

/// The layers and their costs as JSON; see `docs/guides/explain.md`.
pub fn attached_json(found: &AttachedCosts) -> String {
    let mut document = json!({ "schema": "tare-attached", "schema_version": SCHEMA_VERSION });
    if let (Value::Object(document), Value::Object(fields)) = (&mut document, json!(found)) {
        document.extend(fields);
    }
    format!("{document:#}")
}

fn headline(found: &AttachedCosts) -> String {
    let (all, target) = (found.layers.len(), clean(&found.target));
    let count = |is: fn(&AttachedLayer) -> bool| found.layers.iter().filter(|one| is(one)).count();
    let unmeasured = count(|layer| layer.costs.is_empty());
    let costly = count(|layer| layer.costs.iter().any(|one| size(&one.cost) > 0.0));
    match all - unmeasured {
        0 => format!("0 of {all} layers around {target} have a cost in a record of this host."),
        _ => format!(
            "{costly} of {all} layers around {target} cost something in records of this host; {unmeasured} not \
             measured."
        ),
    }
}

/// The rows of a layer: one for each cost, or one that says how to measure it.
fn rows(layer: &AttachedLayer) -> Vec<Vec<String>> {
    let row = |name: &str, [cpu, throughput, workload, record]: [String; 4]| {
        let flag = layer.flag.to_string();
        vec![name.to_string(), clean(&layer.found), cpu, throughput, workload, flag, record]
    };
    if layer.costs.is_empty() {
        let how = match &layer.measure {
            Some(command) => format!("not measured: {command}"),
            None => "not measured, and no study that ships does it".into(),
        };
        return vec![row(&layer.name, [how, String::new(), String::new(), String::new()])];
    }
    let one = |AttachedCost { record, cost }: &AttachedCost| {
        let gain = cost.throughput_percent.map(|lost| Interval {
            value: -lost.value,
            low: -lost.high,
            high: -lost.low,
            ..lost
        });
        let throughput = gain.map(|gain| figure(&gain, cost.throughput_claimed));
        let (with, without) = (clean(&cost.with), clean(&cost.without));
        let record = format!("[{}] \"{with}\" against \"{without}\"", record + 1);
        row(cost.name, [cpu(cost), throughput.unwrap_or_default(), clean(&cost.workload), record])
    };
    layer.costs.iter().map(one).collect()
}

/// `+3.10 µs [2.90, 3.31], +24.1 %`, or the bound of what was not found.
fn cpu(cost: &LayerCost) -> String {
    let Some(ratio) = &cost.cpu_percent else { return String::new() };
    match &cost.cpu_us {
        Some(us) if cost.cpu_claimed => {
            let sign = if us.value > 0.0 { "+" } else { "" };
            let us = with_interval(us, |us| micros(us).replace('-', "\u{2212}"));
            format!("{sign}{}, {} %", us.replacen(' ', " \u{b5}s ", 1), percent(ratio.value))
        }
        // The ratio alone may exclude 0.
        Some(us) if us.low <= 0.0 && us.high >= 0.0 => beyond(ratio),
        _ => figure(ratio, cost.cpu_claimed),
    }
}

/// A figure in percent if it is claimed, and otherwise what is known.
fn figure(interval: &Interval, claimed: bool) -> String {
    let text = percent_interval(interval);
    match claimed {
        true => text,
        false if interval.low > 0.0 || interval.high < 0.0 => format!("not claimed ({text})"),
        false => beyond(interval),
    }
}

fn beyond(interval: &Interval) -> String {
    match interval.is_bounded() {
        true => {
            let bound = interval.low.abs().max(interval.high.abs());
            format!("nothing measured beyond {bound:.1} %")
        }
        false => "too few rounds".into(),
    }
}

fn record_line(number: usize, record: &UsedRecord) -> String {
    let UsedRecord { name, study, system, started_unix_ms, other_kernel } = record;
    let kernel = match other_kernel {
        Some(kernel) => format!("this machine, but the kernel {}", clean(kernel)),
        None => "this machine and kernel".into(),
    };
    let (name, system, study) = (clean(name), clean(system), clean(study));
    let started = utc(*started_unix_ms);
    format!("[{}] {name}: {system} in the study {study}, {started}, {kernel}", number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(value: f64, low: f64, high: f64) -> Interval {
        Interval { value, low, high, rounds: 12 }
    }

    fn cost(us: Interval, ratio: Interval, claimed: bool) -> LayerCost {
        LayerCost {
            rule: "bridge",
            name: "bridge network",
            workload: "write".into(),
            with: "box".into(),
            without: "native".into(),
            change: "host → bridge".into(),
            cpu_us: Some(us),
            cpu_percent: Some(ratio),
            throughput_percent: Some(interval(0.1, -1.0, 1.3)),
            cpu_claimed: claimed,
            throughput_claimed: false,
        }
    }

    #[test]
    fn figures_are_claims_or_bounds() {
        let check = |us, ratio, claimed, expect: &str| {
            assert_eq!(cpu(&cost(us, ratio, claimed)), expect);
        };
        let (us, ratio) = (interval(3.1, 2.9, 3.31), interval(24.1, 22.0, 26.2));
        check(us, ratio, true, "+3.10 µs [2.90, 3.31], +24.1 %");
        let zero = interval(0.1, -0.2, 0.3);
        check(zero, interval(0.8, -1.6, 2.4), false, "nothing measured beyond 2.4 %");
        // The ratio alone excludes 0.
        check(zero, interval(0.8, 0.1, 2.4), false, "nothing measured beyond 2.4 %");
        let some = interval(0.1, 0.05, 0.3);
        check(some, interval(0.8, 0.1, 2.4), false, "not claimed (+0.8 % [0.1, 2.4])");
        let one = interval(0.8, f64::NEG_INFINITY, f64::INFINITY);
        check(one, one, false, "too few rounds");
    }

    fn layer(name: &str, us: Option<f64>) -> AttachedLayer {
        let cost = |us: f64| {
            let around = interval(us, us - 0.1, us + 0.1);
            AttachedCost { record: 0, cost: cost(around, around, true) }
        };
        AttachedLayer {
            name: name.into(),
            found: "x".into(),
            flag: "--network=host",
            costs: us.map(cost).into_iter().collect(),
            measure: us.is_none().then(|| "tare weigh quick".into()),
        }
    }

    fn three() -> AttachedCosts {
        let record = UsedRecord {
            name: "quick.tare".into(),
            study: "quick".into(),
            system: "tare-db".into(),
            started_unix_ms: 0,
            other_kernel: Some("6.1.0".into()),
        };
        AttachedCosts {
            target: "pid 7".into(),
            what: "process 7 (redis-server)".into(),
            ports: vec![6379],
            layers: vec![layer("none", None), layer("few", Some(1.0)), layer("most", Some(20.0))],
            records: vec![record],
            notes: Vec::new(),
        }
    }

    #[test]
    fn largest_cost_is_first_and_the_unmeasured_last() {
        let mut found = three();
        found.sort();
        let names: Vec<&str> = found.layers.iter().map(|layer| layer.name.as_str()).collect();
        assert_eq!(names, ["most", "few", "none"]);
        let text = attached_text(&found, Style::new(false, 160));
        for part in [
            "2 of 3 layers around pid 7 cost something in records of this host; 1 not measured.\n",
            "process 7 (redis-server), TCP port 6379\n",
            "not measured: tare weigh quick",
            "[1] \"box\" against \"native\"",
            "[1] quick.tare: tare-db in the study quick, 1970-01-01 00:00:00 UTC, this machine, but the kernel 6.1.0",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let json: Value = serde_json::from_str(&attached_json(&found)).unwrap();
        assert_eq!(json["schema"], "tare-attached");
        assert_eq!(json["layers"][0]["costs"][0]["rule"], "bridge");
    }
}
