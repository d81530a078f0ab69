//! Takes a snapshot of the live host, or of a folder with the files of a host.
//!
//! Method: each pattern of a table is walked part by part; a folder is listed only where a pattern
//! has a wildcard. Devices are found by their class, so /sys/devices is never walked. Files that
//! cannot be read are left out.

mod patterns;
mod trim;

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use tare_host::process;

use crate::machine::{is_pci_address, kubelet};
use crate::snapshot::{HOST_NAME, Node, Snapshot};

use patterns::{FIXED, HOST, PCI, PROCESSES, TOPOLOGY};

/// The maximum of links that one walk follows, as in the kernel (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// The maximum length of a file in bytes. No kernel file in the table is longer; a longer file in a
/// test's folder is truncated.
const FILE_MAX: usize = 16 << 20;

/// The read buffer in bytes. Most kernel files are shorter, so they need one read(2) and one more
/// that finds the end.
const BUFFER: usize = 64 << 10;

/// The time over which the load of the CPUs is measured.
const LOAD_WINDOW: Duration = Duration::from_millis(500);

impl Snapshot {
    /// Reads everything about a host that the planner uses. `/` is the live host: ethtool and
    /// irqbalance are queried, and the load is measured for half a second. Below any other root the
    /// pseudo files are in `tare/`.
    pub fn take(root: &Path) -> Self {
        let live = root == Path::new("/");
        let before = live.then(|| cpu_lines(root));
        let mut reader = SnapshotReader::new(root, Self::default());
        let files = crate::irqbalance::options_file::FILES;
        for pattern in TOPOLOGY.iter().chain(HOST).chain(files) {
            reader.add_pattern("", pattern);
        }
        for folder in reader.pci_devices() {
            for pattern in PCI {
                reader.add_pattern(&folder, pattern);
            }
            // Drivers and users identify the device by its address.
            if let Some(address) = folder.rsplit('/').next() {
                let target = format!("../../..{}", folder.trim_start_matches("/sys"));
                reader.put(&format!("/sys/bus/pci/devices/{address}"), Node::Link(target));
            }
        }
        for path in FIXED {
            if let Ok(text) = fs::read_to_string(reader.on_host(path)) {
                reader.put_file(path, &text);
            }
        }
        reader.add_processes();
        if let Ok(name) = fs::read_to_string(reader.on_host("/proc/sys/kernel/hostname")) {
            reader.put_file(HOST_NAME, &name);
        }
        let mut snapshot = reader.snapshot;
        match before {
            None => {
                let mut reader = SnapshotReader::new(root, snapshot);
                reader.add_folder("/tare");
                snapshot = reader.snapshot;
                if !snapshot.exists(kubelet::FILE) {
                    add_kubelet(&mut snapshot, root);
                }
            }
            Some(before) => {
                snapshot.keep_ends_of_links();
                add_ethtool(&mut snapshot);
                let owners = crate::machine::owners::describe();
                for (path, text) in crate::irqbalance::describe().into_iter().chain(owners) {
                    snapshot.insert(&path, Node::File(text));
                }
                add_kubelet(&mut snapshot, root);
                std::thread::sleep(LOAD_WINDOW);
                snapshot.insert("/tare/load/stat-0", Node::File(before));
                snapshot.insert("/tare/load/stat-1", Node::File(cpu_lines(root)));
            }
        }
        snapshot.keep_ends_of_links();
        snapshot.drop_full_folders();
        trim::trim(&mut snapshot);
        snapshot
    }

    /// Reads only what [`crate::machine::Topology::read`] needs of a host. It takes milliseconds
    /// and queries nothing.
    pub fn take_topology(root: &Path) -> Self {
        let mut reader = SnapshotReader::new(root, Self::default());
        for pattern in TOPOLOGY {
            reader.add_pattern("", pattern);
        }
        reader.snapshot
    }
}

struct SnapshotReader<'a> {
    root: &'a Path,
    snapshot: Snapshot,
    /// Folders that are known not to be links, so that each is checked once and not per pattern.
    plain: HashSet<String>,
    buffer: Vec<u8>,
}

/// The content of a path.
enum Found {
    File(String),
    Link(String),
    Folder,
}

impl<'a> SnapshotReader<'a> {
    fn new(root: &'a Path, snapshot: Snapshot) -> Self {
        Self { root, snapshot, plain: HashSet::new(), buffer: vec![0; BUFFER] }
    }

    fn on_host(&self, path: &str) -> std::path::PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Adds everything below a folder that a pattern matches.
    fn add_pattern(&mut self, folder: &str, pattern: &str) {
        let parts: Vec<&str> = pattern.split('/').skip_while(|part| part.is_empty()).collect();
        let rest: Vec<Part> = parts.iter().rev().map(|part| Part::pattern(part)).collect();
        self.walk(folder.to_string(), rest, LINKS_MAX);
    }

