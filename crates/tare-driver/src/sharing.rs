//! How several loaders run a driver together: what each of them does, and what it needs there.

use std::path::PathBuf;

use tare_lab::PartError;
use tare_lab::doubt::Doubt;
use tare_lab::study::{Study, WorkloadSpec};

use crate::agent::{AgentContext, AgentDriver};
use crate::option_reader::OptionError;
use crate::scale;

/// How several loaders run a driver together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    /// Returns the workload of each of so many loaders; `None` for one without a part of it.
    pub(crate) divide: fn(&WorkloadSpec, u32) -> Vec<Option<WorkloadSpec>>,
    /// Whether each loader writes a part of the rows. Otherwise the first one writes all.
    pub(crate) each_writes_rows: bool,
    /// The doubts about all figures of a workload.
    pub(crate) doubts: fn(&WorkloadSpec) -> Vec<Doubt>,
    /// What a loader must have for a workload.
    pub(crate) needs: fn(&WorkloadSpec) -> Result<Needs, OptionError>,
    /// Makes the driver in the agent of a loader.
    pub(crate) serve: fn(AgentContext) -> Result<Box<dyn AgentDriver>, PartError>,
    /// The options that are divided, and their values where a workload does not name them.
    pub(crate) options: &'static [DividedOption],
}

/// An option of a tool that is divided among loaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DividedOption {
    pub(crate) name: &'static str,
    pub(crate) default: u32,
    pub(crate) kind: DividedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DividedKind {
    /// The parts add up to the number. A loader without one has no part of the load.
    Load,
    /// Something that each loader needs one of, such as a thread.
    Each,
}

/// What a workload needs of the host that loads a system.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Needs {
    /// A program, as its path or its name on PATH.
    pub(crate) program: Option<String>,
    /// Files, and the error for each that is missing.
    pub(crate) files: Vec<(PathBuf, OptionError)>,
}

/// A workload asks for too little to be divided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "workload {workload:?}: {option} = {number} cannot be divided among {loaders} loaders; write at \
     least {loaders}, one for each"
)]
pub struct DivisionError {
    workload: String,
    option: &'static str,
    number: u32,
    loaders: u32,
}

/// Returns each of these doubts once.
pub(crate) fn distinct(doubts: impl Iterator<Item = Doubt>) -> Vec<Doubt> {
    let mut all = Vec::new();
    for doubt in doubts {
        if !all.contains(&doubt) {
            all.push(doubt);
        }
    }
    all
}

/// Divides a whole number; the first parts get the remainder.
pub(crate) fn whole(number: u32, count: u32) -> impl Iterator<Item = u32> {
    let (each, more) = (number / count.max(1), number % count.max(1));
    (0..count).map(move |index| each + u32::from(index < more))
}

/// Divides connections and requests in flight.
pub(crate) fn by_connections(workload: &WorkloadSpec, count: u32) -> Vec<Option<WorkloadSpec>> {
    let parts = connections(workload, count).into_iter();
    parts.map(|part| Some(part).filter(|part| part.connections > 0 && part.in_flight > 0)).collect()
}

/// Returns the workload of each loader, with its connections and requests in flight. Loaders beyond
/// the number of either have none of them.
pub(crate) fn connections(workload: &WorkloadSpec, count: u32) -> Vec<WorkloadSpec> {
    let connections = whole(workload.connections, count);
    connections
        .zip(whole(workload.in_flight, count))
        .map(|(connections, in_flight)| WorkloadSpec { connections, in_flight, ..workload.clone() })
        .collect()
}

/// Divides the numbers that a tool has as options.
pub(crate) fn by_options(
    options: &[DividedOption],
    workload: &WorkloadSpec,
    count: u32,
) -> Vec<Option<WorkloadSpec>> {
    let mut parts = vec![Some(workload.clone()); count as usize];
    for DividedOption { name, default, kind } in options {
        let number = scale::number(workload, name, *default);
        for (part, share) in parts.iter_mut().zip(whole(number, count)) {
            match (kind, share) {
                (DividedKind::Load, 0) => *part = None,
                _ => part.iter_mut().for_each(|part| scale::set(part, name, share.max(1))),
            }
        }
    }
    parts
}

