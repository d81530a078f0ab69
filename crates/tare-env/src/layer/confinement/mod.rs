//! The layers of a process's rights and memory: `security.capabilities`, `user`, `apparmor`,
//! `memory.pages` and `memory.node`.
//!
//! Method: an OCI runtime or an engine is asked for capabilities, user namespace and profile; a
//! plain process gets them from `nsenter`, `setpriv` and `aa-exec`, which become the program. The
//! flag for huge pages is set by Tare's program, the first in every environment, as a variable of
//! its environment says; whatever it starts inherits it (prctl(2)). A NUMA node is a cpuset or a
//! memory policy, as that of the cpu layer. All of it is read back in /proc/PID.
//!
//! The data of a system in a user namespace is an id-mapped mount of its directory
//! (`tare_host::user_namespace`), so the files on the disk keep the owners that they have in every
//! other environment.

use std::fs;
use std::path::{Path, PathBuf};

use tare_host::exec::{self, ExecError};
use tare_host::journal::Entry;
use tare_host::user_namespace::{UserNamespace, UserNamespaceError};
use tare_host::{RUN_VARIABLE, memory_policy, process};
use tare_lab::PartError;
use tare_lab::environment::{EnvironmentSpec, LayerState};
use tare_lab::layer::{Apparmor, Capabilities, Confinement, Layer, Pages, User};
use tare_std::cpus::CpuSet;

use crate::run_context::RunContext;

pub(crate) mod apparmor;
pub(crate) mod huge_pages;

/// The directory of a start at which the data is mounted with the ids of a user namespace.
const MAPPED: &str = "mapped";

/// Why a layer cannot be had on this host.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    #[error(
        "environment {environment:?}: apparmor = \"{value}\" needs AppArmor, which this kernel does not have \
         or has switched off (no Y in {}); boot a kernel with it, or set apparmor = \"none\"",
        apparmor::ENABLED
    )]
    NoApparmor { environment: String, value: Apparmor },
    #[error(
        "environment {environment:?}: {layer} needs the program {program}; apt-get install {package}"
    )]
    NoProgram {
        environment: String,
        layer: &'static str,
        program: &'static str,
        package: &'static str,
    },
    #[error(
        "environment {environment:?}: memory.node = {node} is no NUMA node with memory; this host has {known}"
    )]
    NoNode { environment: String, node: u32, known: String },
    #[error(
        "environment {environment:?}: memory.pages = \"{pages}\" needs CONFIG_TRANSPARENT_HUGEPAGE, which this \
         kernel does not have; set memory.pages = \"host\""
    )]
    NoHugePages { environment: String, pages: Pages },
    #[error(
        "environment {environment:?}: user = \"namespace\" needs its data in a directory and a read-only root, \
         because only a directory can be mounted with other owners; choose another storage or rootfs"
    )]
    NoMappedData { environment: String },
    #[error("cannot load the AppArmor profile {name}")]
    Load { name: String, source: ExecError },
    #[error(transparent)]
    User(#[from] UserNamespaceError),
}

/// Checks that this host has what the layers of an environment need.
///
/// # Errors
/// Names what it lacks.
pub fn check_host(spec: &EnvironmentSpec) -> Result<(), ConfinementError> {
    let (confinement, environment) = (spec.confinement, || spec.name.clone());
    let is_process = spec.runtime.is_process();
    let value = confinement.apparmor;
    if value != Apparmor::None && !apparmor::is_there() {
        return Err(ConfinementError::NoApparmor { environment: environment(), value });
    }
    let has_profile = value == Apparmor::Default;
    let programs = [
        (has_profile, Layer::Apparmor, apparmor::PARSER, "apparmor"),
        (has_profile && is_process, Layer::Apparmor, "aa-exec", "apparmor"),
        (confinement.user == User::Namespace, Layer::User, "unshare", "util-linux"),
        (confinement.user == User::Namespace && is_process, Layer::User, "nsenter", "util-linux"),
        (
            confinement.capabilities == Capabilities::None && is_process,
            Layer::Capabilities,
            "setpriv",
            "util-linux",
        ),
    ];
    for (needed, layer, program, package) in programs {
        if needed && exec::find(program).is_none() {
            let (environment, layer) = (environment(), layer.name());
            return Err(ConfinementError::NoProgram { environment, layer, program, package });
        }
    }
    if confinement.pages != Pages::Host && !huge_pages::are_there() {
        let pages = confinement.pages;
        return Err(ConfinementError::NoHugePages { environment: environment(), pages });
    }
    let nodes = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    let nodes = CpuSet::parse_list(nodes.trim()).unwrap_or_default();
    match confinement.node {
        Some(node) if !nodes.iter().any(|one| one == node) => {
            let known = if nodes.is_empty() { "none".into() } else { nodes.to_string() };
            Err(ConfinementError::NoNode { environment: environment(), node, known })
        }
        _ => Ok(()),
    }
}

