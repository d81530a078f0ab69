//! A unit of systemd: the drop-in with the settings that it lacks, as a unified diff.
//!
//! Method: the files of the unit are read in systemd's order, and the settings of `systemd` that
//! differ are written into the drop-in `tare.conf`. Lines of the user in that file stay.
//!
//! Source: man 5 systemd.unit (order of drop-ins), man 5 systemd.syntax.
//!
//! Limits: only what files say is known, not defaults of the manager (`system.conf`).

use tare_std::cpus::CpuSet;

use super::change::{Change, Diff};
use super::compare::{self, Present};
use super::{Context, Engine, Flag, FlagsError, Host, Request, systemd};
use crate::machine::Topology;
use crate::plan::CpuSets;

/// The name of the drop-in. It comes after `override.conf`, which `systemctl edit` writes.
pub const DROP_IN: &str = "tare.conf";

/// A file of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFile {
    pub path: String,
    pub text: String,
}

/// A unit and its files.
#[derive(Clone, Debug)]
pub struct Unit {
    /// `redis.service`.
    pub name: String,
    /// The unit's own file, then its drop-ins in the order in which systemd reads them, without
    /// the drop-in of Tare.
    pub files: Vec<UnitFile>,
    /// The content of the drop-in of Tare, if there is one.
    pub drop_in: Option<String>,
}

/// Settings whose values add up over several lines, so that an empty one has to come first.
const LISTS: [&str; 4] = ["AllowedCPUs", "CPUAffinity", "AllowedMemoryNodes", "NUMAMask"];
/// Settings that are enough if they are higher.
const LIMITS: [&str; 3] = ["LimitNOFILE", "LimitMEMLOCK", "TasksMax"];

/// Returns the path of the drop-in of a unit.
pub fn drop_in_path(unit: &str) -> String {
    format!("/etc/systemd/system/{unit}.d/{DROP_IN}")
}

/// Returns what would change in the drop-in of a unit.
///
/// # Errors
/// When the host has too few CPUs.
pub fn diff(
    unit: &Unit,
    request: &Request,
    topology: &Topology,
    cpus: &CpuSets,
    host: &Host,
) -> Result<Diff, FlagsError> {
    let settings = Settings::read(unit);
    let mut request = request.clone();
    request.memory_bytes = request.memory_bytes.or(settings.bytes("MemoryMax"));
    let engine = engine(unit, &settings);
    let context = Context { request: &request, topology, cpus, host, engine };
    let present = Present {
        cpus: settings.set("AllowedCPUs").or(settings.set("CPUAffinity")),
        quota_millis: settings.value("CPUQuota").and_then(percent),
        ..Present::default()
    };
    let instance = compare::size(&context, &present)?;
    let mut drop_in =
        DropIn { text: unit.drop_in.clone().unwrap_or_default(), ..DropIn::default() };
    for flag in systemd::settings(&context, &instance) {
        drop_in.take(&settings, &flag);
    }
    if let Some(quota) = settings.value("CPUQuota").filter(|quota| !quota.is_empty()) {
        drop_in.set(&settings, "CPUQuota", Some(quota), "", &compare::no_quota(&context));
    }
    let DropIn { text, changes, mut notes } = drop_in;
    notes.extend(remarks(&settings, engine, !changes.is_empty()));
    let path = drop_in_path(&unit.name);
    let now = unit.drop_in.clone().unwrap_or_default();
    let before = if unit.drop_in.is_some() { &path } else { "/dev/null" };
    let what = format!("unit {}", unit.name);
    Ok(Diff::new(what, changes, notes, [now, text], [before, &path], false))
}

fn remarks(settings: &Settings, engine: Engine, is_changed: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if settings.value("SystemCallFilter").is_some_and(|filter| !filter.is_empty()) {
        notes.push(
            "SystemCallFilter= runs a filter at every call. It is a part of the unit's security and is \
             left alone."
                .into(),
        );
    }
    if engine == Engine::Scylla {
        notes.push("Scylla also needs its own options: tare tune flags --for scylla.".into());
    }
    if is_changed {
        notes.push(
            "Nothing has been changed. To use it: patch -p1 -d / < FILE, systemctl daemon-reload, then \
             restart the unit. AllowedCPUs= and AllowedMemoryNodes= need cgroup v2; CPUAffinity= and \
             NUMAPolicy= work with both versions."
                .into(),
        );
        notes.push("CPU numbers are valid for this boot and this hardware.".into());
    }
    notes
}

/// Recognises the database by the unit's name and by its program.
fn engine(unit: &Unit, settings: &Settings) -> Engine {
    let start = settings.value("ExecStart").unwrap_or_default();
    let program = start.split_whitespace().next().unwrap_or_default();
    let has = |word: &str| unit.name.contains(word) || program.contains(word);
    match () {
        () if has("scylla") => Engine::Scylla,
        () if has("cassandra") => Engine::Cassandra,
        () if has("postgres") => Engine::PostgreSql,
        () if has("tare-db") || program.ends_with("/tare") => Engine::TareDb,
        () => Engine::Other,
    }
}

