//! What a plan does not know, because other hosts have a part in the study and a plan asks none.

use tare_lab::study::{LoaderSpec, Study};
use tare_std::host_address::HostAddress;

use super::resources::CpuGroup;

/// Returns the names of the hosts of the study's system; none if it runs on this host alone.
pub(super) fn hosts(study: &Study) -> Vec<String> {
    study.hosts.iter().map(|host| host.host.to_string()).collect()
}

/// Returns whether the study's system runs on hosts of its own, so that this host's runtimes,
/// memory and disk say nothing about it.
pub(super) fn has_hosts(study: &Study) -> bool {
    !study.hosts.is_empty()
}

/// Leaves the system's CPUs of this host out where no instance runs here.
pub(super) fn without_system(study: &Study, cpus: Vec<CpuGroup>) -> Vec<CpuGroup> {
    let is_here = !has_hosts(study) || study.hosts.iter().any(|h| h.host == HostAddress::Local);
    cpus.into_iter().filter(|group| is_here || group.name != "system").collect()
}

/// Returns what only the start of the study shows, one line each.
pub(super) fn not_known(study: &Study) -> Vec<String> {
    let mut lines = Vec::new();
    let others = study.hosts.iter().filter(|host| host.host != HostAddress::Local);
    let others: Vec<String> = others.map(|host| host.host.to_string()).collect();
    if !others.is_empty() {
        lines.push(format!(
            "{}: CPUs, memory, disk space, and which environments run there; a start is taken to \
             last as long as one here",
            others.join(", ")
        ));
    }
    let loaders = study.loaders.iter().filter(|loader| loader.host.remote().is_some());
    let loaders: Vec<String> = loaders.map(LoaderSpec::name).collect();
    if !loaders.is_empty() {
        lines.push(format!(
            "{}: whether they reach this host, their CPUs, and the network path",
            loaders.join(", ")
        ));
    }
    if !lines.is_empty() {
        // A pod says what its node says.
        let nodes = loaders.iter().map(|name| name.replacen("pod:", "kubernetes:", 1));
        let all: Vec<String> = others.into_iter().chain(nodes).collect();
        lines.push(format!(
            "tare doctor --on {} asks them; tare weigh --dry-run connects to no host",
            all.iter().map(|name| name.trim_start_matches("ssh:")).collect::<Vec<_>>().join(",")
        ));
    }
    lines
}
