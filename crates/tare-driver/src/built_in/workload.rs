//! Converts a study's workload for the load generator.

use std::sync::Arc;
use std::time::Duration;

use tare_lab::PartError;
use tare_lab::attach::AttachedRows;
use tare_lab::driver::Pacing;
use tare_lab::study::{KeyDistribution, Replicas, WorkloadSpec};
use tare_load::access::Protocol;
use tare_load::engine::check_protocol;
use tare_load::keys::Keys;
use tare_load::pacing::{Arrivals, Pace, Schedule, ScheduleError, Step};
use tare_load::rows::{KeyType, Shape, ShapeError};
use tare_load::workload::shipped::NamedError;
use tare_load::workload::{RowsError, Workload, shipped};
use tare_load::{LoadSpec, Part};

use crate::agent::protocol::LoaderPart;
use crate::attached::AttachedError;

/// Why the generator cannot run a study's workload.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StudyWorkloadError {
    #[error("there is no consistency level {0:?}")]
    Consistency(String),
    #[error(
        "workload {0:?}: replication and consistency are of CQL, and this system speaks another \
         protocol; leave them out"
    )]
    Replicas(String),
    #[error(
        "workload {0:?}: compression and protocol_version are of CQL, and this system speaks another \
         protocol; leave them out"
    )]
    Connection(String),
    #[error(transparent)]
    Named(#[from] NamedError),
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error(transparent)]
    Rows(#[from] RowsError),
}

/// Refuses a workload that the generator cannot run in a protocol.
pub(super) fn check(spec: &WorkloadSpec, protocol: Protocol) -> Result<(), PartError> {
    let workload = of_study(spec)?;
    if !protocol.is_cql() && spec.replicas != Replicas::default() {
        return Err(StudyWorkloadError::Replicas(spec.name.clone()).into());
    }
    if !protocol.is_cql() && !spec.connection.is_of_any_protocol() {
        return Err(StudyWorkloadError::Connection(spec.name.clone()).into());
    }
    Ok(check_protocol(&workload, protocol)?)
}

/// Refuses a workload that writes, or that has no table of the user.
pub(crate) fn check_read_only(spec: &WorkloadSpec) -> Result<(), PartError> {
    let workload = spec.name.clone();
    if spec.workload_text.is_none() {
        return Err(AttachedError::NoTable { workload }.into());
    }
    match of_study(spec)?.writes() {
        true => Err(AttachedError::Writes { workload }.into()),
        false => Ok(()),
    }
}

/// Returns the workload of a study: a shipped one by its name, that of a file, or rows of blobs.
///
/// # Errors
/// If no shipped workload has the name, or rows cannot have this shape or number.
pub(super) fn of_study(spec: &WorkloadSpec) -> Result<Workload, StudyWorkloadError> {
    let mut workload = with_rows(spec)?;
    if let Some(AttachedRows::Own(keyspace)) = &spec.attached_rows {
        workload = workload.within(keyspace);
    }
    let Replicas { replication, consistency } = &spec.replicas;
    match spec.replicas == Replicas::default() {
        // A workload of the shipped ones may have its own.
        true => Ok(workload),
        false if workload.set_replicas(*replication, consistency) => Ok(workload),
        false => Err(StudyWorkloadError::Consistency(consistency.clone())),
    }
}

/// Returns the workload of a study with its own number of replicas.
fn with_rows(spec: &WorkloadSpec) -> Result<Workload, StudyWorkloadError> {
    if let Some(name) = &spec.workload {
        let mut workload = shipped::named(name, spec.workload_text.as_deref())?;
        workload.set_rows(spec.rows)?;
        return Ok(workload);
    }
    let WorkloadSpec { columns, column_bytes, rows, write_share, .. } = *spec;
    let shape = Shape { key_type: KeyType::Bigint, columns, column_bytes };
    Ok(Workload::plain(shape, rows, write_share, keys(spec.keys))?)
}

/// Returns a study's workload with its number of connections, and which part of it to run.
pub(super) fn load_spec(
    spec: &WorkloadSpec,
    part: Option<LoaderPart>,
) -> Result<LoadSpec, StudyWorkloadError> {
    let WorkloadSpec { connections, in_flight, .. } = *spec;
    let workload = Arc::new(of_study(spec)?);
    let part = part.map_or(Part::ALL, |part| Part::of_one_load(part.index, part.count));
    Ok(LoadSpec { workload, part, connections, in_flight })
}

/// Returns the pace of a slice over its window.
pub(super) fn pace(pacing: Pacing, window: Duration) -> Result<Pace, ScheduleError> {
    match pacing {
        Pacing::Closed => Ok(Pace::Closed(window)),
        Pacing::Open { rate_per_s } => {
            let steps = vec![Step::steady(rate_per_s, window)];
            Ok(Pace::Open(Schedule::new(steps, Arrivals::Constant)?))
        }
    }
}

fn keys(keys: KeyDistribution) -> Keys {
    match keys {
        KeyDistribution::Uniform => Keys::Uniform,
        KeyDistribution::Sequential => Keys::Sequential,
        KeyDistribution::Gaussian { mean_share, deviation_share } => {
            Keys::Gaussian { mean: mean_share, deviation: deviation_share }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn study_may_name_a_shipped_workload() {
        let named = |name: &str, rows| WorkloadSpec {
            workload: Some(name.into()),
            rows,
            ..crate::tests::workload()
        };
        let read = of_study;
        let workload = read(&named("ycsb-a", 5_000)).unwrap();
        assert_eq!((workload.table.full_name(), workload.rows), ("ycsb.usertable".into(), 5_000));
        assert_eq!(workload.row_bytes_most(), 1_000);
        let unknown = read(&named("ycsb-z", 1)).unwrap_err().to_string();
        assert_eq!(unknown, "no shipped workload is named \"ycsb-z\"; see tare list workloads");
        let many = read(&named("scylla-bench-uniform", u64::MAX)).unwrap_err().to_string();
        assert!(many.contains("its keys have room for"), "{many}");
    }
}
