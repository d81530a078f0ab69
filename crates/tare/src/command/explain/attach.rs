//! `tare explain --attach`: what the layers around a running system cost in records of this host.
//! Nothing is measured, and nothing changes.

use std::cmp::Reverse;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use tare_env::runtime::attached::{Around, AroundKind, FoundSystem, around};
use tare_host::facts::{self, Fact};
use tare_lab::analysis::analyse_with;
use tare_lab::attach::AttachTarget;
use tare_lab::record::Record;
use tare_report::explain::{
    AttachedCost, AttachedCosts, AttachedLayer, UsedRecord, attached_json, attached_text,
};
use tare_report::findings::{LayerCost, layer_costs, separates};
use tare_tune::plan::Options;
use tare_tune::planner;
use tare_tune::snapshot::Snapshot;

use crate::cli::Explain;
use crate::command::history;
use crate::exit::{Exit, ExitWith};
use crate::terminal::style;
use crate::{registry, studies};

/// The system whose records are taken from a directory.
const REFERENCE: &str = "tare-db";
/// The change that shows what a host which is not tuned costs.
const HOST: &str = "host_as_is";
/// The facts by which a record is one of this host.
const MACHINE: [(&str, &str); 2] = [("kernel", "host name"), ("cpu", "model")];
/// The facts about its kernel.
const KERNEL: [(&str, &str); 2] = [("kernel", "release"), ("kernel", "version")];

pub(super) fn run(
    target: &AttachTarget,
    arguments: &Explain,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let system = around(target).exit_with(Exit::Input)?;
    check_server(&system).exit_with(Exit::Input)?;
    let (records, mut notes) = Records::find(arguments.what.as_deref().map(Path::new))?;
    let mut used = Vec::new();
    let mut layers: Vec<AttachedLayer> =
        system.around.iter().map(|one| layer(one, target, &records, &mut used)).collect();
    match host(&records, &mut used) {
        Ok(host) => layers.extend(host),
        Err(error) => notes.push(format!("The host's settings are not compared: {error:#}.")),
    }
    notes.extend(advice(target, &used));
    let FoundSystem { what, ports, .. } = system;
    let records = used.iter().map(|one| one.about.clone()).collect();
    let target = target.to_string();
    let mut found = AttachedCosts { target, what, ports, layers, records, notes };
    found.sort();
    match arguments.json {
        true => writeln!(out, "{}", attached_json(&found))?,
        false => write!(out, "{}", attached_text(&found, style()))?,
    }
    Ok(Exit::Success)
}

/// Refuses processes that no client reaches.
fn check_server(system: &FoundSystem) -> anyhow::Result<()> {
    match system.ports.is_empty() {
        false => Ok(()),
        true => Err(anyhow!(
            "{} listens on no TCP port, so it is no database with clients; name the process, unit \
             or container of the database",
            system.what
        )),
    }
}

/// A record of this host, and the costs in it.
struct HostRecord {
    about: UsedRecord,
    costs: Vec<LayerCost>,
}

/// The records of this host: those under its kernel first, and of these the newest.
struct Records(Vec<HostRecord>);

impl Records {
    /// Reads a record, or those of the reference database in a directory. Returns notes about what
    /// is left out.
    fn find(what: Option<&Path>) -> anyhow::Result<(Self, Vec<String>)> {
        let (files, is_named) = match what {
            None => (records_here().exit_with(Exit::Input)?, false),
            Some(folder) if folder.is_dir() => (history::files(&[folder.into()])?, false),
            Some(file) => (vec![file.to_path_buf()], true),
        };
        let now = facts::read(Path::new("/proc"), Path::new("/sys"));
        let (mut records, mut elsewhere, mut unreadable) = (Vec::new(), 0, 0);
        for file in files {
            match read(&file, &now) {
                Err(error) if is_named => return Err(error).exit_with(Exit::Input),
                Ok(Found::Elsewhere(place)) if is_named => {
                    return Err(of_another_host(&file, &place)).exit_with(Exit::Input);
                }
                Err(_) => unreadable += 1,
                Ok(Found::Elsewhere(_)) => elsewhere += 1,
                Ok(Found::Here(one)) => records.push(one),
            }
        }
        records.retain(|one| is_named || one.about.system == REFERENCE);
        records.sort_by_key(|one| {
            (one.about.other_kernel.is_some(), Reverse(one.about.started_unix_ms))
        });
        let note = |count: u32, why: &str| {
            let plural = if count == 1 { "record" } else { "records" };
            (count > 0).then(|| format!("{count} {plural} left out: {why}."))
        };
        let notes = [note(elsewhere, "of another host"), note(unreadable, "cannot be read")];
        Ok((Self(records), notes.into_iter().flatten().collect()))
    }

