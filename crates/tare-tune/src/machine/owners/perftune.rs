//! Finds what perftune.py left on a host, and what it will do at the next start of scylla-server.

use std::collections::BTreeMap;

use tare_std::cpus::CpuSet;

use super::{OwnedSettings, Owner, settings};
use crate::machine::Machine;
use crate::snapshot::Snapshot;

/// Its options: scylla_prepare writes them once and uses them at every later start.
const OPTIONS: &str = "/etc/scylla.d/perftune.yaml";

/// The knobs that perftune.py writes when it tunes network devices, and when it tunes disks.
const KNOBS_OF_NICS: &[&str] = &[
    "irqbalance",
    "nic_channels",
    "nic_irqs",
    "rps",
    "rfs",
    "xps",
    "ntuple",
    "sysctls",
    "tcp_memory",
];
const KNOBS_OF_DISKS: &[&str] = &["irqbalance", "disk_irqs", "disk_scheduler", "disk_nomerges"];

/// The options: flat keys, each with a scalar or a list. perftune.py writes no other YAML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Options {
    lists: BTreeMap<String, Vec<String>>,
    scalars: BTreeMap<String, String>,
}

impl Options {
    fn parse(text: &str) -> Self {
        let mut options = Self::default();
        let mut open: Option<String> = None;
        for line in text.lines() {
            let line = line.split(" #").next().unwrap_or(line).trim_end();
            let bare = line.trim_start();
            if bare.is_empty() || bare.starts_with('#') || bare == "---" {
                continue;
            }
            if let (Some(item), Some(key)) = (bare.strip_prefix("- "), &open) {
                options.lists.entry(key.clone()).or_default().push(plain(item));
                continue;
            }
            let Some((key, value)) = bare.split_once(':') else { continue };
            let (key, value) = (key.trim().to_string(), value.trim());
            open = None;
            match value.strip_prefix('[').and_then(|value| value.strip_suffix(']')) {
                Some(items) => {
                    let items = items.split(',').map(plain).filter(|item| !item.is_empty());
                    options.lists.insert(key, items.collect());
                }
                None if value.is_empty() => open = Some(key),
                None => {
                    options.scalars.insert(key, plain(value));
                }
            }
        }
        options
    }

    /// Returns the items of a list, also where it was written as a scalar.
    fn list(&self, key: &str) -> Vec<&str> {
        match self.lists.get(key) {
            Some(items) => items.iter().map(String::as_str).collect(),
            None => self.scalars.get(key).map(String::as_str).into_iter().collect(),
        }
    }

    fn scalar(&self, key: &str) -> Option<&str> {
        self.scalars.get(key).map(String::as_str)
    }

    fn tunes(&self, what: &str) -> bool {
        self.list("tune").contains(&what)
    }
}

fn plain(value: &str) -> String {
    value.trim().trim_matches(['"', '\'']).to_string()
}

/// Whether scylla_prepare runs perftune.py at each start of the service.
fn at_each_start(snapshot: &Snapshot) -> bool {
    let text = snapshot.read("/tare/owners/settings").unwrap_or_default();
    let mut settings = settings::parse(text).filter(|setting| setting.kind == "scylla");
    let requested = settings.any(|setting| {
        ["SET_NIC", "SET_NIC_AND_DISKS"].contains(&setting.key)
            && setting.value.eq_ignore_ascii_case("yes")
    });
    let service = super::present(snapshot).any(|path| path.ends_with("/scylla-server.service"));
    requested && service
}

/// Returns perftune.py as the owner of the settings that it writes at each start.
pub(super) fn owner(snapshot: &Snapshot) -> Option<OwnedSettings> {
    if !at_each_start(snapshot) {
        return None;
    }
    let text = snapshot.read(OPTIONS);
    let options = text.map(Options::parse).unwrap_or_default();
    let mut knobs: Vec<&'static str> = Vec::new();
    // Without the file, scylla_prepare writes one that tunes both.
    if text.is_none() || options.tunes("net") {
        knobs.extend(KNOBS_OF_NICS);
    }
    if text.is_none() || options.tunes("disks") {
        knobs.extend(KNOBS_OF_DISKS);
    }
    if options.scalar("write_back_cache").is_some() {
        knobs.push("disk_write_cache");
    }
    if options.scalar("tune_clock") == Some("true") {
        knobs.push("clock_source");
    }
    knobs.sort_unstable();
    knobs.dedup();
    let owner = Owner {
        name: "perftune.py".into(),
        evidence: if text.is_some() { OPTIONS } else { "scylla-server.service" }.into(),
        effect: "writes it again at each start of scylla-server, run by scylla_prepare".into(),
    };
    let settings =
        ["net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog"].map(String::from).to_vec();
    Some(OwnedSettings { owner, knobs, settings, decided_in: None })
}

