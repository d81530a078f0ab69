//! `tare weigh --like`: a study with the load of a packet capture in place of its workloads.

use std::fmt::Write;
use std::path::Path;

use anyhow::anyhow;
use tare_lab::record::HostFact;
use tare_lab::study::{ClientConnection, KeyDistribution, LoadSize, Replicas, Study, WorkloadSpec};
use tare_std::units::thousands;
use tare_trace::{Trace, TraceProtocol};

use crate::exit::{Exit, ExitWith};
use crate::stream::say;

/// The driver that runs workload files.
const DRIVER: &str = "tare-load";
/// The section of the record's facts about the trace.
const SECTION: &str = "trace";

/// Reads a trace.
pub(crate) fn read(file: &Path) -> anyhow::Result<Trace> {
    tare_trace::read(file).exit_with(Exit::Input)
}

/// Replaces the workloads of a study by that of a trace. Published relations go, because they are
/// about the study's own workloads.
///
/// # Errors
/// If the study's system or driver cannot run it.
pub(crate) fn replace(study: &mut Study, text: &mut String, trace: &Trace) -> anyhow::Result<()> {
    let refuse = |why: String| Err(anyhow!(why)).exit_with(Exit::Input);
    if study.driver != DRIVER {
        let driver = &study.driver;
        return refuse(format!(
            "--like needs the driver {DRIVER}, and the study {} has {driver}",
            study.name
        ));
    }
    let protocol = match trace.protocol {
        TraceProtocol::Cql => "cql",
        TraceProtocol::Redis => "redis",
    };
    if let Some(system) = tare_system::find(&study.system.name) {
        let speaks = system.speaks(&study.system);
        if speaks != protocol {
            return refuse(format!(
                "the trace {} is of {protocol}, and the study's system {} speaks {speaks}",
                trace.file, study.system.name
            ));
        }
    }
    study.workloads = vec![workload(study, trace)];
    study.published.clear();
    study.title = format!("{} (with the load of {})", study.title, trace.file).trim_start().into();
    if let Some(quick) = &mut study.quick {
        quick.workloads.clear();
    }
    let _ = writeln!(text, "\n# --like {}", sentence(trace));
    Ok(())
}

fn workload(study: &Study, trace: &Trace) -> WorkloadSpec {
    let stem = Path::new(&trace.file).file_stem().unwrap_or_default().to_string_lossy();
    let name: String = stem.chars().filter(|c| !c.is_control()).take(60).collect();
    let name = if name.trim().is_empty() { "trace".to_string() } else { name.trim().to_string() };
    let loaders = u32::try_from(study.loaders.len()).unwrap_or(u32::MAX);
    WorkloadSpec {
        workload: Some(format!("{name}.toml")),
        name,
        workload_text: Some(trace.workload.clone()),
        write_share: 0.0,
        rows: trace.rows,
        columns: 0,
        column_bytes: 0,
        keys: KeyDistribution::Uniform,
        connections: trace.connections.max(loaders),
        in_flight: trace.in_flight.max(loaders),
        load: LoadSize::default(),
        latency_share: 0.0,
        rate_per_s: Some(trace.rate_per_s.clamp(1.0, 1e9).round()),
        rate_only: false,
        slo: None,
        reads_from_disk: None,
        replicas: Replicas::default(),
        connection: ClientConnection::default(),
        attached_rows: None,
        options: Vec::new(),
    }
}

/// Says which load it is, on one line.
fn sentence(trace: &Trace) -> String {
    let Trace { file, sha256, operations, table, .. } = trace;
    format!("{file}: {} operations on {table}, SHA-256 {sha256}", thousands(*operations))
}

/// Prints what the load of a trace is and what it leaves out.
pub(crate) fn announce(trace: &Trace) {
    say(&format!("Load of {}", sentence(trace)));
    say(&format!("  {}", queries(trace)));
    for left_out in &trace.left_out {
        say(&format!("  left out: {} operations {}", thousands(left_out.operations), left_out.why));
    }
}

fn queries(trace: &Trace) -> String {
    let one = |query: &tare_trace::QueryCount| {
        format!("{} {} ({})", thousands(query.operations), query.name, query.keys)
    };
    trace.queries.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the facts of the record about the trace.
pub(crate) fn facts(trace: &Trace) -> Vec<HostFact> {
    let fact =
        |key: &str, value: String| HostFact { section: SECTION.into(), key: key.into(), value };
    let left_out = trace.left_out.iter().map(|one| format!("{} {}", one.operations, one.why));
    vec![
        fact("file", trace.file.clone()),
        fact("sha256", trace.sha256.clone()),
        fact("operations", queries(trace)),
        fact("left out", left_out.collect::<Vec<_>>().join("; ")),
    ]
}