    /// Returns the first record that has the cost of a change of a layer, and the costs.
    fn of(&self, rule: &str) -> Option<(&HostRecord, Vec<LayerCost>)> {
        self.0.iter().find_map(|record| {
            let costs = record.costs.iter().filter(|cost| cost.rule == rule);
            let costs: Vec<LayerCost> = costs.cloned().collect();
            (!costs.is_empty()).then_some((record, costs))
        })
    }
}

/// Returns the records in the current directory, without those in its subdirectories.
fn records_here() -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(".").context("cannot list the current directory")?;
    let paths = entries.flatten().map(|entry| PathBuf::from(entry.file_name()));
    let is_record =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "tare") && path.is_file();
    Ok(paths.filter(is_record).collect())
}

fn of_another_host(file: &Path, place: &str) -> anyhow::Error {
    anyhow!(
        "{} was measured on another host ({place}); name a record of this one, or make it with tare \
         weigh quick",
        file.display()
    )
}

/// A record that was read.
enum Found {
    Here(HostRecord),
    /// It is of another host, described here.
    Elsewhere(String),
}

fn read(file: &Path, now: &[Fact]) -> anyhow::Result<Found> {
    let (record, response_times) = Record::read_costs(file)?;
    let then = |(section, key): (&str, &str)| {
        let fact = record.host.iter().find(|fact| fact.section == section && fact.key == key);
        fact.map(|fact| fact.value.as_str())
    };
    let is_as_now = |fact: (&str, &str)| {
        let here = now.iter().find(|one| one.section == fact.0 && one.key == fact.1);
        here.map(|one| one.value.as_str()) == then(fact)
    };
    if !MACHINE.into_iter().all(is_as_now) {
        let words = MACHINE.map(|fact| then(fact).unwrap_or("unknown"));
        return Ok(Found::Elsewhere(words.join(", ")));
    }
    let kernel = then(KERNEL[0]).unwrap_or("unknown").to_string();
    let about = UsedRecord {
        name: file.display().to_string(),
        study: record.study.name.clone(),
        system: record.study.system.name.clone(),
        started_unix_ms: record.header.started_unix_ms,
        other_kernel: (!KERNEL.into_iter().all(is_as_now)).then_some(kernel),
    };
    let costs = layer_costs(&record, &analyse_with(&record, response_times));
    Ok(Found::Here(HostRecord { about, costs }))
}

/// Returns the row of something around a system.
fn layer<'r>(
    one: &Around,
    target: &AttachTarget,
    records: &'r Records,
    used: &mut Vec<&'r HostRecord>,
) -> AttachedLayer {
    let (name, rules, _) = about(one.kind);
    let costs = costs(rules, records, used);
    AttachedLayer {
        name: name.into(),
        found: one.found.clone(),
        flag: flag(one.kind, target),
        measure: costs.is_empty().then(|| study_for(rules)).flatten(),
        costs,
    }
}

/// Returns the costs by these changes of layers, and adds their records to those that are used.
fn costs<'r>(
    rules: &[&str],
    records: &'r Records,
    used: &mut Vec<&'r HostRecord>,
) -> Vec<AttachedCost> {
    let mut costs = Vec::new();
    for (record, found) in rules.iter().filter_map(|rule| records.of(rule)) {
        let known = used.iter().position(|one| std::ptr::eq(*one, record));
        let record = known.unwrap_or_else(|| {
            used.push(record);
            used.len() - 1
        });
        costs.extend(found.into_iter().map(|cost| AttachedCost { record, cost }));
    }
    costs
}

/// Returns the command of the first study of the reference database that measures one of these.
fn study_for(rules: &[&str]) -> Option<String> {
    let vocabulary = registry::vocabulary();
    let measures = |(name, text): &&(&str, &str)| {
        tare_lab::study::parse(text, name, &vocabulary).is_ok_and(|study| {
            study.system.name == REFERENCE
                && rules.iter().any(|rule| separates(rule, &study.environments))
        })
    };
    studies::ALL.iter().find(measures).map(|(name, _)| format!("tare weigh {name}"))
}

