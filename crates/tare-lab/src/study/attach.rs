//! Reads `attach` of `[[environment]]`: a system that runs already.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{DataStart, ScheduleKind, ScheduleSpec, StudyError, SystemHost, SystemSpec};
use crate::attach::{self, Attach, AttachTarget, BadTarget, PID_MAX};
use crate::environment::EnvironmentSpec;
use crate::layer::Network;
use tare_toml::{Item, Table};

pub(super) const KEY: &str = "attach";
/// The keys that an environment may have beside it.
const BESIDE: &[&str] = &["name", "optional", KEY];
/// The keys that say which processes are the system: one of them.
const TARGETS: &[&str] = &["unit", "container", "compose", "pid", "cgroup", POD];
/// A pod, beside which `container` is the name of one of its containers.
const POD: &str = "pod";
/// The keys that only a pod has.
const OF_POD: &[&str] = &["port"];

/// Reads `attach = { unit = "redis.service", address = "127.0.0.1:6379" }`. `keys` are those of an
/// environment.
pub(super) fn read(table: &Table<'_>, keys: &[&str]) -> Result<Option<Attach>, StudyError> {
    let Some(item) = table.get(KEY) else { return Ok(None) };
    for key in keys.iter().filter(|key| !BESIDE.contains(key)) {
        table.exclusive(key, KEY, "an attached system runs already; Tare reads its layers")?;
    }
    let own = ["address", "data", "read_only"];
    let written = item.table(KEY, &[&own, OF_POD, TARGETS].concat())?;
    let pod = written.get(POD);
    let is_target = |item: &Item<'_>| item.key() != "container" || pod.is_none();
    let mut targets = TARGETS.iter().filter_map(|key| written.get(key)).filter(is_target);
    let (Some(target), None) = (targets.next(), targets.next()) else {
        return Err(item.bad_value(
            "say which processes are the system by one of unit, container, compose, pid, cgroup and pod",
        ));
    };
    let target = match &pod {
        Some(pod) => read_pod(pod, written.get("container").as_ref())?,
        None => read_target(&target)?,
    };
    Ok(Some(Attach {
        target,
        address: read_address(&written, pod.is_some())?,
        data: written.get("data").map(|item| absolute(&item)).transpose()?,
        read_only: written.flag("read_only")?,
    }))
}

/// Reads the address, which a pod has itself.
fn read_address(written: &Table<'_>, is_pod: bool) -> Result<SocketAddr, StudyError> {
    let port = written.get("port");
    if let (Some(port), false) = (&port, is_pod) {
        return Err(port.bad_value("a port alone is that of a pod; write address = \"IP:PORT\""));
    }
    if is_pod && written.get("address").is_none() {
        let port = port.map(|port| port.whole(1..=u64::from(u16::MAX))).transpose()?;
        return Ok(Attach::of_pod(port.and_then(|port| u16::try_from(port).ok())));
    }
    if let Some(port) = port {
        return Err(port.bad_value("the address has a port already; leave out one of the two"));
    }
    let address = written.need("address")?;
    let found: Option<SocketAddr> = address.text()?.parse().ok();
    let found = found.filter(|found| !is_pod || !found.ip().is_unspecified());
    let why = "an address is an IP address and a port, such as 10.0.0.5:9042";
    found.ok_or_else(|| address.bad_value(why))
}

/// Reads `pod = "NAMESPACE/NAME"` and the name of the container beside it.
fn read_pod(pod: &Item<'_>, container: Option<&Item<'_>>) -> Result<AttachTarget, StudyError> {
    let text = pod.text()?;
    let whole = checked(pod, AttachTarget::pod(text, None))?;
    match container {
        Some(item) => checked(item, AttachTarget::pod(text, Some(item.text()?))),
        None => Ok(whole),
    }
}

fn read_target(item: &Item<'_>) -> Result<AttachTarget, StudyError> {
    match item.key() {
        "pid" => {
            let pid = item.whole(1..=u64::from(PID_MAX))?;
            Ok(AttachTarget::Pid(u32::try_from(pid).unwrap_or(PID_MAX)))
        }
        "cgroup" => checked(item, AttachTarget::cgroup(item.text()?)),
        "unit" => checked(item, AttachTarget::unit(item.text()?)),
        "compose" => checked(item, AttachTarget::compose(item.text()?)),
        _ => checked(item, AttachTarget::container(item.text()?)),
    }
}