/// Returns notes about wrong options and about contradictions to the plan.
pub(super) fn notes(snapshot: &Snapshot, machine: &Machine, planned: &CpuSet) -> Vec<String> {
    let Some(text) = snapshot.read(OPTIONS) else { return Vec::new() };
    let options = Options::parse(text);
    let mut notes = Vec::new();
    let mut say = |note: String| notes.push(format!("{OPTIONS}: {note}"));
    let will = match at_each_start(snapshot) {
        true => "perftune.py will at the next start of scylla-server",
        false => "perftune.py would, if it is run with this file,",
    };
    // scylladb #4553 and others: a mode that could not be determined was written as `None`.
    let modes = ["mq", "sq", "sq_split", "no_irq_restrictions"];
    let mode = options.scalar("mode");
    if let Some(mode) = mode.filter(|mode| !modes.contains(mode)) {
        say(format!("unknown mode {mode:?}: {will} fail; remove the line"));
    }
    let nics = options.list("nic");
    if options.scalar("nic").is_some_and(|nic| nic.len() > 1) {
        // scylladb #7968: a scalar is split into its letters.
        say("nic is not a list: older versions take each letter as a device; write `- NAME`".into());
    }
    let there = |nic: &&&str| snapshot.exists(&format!("/sys/class/net/{nic}"));
    let missing: Vec<&str> = nics.iter().filter(|nic| !there(nic)).copied().collect();
    if !missing.is_empty() {
        say(format!("there is no network device {}: {will} fail", missing.join(", ")));
    }
    let irq_set = match options.scalar("irq_cpu_mask") {
        Some(mask) => match CpuSet::parse_mask(mask) {
            Ok(set) => Some(set),
            Err(error) => {
                say(format!("irq_cpu_mask {mask:?}: {error}"));
                None
            }
        },
        None if mode == Some("mq") => Some(machine.topology.cpus()),
        None => None,
    };
    let Some(irq) = irq_set else { return notes };
    let online = machine.topology.cpus();
    if !irq.is_subset(&online) {
        let gone = irq.difference(&online);
        say(format!("its interrupt CPUs {gone} are not online: {will} fail"));
    } else if irq != *planned && !planned.is_empty() {
        let ours = planned;
        say(format!(
            "{will} put interrupts on CPUs {irq}, this plan puts them on {ours}; remove the file, \
             or give --irq-cpus {irq}"
        ));
    }
    let of_plan =
        |nic: &&str| machine.nics.iter().any(|is| is.name == **nic || is.requested == **nic);
    let others: Vec<&str> =
        nics.iter().filter(there).filter(|nic| !of_plan(nic)).copied().collect();
    if !others.is_empty() && !machine.nics.is_empty() {
        say(format!("{will} tune {}, which this plan does not", others.join(", ")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let text = "---\n# made by scylla_prepare\nmode: sq_split\nnic:\n- eth0\n- 'eth1'\ntune:\n\
            \x20 - net\n  - disks\nirq_cpu_mask: '0x00010001'\ndir: [/var/lib/scylla, /data]\n\
            write_back_cache: false # asked\n";
        let options = Options::parse(text);
        assert_eq!(options.scalar("mode"), Some("sq_split"));
        assert_eq!(options.list("nic"), ["eth0", "eth1"]);
        assert_eq!(options.list("tune"), ["net", "disks"]);
        assert_eq!(options.scalar("irq_cpu_mask"), Some("0x00010001"));
        assert_eq!(options.list("dir"), ["/var/lib/scylla", "/data"]);
        assert_eq!(options.scalar("write_back_cache"), Some("false"));
        assert_eq!(Options::parse("nic: eth0").list("nic"), ["eth0"]);
        assert_eq!(Options::parse("").list("nic"), Vec::<&str>::new());
    }
}
