//! The hosts of a study's system: each runs one instance.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tare_std::host_address::{HostAddress, HostAddressError, RemoteAddress};
use tare_toml::{Item, Table};

use super::{StudyError, SystemSpec};
use crate::environment::INSTANCES;

/// The key of `[system]`.
pub(super) const KEY: &str = "hosts";
/// The most hosts of a system: each has a thread and a connection here.
pub const HOSTS_MAX: usize = 64;

/// A host that runs an instance of the system. As text: `ssh:db1`, `kubernetes:node1`, or with an
/// address `ssh:db1=10.0.0.5`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemHost {
    pub host: HostAddress,
    /// The address at which clients and the other instances reach the instance. `None`: the one by
    /// which ssh reached the host, or the one of the node in its cluster.
    pub address: Option<Ipv4Addr>,
}

/// Text is not a host of a system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SystemHostError {
    #[error(transparent)]
    Host(#[from] HostAddressError),
    #[error("{text:?} is not an IPv4 address of {host}; write {host}=10.0.0.5")]
    Address { host: HostAddress, text: String },
    #[error("{host} needs its address for the other hosts; write {host}=10.0.0.5")]
    NoAddress { host: HostAddress },
    #[error("pod:{node} only loads a system; write kubernetes:{node} for its node")]
    Pod { node: String },
}

/// Why a system cannot run on these hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    #[error("{host} is named twice; each host runs one instance")]
    Twice { host: String },
    #[error("instances = {instances}, and there are {hosts} hosts; each host runs one instance")]
    Count { instances: String, hosts: usize },
    #[error("a system has at most {HOSTS_MAX} hosts")]
    Many,
}

impl SystemSpec {
    /// Returns how many instances its options ask for, if that is a number: 1 unless they say, and
    /// the least of a cluster is 2.
    pub(super) fn instances(&self) -> Option<u32> {
        let option = |wanted: &str| self.options.iter().find(|(name, _)| name == wanted);
        match option(INSTANCES) {
            Some((_, count)) => count.parse().ok(),
            None => Some(match option("cluster") {
                Some((_, value)) if value == "true" => 2,
                _ => 1,
            }),
        }
    }

    /// Sets the number of instances to that of the hosts.
    ///
    /// # Errors
    /// If it is set to another, or a host is named twice.
    pub fn on_hosts(&mut self, hosts: &[SystemHost]) -> Result<(), HostsError> {
        if hosts.len() > HOSTS_MAX {
            return Err(HostsError::Many);
        }
        for (number, one) in hosts.iter().enumerate() {
            if hosts[..number].iter().any(|other| other.host == one.host) {
                return Err(HostsError::Twice { host: one.host.to_string() });
            }
        }
        let count = hosts.len().to_string();
        match self.options.iter().find(|(name, _)| name == INSTANCES) {
            Some((_, instances)) if *instances != count => {
                Err(HostsError::Count { instances: instances.clone(), hosts: hosts.len() })
            }
            Some(_) => Ok(()),
            None => {
                self.options.push((INSTANCES.into(), count));
                Ok(())
            }
        }
    }
}

impl FromStr for SystemHost {
    type Err = SystemHostError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, address) = match text.split_once('=') {
            Some((host, address)) => (host, Some(address)),
            None => (text, None),
        };
        let host: HostAddress = host.parse()?;
        let parse = |text: &str| {
            let (host, shown) = (host.clone(), text.to_string());
            text.parse().map_err(|_| SystemHostError::Address { host, text: shown })
        };
        let address = address.map(parse).transpose()?;
        match (&host, address) {
            // This host has several addresses, and ssh chooses none of them.
            (HostAddress::Local, None) => Err(SystemHostError::NoAddress { host }),
            (HostAddress::Remote(RemoteAddress::Pod(node)), _) => {
                Err(SystemHostError::Pod { node: node.to_string() })
            }
            _ => Ok(Self { host, address }),
        }
    }
}

impl fmt::Display for SystemHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{}={address}", self.host),
            None => self.host.fmt(f),
        }
    }
}

impl Serialize for SystemHost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SystemHost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Reads `hosts` of `[system]`, and sets the number of instances.
pub(super) fn read(
    item: &Item<'_>,
    system: &mut SystemSpec,
) -> Result<Vec<SystemHost>, StudyError> {
    let table: Table<'_> = item.open_table("[system]")?;
    let Some(item) = table.get(KEY) else { return Ok(Vec::new()) };
    let list = item.list().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| item.wrong_type("a list such as [\"ssh:db1\", \"ssh:db2\"]"))?;
    let host = |one: &Item<'_>| {
        let parsed: Result<SystemHost, SystemHostError> = one.text()?.parse();
        parsed.map_err(|error| one.bad_value(&error.to_string()))
    };
    let hosts: Vec<SystemHost> = list.iter().map(host).collect::<Result<_, _>>()?;
    system.on_hosts(&hosts).map_err(|error| item.bad_value(&error.to_string()))?;
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_addresses() {
        let check = |text: &str, expect: Result<Option<&str>, &str>| {
            let found = text.parse::<SystemHost>();
            match (found, expect) {
                (Ok(host), Ok(address)) => {
                    assert_eq!(host.address.map(|one| one.to_string()).as_deref(), address);
                    assert_eq!(host.to_string(), text);
                }
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (found, expect) => panic!("{text}: {found:?}, {expect:?}"),
            }
        };
        check("ssh:db1", Ok(None));
        check("ssh:root@db1:2222=10.0.0.5", Ok(Some("10.0.0.5")));
        check("local=10.0.0.1", Ok(Some("10.0.0.1")));
        check("local", Err("local=10.0.0.5"));
        check("ssh:db1=db1", Err("not an IPv4 address of ssh:db1"));
        check("db1", Err("it has no kind"));
        check("kubernetes:n1", Ok(None));
        check("kubernetes:prod/n1=10.0.0.5", Ok(Some("10.0.0.5")));
        check("pod:n1", Err("write kubernetes:n1 for its node"));
    }

    #[test]
    fn each_host_runs_one_instance() {
        let hosts = |names: &[&str]| -> Vec<SystemHost> {
            names.iter().map(|name| name.parse().unwrap()).collect()
        };
        let set = |options: &[(&str, &str)], names: &[&str]| {
            let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            let mut spec = SystemSpec { name: "tare-db".into(), options };
            spec.on_hosts(&hosts(names)).map(|()| spec.options).map_err(|error| error.to_string())
        };
        let pair = |count: &str| ("instances".to_string(), count.to_string());
        assert_eq!(set(&[], &["ssh:a", "ssh:b"]), Ok(vec![pair("2")]));
        assert_eq!(set(&[("instances", "2")], &["ssh:a", "ssh:b"]), Ok(vec![pair("2")]));
        assert!(set(&[("instances", "3")], &["ssh:a"]).unwrap_err().contains("one instance"));
        assert!(set(&[], &["ssh:a", "ssh:a"]).unwrap_err().contains("twice"));
    }
}
