//! Drivers: what loads a system during a study. The contract is `tare_lab::driver::Driver`; one
//! file or folder per implementation, all of them in `ALL`.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{BufRead, Write};
use std::path::Path;

use tare_lab::PartError;
use tare_lab::access::ClientAccess;
use tare_lab::driver::Driver;
use tare_lab::study::{LoadCpus, OptionInfo, Study, WorkloadSpec};
use tare_lab::system::Instances;
use tare_load::access::Protocol;
use tare_std::cpus::CpuSet;
use tare_std::error_line;

use agent::AgentContext;
use sharing::Sharing;

mod agent;
mod attached;
mod built_in;
mod cassandra_stress;
pub mod doctor;
pub mod fio;
mod h2load;
mod java;
mod latte;
pub mod loaders;
mod multi_instance;
mod option_reader;
mod pgbench;
mod placement;
mod printed;
mod redis_benchmark;
mod scale;
mod scylla_bench;
mod sharing;
mod sysbench;
mod targets;
mod tool;
mod ycsb;

pub use agent::{AgentError, AgentOptions};
pub use attached::AttachedError;
pub use built_in::{DriverError, StudyWorkloadError, TareLoad};
pub use fio::Fio;
pub use multi_instance::MultiInstanceError;
pub use option_reader::OptionError;
pub use placement::PlacementError;
pub use sharing::DivisionError;
pub use targets::NoTarget;
pub use tool::{OutputError, ToolError, become_tool};

/// One driver as `tare list` shows it.
#[derive(Clone, Copy)]
pub struct DriverInfo {
    /// The name in a study.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The protocols that it speaks (`tare_lab::system::System::speaks`).
    pub speaks: &'static [&'static str],
    /// The options that a workload gives the driver; without any, it loads rows.
    pub options: &'static [OptionInfo],
    /// Those of them that change the load and not the rows.
    pub load_options: &'static [&'static str],
    /// The tool that it runs, if that is not part of Tare.
    pub program: Option<Program>,
    /// Checks the workloads of a study for a system that speaks a protocol.
    check: fn(&Study, speaks: &str) -> Result<(), PartError>,
    saturation: Saturation,
    /// Sets what a workload asks for at once and does not name.
    scale: fn(&mut WorkloadSpec, LoadCpus),
    make: fn(&Client<'_>) -> Result<Box<dyn Driver + Send>, PartError>,
    /// `None`: it cannot run on loaders.
    sharing: Option<Sharing>,
}

/// How a climb to the knee (`load = "saturate"`) sets the load of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saturation {
    /// By the requests in flight of the workload itself.
    InFlight,
    /// By an option: its name, and its value where a workload does not name it.
    Option(&'static str, u32),
    /// Not at all, with the reason and what to do instead.
    Not(&'static str),
}

/// Why a study cannot climb to the knee of its baseline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaturationError {
    #[error("workload {workload:?}: {driver} cannot do load = \"saturate\": {why}")]
    Not { workload: String, driver: &'static str, why: &'static str },
    #[error(
        "workload {workload:?}: load = \"saturate\" finds {option} of {driver}; leave out {option} or load"
    )]
    Named { workload: String, driver: &'static str, option: &'static str },
}

/// Another project's program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name on PATH.
    pub name: &'static str,
    /// The tool's directory unless a study names another (`home`), and what it must have; for tools
    /// that are more than the program.
    pub home: Option<(&'static str, &'static str)>,
    /// How to install it.
    pub get: &'static str,
}

/// Where the client runs, and what marks its processes.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// Tare's own program.
    pub program: &'a Path,
    pub cpus: &'a CpuSet,
    /// The network namespace, such as `/run/netns/NAME`; `None`: that of the harness.
    pub namespace: Option<&'a Path>,
    /// The directory for files that a tool writes while it runs.
    pub scratch: &'a Path,
    /// The run's id.
    pub run: &'a str,
    /// The protocol of the system (`tare_lab::system::System::speaks`).
    pub speaks: &'a str,
    /// What it needs to connect.
    pub access: &'a ClientAccess,
}

