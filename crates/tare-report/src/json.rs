//! A record and its analysis as JSON. The schema is documented in
//! `docs/reference/record-json.md` and checked by a golden test. [`SCHEMA_VERSION`] rises when a
//! field changes its meaning or is removed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tare_lab::ablation::Plan;
use tare_lab::analysis::claims::{self, CostKind};
use tare_lab::analysis::{Analysis, CounterFinding, Finding, counters};
use tare_lab::own_view::{self, OwnView};
use tare_lab::record::{EnvironmentRecord, Record, Slice};
use tare_lab::stacks::StackSlice;
use tare_lab::study::{AutoWindow, Study, TriedWindow};

use crate::bandwidth;
use crate::explain;
use crate::figures::COST_FIELDS;
use crate::findings;
use crate::headline::headline;
use crate::interrupts;
use crate::network_path;
use crate::prove::Proof;

/// Version of the schema. New fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

/// Whether to write the raw histograms and the seconds of long windows, which are most of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Histograms {
    Omit,
    /// HdrHistogram V2 (compressed) in base64, as other HdrHistogram tools read it.
    Base64,
}

/// The record without its raw histograms.
pub fn render(record: &Record, analysis: &Analysis, stacks: &[StackSlice]) -> String {
    render_with(record, analysis, stacks, Histograms::Omit)
}

/// The record with or without its raw histograms.
pub fn render_with(
    record: &Record,
    analysis: &Analysis,
    stacks: &[StackSlice],
    histograms: Histograms,
) -> String {
    let mut document = parts(record, analysis, histograms);
    document["statements"] = json!(findings::statements(record, analysis, stacks));
    // Only if the study has published relations.
    let relations = tare_lab::analysis::relations(record);
    if !relations.is_empty() {
        document["published_relations"] = json!(relations);
    }
    // Only where the run has seen them.
    if !record.paths.is_empty() {
        document["paths"] = network_path::json(record);
    }
    // Only where they were counted.
    let interrupts = interrupts::all(record);
    if !interrupts.is_empty() {
        document["interrupts_by_cpu"] = json!(interrupts);
    }
    // Only for records of `tare explain`.
    if let Some(plan) = Plan::of_record(record) {
        document["explanation"] = explain::value(record, &plan);
    }
    // Only if the study tunes the host.
    if let Some(proof) = Proof::of(record, analysis) {
        document["host_tuning"] = json!(proof);
    }
    format!("{document:#}")
}

fn parts(record: &Record, analysis: &Analysis, histograms: Histograms) -> Value {
    let header = &record.header;
    let rates: Vec<Value> = header
        .rates
        .iter()
        .map(|(workload, rate)| json!({ "workload": workload, "rate_per_s": rate }))
        .collect();
    let counters = counters(record);
    let workloads = record.study.workloads.iter();
    let own: Vec<OwnView> = workloads.flat_map(|one| own_view::of(record, &one.name)).collect();
    let mut value = json!({
        "schema": "tare-record",
        "schema_version": SCHEMA_VERSION,
        "headline": headline(record, analysis),
        "header": {
            "tare_version": header.tare_version,
            "started_unix_ms": header.started_unix_ms,
            "ended_unix_ms": header.ended_unix_ms,
            "ending": header.ending,
            "seed": header.seed,
            "command": header.command,
            "rates": rates,
        },
        "study": study(&record.study),
        "study_text": record.study_text,
        "cpu_plan": record.cpu_plan,
        "host": record.host,
        "environments":
            record.environments.iter().map(|e| environment(e, &counters)).collect::<Vec<_>>(),
        "analysis": {
            "blocks": analysis.rounds,
            "arithmetic": analysis.arithmetic,
            "doubts": analysis.doubts,
            "findings": analysis.findings.iter().map(|one| finding(record, analysis, one, &own)).collect::<Vec<_>>(),
        },
        "slices": record.slices.iter().map(|s| slice(s, histograms)).collect::<Vec<_>>(),
        "doubts": record.doubts,
    });
    let instances = crate::instances::tables(record, analysis);
    if !instances.is_empty() {
        value["instances"] = json!(instances);
    }
    let by_second = crate::seconds::all(record);
    if !by_second.is_empty() {
        value["by_second"] = json!(by_second);
    }
    if let Some(access) = &record.study.access {
        value["study"]["access"] = json!(access);
    }
    if !record.loaders.is_empty() {
        value["study"]["loaders"] = json!(record.study.loaders);
        value["loaders"] = json!(crate::loaders::summaries(record));
    }
    value
}