/// The settings of the section `[Service]`, in the order in which systemd reads them.
#[derive(Debug, Default)]
struct Settings {
    /// Key, value, and whether the file comes after the drop-in of Tare.
    list: Vec<(String, String, bool)>,
}

impl Settings {
    fn read(unit: &Unit) -> Self {
        let mut settings = Self::default();
        for (index, file) in unit.files.iter().enumerate() {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            let after = index > 0 && name > DROP_IN;
            for (key, value) in parse(&file.text) {
                settings.list.push((key, value, after));
            }
        }
        settings
    }

    /// Returns the last value of a setting.
    fn value(&self, key: &str) -> Option<&str> {
        self.list.iter().rev().find(|(found, ..)| found == key).map(|(_, value, _)| value.as_str())
    }

    /// Whether a file after the drop-in of Tare sets it.
    fn is_set_after(&self, key: &str) -> bool {
        self.list.iter().any(|(found, _, after)| found == key && *after)
    }

    /// Returns the union of the values since the last empty one, as systemd merges them.
    fn set(&self, key: &str) -> Option<CpuSet> {
        let values = self.list.iter().filter(|(found, ..)| found == key);
        let merged = values.fold(CpuSet::new(), |set, (_, value, _)| match list(value) {
            Some(more) if !more.is_empty() => set.union(&more),
            _ => CpuSet::new(),
        });
        Some(merged).filter(|set| !set.is_empty())
    }

    fn bytes(&self, key: &str) -> Option<u64> {
        self.value(key).and_then(bytes)
    }

    /// Whether the value of a setting is as wanted, or higher where that is enough.
    fn fits(&self, key: &str, wanted: &str) -> bool {
        let Some(now) = self.value(key) else { return false };
        if LISTS.contains(&key) {
            return self.set(key) == list(wanted);
        }
        if LIMITS.contains(&key) {
            let amount = |text: &str| if text == "infinity" { Some(u64::MAX) } else { bytes(text) };
            let least = now.split(':').filter_map(amount).min();
            return matches!((least, amount(wanted)), (Some(now), Some(wanted)) if now >= wanted);
        }
        match key {
            "Restart" => now != "no" && !now.is_empty(),
            _ => now == wanted || bytes(now).is_some_and(|now| bytes(wanted) == Some(now)),
        }
    }
}

/// Parses the settings of the section `[Service]`. A backslash continues a line.
fn parse(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut is_service = false;
    let mut line = String::new();
    for part in text.lines() {
        let is_comment = part.trim_start().starts_with(['#', ';']);
        if is_comment {
            continue;
        }
        match part.strip_suffix('\\') {
            Some(start) => {
                line += start;
                line.push(' ');
                continue;
            }
            None => line += part,
        }
        let whole = std::mem::take(&mut line);
        let whole = whole.trim();
        if whole.starts_with('[') {
            is_service = whole == "[Service]";
        } else if let Some((key, value)) = whole.split_once('=').filter(|_| is_service) {
            found.push((key.trim().to_string(), value.trim().to_string()));
        }
    }
    found
}

/// Parses a list of CPUs, separated by spaces or commas.
fn list(text: &str) -> Option<CpuSet> {
    let parts: Vec<&str> = text.split([' ', '\t', ',']).filter(|part| !part.is_empty()).collect();
    CpuSet::parse_list(&parts.join(",")).ok()
}

/// Parses an amount with the suffixes of systemd, to the base of 1024.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match text.strip_prefix(digits)? {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Parses a quota: 150% are 1500 thousandths of a CPU.
fn percent(text: &str) -> Option<u64> {
    let number: u64 = text.strip_suffix('%')?.trim().parse().ok()?;
    number.checked_mul(10)
}

/// The drop-in of Tare as it is written.
#[derive(Debug, Default)]
struct DropIn {
    text: String,
    changes: Vec<Change>,
    notes: Vec<String>,
}

impl DropIn {
    /// Adds the lines of a flag that the unit lacks.
    fn take(&mut self, settings: &Settings, flag: &Flag) {
        for line in flag.text.lines() {
            let (key, wanted) = line.split_once('=').unwrap_or((line, ""));
            if settings.fits(key, wanted) {
                continue;
            }
            self.set(settings, key, settings.value(key), wanted, flag);
        }
    }

    /// Sets a key in the section `[Service]`.
    fn set(
        &mut self,
        settings: &Settings,
        key: &str,
        now: Option<&str>,
        wanted: &str,
        flag: &Flag,
    ) {
        if settings.is_set_after(key) {
            self.notes.push(format!(
                "{key}= is set by a drop-in that comes after {DROP_IN} and wins: set it to {wanted:?} \
                 there."
            ));
            return;
        }
        let mut lines = vec![format!("{key}={wanted}")];
        if LISTS.contains(&key) && now.is_some_and(|now| !now.is_empty()) {
            lines.insert(0, format!("{key}="));
        }
        if self.replace(key, &lines) {
            let shown = if wanted.is_empty() { "none" } else { wanted };
            self.changes.push(Change::of(key, now, shown, flag));
        }
    }