    /// Walks down from a folder. `rest` are the parts still to match, the next one last.
    fn walk(&mut self, folder: String, mut rest: Vec<Part>, links: usize) {
        let Some(part) = rest.pop() else { return };
        let names = match part {
            Part::Up => {
                let above = folder.rfind('/').map_or("", |slash| &folder[..slash]);
                return self.walk(above.to_string(), rest, links);
            }
            Part::FoldersOnly => return,
            Part::Names(names) => names,
            Part::Wild(patterns) => self.matching(&folder, &patterns),
        };
        for name in names {
            let path = format!("{folder}/{name}");
            match rest.as_slice() {
                [] => match self.node_at(&path) {
                    Some(Found::File(text)) => self.put_file(&path, &text),
                    // A link in sysfs is data; files of /etc may be links that must be followed.
                    Some(Found::Link(target)) if path.starts_with("/sys/") || links == 0 => {
                        self.put(&path, Node::Link(target));
                    }
                    Some(Found::Link(target)) => self.follow(&folder, &path, &target, &rest, links),
                    Some(Found::Folder) => self.put(&path, Node::Directory),
                    None => {}
                },
                [Part::FoldersOnly] => {
                    let folder =
                        || fs::symlink_metadata(self.on_host(&path)).is_ok_and(|d| d.is_dir());
                    if self.plain.contains(&path) || folder() {
                        self.put(&path, Node::Directory);
                    }
                }
                _ if self.plain.contains(&path) => self.walk(path, rest.clone(), links),
                _ => match fs::read_link(self.on_host(&path)) {
                    Ok(target) if links > 0 => {
                        let Some(target) = target.to_str() else { continue };
                        self.follow(&folder, &path, target, &rest, links);
                    }
                    // EINVAL: it exists and is not a link.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        self.plain.insert(path.clone());
                        self.walk(path, rest.clone(), links);
                    }
                    _ => {}
                },
            }
        }
    }

    /// Adds a link and continues at its target, below the root.
    fn follow(&mut self, folder: &str, path: &str, target: &str, rest: &[Part], links: usize) {
        self.put(path, Node::Link(target.to_string()));
        let from = if target.starts_with('/') { "" } else { folder };
        let mut longer = rest.to_vec();
        longer.extend(target.rsplit('/').filter_map(Part::literal));
        self.walk(from.to_string(), longer, links - 1);
    }

    /// Lists the names in a folder that match one of the patterns.
    fn matching(&mut self, folder: &str, patterns: &[String]) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.on_host(&format!("{folder}/"))) else {
            return Vec::new();
        };
        let mut names = Vec::new();
        for entry in entries.filter_map(Result::ok) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if patterns.iter().any(|pattern| matches(pattern, &name)) {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    self.plain.insert(format!("{folder}/{name}"));
                }
                names.push(name);
            }
        }
        names
    }

    /// Reads a file, or finds that the path is a link or a folder.
    fn node_at(&mut self, path: &str) -> Option<Found> {
        let place = self.on_host(path);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let custom = i32::try_from(flags.bits()).ok()?;
        let opened = fs::OpenOptions::new().read(true).custom_flags(custom).open(&place);
        match opened {
            Ok(file) => match self.content(file) {
                Ok(bytes) => String::from_utf8(bytes).ok().map(Found::File),
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => Some(Found::Folder),
                Err(_) => None,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // ELOOP: it is a link.
            Err(_) => {
                let target = fs::read_link(&place).ok()?;
                target.to_str().map(|target| Found::Link(target.to_string()))
            }
        }
    }

    fn content(&mut self, mut file: fs::File) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < FILE_MAX {
            match file.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(length) => bytes.extend(&self.buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    fn put_file(&mut self, path: &str, text: &str) {
        let text = text.strip_suffix('\n').unwrap_or(text);
        self.put(path, Node::File(text.to_string()));
    }

    fn put(&mut self, path: &str, node: Node) {
        self.snapshot.insert(path, node);
    }

    /// Returns the folders of the PCI devices above everything taken so far.
    fn pci_devices(&self) -> BTreeSet<String> {
        let mut folders = BTreeSet::new();
        for (path, _) in self.snapshot.nodes() {
            let Some(below) = path.strip_prefix("/sys/devices/") else { continue };
            let mut end = path.len() - below.len();
            for part in below.split('/') {
                end += part.len();
                if is_pci_address(part) {
                    folders.insert(path[..end].to_string());
                }
                end += 1;
            }
        }
        folders
    }

    /// Adds a whole folder, for the pseudo files of a host on disk.
    fn add_folder(&mut self, folder: &str) {
        for name in self.matching(folder, &["*".to_string()]) {
            let path = format!("{folder}/{name}");
            match self.node_at(&path) {
                Some(Found::File(text)) => self.put_file(&path, &text),
                Some(Found::Folder) => {
                    self.put(&path, Node::Directory);
                    self.add_folder(&path);
                }
                Some(Found::Link(_)) | None => {}
            }
        }
    }

    fn add_processes(&mut self) {
        for id in self.matching("/proc", &["#".to_string()]) {
            let Ok(name) = fs::read_to_string(self.on_host(&format!("/proc/{id}/comm"))) else {
                continue;
            };
            let name = name.trim_end();
            for process in PROCESSES.iter().filter(|one| process::cut_name(one) == name) {
                self.put(&format!("/tare/owners/process/{process}"), Node::File("running".into()));
            }
        }
    }
}

/// One part of a path to walk.
#[derive(Clone)]
enum Part {
    Up,
    /// One of these names, without listing the folder.
    Names(Vec<String>),
    /// Names that one of these patterns matches.
    Wild(Vec<String>),
    /// A `/` at the end of a pattern, which then matches only folders.
    FoldersOnly,
}

impl Part {
    fn pattern(text: &str) -> Self {
        if text.is_empty() {
            return Self::FoldersOnly;
        }
        let choices: Vec<String> = match (text.find('{'), text.find('}')) {
            (Some(open), Some(close)) => {
                let choices = text[open + 1..close].split(',');
                choices.map(|one| format!("{}{one}{}", &text[..open], &text[close + 1..])).collect()
            }
            _ => vec![text.to_string()],
        };
        match choices.iter().any(|choice| choice.contains(['*', '#'])) {
            true => Self::Wild(choices),
            false => Self::Names(choices),
        }
    }

    /// Parses a part of a link's target.
    fn literal(text: &str) -> Option<Self> {
        match text {
            "" | "." => None,
            ".." => Some(Self::Up),
            name => Some(Self::Names(vec![name.to_string()])),
        }
    }
}

/// Whether a pattern of literal characters, `*` and `#` matches a name.
fn matches(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return name.is_empty() };
    let rest = &pattern[first.len_utf8()..];
    match first {
        '*' => name
            .char_indices()
            .map(|(at, _)| at)
            .chain([name.len()])
            .any(|at| matches(rest, &name[at..])),
        '#' => {
            let digits = name.bytes().take_while(u8::is_ascii_digit).count();
            digits > 0 && matches(rest, &name[digits..])
        }
        _ => name.strip_prefix(first).is_some_and(|name| matches(rest, name)),
    }
}

/// Adds the kubelet with its settings, if one runs.
fn add_kubelet(snapshot: &mut Snapshot, root: &Path) {
    if let Some(text) = kubelet::describe(root) {
        snapshot.insert(kubelet::FILE, Node::File(text));
    }
}

/// Reads the lines of /proc/stat about CPUs.
fn cpu_lines(root: &Path) -> String {
    let text = fs::read_to_string(root.join("proc/stat")).unwrap_or_default();
    text.lines().filter(|line| line.starts_with("cpu")).collect::<Vec<_>>().join("\n")
}

/// Adds ethtool's data of each device: nothing where the kernel does not have ethtool over netlink.
/// The driver and the bus address come from sysfs.
fn add_ethtool(snapshot: &mut Snapshot) {
    let files = crate::ethtool::Ethtool::open().and_then(|mut ethtool| ethtool.files());
    for (nic, files) in files.unwrap_or_default() {
        for (file, text) in files {
            snapshot.insert(&format!("/tare/ethtool/{nic}/{file}"), Node::File(text));
        }
    }
    let nics: Vec<String> =
        snapshot.names("/sys/class/net").iter().map(|n| n.to_string()).collect();
    for nic in nics {
        let device = format!("/sys/class/net/{nic}/device");
        let last = |path: &str| {
            let real = snapshot.real(path)?;
            real.rsplit('/').next().map(str::to_string)
        };
        let Some(driver) = last(&format!("{device}/driver")) else { continue };
        let mut text = format!("driver {driver}");
        // Paravirtual devices (virtio) are below the PCI device that carries them.
        let real = snapshot.real(&device).unwrap_or_default();
        let pci = crate::machine::last_pci_address(&real);
        if let Some(bus) = pci.or_else(|| real.rsplit('/').next()) {
            text += &format!("\nbus-info {bus}");
        }
        snapshot.insert(&format!("/tare/ethtool/{nic}/driver"), Node::File(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_patterns() {
        let check = |pattern: &str, name: &str, expect: bool| {
            assert_eq!(matches(pattern, name), expect, "{pattern} {name}");
        };
        check("cpu#", "cpu12", true);
        check("cpu#", "cpu", false);
        check("cpu#", "cpufreq", false);
        check("cpu#", "cpu1x", false);
        check("*", "eth0", true);
        check("lower_*", "lower_eth0", true);
        check("*_ns", "min_granularity_ns", true);
        check("*_ns", "min_granularity", false);
        check("", "", true);
    }
}
