//! Finds other programs that tune this host: irqbalance, tuned, kubelet, the Scylla operator's
//! NodeConfig, cri-o, cloud agents, files that are applied at boot, leftovers of perftune.py.
//!
//! Each is found by evidence on the host: a process, a file, a setting. Settings of an operator of
//! a cluster are its own: it sets them again, so a plan leaves them out
//! ([`OwnedSettings::decided_in`]). All others are named beside the change.
//!
//! Limits: a program that tunes from a container or over ssh and leaves no file is not found;
//! neither is a job of a cluster that has not run on this host yet. The cgroup of a pod has its id,
//! not its name, so pods are known by the folders of their logs
//! (`/var/log/pods/NAMESPACE_NAME_ID`).

mod collect;
mod files;
mod perftune;
mod settings;
mod tuned;

use tare_std::cpus::CpuSet;

use super::{Machine, kubelet};
use crate::irqbalance::{Setup, options_file::OptionsFile};
use crate::snapshot::Snapshot;

pub use collect::describe;

/// Another program that writes a setting.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    /// `irqbalance`, `tuned`, `kubelet`, `NodeConfig`, `the kernel`, ...
    pub name: String,
    /// The evidence for it: `/run/irqbalance/irqbalance512.sock`.
    pub evidence: String,
    /// What it does to the setting: `moves interrupts every 10 s unless they are banned`.
    pub effect: String,
}

/// The owners in a snapshot, those that write soonest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    pub list: Vec<OwnedSettings>,
}

/// An owner with the settings that it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedSettings {
    pub owner: Owner,
    /// Names of the knobs that it also writes.
    pub knobs: Vec<&'static str>,
    /// The sysctls that it writes, for the knob `sysctls`; empty: any of them.
    pub settings: Vec<String>,
    /// Where an administrator changes these settings, if the program decides about them on this
    /// host and a plan has to leave them out: `its NodeConfig object`.
    pub decided_in: Option<&'static str>,
}

/// An owner that a process or a file alone identifies.
struct Rule {
    name: &'static str,
    /// Names of processes, as a snapshot keeps them.
    processes: &'static [&'static str],
    /// Files that exist only where it is used.
    files: &'static [&'static str],
    effect: &'static str,
    knobs: &'static [&'static str],
    decided_in: Option<&'static str>,
}

const RULES: &[Rule] = &[
    Rule {
        // The log folder of a pod starts with its namespace; the operator tunes in this one.
        name: "NodeConfig of the Scylla operator",
        processes: &[],
        files: &["/var/log/pods/scylla-operator-node-tuning_*"],
        effect: "runs perftune.py in a job on this node for each new Scylla container",
        knobs: &[
            "irqbalance",
            "nic_channels",
            "nic_irqs",
            "rps",
            "rfs",
            "xps",
            "ntuple",
            "disk_irqs",
            "disk_scheduler",
            "disk_nomerges",
            "clock_source",
            "sysctls",
            "tcp_memory",
            "limits",
        ],
        decided_in: Some("its NodeConfig object"),
    },
    Rule {
        // crio.conf(5): irqbalance_config_file and irqbalance_config_restore_file.
        name: "cri-o",
        processes: &["crio"],
        files: &["/etc/sysconfig/orig_irq_banned_cpus"],
        effect: "edits irqbalance's file and restarts it, which loses the bans of its socket, for \
                 pods with the annotation irq-load-balancing.crio.io",
        knobs: &["irqbalance"],
        decided_in: None,
    },
    Rule {
        name: "kubelet",
        processes: &["kubelet", "k3s-server", "k3s-agent"],
        files: &["/var/lib/kubelet/config.yaml"],
        effect: "assigns CPUs to containers by cpuset, with the static CPU manager some exclusively; \
                 it does not move interrupts",
        knobs: &[],
        decided_in: None,
    },
    Rule {
        name: "Google guest agent",
        processes: &["google_guest_agent", "GCEGuestAgent"],
        files: &["/usr/bin/google_set_multiqueue"],
        effect: "sets channels, XPS, and the interrupts of network devices and disks to their hints, \
                 each time it starts",
        knobs: &["nic_channels", "nic_irqs", "xps", "disk_irqs"],
        decided_in: None,
    },
    Rule {
        name: "ec2sys-autotune",
        processes: &[],
        files: &["/etc/ec2sys-autotune.cfg"],
        effect: "applies its profile for the instance type at every boot",
        knobs: &["sysctls", "swap", "cpu_governor", "idle_states"],
        decided_in: None,
    },
    Rule {
        name: "power-profiles-daemon",
        processes: &["power-profiles-daemon"],
        files: &[],
        effect: "sets the energy preference when its profile changes",
        knobs: &["energy_preference"],
        decided_in: None,
    },
    Rule {
        name: "scylla-cpupower.service",
        processes: &[],
        files: &["/etc/systemd/system/scylla-cpupower.service"],
        effect: "sets the governor to performance at every boot",
        knobs: &["cpu_governor"],
        decided_in: None,
    },
    Rule {
        name: "redpanda-tuner.service",
        processes: &[],
        files: &[
            "/etc/systemd/system/redpanda-tuner.service",
            "/usr/lib/systemd/system/redpanda-tuner.service",
            "/lib/systemd/system/redpanda-tuner.service",
        ],
        effect: "runs `rpk redpanda tune` at every boot",
        knobs: &[
            "irqbalance",
            "nic_irqs",
            "rps",
            "rfs",
            "xps",
            "ntuple",
            "disk_irqs",
            "disk_scheduler",
            "disk_nomerges",
            "disk_write_cache",
            "clock_source",
            "cpu_governor",
            "idle_states",
            "swap",
            "sysctls",
            "transparent_hugepages",
        ],
        decided_in: None,
    },
];