/// Why a study cannot use its driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    #[error("there is no driver {name:?}")]
    Unknown { name: String },
    #[error(
        "the driver {driver} cannot load the system {system}: it speaks {known}, not {speaks}; {remedy}"
    )]
    Protocol { driver: String, system: String, known: String, speaks: String, remedy: String },
    #[error(
        "the driver {driver} cannot run on [[loader]] hosts, because it runs inside the environment; \
         leave out [[loader]]"
    )]
    NotOnLoaders { driver: &'static str },
    #[error("the driver {driver} cannot use the login of [access]; driver = \"tare-load\" can")]
    NoAccess { driver: &'static str },
}

/// All drivers that a study may name.
pub const ALL: &[DriverInfo] = &[
    built_in::INFO,
    fio::INFO,
    redis_benchmark::INFO,
    pgbench::INFO,
    sysbench::INFO,
    h2load::INFO,
    cassandra_stress::INFO,
    latte::INFO,
    scylla_bench::INFO,
    ycsb::INFO,
];

impl DriverInfo {
    /// Starts the driver for a system of this many instances. A cluster is loaded as one; separate
    /// instances are loaded one by one, at the same time.
    ///
    /// # Errors
    /// If the client cannot be placed or started.
    pub fn make(
        &self,
        client: &Client<'_>,
        instances: Instances,
    ) -> Result<Box<dyn Driver>, PartError> {
        match instances {
            Instances { cluster: false, count: 2.. } => {
                Ok(Box::new(multi_instance::MultiInstance::make(self, client, instances.count)?))
            }
            _ => Ok((self.make)(client)?),
        }
    }
}

/// Returns a driver of separate instances, which loads each with its own, at the same time.
pub fn separate(drivers: Vec<Box<dyn Driver + Send>>) -> Box<dyn Driver> {
    Box::new(multi_instance::MultiInstance::of(drivers))
}

impl fmt::Debug for DriverInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverInfo").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the driver of a name.
pub fn find(name: &str) -> Option<&'static DriverInfo> {
    ALL.iter().find(|driver| driver.name == name)
}

/// Returns the driver of a study, after checking that it can load the system and run the workloads.
/// `speaks` is the protocol of the system.
///
/// # Errors
/// If driver and system do not match, or a workload asks for something that the driver cannot do.
pub fn of(study: &Study, speaks: &str) -> Result<&'static DriverInfo, PartError> {
    let name = &study.driver;
    let driver = find(name).ok_or_else(|| PairError::Unknown { name: name.clone() })?;
    if !driver.speaks.contains(&speaks) {
        let others = ALL.iter().filter(|other| other.speaks.contains(&speaks));
        let others: Vec<String> =
            others.map(|other| format!("driver = {:?}", other.name)).collect();
        let remedy = match others.is_empty() {
            true => "no driver does".to_string(),
            false => format!("write {}", others.join(" or ")),
        };
        let (known, speaks) = (driver.speaks.join(", "), speaks.to_string());
        let (driver, system) = (driver.name.to_string(), study.system.name.clone());
        return Err(PairError::Protocol { driver, system, known, speaks, remedy }.into());
    }
    (driver.check)(study, speaks)?;
    if study.access.is_some() && driver.name != built_in::INFO.name {
        return Err(PairError::NoAccess { driver: driver.name }.into());
    }
    check_attached(driver, study, speaks)?;
    match (study.loaders.is_empty(), driver.sharing) {
        (true, None) => {}
        // The loaders are asked for what they need.
        (true, Some(sharing)) => sharing::check_files(sharing, &study.workloads)?,
        (false, None) => {
            let driver = driver.name;
            return Err(PairError::NotOnLoaders { driver }.into());
        }
        (false, Some(sharing)) => sharing::check(sharing.options, study)?,
    }
    study.workloads.iter().try_for_each(|workload| check_saturation(driver, workload))?;
    Ok(driver)
}