/// Checks that the data of an environment can be mounted with other owners, if it must be.
///
/// # Errors
/// When it is a device, in a volume, or in a root file system that the system writes.
pub(crate) fn check_data(spec: &EnvironmentSpec, mappable: bool) -> Result<(), ConfinementError> {
    match spec.confinement.user {
        User::Namespace if !mappable => {
            Err(ConfinementError::NoMappedData { environment: spec.name.clone() })
        }
        _ => Ok(()),
    }
}

/// What exists on the host for one start.
#[derive(Debug, Default)]
pub(crate) struct Confined {
    namespace: Option<UserNamespace>,
    profile: Option<String>,
    capabilities: Capabilities,
}

/// Returns the name of the profile of a start, if it has one.
fn profile(context: &RunContext, number: u32, confinement: Confinement) -> Option<String> {
    let name = || format!("{}-e{number}", context.prefix());
    (confinement.apparmor == Apparmor::Default).then(name)
}

/// Returns the journal entries of what `Confined::make` makes. The mount of the data goes with the
/// directory of the start.
pub(crate) fn entries(
    context: &RunContext,
    number: u32,
    confinement: Confinement,
) -> Option<Entry> {
    profile(context, number, confinement).map(|name| apparmor::entry(&name))
}

impl Confined {
    /// Makes what a start needs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn make(
        context: &RunContext,
        number: u32,
        confinement: Confinement,
    ) -> Result<Self, PartError> {
        let profile = profile(context, number, confinement);
        if let Some(name) = &profile {
            apparmor::load(name)
                .map_err(|source| ConfinementError::Load { name: name.clone(), source })?;
        }
        let namespace = match confinement.user {
            User::Namespace => Some(UserNamespace::make((RUN_VARIABLE, context.run()))?),
            User::Host => None,
        };
        Ok(Self { namespace, profile, capabilities: confinement.capabilities })
    }

    /// Mounts the data with the ids of the system, if they are not the host's. Returns where the
    /// system has it.
    ///
    /// # Errors
    /// When the file system cannot be mounted so.
    pub(crate) fn data(&self, folder: &Path, data: PathBuf) -> Result<PathBuf, ConfinementError> {
        let shown = self.shown(folder, &data);
        self.namespace.as_ref().map_or(Ok(()), |namespace| namespace.mount(&data, &shown))?;
        Ok(shown)
    }

    /// Returns the directory at which the system has its data.
    pub(crate) fn shown(&self, folder: &Path, data: &Path) -> PathBuf {
        self.namespace.as_ref().map_or_else(|| data.to_path_buf(), |_| folder.join(MAPPED))
    }

    /// Returns the name of the profile, if there is one.
    pub(crate) fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// Returns the words before a plain process's program.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(namespace) = &self.namespace {
            words.extend(["nsenter".into(), format!("--user={}", namespace.path().display())]);
            words.extend(["--setuid=0", "--setgid=0", "--"].map(String::from));
        }
        if self.capabilities == Capabilities::None {
            let none = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--"];
            words.push("setpriv".into());
            words.extend(none.map(String::from));
        }
        if let Some(profile) = &self.profile {
            words.extend(["aa-exec", "-p", profile, "--"].map(String::from));
        }
        words
    }
}