impl Owners {
    /// Finds the owners in a snapshot.
    pub fn read(snapshot: &Snapshot) -> Self {
        let mut list = Vec::new();
        list.extend(irqbalance(snapshot));
        list.extend(RULES.iter().take(2).filter_map(|rule| rule.owner(snapshot)));
        list.extend(tuned::owner(snapshot));
        list.extend(perftune::owner(snapshot));
        list.extend(RULES.iter().skip(2).filter_map(|rule| rule.owner(snapshot)));
        let text = snapshot.read("/tare/owners/settings").unwrap_or_default();
        list.extend(settings::owners(text));
        Self { list }
    }

    /// Returns the first other program that writes this knob's settings.
    pub fn of(&self, knob: &str) -> Option<&Owner> {
        let mut owned = self.list.iter().filter(|owned| owned.knobs.contains(&knob));
        owned.next().map(|owned| &owned.owner)
    }

    /// Returns the first other program that writes one setting of a knob; `what` names it as in an
    /// item of a plan.
    pub fn of_setting(&self, knob: &str, what: &str) -> Option<&Owner> {
        self.list.iter().find(|owned| owned.writes(knob, what)).map(|owned| &owned.owner)
    }

    /// Returns the operator that decides about one setting of a knob, so that a plan leaves it out.
    pub fn deciding(&self, knob: &str, what: &str) -> Option<&OwnedSettings> {
        self.operators().find(|owned| owned.writes(knob, what))
    }

    /// Returns the operators that decide about some settings of this host.
    pub fn operators(&self) -> impl Iterator<Item = &OwnedSettings> {
        self.list.iter().filter(|owned| owned.decided_in.is_some())
    }
}

impl OwnedSettings {
    /// Returns what it sets in words: names of knobs, and of sysctls where they are known.
    pub fn described(&self) -> String {
        let words = |knob: &&'static str| match *knob {
            "sysctls" if !self.settings.is_empty() => self.settings.join(", "),
            knob => knob.to_string(),
        };
        match self.knobs.is_empty() {
            true => "nothing that Tare knows".into(),
            false => self.knobs.iter().map(words).collect::<Vec<_>>().join(", "),
        }
    }

    /// Whether it writes this setting of a knob.
    fn writes(&self, knob: &str, what: &str) -> bool {
        self.knobs.contains(&knob)
            && (knob != "sysctls"
                || self.settings.is_empty()
                || self.settings.iter().any(|setting| setting == what))
    }
}

impl Rule {
    fn owner(&self, snapshot: &Snapshot) -> Option<OwnedSettings> {
        let file = self.files.iter().find(|file| is_present(snapshot, file));
        let process = self.processes.iter().find(|process| runs(snapshot, process));
        let evidence = match (file, process) {
            (Some(file), _) => (*file).to_string(),
            (None, Some(process)) => format!("a process {process}"),
            (None, None) => return None,
        };
        let owner = Owner { name: self.name.into(), evidence, effect: self.effect.into() };
        Some(OwnedSettings {
            owner,
            knobs: self.knobs.to_vec(),
            settings: Vec::new(),
            decided_in: self.decided_in,
        })
    }
}

