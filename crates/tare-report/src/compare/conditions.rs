//! The conditions of the compared records: facts that differ, and warnings where that makes the
//! comparison misleading.

use serde::Serialize;
use serde_json::{Value, json};
use tare_lab::analysis::Analysis;
use tare_lab::layer::{Cpu, Layer};
use tare_lab::record::Record;

use super::costs::{CostRow, in_each};
use super::economics::{is_same_rate, same_currency};
use super::{Pair, Side, letter};
use crate::doubts::DoubtGroups;
use crate::figures::rate;
use crate::fleet::Price;
use crate::headline::{Metric, noise};
use crate::run_conditions::fixed_rate;

/// Most doubts of a record that a warning names; it prints the number of the others.
const DOUBTS_NAMED: usize = 4;
/// Settings that a system chooses at each start and that do not matter in a comparison.
const PASSING: [&str; 3] = ["pid", "port", "address"];

/// A fact of the studies or hosts, one value per record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// `study`, `workload NAME`, `environment NAME`, or a section of the host's facts.
    pub section: String,
    pub key: String,
    /// `None` for a record without it.
    pub values: Vec<Option<String>>,
}

impl Fact {
    pub(crate) fn differs(&self) -> bool {
        self.values.windows(2).any(|pair| pair[0] != pair[1])
    }
}

/// A reason why a figure is not the difference of two machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    pub kind: WarningKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    NothingInCommon,
    SameRun,
    Workload,
    System,
    Database,
    Baseline,
    Environment,
    CpuFigure,
    Rate,
    Cpus,
    Schedule,
    Control,
    Currency,
    NotFinished,
    Doubts,
}

/// Every fact of studies and hosts that can be compared, including those that always differ (seed,
/// time).
pub(crate) fn facts(sides: &[Side<'_>]) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |section: &str, key: &str, of: &dyn Fn(&Record) -> Option<String>| {
        let values = sides.iter().map(|side| of(side.record)).collect();
        facts.push(Fact { section: section.to_string(), key: key.to_string(), values });
    };
    add("study", "name", &|r| Some(r.study.name.clone()));
    add("study", "baseline", &|r| Some(r.study.baseline.clone()));
    add("study", "system", &|r| Some(r.study.system.name.clone()));
    for key in keys(sides, |r| r.study.system.options.iter().map(|(key, _)| key.as_str()).collect())
    {
        add("study", &format!("system, {key}"), &|r| {
            let option = r.study.system.options.iter().find(|(known, _)| *known == key);
            option.map(|(_, value)| value.clone())
        });
    }
    add("study", "driver", &|r| Some(r.study.driver.clone()));
    add("study", "schedule", &|r| Some(format!("{:?}", r.study.schedule.kind).to_lowercase()));
    add("study", "window", &|r| Some(format!("{} ms", r.study.schedule.window.as_millis())));
    add("study", "lead-in", &|r| Some(format!("{} ms", r.study.schedule.lead_in.as_millis())));
    add("study", "warm-up", &|r| Some(format!("{} ms", r.study.schedule.warm_up.as_millis())));
    add("study", "CPUs of the system", &|r| Some(r.cpu_plan.system.len().to_string()));
    add("study", "CPUs of the client", &|r| Some(r.cpu_plan.client.len().to_string()));
    add("study", "CPUs kept for interrupts", &|r| Some(r.cpu_plan.interrupts.len().to_string()));
    add("study", "CPUs of a system that is not pinned", &|r| {
        Some(Cpu::Shared.set(&r.cpu_plan).len().to_string())
    });
    add("study", "tare", &|r| Some(r.header.tare_version.clone()));
    add("study", "seed", &|r| Some(r.header.seed.to_string()));
    for name in keys(sides, |r| r.study.workloads.iter().map(|w| w.name.as_str()).collect()) {
        let of = |r: &Record| r.study.workloads.iter().find(|w| w.name == name).map(|w| json!(w));
        fields(sides, &mut facts, &format!("workload {name}"), &of);
    }
    for name in keys(sides, |r| r.environments.iter().map(|e| e.spec.name.as_str()).collect()) {
        let of = |r: &Record| {
            let found = r.environments.iter().find(|e| e.spec.name == name)?;
            let layers = Layer::ALL
                .iter()
                .map(|layer| (layer.name().to_string(), json!(layer.text(&found.spec))));
            let mut value: Value = layers.collect();
            value["optional"] = json!(found.spec.optional);
            let settings =
                found.settings.iter().filter(|(key, _)| !PASSING.contains(&key.as_str()));
            let settings: Vec<(String, Value)> =
                settings.map(|(key, value)| (format!("found {key}"), json!(value))).collect();
            value.as_object_mut()?.extend(settings);
            Some(value)
        };
        fields(sides, &mut facts, &format!("environment {name}"), &of);
    }
    let mut hosts: Vec<(&str, &str)> = Vec::new();
    for fact in sides.iter().flat_map(|side| &side.record.host) {
        let key = (fact.section.as_str(), fact.key.as_str());
        // `tare explain` shows the plan of layers.
        if fact.section != tare_lab::ablation::FACTS && !hosts.contains(&key) {
            hosts.push(key);
        }
    }
    for (section, key) in hosts {
        let of = |side: &Side<'_>| {
            let found = side.record.host.iter().find(|f| f.section == section && f.key == key);
            found.map(|fact| fact.value.clone())
        };
        let values = sides.iter().map(of).collect();
        facts.push(Fact { section: section.to_string(), key: key.to_string(), values });
    }
    facts
}