/// Reads back every layer that an environment sets. `pids` are the processes of the system, the
/// first one at the front.
pub(crate) fn read(confinement: Confinement, pids: &[u32]) -> Vec<LayerState> {
    let mut states = Vec::new();
    let mut add = |layer: Layer, wanted: String, (found, in_force): (String, bool)| {
        let in_force = in_force && !pids.is_empty();
        states.push(LayerState { layer: layer.name().into(), wanted, found, in_force });
    };
    let first = pids.first().copied().unwrap_or_default();
    if confinement.capabilities == Capabilities::None {
        let wanted = confinement.capabilities.to_string();
        add(Layer::Capabilities, wanted, read_capabilities(pids));
    }
    if confinement.user == User::Namespace {
        add(Layer::User, confinement.user.to_string(), read_user(first));
    }
    if confinement.apparmor != Apparmor::None {
        let wanted = confinement.apparmor;
        let found = profile_of(first).unwrap_or("unreadable".into());
        let in_force = is_profile(wanted, &found);
        add(Layer::Apparmor, wanted.to_string(), (found, in_force));
    }
    if confinement.pages != Pages::Host {
        let wanted = confinement.pages.to_string();
        add(Layer::Pages, wanted, read_pages(confinement.pages, pids));
    }
    if let Some(node) = confinement.node {
        add(Layer::Node, node.to_string(), read_node(node, pids));
    }
    states
}

/// Returns the sets of capabilities, and whether all are empty.
fn read_capabilities(pids: &[u32]) -> (String, bool) {
    const SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let field = |pid: u32, set: &str| {
        process::status_field(pid, set).unwrap_or_else(|| "unreadable".into())
    };
    let is_empty = |text: &str| u64::from_str_radix(text, 16) == Ok(0);
    let in_force = pids.iter().all(|pid| SETS.iter().all(|set| is_empty(&field(*pid, set))));
    let first = pids.first().copied().unwrap_or_default();
    let found: Vec<String> =
        SETS.iter().map(|set| format!("{set}: {}", field(first, set))).collect();
    (found.join(", "), in_force)
}

/// Returns the map of the process's user namespace, and whether its root is an id without rights.
fn read_user(pid: u32) -> (String, bool) {
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).unwrap_or_default();
    let own = process::namespace_inode(std::process::id(), "user");
    let inside = process::namespace_inode(pid, "user");
    let uid = process::status_field(pid, "Uid").unwrap_or_default();
    let uid = uid.split_whitespace().next().unwrap_or("unreadable").to_string();
    let words: Vec<&str> = map.split_whitespace().collect();
    // A kubelet chooses another id than Tare (`FIRST_ID`).
    let in_force = inside.is_some()
        && inside != own
        && words.first() == Some(&"0")
        && words.get(1) == Some(&uid.as_str())
        && uid != "0";
    (format!("uid_map: {}; user {uid} of the host", words.join(" ")), in_force)
}

/// Returns the AppArmor profile of a process with its mode, such as `tare-ab12-e0 (enforce)`.
pub(crate) fn profile_of(pid: u32) -> Option<String> {
    let read = |path: &str| fs::read_to_string(format!("/proc/{pid}/attr/{path}"));
    let found = read("apparmor/current").or_else(|_| read("current")).unwrap_or_default();
    let found = found.trim().trim_end_matches('\0');
    (!found.is_empty()).then(|| found.to_string())
}

/// Returns whether a profile is the wanted one and enforced. `unconfined` has no mode.
fn is_profile(wanted: Apparmor, found: &str) -> bool {
    let is_ours = found.starts_with("tare-");
    match wanted {
        Apparmor::None => found == "unconfined",
        Apparmor::Default => is_ours && found.ends_with(" (enforce)"),
        Apparmor::Runtime => !is_ours && found.ends_with(" (enforce)"),
    }
}

/// Returns what the processes show of their huge pages, and whether it is what was wanted.
fn read_pages(pages: Pages, pids: &[u32]) -> (String, bool) {
    let flag = |pid: &u32| process::status_field(*pid, "THP_enabled").unwrap_or_default();
    let huge_kib: u64 = pids.iter().map(|pid| huge_pages_kib(*pid)).sum();
    let enabled: Vec<String> = pids.iter().map(flag).collect();
    let mut found = format!("THP_enabled: {}, AnonHugePages: {huge_kib} kB", enabled.join(" "));
    let all = |value: &str| enabled.iter().all(|flag| flag == value);
    let in_force = match pages {
        Pages::Host => true,
        Pages::Never => all("0") && huge_kib == 0,
        Pages::Always => all("1"),
        Pages::Madvise => {
            let unasked: usize = pids.iter().map(|pid| eligible_unasked(*pid)).sum();
            found += &format!(", mappings eligible without madvise: {unasked}");
            all("1") && unasked == 0
        }
    };
    (found, in_force)
}

