//! The conditions of a run in one line each, as every text and the page print them.

use tare_lab::analysis::Analysis;
use tare_lab::cpus::CpuPlan;
use tare_lab::environment::{INSIDE, options_text};
use tare_lab::record::Record;
use tare_lab::study::WorkloadSpec;

use crate::figures::{clean, rate, rounds, span, utc};

/// The system, its CPUs, and the length, time and seed of the run. Names in it keep their control
/// characters.
pub(crate) fn run_line(record: &Record, analysis: &Analysis) -> String {
    let header = &record.header;
    let length = header.ended_unix_ms.map_or_else(
        || "not finished".to_string(),
        |end| span(end.saturating_sub(header.started_unix_ms)),
    );
    format!(
        "{}{} on CPU {} of {}, client on CPU {}{}; {}, {length}{}; seed {}; {}; tare {}",
        guest(record).map(|guest| format!("Inside a guest ({guest}): ")).unwrap_or_default(),
        record.study.system.name,
        cpus(&record.cpu_plan.system.to_string()),
        cpus(&record.cpu_plan.all.to_string()),
        cpus(&record.cpu_plan.client.to_string()),
        interrupts(&record.cpu_plan),
        rounds(analysis.rounds),
        header.ending.as_ref().map(|why| format!(" ({why})")).unwrap_or_default(),
        header.seed,
        utc(header.started_unix_ms),
        header.tare_version,
    )
}

/// The guest that Tare started and ran the study in, if it did: its kernel and its accelerator. The
/// text keeps its control characters.
pub(crate) fn guest(record: &Record) -> Option<String> {
    let facts = record.host.iter().filter(|fact| fact.section == INSIDE);
    let facts: Vec<String> = facts.map(|fact| format!("{} {}", fact.key, fact.value)).collect();
    (!facts.is_empty()).then(|| facts.join(", "))
}

/// The CPUs that are kept for interrupts, if any, as the rest of a line.
pub(crate) fn interrupts(plan: &CpuPlan) -> String {
    match plan.interrupts.is_empty() {
        true => String::new(),
        false => format!(", interrupts on CPU {}", plan.interrupts),
    }
}

fn cpus(list: &str) -> &str {
    if list.is_empty() { "none" } else { list }
}

/// The load of a workload in both phases.
pub(crate) fn workload_line(record: &Record, workload: &WorkloadSpec) -> String {
    let at = fixed_rate(record, &workload.name)
        .map_or_else(String::new, |at| format!("; latency at {} op/s, open loop", rate(at)));
    let load = match workload.options.is_empty() {
        true => format!("{} in flight", workload.in_flight),
        false => clean(&options_text(&workload.options)),
    };
    format!("Workload {}: capacity with {load}, closed loop{at}", clean(&workload.name))
}

/// The rate of the latency phase in operations per second; `None` before the run has set it.
pub(crate) fn fixed_rate(record: &Record, workload: &str) -> Option<f64> {
    record.header.rates.iter().find(|(name, _)| name == workload).map(|(_, rate)| *rate)
}