/// The windows that were tried before the rounds.
fn tried(auto: &AutoWindow) -> Vec<Value> {
    let one = |one: &TriedWindow| {
        json!({
            "window_ms": one.window.as_secs_f64() * 1e3,
            "pairs": one.pairs,
            "noise_percent": one.noise_percent,
            "pair_ms": one.pair_time.as_secs_f64() * 1e3,
        })
    };
    auto.tried.iter().map(one).collect()
}

#[expect(clippy::cast_precision_loss, reason = "durations far below 2^53 ms")]
fn study(study: &Study) -> Value {
    let schedule = &study.schedule;
    let ms = |duration: std::time::Duration| duration.as_micros() as f64 / 1e3;
    json!({
        "name": study.name,
        "title": study.title,
        "baseline": study.baseline,
        "system": { "name": study.system.name, "options": pairs(&study.system.options) },
        "driver": study.driver,
        "schedule": {
            "kind": schedule.kind,
            "window_ms": ms(schedule.window),
            "lead_in_ms": ms(schedule.lead_in),
            "rounds": schedule.rounds,
            "rounds_min": schedule.rounds_min,
            "budget_ms": ms(schedule.budget),
            "stop_width_percent": schedule.stop_width_percent,
            "seed": schedule.seed,
            "auto_window": schedule.auto_window.as_ref().map(tried),
            "restarts": schedule.restarts,
            "warm_up_ms": ms(schedule.warm_up),
        },
        "cpus": study.cpus,
        "environments": study.environments,
        "workloads": study.workloads,
        "published": study.published,
        "quick": study.quick,
        "budget_part": study.budget_part.as_ref().map(|part| json!({
            "budget_ms": ms(part.budget),
            "rounds_min": part.rounds_min,
            "environments": part.environments,
            "workloads": part.workloads,
        })),
    })
}

fn environment(environment: &EnvironmentRecord, counters: &[CounterFinding]) -> Value {
    let name = environment.spec.name.as_str();
    let counters = counters.iter().filter(|finding| finding.environment == name);
    json!({
        "name": environment.spec.name,
        "control": environment.control,
        "left_out": environment.left_out,
        "spec": environment.spec,
        "layers": environment.layers,
        "settings": pairs(&environment.settings),
        "config": environment.config,
        "counters": counters.map(counter).collect::<Vec<_>>(),
        "ready_ns": environment.ready_ns,
        "teardown_ns": environment.teardown_ns,
    })
}

/// A counter without its environment, which contains it.
fn counter(finding: &CounterFinding) -> Value {
    json!({
        "name": finding.name,
        "workload": finding.workload,
        "phase": finding.phase,
        "level": finding.level,
        "value": finding.value,
        "difference": finding.difference,
        "found": finding.found,
        "stands_out": finding.stands_out,
    })
}

