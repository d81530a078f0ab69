//! The state of the host before and after a test: links, namespaces, nftables, mounts, containers,
//! processes, cgroups, loop devices and archives of images.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything that a study could leave on a host, as lines. Two snapshots of a clean host are
/// equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostState(BTreeSet<String>);

impl HostState {
    /// Reads the state of this host.
    pub fn read() -> Self {
        let mut lines = BTreeSet::new();
        let mut add = |kind: &str, text: &str| {
            lines.extend(text.lines().map(|line| format!("{kind}: {line}")));
        };
        add("link", &links());
        add("netns", &command("ip", &["netns", "list"]));
        add("nft", &command("nft", &["--stateless", "list", "ruleset"]));
        add("mount", &mounts());
        add("containers", &containers());
        add("process", &processes().join("\n"));
        add("cgroup", &cgroups(Path::new("/sys/fs/cgroup")).join("\n"));
        add("loop", &loops().join("\n"));
        add("archive", &archives().join("\n"));
        Self(lines)
    }

    /// Returns the lines that only one snapshot has: `- ` before a removed line, `+ ` before a new
    /// one.
    pub fn difference(&self, after: &Self) -> Vec<String> {
        let gone = self.0.difference(&after.0).map(|line| format!("- {line}"));
        gone.chain(after.0.difference(&self.0).map(|line| format!("+ {line}"))).collect()
    }
}

fn command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// The names and states of links, without indexes and counters.
fn links() -> String {
    let text = command("ip", &["-brief", "link"]);
    let line = |line: &str| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn mounts() -> String {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let line = |line: &str| line.split_whitespace().skip(3).take(2).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The names and images of the engine's containers. Empty if no engine answers.
fn containers() -> String {
    command("docker", &["ps", "--all", "--format", "{{.Names}} {{.Image}}"])
}

/// Returns the names of the archives of images that podman's service received over its socket, and
/// leaves in /var/tmp.
pub fn archives() -> Vec<String> {
    let entries = fs::read_dir("/var/tmp").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("api_load")).collect()
}

/// The processes that run the program or carry its mark.
fn processes() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let this = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid == this || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // A zombie holds no resources.
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if status.lines().any(|line| line.starts_with("State:") && line.contains("zombie")) {
            continue;
        }
        let marked = fs::read(entry.path().join("environ"))
            .is_ok_and(|environ| environ.split(|b| *b == 0).any(|v| v.starts_with(b"TARE_RUN=")));
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        // Other tests run the program too. A study can leave systems, agents and proxies.
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let second = words.split(|byte| *byte == 0).nth(1).unwrap_or_default();
        let ours = match name.trim() {
            "tare" => matches!(second, b"db" | b"fio-server" | b"load-agent" | b"proxy"),
            name => matches!(name, "crun" | "runc" | "runsc" | "conmon"),
        };
        if marked || ours {
            found.push(format!("{pid} {}", name.trim()));
        }
    }
    found
}

/// The paths of all cgroup directories.
fn cgroups(root: &Path) -> Vec<String> {
    // Siblings of the test's own cgroup are other sessions, which start and end at any time.
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own: BTreeSet<PathBuf> =
        own.lines().filter_map(|line| Some(PathBuf::from(line.splitn(3, ':').nth(2)?))).collect();
    let stranger = |folder: &Path| {
        let below = folder.strip_prefix(root).unwrap_or(folder);
        // On cgroup v1 the controller's tree comes first.
        let paths =
            [below, below.strip_prefix(below.iter().next().unwrap_or_default()).unwrap_or(below)];
        paths
            .iter()
            .map(|path| Path::new("/").join(path))
            .any(|path| own.iter().any(|own| own.parent() == path.parent()) && !own.contains(&path))
    };
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let folders = entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir()));
        for entry in folders {
            let (path, name) = (entry.path(), entry.file_name());
            let ours = name.to_string_lossy().starts_with("tare");
            if !ours && stranger(&path) {
                continue;
            }
            // The parent of all containers of the tests' own engine does not count. The engine
            // makes it for the first container and removes it at its end. The cgroups below it
            // count.
            if !name.to_string_lossy().starts_with("tare-engine-") {
                found.push(path.display().to_string());
            }
            open.push(path);
        }
    }
    found
}

/// Returns the leftovers of a run: links, network namespaces, tables, mounts and cgroups with its
/// name, and processes that carry its mark. Other runs may start and end at the same time.
pub fn left_of_run(run: &str) -> Vec<String> {
    let named = format!("tare-{run}");
    let mut left = Vec::new();
    let mut add = |kind: &str, lines: &str| {
        let lines = lines.lines().filter(|line| line.contains(&named));
        left.extend(lines.map(|line| format!("{kind}: {line}")));
    };
    add("link", &names("/sys/class/net"));
    add("netns", &names("/run/netns"));
    add("nft", &command("nft", &["list", "tables"]));
    add("mount", &fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
    add("cgroup", &command("find", &["/sys/fs/cgroup", "-type", "d"]));
    let mark = format!("TARE_RUN={run}");
    for pid in names("/proc").lines().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            left.push(format!("process: {pid}"));
        }
    }
    left
}

/// The names in a directory, one per line.
fn names(folder: &str) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned() + "\n").collect()
}

/// The files of Tare behind loop devices.
fn loops() -> Vec<String> {
    let devices = names("/sys/block");
    let files = devices.lines().filter_map(|name| {
        let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
        file.contains("tare").then(|| format!("{name} {}", file.trim()))
    });
    files.collect::<Vec<_>>()
}

/// Takes the exclusive lock of tests that compare the state of the host. While it is held, no other
/// test that takes a lock runs, in any test program.
///
/// # Panics
/// If the lock cannot be taken.
pub fn alone() -> fs::File {
    let file = lock_file();
    file.lock().expect("the lock can be taken");
    file
}

/// Takes the shared lock of tests that change the host for a while, but neither compare its whole
/// state nor measure. They may run at the same time, but not while a test holds [`alone`].
///
/// # Panics
/// If the lock cannot be taken.
pub fn beside_others() -> fs::File {
    let file = lock_file();
    file.lock_shared().expect("the lock can be taken");
    file
}

fn lock_file() -> fs::File {
    let path = std::env::temp_dir().join("tare-tests.lock");
    fs::File::create(&path).expect("the lock file can be made")
}