/// Returns the row of the host's settings; `None` if the tuner would change none.
fn host<'r>(
    records: &'r Records,
    used: &mut Vec<&'r HostRecord>,
) -> anyhow::Result<Option<AttachedLayer>> {
    let plan = planner::plan(&Snapshot::take(Path::new("/")), &Options::default())?;
    let count = plan.changes().count();
    if count == 0 {
        return Ok(None);
    }
    let plural = if count == 1 { "" } else { "s" };
    let costs = costs(&[HOST], records, used);
    Ok(Some(AttachedLayer {
        name: "host settings".into(),
        found: format!("{count} change{plural} in tare tune plan"),
        flag: "tare tune apply",
        measure: costs.is_empty().then(|| "tare tune prove quick".into()),
        costs,
    }))
}

/// Returns the name of a layer, the ids of the changes that show its cost, and the flags of a
/// container, a unit and a pod that remove it; empty if there is none.
fn about(kind: AroundKind) -> (&'static str, &'static [&'static str], [&'static str; 3]) {
    match kind {
        AroundKind::Network => (
            "network namespace",
            &["bridge"],
            ["--network=host", "PrivateNetwork=no", "hostNetwork: true"],
        ),
        AroundKind::SharedCpus => (
            "shared CPUs",
            &["shared_cpus"],
            ["--cpuset-cpus=LIST", "AllowedCPUs=LIST", "static CPU manager"],
        ),
        AroundKind::CpuQuota => {
            ("CPU quota", &["cpu_quota"], ["no --cpus", "no CPUQuota=", "no limits.cpu"])
        }
        AroundKind::Seccomp => (
            "seccomp filter",
            &["seccomp_filter"],
            ["--security-opt=seccomp=FILE", "no SystemCallFilter=", "seccompProfile"],
        ),
        AroundKind::SeccompWithoutIoUring => (
            "seccomp filter",
            &["seccomp_filter", "io_uring_lost", "seccomp_and_io_uring"],
            ["--security-opt=seccomp=FILE", "no SystemCallFilter=", "seccompProfile"],
        ),
        AroundKind::UserNamespace => (
            "user namespace",
            &["user_namespace"],
            ["--userns=host", "PrivateUsers=no", "hostUsers: true"],
        ),
        AroundKind::Apparmor => (
            "AppArmor profile",
            &["apparmor"],
            ["--security-opt=apparmor=NAME", "AppArmorProfile=NAME", "appArmorProfile"],
        ),
        AroundKind::Cgroup => ("cgroup accounting", &["cgroup"], ["", "", ""]),
        AroundKind::MemoryLimit => {
            ("memory limit", &["memory_limit"], ["--memory", "MemoryMax=", "limits.memory"])
        }
        AroundKind::ImageFileSystem => {
            ("image's file system", &["storage"], ["--volume=DIR:DIR", "", "volumeMounts"])
        }
        AroundKind::Sidecar => ("sidecar", &["sidecar"], ["", "", "no sidecar"]),
        AroundKind::Container => ("container", &["runtime"], ["", "", ""]),
    }
}

/// Returns the flag or setting of a system that removes a layer; empty if there is none.
fn flag(kind: AroundKind, target: &AttachTarget) -> &'static str {
    let (_, _, [container, unit, pod]) = about(kind);
    match target {
        AttachTarget::Container { .. } | AttachTarget::Compose { .. } => container,
        AttachTarget::Unit(_) => unit,
        AttachTarget::Pod { .. } => pod,
        AttachTarget::Pid(_) | AttachTarget::Cgroup(_) => "",
    }
}

/// Returns what the figures are, and what to do next.
fn advice(target: &AttachTarget, used: &[&HostRecord]) -> Vec<String> {
    let mut systems: Vec<&str> = used.iter().map(|one| one.about.system.as_str()).collect();
    systems.sort_unstable();
    systems.dedup();
    let mut notes = Vec::new();
    if !systems.is_empty() {
        notes.push(format!(
            "Nothing was measured now. The figures are those of {} under the workloads of the records; this system and \
             its load may pay more or less.",
            systems.join(" and ")
        ));
    }
    let from = match target {
        AttachTarget::Container { engine, name } => format!("{engine}:{name}"),
        AttachTarget::Unit(name) => format!("unit:{name}"),
        AttachTarget::Compose { file, .. } => file.display().to_string(),
        _ => return notes,
    };
    notes.push(format!("tare tune flags --from {from} prints the flags that it lacks as a diff."));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_studies_measure_the_common_layers() {
        for kind in [
            AroundKind::Network,
            AroundKind::SharedCpus,
            AroundKind::SeccompWithoutIoUring,
            AroundKind::Cgroup,
            AroundKind::Container,
        ] {
            let command = study_for(about(kind).1);
            assert_eq!(command.as_deref(), Some("tare weigh quick"), "{kind:?}");
        }
        assert_eq!(study_for(&["no such change"]), None);
    }
}