/// Refuses workloads that name fewer operations in flight than there are loaders.
pub(crate) fn check(options: &[DividedOption], study: &Study) -> Result<(), DivisionError> {
    let loaders = u32::try_from(study.loaders.len()).unwrap_or(u32::MAX);
    for DividedOption { name: option, default, kind } in options {
        for workload in &study.workloads {
            let is_named = workload.options.iter().any(|(name, _)| name == option);
            let number = scale::number(workload, option, *default);
            let is_climb = workload.load.saturate.is_some();
            if *kind == DividedKind::Load && is_named && !is_climb && number < loaders {
                let workload = workload.name.clone();
                return Err(DivisionError { workload, option, number, loaders });
            }
        }
    }
    Ok(())
}

/// Refuses workloads whose files are not on this host.
pub(crate) fn check_files(sharing: Sharing, workloads: &[WorkloadSpec]) -> Result<(), OptionError> {
    for workload in workloads {
        let missing = (sharing.needs)(workload)?.files.into_iter().find(|(path, _)| !path.exists());
        missing.map_or(Ok(()), |(_, error)| Err(error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ALL;

    fn divided(driver: &str, options: &[(&str, &str)], count: u32) -> Vec<Option<Vec<String>>> {
        let info = crate::find(driver).unwrap();
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let options = options.iter().map(owned).collect();
        let workload = WorkloadSpec { options, ..crate::tests::workload() };
        let parts = (info.sharing.unwrap().divide)(&workload, count);
        let words = |part: WorkloadSpec| {
            part.options.iter().map(|(name, value)| format!("{name}={value}")).collect()
        };
        parts.into_iter().map(|part| part.map(words)).collect()
    }

    #[test]
    fn options_of_tools_are_divided() {
        let part = |words: &[&str]| Some(words.iter().map(ToString::to_string).collect());
        let check = |driver, options: &[_], expect: &[_]| {
            let count = u32::try_from(expect.len()).unwrap();
            assert_eq!(divided(driver, options, count), expect, "{driver}");
        };
        check(
            "redis-benchmark",
            &[("clients", "5"), ("threads", "1"), ("test", "set")],
            &[
                part(&["clients=3", "threads=1", "test=set"]),
                part(&["clients=2", "threads=1", "test=set"]),
            ],
        );
        check("pgbench", &[], &[part(&["clients=8", "jobs=1"]), part(&["clients=8", "jobs=1"])]);
        let none = None::<Vec<String>>;
        check("ycsb", &[("threads", "1")], &[part(&["threads=1"]), none]);
        check(
            "scylla-bench",
            &[("concurrency", "7")],
            &[
                part(&["concurrency=3", "connections=2"]),
                part(&["concurrency=2", "connections=1"]),
                part(&["concurrency=2", "connections=1"]),
            ],
        );
        check(
            "latte",
            &[("threads", "4"), ("concurrency", "9")],
            &[part(&["threads=2", "concurrency=9"]), part(&["threads=2", "concurrency=9"])],
        );
        assert_eq!(divided("cassandra-stress", &[("threads", "9")], 9).len(), 9);
    }

    #[test]
    fn tools_that_run_where_the_client_is_can_be_shared() {
        for info in ALL {
            let Some(sharing) = info.sharing else {
                assert_eq!(info.name, "fio", "it runs inside the environment");
                continue;
            };
            for DividedOption { name, default, .. } in sharing.options {
                let option = info.options.iter().find(|option| option.name == *name).unwrap();
                let shown = format!("({default}");
                assert!(option.help.contains(&shown), "{} {name}: {}", info.name, option.help);
            }
        }
    }
}
