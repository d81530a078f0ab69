//! Drivers: what loads a system during a study. The contract is `tare_lab::driver::Driver`; one
//! file or folder per implementation, all of them in `ALL`.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::Path;

use tare_lab::PartError;
use tare_lab::driver::Driver;
use tare_lab::study::{OptionInfo, Study};
use tare_lab::system::Instances;
use tare_std::cpus::CpuSet;

mod built_in;
mod cassandra_stress;
pub mod fio;
mod java;
mod latte;
mod multi_instance;
mod option_reader;
mod pgbench;
mod placement;
mod redis_benchmark;
mod scylla_bench;
mod targets;
mod tool;
mod ycsb;

pub use built_in::{AgentError, DriverError, StudyWorkloadError, TareLoad, agent};
pub use fio::Fio;
pub use multi_instance::MultiInstanceError;
pub use option_reader::OptionError;
pub use placement::PlacementError;
pub use targets::NoTarget;
pub use tool::{OutputError, ToolError};

/// One driver as `tare list` shows it.
#[derive(Clone, Copy)]
pub struct DriverInfo {
    /// Name as in a study.
    pub name: &'static str,
    /// One line.
    pub help: &'static str,
    /// The protocols that it speaks (`tare_lab::system::System::speaks`).
    pub speaks: &'static [&'static str],
    /// The words in which a workload asks it, where it has its own; else it is asked for rows.
    pub options: &'static [OptionInfo],
    /// The tool that it runs, where it is not part of Tare.
    pub program: Option<Program>,
    check: fn(&Study) -> Result<(), PartError>,
    make: fn(&Client<'_>) -> Result<Box<dyn Driver + Send>, PartError>,
}

/// Another project's program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name on PATH.
    pub name: &'static str,
    /// Where the tool itself is unless a study says otherwise (`home`), and what that must have; where
    /// it is more than the program.
    pub home: Option<(&'static str, &'static str)>,
    /// How to get it.
    pub get: &'static str,
}

/// Where the client stands, and what marks its processes.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// Tare's own program.
    pub program: &'a Path,
    pub cpus: &'a CpuSet,
    /// Such as `/run/netns/NAME`; without one, where the harness stands.
    pub namespace: Option<&'a Path>,
    /// A directory for what a tool writes while it runs.
    pub scratch: &'a Path,
    /// The run's id.
    pub run: &'a str,
}

/// Why a study's driver cannot do what the study asks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    #[error("there is no driver {name:?}")]
    Unknown { name: String },
    #[error(
        "the driver {driver} cannot load the system {system}: it speaks {known}, not {speaks}; {remedy}"
    )]
    Protocol { driver: String, system: String, known: String, speaks: String, remedy: String },
}

/// Every driver that a study may name.
pub const ALL: &[DriverInfo] = &[
    built_in::INFO,
    fio::INFO,
    redis_benchmark::INFO,
    pgbench::INFO,
    cassandra_stress::INFO,
    latte::INFO,
    scylla_bench::INFO,
    ycsb::INFO,
];

impl DriverInfo {
    /// Starts the driver for a system of so many instances. A cluster is loaded as one; instances that
    /// stand alone, each on its own.
    ///
    /// # Errors
    /// When the client cannot stand there or cannot be started.
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

impl fmt::Debug for DriverInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverInfo").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the driver of a study, which can load its system and be asked for its workloads.
/// `speaks` is the protocol of the system.
///
/// # Errors
/// When driver and system do not go together, or a workload asks for what the driver cannot do.
pub fn of(study: &Study, speaks: &str) -> Result<&'static DriverInfo, PartError> {
    let name = &study.driver;
    let driver = ALL.iter().find(|driver| driver.name == name);
    let driver = driver.ok_or_else(|| PairError::Unknown { name: name.clone() })?;
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
    (driver.check)(study)?;
    Ok(driver)
}

#[cfg(test)]
mod tests;