/// Refuses a study whose driver writes where the rows of the user are.
fn check_attached(driver: &DriverInfo, study: &Study, speaks: &str) -> Result<(), PartError> {
    let Some(first) = study.attached().next() else { return Ok(()) };
    let protocol = Protocol::find(speaks).filter(|_| driver.name == built_in::INFO.name);
    let mut workloads = study.workloads.iter();
    match (protocol, first.read_only) {
        (Some(Protocol::Memcached), _) => Err(AttachedError::Memcached.into()),
        (Some(Protocol::Redis), true) => Err(AttachedError::NoKeys.into()),
        (Some(_), true) => workloads.try_for_each(built_in::check_read_only),
        (Some(_), false) => Ok(()),
        (None, read_only) if driver.name == pgbench::INFO.name => {
            workloads.try_for_each(|workload| pgbench::check_attached(workload, read_only))
        }
        (None, _) => Err(AttachedError::NotApart { driver: driver.name }.into()),
    }
}

/// Serves the orders of a harness with a driver, until `quit` or the end of `input`.
///
/// # Errors
/// If there is no such driver, it cannot be started, or the harness is silent or does not read any
/// more. Errors of a system are answered and do not end the agent.
pub fn agent(
    options: &AgentOptions,
    input: impl BufRead + Send + 'static,
    output: impl Write + Send,
) -> Result<(), AgentError> {
    let sharing = find(&options.driver).and_then(|driver| driver.sharing);
    let sharing = sharing.ok_or_else(|| AgentError::Driver { driver: options.driver.clone() })?;
    let make = |signals| {
        let AgentOptions { cpus, program, speaks, .. } = options.clone();
        (sharing.serve)(AgentContext { cpus, program, speaks, signals })
    };
    agent::serve(make, options, input, output)
}

/// Returns what this host lacks to load a system with these workloads of a driver: one line for
/// each thing, with what to do.
pub fn missing(driver: &str, workloads: &[WorkloadSpec]) -> Vec<String> {
    let Some(driver) = find(driver) else {
        return vec![PairError::Unknown { name: driver.into() }.to_string()];
    };
    let Some(sharing) = driver.sharing else { return Vec::new() };
    let mut lines = Vec::new();
    let mut add = |line| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    for workload in workloads {
        let needs = match (sharing.needs)(workload) {
            Ok(needs) => needs,
            Err(error) => {
                add(error_line(&error));
                continue;
            }
        };
        if let Some(program) = needs.program.filter(|one| tare_host::exec::find(one).is_none()) {
            let place = if program.contains('/') { "not there" } else { "not on PATH" };
            let get = driver.program.map(|program| program.get).unwrap_or_default();
            add(format!("{program} is {place}: {get}"));
        }
        let files = needs.files.into_iter().filter(|(path, _)| !path.exists());
        files.for_each(|(_, error)| add(error_line(&error)));
    }
    lines
}

/// Checks that a driver can climb, and that the workload does not name what the climb finds.
fn check_saturation(driver: &DriverInfo, workload: &WorkloadSpec) -> Result<(), SaturationError> {
    let Some(saturate) = &workload.load.saturate else { return Ok(()) };
    let (workload_name, driver_name) = (workload.name.clone(), driver.name);
    match driver.saturation {
        Saturation::Not(why) => {
            Err(SaturationError::Not { workload: workload_name, driver: driver_name, why })
        }
        // A study that goes on has the number in its options already.
        Saturation::Option(option, _)
            if saturate.option.is_none()
                && workload.options.iter().any(|(name, _)| name == option) =>
        {
            Err(SaturationError::Named { workload: workload_name, driver: driver_name, option })
        }
        _ => Ok(()),
    }
}

/// Sets what the workloads of a study ask for at once and do not name, for this many CPUs. A second
/// call changes nothing.
pub fn scale_load(study: &mut Study, cpus: LoadCpus) {
    let Some(driver) = find(&study.driver) else { return };
    for workload in &mut study.workloads {
        (driver.scale)(workload, cpus);
        if let (Saturation::Option(option, default), Some(saturate)) =
            (driver.saturation, &mut workload.load.saturate)
        {
            saturate.option = Some(option.into());
            let in_flight = scale::number(workload, option, default);
            workload.set_in_flight(in_flight);
        }
    }
}

#[cfg(test)]
mod tests;