/// Reads an absolute path without `..`.
fn absolute(item: &Item<'_>) -> Result<PathBuf, StudyError> {
    checked(item, attach::absolute(item.text()?))
}

/// Adds the place in the study to an error.
fn checked<T>(item: &Item<'_>, read: Result<T, BadTarget>) -> Result<T, StudyError> {
    read.map_err(|BadTarget(why)| item.bad_value(why))
}

/// Why systems that run already cannot be attached to on these hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachedHostError {
    #[error("{target} runs on one host, and hosts of [system] has {hosts}; name that one alone")]
    Several { target: AttachTarget, hosts: usize },
    #[error(
        "{target} is found through the API of its cluster; leave hosts out, and use --on kubernetes:NODE"
    )]
    Pod { target: AttachTarget },
    #[error(
        "{address} is an address of every host itself; write the one at which this host reaches {host}"
    )]
    Loopback { address: SocketAddr, host: String },
}

/// Checks that systems that run already are on the hosts of a study's system; on this host, if it
/// names none.
///
/// # Errors
/// If there are several hosts, or the client of this host cannot dial a system there.
pub(super) fn check_hosts<'a>(
    systems: impl IntoIterator<Item = &'a Attach>,
    hosts: &[SystemHost],
) -> Result<(), AttachedHostError> {
    for Attach { target, address, .. } in systems {
        let [host] = hosts else {
            match hosts.len() {
                0 => continue,
                hosts => return Err(AttachedHostError::Several { target: target.clone(), hosts }),
            }
        };
        if matches!(target, AttachTarget::Pod { .. }) {
            return Err(AttachedHostError::Pod { target: target.clone() });
        }
        let is_own = address.ip().is_loopback() || address.ip().is_unspecified();
        if is_own && host.host.remote().is_some() {
            let host = host.host.to_string();
            return Err(AttachedHostError::Loopback { address: *address, host });
        }
    }
    Ok(())
}

/// The parts of a study that an attached environment restricts.
pub(super) struct Around<'a> {
    pub(super) environments: &'a [EnvironmentSpec],
    pub(super) schedule: &'a ScheduleSpec,
    pub(super) system: &'a SystemSpec,
    /// Those of the system.
    pub(super) hosts: &'a [SystemHost],
    /// Whether other hosts load the system.
    pub(super) has_loaders: bool,
}

/// Refuses what a study with an attached environment cannot have.
pub(super) fn check(tables: &[Table<'_>], around: &Around<'_>) -> Result<(), StudyError> {
    let Around { environments, schedule, system, hosts, has_loaders } = around;
    let all = tables.iter().zip(*environments);
    let attached: Vec<(&Table<'_>, &Attach)> =
        all.filter_map(|(table, spec)| Some((table, spec.attach.as_ref()?))).collect();
    let Some((table, first)) = attached.first() else { return Ok(()) };
    let refuse = |why: &str| Err(table.need(KEY)?.bad_value(why));
    if schedule.kind != ScheduleKind::Slices || schedule.data != DataStart::Loaded {
        return refuse(
            "Tare does not start an attached system; leave out kind = \"trials\" and data = \"restored\" of [schedule]",
        );
    }
    if schedule.restarts > 0 {
        return refuse(
            "Tare does not restart an attached system; leave out restarts of [schedule]",
        );
    }
    if *has_loaders && hosts.is_empty() {
        return refuse(
            "the client of an attached system of this host is on this host; leave out [[loader]]",
        );
    }
    if let Err(error) = check_hosts(attached.iter().map(|(_, attach)| *attach), hosts) {
        return refuse(&error.to_string());
    }
    if system.instances().is_some_and(|count| count > 1) {
        return refuse("an attached system is one instance; leave out instances of [system]");
    }
    for (table, spec) in tables.iter().zip(*environments) {
        if spec.attach.is_none() && spec.network != Network::Host {
            let why = "the client of an attached system is in the host's network namespace, which \
                       reaches only network = \"host\"";
            return Err(table.need("name")?.bad_value(why));
        }
        if !spec.host.is_as_is() {
            let why = "tuning the host would change the attached system too; leave out host";
            return Err(table.need("name")?.bad_value(why));
        }
    }
    let alike = |(_, attach): &(&Table<'_>, &Attach)| attach.read_only == first.read_only;
    if !attached.iter().all(alike) || (first.read_only && attached.len() < environments.len()) {
        return refuse(
            "the load is the same everywhere: every environment of a study is attached with read_only = true, or none is",
        );
    }
    Ok(())
}