fn irqbalance(snapshot: &Snapshot) -> Option<OwnedSettings> {
    let pid = snapshot.read("/tare/irqbalance/pid")?;
    let setup = snapshot.read("/tare/irqbalance/setup").and_then(|text| Setup::parse(text).ok());
    let interval = setup.map_or("10 s".into(), |setup| format!("{} s", setup.interval_s));
    let socket = snapshot.read("/tare/irqbalance/socket").map(str::to_string);
    let owner = Owner {
        name: "irqbalance".into(),
        evidence: socket.unwrap_or_else(|| format!("process {pid}")),
        effect: format!("moves interrupts every {interval} unless they are banned"),
    };
    let knobs = vec!["nic_irqs", "disk_irqs"];
    Some(OwnedSettings { owner, knobs, settings: Vec::new(), decided_in: None })
}

/// Whether the Node Tuning Operator, which is part of OpenShift, has a pod on this host.
pub(crate) fn is_openshift(snapshot: &Snapshot) -> bool {
    is_present(snapshot, tuned::NODE_TUNING_OPERATOR)
}

/// Whether a process of this name was running.
fn runs(snapshot: &Snapshot, process: &str) -> bool {
    snapshot.exists(&format!("/tare/owners/process/{process}"))
}

/// Returns the files that exist, out of those that show another tuner.
fn present(snapshot: &Snapshot) -> impl Iterator<Item = &str> {
    snapshot.read("/tare/owners/present").unwrap_or_default().lines()
}

/// Whether a file that shows another tuner exists.
pub(crate) fn is_present(snapshot: &Snapshot, path: &str) -> bool {
    present(snapshot).any(|found| found == path)
}

/// Returns the notes of a plan about other programs that tune this host.
pub fn notes(
    snapshot: &Snapshot,
    machine: &Machine,
    irq: &CpuSet,
    compute: &CpuSet,
) -> Vec<String> {
    let mut notes = perftune::notes(snapshot, machine, irq);
    notes.extend(stale_bans(snapshot, machine));
    notes.extend(exclusive(snapshot, irq, compute));
    if let Some(process) = kubelet::inside_other_process(snapshot) {
        notes.push(format!(
            "{process} runs the kubelet inside itself, and Tare does not read its settings: there is \
             no advice about them"
        ));
    }
    notes
}

/// Returns a note about bans in irqbalance's file of interrupts that do not exist. Numbers change
/// at every boot.
fn stale_bans(snapshot: &Snapshot, machine: &Machine) -> Option<String> {
    if machine.interrupts.irqs.is_empty() {
        return None;
    }
    let file = OptionsFile::find(snapshot)?;
    let gone = |irq: &u32| !machine.interrupts.irqs.contains_key(irq);
    let stale: Vec<u32> = file.bans().into_iter().filter(gone).collect();
    if stale.is_empty() {
        return None;
    }
    let saved = format!("{}.scylla.orig", file.path);
    let by = match is_present(snapshot, &saved) {
        true => " by perftune.py, which adds bans at each boot and removes none",
        false => "",
    };
    Some(format!(
        "{}: interrupts {} are banned in irqbalance{by}, but do not exist now; numbers change at \
         every boot, so these bans can hit other interrupts later",
        file.path,
        crate::irqbalance::numbers(&stale),
    ))
}

/// Returns a note about interrupt CPUs that kubelet assigned exclusively to containers.
fn exclusive(snapshot: &Snapshot, irq: &CpuSet, compute: &CpuSet) -> Option<String> {
    let text = snapshot.read("/tare/owners/kubelet")?;
    let list = text.lines().find_map(|line| line.strip_prefix("exclusive "))?;
    let both = CpuSet::parse_list(list).ok()?.intersection(irq);
    (!both.is_empty() && irq != compute).then(|| {
        format!(
            "CPUs {both} take interrupts in this plan, but kubelet assigned them exclusively to \
             containers: choose others with --irq-cpus, or reserve them (reservedSystemCPUs)"
        )
    })
}

#[cfg(test)]
mod tests;