    /// Replaces the lines of a key, or adds them at the end of the section. Returns whether that
    /// changes the file.
    fn replace(&mut self, key: &str, lines: &[String]) -> bool {
        let is_key = |line: &&str| line.split('=').next().is_some_and(|found| found.trim() == key);
        let old: Vec<&str> = self.text.lines().collect();
        if old.iter().filter(|line| is_key(line)).map(|line| line.trim()).eq(lines.iter()) {
            return false;
        }
        let first = old.iter().position(is_key);
        let section = old.iter().position(|line| line.trim() == "[Service]");
        let kept = |part: &[&str]| {
            part.iter()
                .filter(|line| !is_key(line))
                .map(|line| format!("{line}\n"))
                .collect::<String>()
        };
        let added: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let at = first.or_else(|| {
            let section = section? + 1;
            let next = old[section..].iter().position(|line| line.trim_start().starts_with('['));
            Some(next.map_or(old.len(), |next| section + next))
        });
        self.text = match at {
            Some(at) => kept(&old[..at]) + &added + &kept(&old[at..]),
            None => kept(&old) + "[Service]\n" + &added,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::tests::machine;

    const UNIT: &str = "[Unit]\nDescription=Redis\n[Service]\nExecStart=/usr/bin/redis-server \\\n  /etc/redis.conf\n\
                        CPUQuota=200%\nLimitNOFILE=65535\n# CPUAffinity=7\nCPUAffinity=0\nRestart=always\n";

    fn unit(own: &str, drop_ins: &[(&str, &str)], drop_in: Option<&str>) -> Unit {
        let file = |path: &str, text: &str| UnitFile { path: path.into(), text: text.into() };
        let mut files = vec![file("/lib/systemd/system/redis.service", own)];
        files.extend(drop_ins.iter().map(|(path, text)| file(path, text)));
        Unit { name: "redis.service".into(), files, drop_in: drop_in.map(str::to_string) }
    }

    fn of(unit: &Unit) -> Diff {
        let topology = machine(1, 16, 2);
        let set = |text| CpuSet::parse_list(text).unwrap();
        let cpus = CpuSets {
            universe: topology.cpus(),
            irq: set("0,16"),
            compute: set("1-15,17-31"),
            why: String::new(),
        };
        let host = Host { nr_open: Some(1_048_576), ..Host::default() };
        diff(unit, &Request::default(), &topology, &cpus, &host).unwrap()
    }

    #[test]
    fn a_drop_in_has_what_the_unit_lacks() {
        let found = of(&unit(UNIT, &[], None));
        assert!(
            found.diff.starts_with(
                "--- /dev/null\n+++ /etc/systemd/system/redis.service.d/tare.conf\n@@ -0,0 +1"
            ),
            "{}",
            found.diff
        );
        // A quota of two CPUs is one core with two threads.
        assert_eq!(
            found.wanted,
            "[Service]\nAllowedCPUs=1 17\nCPUAffinity=\nCPUAffinity=1 17\nLimitNOFILE=800000\n\
             TasksMax=32768\nCPUQuota=\n"
        );
        let quota = found.changes.iter().find(|change| change.place == "CPUQuota").unwrap();
        assert_eq!((quota.now.as_deref(), quota.wanted.as_str()), (Some("200%"), "none"));
        // With it, nothing is left to change, and lines of the user stay.
        let own = format!("# mine\n[Service]\nNice=-5\n{}", &found.wanted["[Service]\n".len()..]);
        let again = of(&unit(UNIT, &[], Some(&own)));
        assert_eq!((again.diff.as_str(), again.changes.as_slice()), ("", [].as_slice()));
        let stale =
            own.replace("AllowedCPUs=1 17", "AllowedCPUs=3") + "[Install]\nAlias=r.service\n";
        let again = of(&unit(UNIT, &[], Some(&stale)));
        assert_eq!(again.wanted, own.clone() + "[Install]\nAlias=r.service\n", "{}", again.diff);
    }

    #[test]
    fn drop_ins_of_the_user_count() {
        let limits = "[Service]\nLimitNOFILE=infinity\nTasksMax=40000\nCPUQuota=\nCPUAffinity=\n\
                      CPUAffinity=2 18\nAllowedCPUs=2,18\n";
        let found = of(&unit(UNIT, &[("/etc/x.d/a.conf", limits)], None));
        assert_eq!(found.changes, [], "{}", found.text());
        assert!(found.text().contains("nothing to change"));
        let later = of(&unit(UNIT, &[("/etc/x.d/zz.conf", "[Service]\nTasksMax=100\n")], None));
        assert!(!later.wanted.contains("TasksMax"), "{}", later.wanted);
        assert!(
            later.notes.iter().any(|note| note.starts_with("TasksMax= is set")),
            "{:?}",
            later.notes
        );
    }
}