/// The names in any record without duplicates, in the order of the first record that has them.
fn keys<'r>(sides: &[Side<'r>], of: fn(&'r Record) -> Vec<&'r str>) -> Vec<&'r str> {
    let mut keys: Vec<&str> = Vec::new();
    for key in sides.iter().flat_map(|side| of(side.record)) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// Adds the fields of a JSON object of each record as facts.
fn fields(
    sides: &[Side<'_>],
    facts: &mut Vec<Fact>,
    section: &str,
    of: &dyn Fn(&Record) -> Option<Value>,
) {
    let objects: Vec<Option<Value>> = sides.iter().map(|side| of(side.record)).collect();
    if objects.iter().any(Option::is_none) {
        let there = |object: &Option<Value>| object.is_some().then(|| "present".to_string());
        let values = objects.iter().map(there).collect();
        facts.push(Fact { section: section.to_string(), key: "in the record".into(), values });
    }
    let mut known: Vec<&String> = Vec::new();
    for key in objects.iter().flatten().filter_map(Value::as_object).flat_map(|o| o.keys()) {
        if !known.contains(&key) && key != "name" {
            known.push(key);
        }
    }
    for key in known {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        // A record without the object must not differ in every field as well.
        let values: Vec<Option<String>> =
            objects.iter().map(|o| o.as_ref()?.get(key.as_str()).map(text)).collect();
        let present = values.iter().flatten().next().cloned();
        let filled = objects
            .iter()
            .zip(values)
            .map(|(object, value)| if object.is_none() { present.clone() } else { value })
            .collect();
        facts.push(Fact { section: section.to_string(), key: key.clone(), values: filled });
    }
}

/// The reasons why the comparison may mislead, the worst first.
pub(super) fn warnings(
    sides: &[Side<'_>],
    prices: &[Option<Price>],
    costs: &[CostRow<'_>],
    pairs: &[Pair],
) -> Vec<Warning> {
    let mut found = Warnings { sides, pairs, list: Vec::new() };
    if sides.len() > 1 && costs.is_empty() {
        let text = "no cost to compare: no two records share an environment and workload besides the baseline";
        found.add(WarningKind::NothingInCommon, text.to_string());
    }
    found.same_run();
    found.studies();
    found.figures(costs);
    found.controls();
    if prices
        .iter()
        .skip(1)
        .any(|p| p.is_some() && prices[0].is_some() && !same_currency(&prices[0], p))
    {
        let text = "prices in different currencies: money is not compared";
        found.add(WarningKind::Currency, text.to_string());
    }
    found.records();
    found.list
}

struct Warnings<'s, 'r> {
    sides: &'s [Side<'r>],
    pairs: &'s [Pair],
    list: Vec<Warning>,
}

impl Warnings<'_, '_> {
    fn add(&mut self, kind: WarningKind, text: String) {
        if !self.list.iter().any(|warning| warning.text == text) {
            self.list.push(Warning { kind, text });
        }
    }

    /// Adds a warning with the value of each record if the values differ.
    fn differ(
        &mut self,
        kind: WarningKind,
        what: &str,
        so: &str,
        of: &dyn Fn(&Record) -> Option<String>,
    ) {
        let values: Vec<Option<String>> = self.sides.iter().map(|side| of(side.record)).collect();
        // A record without a value has nothing to compare.
        let there: Vec<&String> = values.iter().flatten().collect();
        if there.windows(2).all(|pair| pair[0] == pair[1]) {
            return;
        }
        let each = values.iter().enumerate().filter_map(|(at, value)| {
            value.as_ref().map(|value| format!("{} {value}", letter(at)))
        });
        let each = each.collect::<Vec<_>>().join(", ");
        self.add(kind, format!("{what} ({each}): {so}"));
    }

    fn same_run(&mut self) {
        for (at, side) in self.sides.iter().enumerate() {
            let key = |r: &Record| (r.header.started_unix_ms, r.header.seed);
            let of_first = |other: &Side<'_>| key(other.record) == key(side.record);
            if let Some(first) = self.sides[..at].iter().position(of_first) {
                let text = format!(
                    "{} and {} are one run (same start and seed): they are not independent, so intervals between them are invalid",
                    letter(first),
                    letter(at)
                );
                self.add(WarningKind::SameRun, text);
            }
        }
    }

    fn studies(&mut self) {
        use WarningKind::{Baseline, Cpus, Database, Environment, Schedule, System, Workload};
        let sides = self.sides;
        for name in keys(sides, |r| r.study.workloads.iter().map(|w| w.name.as_str()).collect()) {
            let of = |r: &Record, key: &str| {
                let workload = r.study.workloads.iter().find(|w| w.name == name)?;
                Some(json!(workload).get(key)?.to_string())
            };
            for key in [
                "workload",
                "write_share",
                "rows",
                "columns",
                "column_bytes",
                "keys",
                "connections",
                "in_flight",
                "options",
            ] {
                let what = format!("workload {name} differs in {key}");
                let so = "costs and absolute figures are not comparable";
                self.differ(Workload, &what, so, &|r| of(r, key));
            }
        }
        self.differ(
            System,
            "the systems differ",
            "the comparison is of databases, not of machines",
            &|r| {
                let options: Vec<String> = r
                    .study
                    .system
                    .options
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                Some(
                    format!("{} {}", r.study.system.name, options.join(" ")).trim_end().to_string(),
                )
            },
        );
        self.differ(System, "the drivers differ", "the client is part of every figure", &|r| {
            Some(r.study.driver.clone())
        });
        let own = |r: &Record| {
            r.study.system.name.starts_with("tare") || r.study.driver.starts_with("tare")
        };
        self.differ(
            Database,
            "the versions of tare differ",
            "its database and its load generator may differ too",
            &|r| own(r).then(|| r.header.tare_version.clone()),
        );
        self.differ(
            Baseline,
            "the baselines differ",
            "costs are not against the same baseline",
            &|r| Some(r.study.baseline.clone()),
        );
        for name in keys(sides, |r| r.environments.iter().map(|e| e.spec.name.as_str()).collect()) {
            let here = |r: &Record| r.environments.iter().find(|e| e.spec.name == name).cloned();
            for layer in Layer::ALL {
                let what = format!("environment {name} differs in {layer}");
                let so = match self.pairs.iter().any(|pair| pair.environment == name) {
                    true => "part of what the pair compares",
                    false => "equal names, different environments",
                };
                self.differ(Environment, &what, so, &|r| Some(layer.text(&here(r)?.spec)));
            }
            for key in ["io_engine", "polling", "shards"] {
                let what = format!("in environment {name} the system chose another {key}");
                self.differ(
                    Environment,
                    &what,
                    "part of the difference is the system's choice",
                    &|r| {
                        let settings = here(r)?.settings;
                        settings.into_iter().find(|(known, _)| known == key).map(|(_, value)| value)
                    },
                );
            }
        }
        self.differ(
            Cpus,
            "the systems had different numbers of CPUs",
            "compare absolute throughput per CPU",
            &|r| Some(r.cpu_plan.system.len().to_string()),
        );
        self.differ(
            Schedule,
            "the schedules differ",
            "trials include the variation between starts, slices do not",
            &|r| Some(format!("{:?}", r.study.schedule.kind).to_lowercase()),
        );
    }

    fn figures(&mut self, costs: &[CostRow<'_>]) {
        for row in costs {
            let findings = in_each(self.sides, row.workload, row.environment);
            let busy: Vec<bool> =
                findings.iter().flatten().map(|f| f.server_cpu_is_busy_time).collect();
            if row.metric == Metric::ServerCpu && busy.windows(2).any(|pair| pair[0] != pair[1]) {
                let text = format!(
                    "{} under {}: idle polling is subtracted from the CPU time in some records only: CPU per operation is not comparable",
                    row.environment, row.workload
                );
                self.add(WarningKind::CpuFigure, text);
            }
            let rates: Vec<Option<f64>> =
                self.sides.iter().map(|side| fixed_rate(side.record, row.workload)).collect();
            let known: Vec<Option<f64>> = rates.iter().copied().filter(Option::is_some).collect();
            if known.windows(2).any(|pair| !is_same_rate(pair[0], pair[1])) {
                let each = |(at, rate_of): (usize, &Option<f64>)| {
                    rate_of.map(|at_rate| format!("{} {} op/s", letter(at), rate(at_rate)))
                };
                let each: Vec<String> = rates.iter().enumerate().filter_map(each).collect();
                let text = format!(
                    "workload {} ran at different fixed rates ({}): latencies cannot be compared; set rate_per_s in the study",
                    row.workload,
                    each.join(", ")
                );
                self.add(WarningKind::Rate, text);
            }
        }
    }

    fn controls(&mut self) {
        for (at, side) in self.sides.iter().enumerate() {
            let analysis: &Analysis = side.analysis;
            if analysis.findings.is_empty() {
                continue;
            }
            let controls: Vec<_> = analysis.findings.iter().filter(|f| f.control).collect();
            if controls.is_empty() {
                let text = format!("{} has no A/A control: its noise is unknown", letter(at));
                self.add(WarningKind::Control, text);
            }
            for control in controls {
                for metric in Metric::ALL {
                    let Some(cost) = metric.cost(control).filter(|cost| cost.found) else {
                        continue;
                    };
                    let noise = noise(analysis, &control.workload, metric).unwrap_or(f64::INFINITY);
                    let text = format!(
                        "the A/A control of {} differs from the baseline ({:.1} % in {}, {}): differences within {noise:.1} % are not claimed",
                        letter(at),
                        cost.percent.value.abs(),
                        metric.of_what(),
                        control.workload,
                    );
                    self.add(WarningKind::Control, text);
                }
            }
        }
    }

    fn records(&mut self) {
        for (at, side) in self.sides.iter().enumerate() {
            if side.record.header.ended_unix_ms.is_none() {
                let text = format!("{} is not finished", letter(at));
                self.add(WarningKind::NotFinished, text);
            }
            let marks = DoubtGroups::of(side.record, side.analysis).0;
            if marks.is_empty() {
                continue;
            }
            let named: Vec<&str> = marks.iter().take(DOUBTS_NAMED).map(|m| m.title).collect();
            let more = marks.len().saturating_sub(DOUBTS_NAMED);
            let more = if more > 0 { format!("; {more} more") } else { String::new() };
            let text = format!("doubts in {}: {}{more}", letter(at), named.join("; "));
            self.add(WarningKind::Doubts, text);
        }
    }
}

/// Environments that not all records have.
pub(super) fn only_in_some<'r>(sides: &[Side<'r>]) -> Vec<(&'r str, Vec<bool>)> {
    let mut known: Vec<&str> = Vec::new();
    for finding in sides.iter().flat_map(|side| &side.analysis.findings) {
        if !known.contains(&finding.environment.as_str()) {
            known.push(&finding.environment);
        }
    }
    let has = |environment: &str| -> Vec<bool> {
        let measured =
            |side: &Side<'_>| side.analysis.findings.iter().any(|f| f.environment == environment);
        sides.iter().map(measured).collect()
    };
    known
        .into_iter()
        .map(|name| (name, has(name)))
        .filter(|(_, has)| has.contains(&false))
        .collect()
}
