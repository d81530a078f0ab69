//! New names for the study, its environments and workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use rusqlite::Transaction;

use super::words::keep_words;
use crate::study::{LoaderSpec, Study, control_name};
use tare_std::host_address::HostAddress;

/// Old names and the new ones. A name of known words stays.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, String>);

/// Returns the names of the neighbours of all environments.
fn neighbours(study: &Study) -> Vec<String> {
    let all = study.environments.iter().flat_map(|one| &one.neighbours);
    all.map(|one| one.name.clone()).collect()
}

impl Names {
    /// Reads every name of a record.
    pub(super) fn read(transaction: &Transaction<'_>) -> rusqlite::Result<Self> {
        let text = |sql: &str| -> rusqlite::Result<Vec<String>> {
            transaction.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
        };
        let study: Option<Study> = text("SELECT study FROM record")?
            .first()
            .and_then(|study| serde_json::from_str(study).ok());
        let of_study =
            |names: &dyn Fn(&Study) -> Vec<String>| study.as_ref().map_or(Vec::new(), names);
        let mut environments =
            of_study(&|study| study.environments.iter().map(|one| one.name.clone()).collect());
        environments.extend(text("SELECT baseline FROM record")?);
        environments.extend(text("SELECT name FROM environments ORDER BY id")?);
        let mut workloads =
            of_study(&|study| study.workloads.iter().map(|one| one.name.clone()).collect());
        workloads.extend(text("SELECT DISTINCT workload FROM slices")?);
        workloads.extend(text("SELECT workload FROM rates")?);
        let has_stacks = "SELECT name FROM sqlite_schema WHERE name = 'stack_slices'";
        if !text(has_stacks)?.is_empty() {
            workloads.extend(text("SELECT DISTINCT workload FROM stack_slices")?);
        }
        let mut names = Self::default();
        names.add("study", &text("SELECT study_name FROM record")?);
        names.add("environment", &environments);
        names.add("workload", &workloads);
        names.add("neighbour", &of_study(&neighbours));
        for loader in study.iter().flat_map(|study| &study.loaders) {
            names.add_loader(loader);
        }
        for attach in study.iter().flat_map(Study::attached) {
            names.add_attached(attach.address);
        }
        Ok(names)
    }

    fn add(&mut self, kind: &str, old: &[String]) {
        let mut used: BTreeSet<String> = self.0.values().cloned().collect();
        used.extend(old.iter().filter(|name| keep_words(name) == **name).cloned());
        for name in old {
            if self.0.contains_key(name) {
                continue;
            }
            // The second copy of the baseline keeps its name's relation to it.
            let copied = self.0.iter().find(|(known, _)| control_name(known) == *name);
            let new = match copied {
                _ if keep_words(name) == *name => name.clone(),
                Some((_, new)) => control_name(new),
                None => {
                    let numbered = (1..).map(|number| format!("{kind} {number}"));
                    let mut free = numbered.filter(|name| !used.contains(name));
                    free.next().unwrap_or_default()
                }
            };
            used.insert(new.clone());
            self.0.insert(name.clone(), new);
        }
    }

    /// Adds the host and the address of a loader. The study must still be one with the new ones:
    /// 192.0.2.0/24 is for documentation (RFC 5737).
    fn add_loader(&mut self, loader: &LoaderSpec) {
        let number = 1 + self.0.values().filter(|name| name.starts_with("ssh:loader")).count();
        if loader.host != HostAddress::Local {
            self.0.entry(loader.name()).or_insert_with(|| format!("ssh:loader{number}"));
        }
        if let Some(address) = loader.address {
            self.0.entry(address.to_string()).or_insert_with(|| format!("192.0.2.{number}"));
        }
    }

    /// Adds the address of an attached system, with its port.
    fn add_attached(&mut self, address: SocketAddr) {
        let number = 1 + self.0.values().filter(|name| name.starts_with("198.51.100.")).count();
        let new = || format!("198.51.100.{number}:{}", address.port());
        self.0.entry(address.to_string()).or_insert_with(new);
    }

    pub(super) fn new_name(&self, old: &str) -> Option<&str> {
        self.0.get(old).map(String::as_str)
    }

    /// The names as a JSON object, for SQLite.
    pub(super) fn as_json(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}
