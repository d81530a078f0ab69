//! Neighbours that are systems of their own: their parts, and what is checked before a study runs.

use anyhow::{Context, anyhow};
use tare_driver::DriverInfo;
use tare_lab::layer::{NeighbourKind, OtherSystem};
use tare_lab::study::{
    ClientConnection, KeyDistribution, LoadSize, Replicas, Study, SystemSpec, WorkloadSpec,
    defaults,
};
use tare_system::{ClientRoute, SystemInfo};

use crate::exit::{Exit, ExitWith};

/// Systems that a neighbour cannot be, with the reason.
const NOT: [(&str, &str); 2] = [
    ("fio", "use kind = \"disk\", or fio as kind = \"command\""),
    ("image", "a neighbour has no image; use the system's own name, or kind = \"command\""),
];

/// Checks every neighbour that is a system.
///
/// # Errors
/// If its system or its driver cannot run on this host, or do not match.
pub(crate) fn check(study: &Study) -> anyhow::Result<()> {
    for spec in &study.environments {
        for one in &spec.neighbours {
            let Some(other) = one.system.as_ref().filter(|_| one.kind == NeighbourKind::System)
            else {
                continue;
            };
            check_one(study, other).with_context(|| {
                format!("neighbour {:?} of environment {:?}", one.name, spec.name)
            })?;
        }
    }
    Ok(())
}

fn check_one(study: &Study, other: &OtherSystem) -> anyhow::Result<()> {
    if let Some((name, why)) = NOT.iter().find(|(name, _)| *name == other.name) {
        return Err(anyhow!("the system {name} is no neighbour: {why}")).exit_with(Exit::Input);
    }
    let (info, driver) = parts(other)?;
    let own = Study {
        system: system_spec(other),
        driver: other.driver.clone(),
        workloads: vec![workload(other)],
        loaders: Vec::new(),
        loader_selectors: Vec::new(),
        hosts: Vec::new(),
        access: None,
        ..study.clone()
    };
    info.make(&own.system, &ClientRoute::default())
        .map_err(|error| anyhow!(error))
        .exit_with(Exit::Input)?;
    tare_driver::of(&own, &info.speaks(&own.system))
        .map_err(|error| anyhow!(error))
        .exit_with(Exit::Input)?;
    if let Some(Err(get)) = info.found.map(|found| found()) {
        return Err(anyhow!("{} is not installed: {get}", info.name)).exit_with(Exit::Host);
    }
    match driver.program.filter(|tool| tare_host::exec::find(tool.name).is_none()) {
        Some(tool) if tool.home.is_none() => {
            Err(anyhow!("{} is not installed: {}", tool.name, tool.get)).exit_with(Exit::Host)
        }
        _ => Ok(()),
    }
}

/// Returns the system and the driver of a neighbour.
///
/// # Errors
/// If there is none of that name.
pub(crate) fn parts(
    other: &OtherSystem,
) -> anyhow::Result<(&'static SystemInfo, &'static DriverInfo)> {
    let info = tare_system::find(&other.name)
        .with_context(|| format!("there is no system {}", other.name))?;
    let driver = tare_driver::find(&other.driver)
        .with_context(|| format!("there is no driver {}", other.driver))?;
    Ok((info, driver))
}

/// Returns the system of a neighbour as a study describes one.
pub(crate) fn system_spec(other: &OtherSystem) -> SystemSpec {
    SystemSpec { name: other.name.clone(), options: other.options.clone() }
}

/// Returns the load of a neighbour as the workload of a study.
pub(crate) fn workload(other: &OtherSystem) -> WorkloadSpec {
    let rows = other.rows.unwrap_or(tare_lab::layer::RowsLoad {
        rows: 0,
        write_percent: 0,
        connections: 0,
        in_flight: 0,
    });
    let (columns, column_bytes) = match other.rows {
        Some(_) => (defaults::COLUMNS, defaults::COLUMN_BYTES),
        None => (0, 0),
    };
    WorkloadSpec {
        name: "neighbour".into(),
        workload: None,
        workload_text: None,
        write_share: f64::from(rows.write_percent) / 100.0,
        rows: rows.rows,
        columns,
        column_bytes,
        keys: KeyDistribution::Uniform,
        connections: rows.connections,
        in_flight: rows.in_flight,
        load: LoadSize::default(),
        latency_share: 0.0,
        rate_per_s: other.rate_per_s.map(f64::from),
        rate_only: false,
        slo: None,
        reads_from_disk: None,
        replicas: Replicas::default(),
        connection: ClientConnection::default(),
        attached_rows: None,
        options: other.driver_options.clone(),
    }
}
