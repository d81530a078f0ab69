//! The loaders of a study: the hosts from which the system is loaded.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;
use tare_std::host_address::{HostAddress, HostAddressError};

use super::checks::Names;
use super::{StudyError, WorkloadSpec};
use tare_toml::{Source, Table};

/// The most loaders of a study: each has a thread and a connection of ssh here.
pub const LOADERS_MAX: usize = 64;

const KEYS: &[&str] = &["host", "cpus", "address"];

/// A host that loads the system, and its CPUs for that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderSpec {
    pub host: HostAddress,
    /// CPUs of that host. `None`: all that it lets the loader use; of this host those of the
    /// client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// The address of this host as the loader sees it. `None`: the one from which ssh came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

impl LoaderSpec {
    /// Returns the host's name as the user wrote it.
    pub fn name(&self) -> String {
        self.host.to_string()
    }
}

/// Reads every `[[loader]]`.
pub(super) fn read(root: &Table<'_>, source: Source<'_>) -> Result<Vec<LoaderSpec>, StudyError> {
    let mut names = Names::default();
    let mut loaders = Vec::new();
    for table in root.tables("loader", KEYS)? {
        let host = match table.get("host") {
            None => HostAddress::Local,
            Some(item) => {
                let host: HostAddress = item
                    .text()?
                    .parse()
                    .map_err(|error: HostAddressError| item.bad_value(&error.reason()))?;
                names.add("loader", &host.to_string(), &item, source)?;
                host
            }
        };
        // Without a host, the table itself is in the wrong place.
        if table.get("host").is_none() && loaders.iter().any(is_local) {
            return Err(table.missing("host"));
        }
        if loaders.len() == LOADERS_MAX {
            let item = table.need("host")?;
            return Err(item.bad_value(&format!("a study has at most {LOADERS_MAX} loaders")));
        }
        let address = table.get("address").map(|item| {
            let text = item.text()?;
            text.parse().map_err(|_| item.wrong_type("an IP address such as \"10.0.0.5\""))
        });
        let address = address.transpose()?;
        if let Some(item) = table.get("address").filter(|_| host == HostAddress::Local) {
            return Err(item.bad_value("only a loader on another host sees an address"));
        }
        let cpus = table.cpus("cpus")?;
        if let Some(item) =
            table.get("cpus").filter(|_| cpus.as_ref().is_some_and(CpuSet::is_empty))
        {
            return Err(item.bad_value("a loader needs a CPU"));
        }
        loaders.push(LoaderSpec { host, cpus, address });
    }
    Ok(loaders)
}

fn is_local(loader: &LoaderSpec) -> bool {
    loader.host == HostAddress::Local
}

/// Refuses a workload that cannot be divided among the loaders.
pub(super) fn check_division(
    loaders: &[LoaderSpec],
    workload: &WorkloadSpec,
    table: &Table<'_>,
) -> Result<(), StudyError> {
    let count = u32::try_from(loaders.len()).unwrap_or(u32::MAX);
    for (key, number) in [("connections", workload.connections), ("in_flight", workload.in_flight)]
    {
        if let Some(item) = table.get(key).filter(|_| number < count) {
            return Err(item.out_of_range(&format!("at least {count}, one for each loader")));
        }
    }
    match table.get("rows").filter(|_| workload.rows < count.into()) {
        Some(item) => Err(item.out_of_range(&format!("at least {count}, one for each loader"))),
        None => Ok(()),
    }
}