/// A finding with the verdict of each cost, and its doubts as objects with the number of affected
/// slices. The control has no verdicts.
fn finding(record: &Record, analysis: &Analysis, finding: &Finding, own: &[OwnView]) -> Value {
    let mut value = json!(finding);
    if let Some(bytes_per_s) = bandwidth::per_s(record, finding) {
        value["bandwidth_bytes_per_s"] = json!(bytes_per_s);
    }
    let is_its = |view: &&OwnView| {
        view.environment == finding.environment && view.workload == finding.workload
    };
    if let Some(own) = own.iter().find(is_its) {
        value["own_account"] = json!(own);
    }
    for (name, kind) in COST_FIELDS {
        if kind.cost(finding).is_some() {
            value[name]["verdict"] = json!(claims::verdict(analysis, finding, kind));
        }
    }
    if finding.slo.as_ref().is_some_and(|slo| slo.cost.is_some()) {
        let verdict = claims::verdict(analysis, finding, CostKind::Slo);
        value["slo"]["cost"]["verdict"] = json!(verdict);
    }
    for percentile in value["response"]["percentiles"].as_array_mut().into_iter().flatten() {
        let percent = percentile["percent"].as_f64();
        if let Some(over) = percentile["over_baseline"].as_object_mut() {
            let verdict = percent.and_then(|p| claims::ratio_verdict(analysis, finding, p));
            over.insert("verdict".to_string(), json!(verdict));
        }
    }
    let doubts: Vec<Value> = finding
        .doubts
        .iter()
        .map(|(doubt, slices)| json!({ "doubt": doubt, "slices": slices }))
        .collect();
    value["doubts"] = Value::Array(doubts);
    value
}

fn slice(slice: &Slice, histograms: Histograms) -> Value {
    let counters: Vec<Value> = slice
        .counters
        .iter()
        .map(|counter| json!({ "name": counter.name, "value": counter.value }))
        .collect();
    let mut value = json!({
        "id": slice.id,
        "block": slice.round,
        "position": slice.position,
        "environment": slice.environment,
        "workload": slice.workload,
        "phase": slice.phase,
        "started_unix_ms": slice.started_unix_ms,
        "window_ns": slice.window_ns,
        "operations": slice.operations,
        "errors": counts(&slice.errors, "error", "count"),
        "unsent": slice.unsent,
        "rate_per_s": slice.rate_per_s,
        "system_cpu_ns": slice.system_cpu_ns,
        "layer_cpu_ns": counts(&slice.layer_cpu_ns, "part", "cpu_ns"),
        "own_account": slice.busy_time,
        "client_cpu_ns": slice.client_cpu_ns,
        "throttled_ns": slice.throttled_ns,
        "counters": counters,
        "void": slice.void,
        "start": slice.start,
        "account_ns": slice.account_ns,
    });
    if histograms == Histograms::Base64 {
        value["response"] = json!(STANDARD.encode(&slice.response));
        value["service"] = json!(STANDARD.encode(&slice.service));
        value["server"] = json!(STANDARD.encode(&slice.server));
        if !slice.seconds.is_empty() {
            value["seconds"] = json!(slice.seconds);
        }
    }
    if !slice.loaders.is_empty() {
        value["loaders"] = json!(slice.loaders);
    }
    value
}

fn pairs(pairs: &[(String, String)]) -> Vec<Value> {
    pairs.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect()
}

fn counts(counts: &[(String, u64)], name: &str, count: &str) -> Vec<Value> {
    counts.iter().map(|(what, many)| json!({ name: what, count: many })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn histograms_are_optional() {
        for (record, analysis) in
            [fixture::quick(), fixture::empty(), fixture::hostile(), fixture::single_round()]
        {
            let without: Value = serde_json::from_str(&render(&record, &analysis, &[])).unwrap();
            assert_eq!(without["schema_version"], SCHEMA_VERSION);
            assert!(
                without["slices"].as_array().unwrap().iter().all(|s| s.get("service").is_none())
            );
            let with = render_with(&record, &analysis, &[], Histograms::Base64);
            let with: Value = serde_json::from_str(&with).unwrap();
            let slices = with["slices"].as_array().unwrap();
            assert_eq!(slices.len(), record.slices.len());
            for (value, slice) in slices.iter().zip(&record.slices) {
                let bytes = STANDARD.decode(value["service"].as_str().unwrap()).unwrap();
                assert_eq!(bytes, slice.service);
            }
        }
    }

    #[test]
    fn names_are_unchanged() {
        let (record, analysis) = fixture::hostile();
        let value: Value = serde_json::from_str(&render(&record, &analysis, &[])).unwrap();
        assert_eq!(value["environments"][3]["name"], record.environments[3].spec.name);
    }
}