/// Returns the anonymous memory of a process in huge pages, in KiB.
fn huge_pages_kib(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Returns how many mappings of a process may have huge pages without having asked for them.
fn eligible_unasked(pid: u32) -> usize {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    unasked(&text)
}

fn unasked(smaps: &str) -> usize {
    let (mut eligible, mut count) = (false, 0);
    for line in smaps.lines() {
        if let Some(value) = line.strip_prefix("THPeligible:") {
            eligible = value.trim() == "1";
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            count += usize::from(eligible && !flags.split_whitespace().any(|flag| flag == "hg"));
            eligible = false;
        }
    }
    count
}

/// Returns the nodes of the processes' memory, and whether all are bound to the wanted one.
fn read_node(node: u32, pids: &[u32]) -> (String, bool) {
    let wanted: CpuSet = [node].into_iter().collect();
    let (mut seen, mut in_force): (Vec<String>, _) = (Vec::new(), true);
    for pid in pids {
        let allowed = memory_policy::allowed_nodes(*pid).unwrap_or_default();
        let policy = memory_policy::policy(*pid).unwrap_or_else(|| "unreadable".into());
        in_force &= allowed == wanted || policy == format!("bind:{node}");
        let maps = fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap_or_default();
        let pages: u64 = maps
            .split_whitespace()
            .filter_map(|word| word.strip_prefix(&format!("N{node}="))?.parse::<u64>().ok())
            .sum();
        seen.push(format!("Mems_allowed_list: {allowed}, policy {policy}, N{node}: {pages} pages"));
    }
    (seen.join(" | "), in_force)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_that_did_not_ask_are_counted() {
        let smaps = "a\nTHPeligible:    1\nVmFlags: rd wr hg \nb\nTHPeligible:  1\nVmFlags: rd wr\n\
                     c\nTHPeligible:  0\nVmFlags: rd\n";
        assert_eq!(unasked(smaps), 1);
    }

    #[test]
    fn profiles_are_told_by_name_and_mode() {
        for (found, in_force) in [
            ("unconfined", [true, false, false]),
            ("tare-ab12-e0 (enforce)", [false, true, false]),
            ("tare-ab12-e0 (complain)", [false, false, false]),
            ("cri-containerd.apparmor.d (enforce)", [false, false, true]),
            ("unreadable", [false, false, false]),
        ] {
            let all = [Apparmor::None, Apparmor::Default, Apparmor::Runtime];
            assert_eq!(all.map(|wanted| is_profile(wanted, found)), in_force, "{found}");
        }
    }

    #[test]
    fn this_process_is_not_confined() {
        let pids = [std::process::id()];
        let (found, in_force) = read_user(pids[0]);
        assert!(!in_force, "{found}");
        let all = Confinement {
            capabilities: Capabilities::None,
            user: User::Namespace,
            apparmor: Apparmor::Default,
            pages: Pages::Never,
            node: Some(1023),
        };
        let states = read(all, &pids);
        let names: Vec<&str> = states.iter().map(|state| state.layer.as_str()).collect();
        let expect = ["security.capabilities", "user", "apparmor", "memory.pages", "memory.node"];
        assert_eq!(names, expect);
        for state in states.iter().filter(|state| state.layer != "security.capabilities") {
            assert!(!state.in_force, "{state:?}");
        }
        assert!(read(Confinement::default(), &pids).is_empty());
        assert!(read(all, &[]).iter().all(|state| !state.in_force));
    }

    #[test]
    fn a_plain_process_gets_its_rights_from_programs() {
        let none = Confined { capabilities: Capabilities::None, ..Confined::default() };
        assert_eq!(none.words().first().map(String::as_str), Some("setpriv"));
        assert!(Confined::default().words().is_empty());
    }
}
