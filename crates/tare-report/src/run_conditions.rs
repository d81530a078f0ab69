//! The conditions of a run in one line each, as every text and the page print them.

use tare_lab::analysis::Analysis;
use tare_lab::cpus::CpuPlan;
use tare_lab::environment::{DATA_LAYER, INSIDE, options_text};
use tare_lab::record::Record;
use tare_lab::study::{Climb, ClimbEnd, ClimbStep, WorkloadSpec};

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
        "{}{} {}, {}{}; {}{}, {length}{}; seed {}; {}; tare {}",
        guest(record).map(|guest| format!("Inside a guest ({guest}): ")).unwrap_or_default(),
        record.study.system.name,
        system_place(record),
        client(record),
        interrupts(&record.cpu_plan),
        data(record).map(|origin| format!("data {origin}; ")).unwrap_or_default(),
        rounds(analysis.rounds),
        header.ending.as_ref().map(|why| format!(" ({why})")).unwrap_or_default(),
        header.seed,
        utc(header.started_unix_ms),
        header.tare_version,
    )
}

/// The CPUs of the system. Attached ones have those that their layers show.
fn system_place(record: &Record) -> String {
    if record.study.environments.iter().all(|spec| spec.attach.is_some()) {
        return "as found".into();
    }
    let plan = &record.cpu_plan;
    format!("on CPU {} of {}", cpus(&plan.system.to_string()), cpus(&plan.all.to_string()))
}

/// Who loads the system, and on which CPUs where it does so on this host.
fn client(record: &Record) -> String {
    match record.loaders.is_empty() {
        true => format!("client on CPU {}", cpus(&record.cpu_plan.client.to_string())),
        false => crate::loaders::client(record),
    }
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

/// Where restored data is from.
fn data(record: &Record) -> Option<&str> {
    let layers = record.environments.iter().flat_map(|environment| &environment.layers);
    let mut origins = layers.filter(|layer| layer.layer == DATA_LAYER);
    origins.find_map(|layer| layer.found.split_once("; ")).map(|(_, origin)| origin)
}

fn cpus(list: &str) -> &str {
    if list.is_empty() { "none" } else { list }
}

/// The load of a workload in both phases.
pub(crate) fn workload_line(record: &Record, workload: &WorkloadSpec) -> String {
    let at = fixed_rate(record, &workload.name)
        .map(|at| format!("latency at {} op/s, open loop", rate(at)));
    let load = match workload.options.is_empty() {
        true => format!("{} in flight{}", workload.in_flight, found(workload)),
        false => clean(&options_text(&workload.options)) + &found(workload),
    };
    let capacity = (!workload.rate_only).then(|| format!("capacity with {load}, closed loop"));
    let connected = connection(workload).map(|text| format!("connected with {text}"));
    let parts: Vec<String> = [capacity, at, connected].into_iter().flatten().collect();
    format!("Workload {}: {}", clean(&workload.name), parts.join("; "))
}

/// Returns how the clients of a workload connect, if not plainly.
pub(crate) fn connection(workload: &WorkloadSpec) -> Option<String> {
    (!workload.connection.is_plain()).then(|| workload.connection.to_string())
}

/// The rate of the latency phase in operations per second; `None` before the run has set it.
pub(crate) fn fixed_rate(record: &Record, workload: &str) -> Option<f64> {
    record.header.rates.iter().find(|(name, _)| name == workload).map(|(_, rate)| *rate)
}

/// Returns how the load of a workload was found, in parentheses; empty where the study or its
/// defaults set it.
pub(crate) fn found(workload: &WorkloadSpec) -> String {
    let climb = workload.load.climb();
    climb.map(|climb| format!(" ({}{})", climbed(workload), climb_text(climb))).unwrap_or_default()
}

/// Returns which option of a load tool a climb has found, as the beginning of a line.
fn climbed(workload: &WorkloadSpec) -> String {
    let option = workload.load.saturate.as_ref().and_then(|saturate| saturate.option.as_ref());
    option.map(|option| format!("{}: ", clean(option))).unwrap_or_default()
}

/// Returns how a load was found: why the climb ended, and its steps.
pub fn climb_text(climb: &Climb) -> String {
    let end = match &climb.end {
        ClimbEnd::Knee => "the knee".to_string(),
        ClimbEnd::Most => "no knee: it still grew at the most that is tried".to_string(),
        ClimbEnd::Time => "no knee within a fifth of the budget".to_string(),
        ClimbEnd::Failed { reason } => format!("no knee: the next step failed: {}", clean(reason)),
    };
    let step = |step: &ClimbStep| format!("{}: {}", step.in_flight, rate(step.operations_per_s));
    let steps: Vec<String> = climb.steps.iter().map(step).collect();
    format!("{end}; {} op/s", steps.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn climb_of_a_load_tool_names_its_option() {
        let (mut record, _) = crate::fixture::quick();
        let mut workload = record.study.workloads.remove(0);
        let steps = vec![ClimbStep { in_flight: 12, operations_per_s: 20_100.0 }];
        let climb = Some(Climb { steps, end: ClimbEnd::Knee });
        let option = Some("clients".to_string());
        workload.load.saturate = Some(tare_lab::study::Saturate { option, climb });
        workload.options = vec![("clients".into(), "12".into())];
        let line = workload_line(&record, &workload);
        let expect = "capacity with clients = 12 (clients: the knee; 12: 20.1k op/s), closed loop";
        assert!(line.contains(expect), "{line}");
    }

    #[test]
    fn origin_of_restored_data_is_a_condition() {
        let (mut record, analysis) = crate::fixture::quick();
        assert!(!run_line(&record, &analysis).contains("data "));
        let found = "restored in 3.0 ms: 5.0 MiB shared by hard links, 0.0 MiB copied; from the \
                     cache: loaded 2 h ago in 35.2 s";
        record.environments[0].layers.push(tare_lab::environment::LayerState {
            layer: DATA_LAYER.into(),
            wanted: "restored".into(),
            found: found.into(),
            in_force: true,
        });
        let line = run_line(&record, &analysis);
        assert!(line.contains("; data from the cache: loaded 2 h ago in 35.2 s; "), "{line}");
    }

    #[test]
    fn climb_shows_its_end_and_steps() {
        let step = |in_flight, operations_per_s| ClimbStep { in_flight, operations_per_s };
        let steps = vec![step(8, 20_100.0), step(16, 39_800.0)];
        let text = |end| climb_text(&Climb { steps: steps.clone(), end });
        assert_eq!(text(ClimbEnd::Knee), "the knee; 8: 20.1k, 16: 39.8k op/s");
        let failed = ClimbEnd::Failed { reason: "no\nanswer".into() };
        assert!(!text(failed).contains('\n'));
        assert!(text(ClimbEnd::Most).starts_with("no knee"));
    }
}
