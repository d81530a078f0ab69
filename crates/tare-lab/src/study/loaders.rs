//! The loaders of a study: the hosts from which the system is loaded.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;
use tare_std::host_address::{HostAddress, NodeAddress, RemoteAddress};
use tare_std::loader_address::{LoaderAddress, LoaderAddressError, NodeSelector};

use super::checks::Names;
use super::{Study, StudyError, WorkloadSpec};
use tare_toml::{Source, Table};

/// The most loaders of a study: each has a thread and a connection here.
pub const LOADERS_MAX: usize = 64;

const KEYS: &[&str] = &["host", "cpus", "address", "count"];

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

/// Loaders of which a study names only the labels of their nodes: a pod on each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderSelector {
    pub nodes: NodeSelector,
    /// The most nodes. `None`: all that match.
    pub count: Option<usize>,
    /// As for one loader.
    pub cpus: Option<CpuSet>,
    pub address: Option<IpAddr>,
}

/// Why a study cannot have the loaders that its selectors found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectedLoadersError {
    #[error(
        "there are {count} loaders, and a study has at most {LOADERS_MAX}; write count beside the selector"
    )]
    Many { count: usize },
    #[error(
        "workload {workload:?} has {key} = {number} for {count} loaders; it must be at least {count}, one \
         for each, or write count beside the selector"
    )]
    Few { workload: String, key: &'static str, number: u64, count: usize },
}

impl Study {
    /// Replaces the selectors by loaders on the nodes that `find` returns for them. A node that has
    /// a loader already gets no second one.
    ///
    /// # Errors
    /// That of `find`.
    pub fn place_loaders<E>(
        &mut self,
        mut find: impl FnMut(&LoaderSelector) -> Result<Vec<NodeAddress>, E>,
    ) -> Result<(), E> {
        for selector in std::mem::take(&mut self.loader_selectors) {
            for node in find(&selector)? {
                let host = HostAddress::Remote(RemoteAddress::Pod(node));
                if self.loaders.iter().all(|known| known.host != host) {
                    let LoaderSelector { cpus, address, .. } = selector.clone();
                    self.loaders.push(LoaderSpec { host, cpus, address });
                }
            }
        }
        Ok(())
    }

    /// Checks that every loader gets a part of the load, where selectors found some of them.
    ///
    /// # Errors
    /// Names the workload and what it has too little of.
    pub fn check_placed_loaders(&self) -> Result<(), SelectedLoadersError> {
        let count = self.loaders.len();
        if count > LOADERS_MAX {
            return Err(SelectedLoadersError::Many { count });
        }
        // Other drivers than the load generator have options of their own, which they check.
        for workload in self.workloads.iter().filter(|workload| workload.options.is_empty()) {
            let WorkloadSpec { load, connections, in_flight, rows, .. } = workload;
            let all = [
                ("connections", u64::from(*connections), load.connections_per_cpu),
                ("in_flight", u64::from(*in_flight), load.in_flight_per_cpu),
                ("rows", *rows, load.rows_from_disk_share),
            ];
            let few = |(_, number, is_free): &&(_, u64, bool)| !is_free && *number < count as u64;
            if let Some((key, number, _)) = all.iter().find(few) {
                let workload = workload.name.clone();
                return Err(SelectedLoadersError::Few { workload, key, number: *number, count });
            }
        }
        Ok(())
    }
}

/// Reads every `[[loader]]`: the hosts, and the selectors of nodes.
pub(super) fn read(
    root: &Table<'_>,
    source: Source<'_>,
) -> Result<(Vec<LoaderSpec>, Vec<LoaderSelector>), StudyError> {
    let mut names = Names::default();
    let (mut loaders, mut selectors) = (Vec::new(), Vec::new());
    for table in root.tables("loader", KEYS)? {
        let place = match table.get("host") {
            None => LoaderAddress::Host(HostAddress::Local),
            Some(item) => {
                let place: LoaderAddress = item
                    .text()?
                    .parse()
                    .map_err(|error: LoaderAddressError| item.bad_value(&error.reason()))?;
                names.add("loader", &place.to_string(), &item, source)?;
                place
            }
        };
        // Without a host, the table itself is in the wrong place.
        if table.get("host").is_none() && loaders.iter().any(is_local) {
            return Err(table.missing("host"));
        }
        if loaders.len() + selectors.len() == LOADERS_MAX {
            let item = table.need("host")?;
            return Err(item.bad_value(&format!("a study has at most {LOADERS_MAX} loaders")));
        }
        let address = table.get("address").map(|item| {
            let text = item.text()?;
            text.parse().map_err(|_| item.wrong_type("an IP address such as \"10.0.0.5\""))
        });
        let address = address.transpose()?;
        let is_here = place == LoaderAddress::Host(HostAddress::Local);
        if let Some(item) = table.get("address").filter(|_| is_here) {
            return Err(item.bad_value("only a loader on another host sees an address"));
        }
        let cpus = table.cpus("cpus")?;
        if let Some(item) =
            table.get("cpus").filter(|_| cpus.as_ref().is_some_and(CpuSet::is_empty))
        {
            return Err(item.bad_value("a loader needs a CPU"));
        }
        let count = table.get("count").map(|item| Ok((item.whole(1..=LOADERS_MAX as u64)?, item)));
        match (place, count.transpose()?) {
            (LoaderAddress::Host(_), Some((_, item))) => {
                return Err(
                    item.bad_value("only a selector of nodes (pods:LABEL=VALUE) has a count")
                );
            }
            (LoaderAddress::Host(host), None) => loaders.push(LoaderSpec { host, cpus, address }),
            (LoaderAddress::Nodes(nodes), count) => {
                let count = count.and_then(|(count, _)| usize::try_from(count).ok());
                selectors.push(LoaderSelector { nodes, count, cpus, address });
            }
        }
    }
    Ok((loaders, selectors))
}

fn is_local(loader: &LoaderSpec) -> bool {
    loader.host == HostAddress::Local
}

/// Refuses a workload that cannot be divided among so many loaders.
pub(super) fn check_division(
    loaders: usize,
    workload: &WorkloadSpec,
    table: &Table<'_>,
) -> Result<(), StudyError> {
    let count = u32::try_from(loaders).unwrap_or(u32::MAX);
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
