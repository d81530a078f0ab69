//! What the program tests share: the built binary, a scratch directory, and the host's state.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The built program.
pub(crate) fn tare() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tare"))
}

/// Runs the program with arguments in a directory and returns what it did.
pub(crate) fn run_in<S: AsRef<OsStr>>(
    directory: &Path,
    arguments: impl IntoIterator<Item = S>,
) -> Output {
    tare().args(arguments).current_dir(directory).output().expect("the built program starts")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Says why a test does nothing here, and whether it does.
pub(crate) fn skipped(test: &str, wanted: &[Need]) -> bool {
    for need in wanted {
        if let Err(reason) = need.met() {
            #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
            {
                eprintln!("skipped: {test}: {reason}");
            }
            return true;
        }
    }
    false
}

/// What a test needs of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    Root,
    Program(&'static str),
}

impl Need {
    fn met(self) -> Result<(), String> {
        match self {
            Need::Root => {
                let root = rustix::process::geteuid().is_root();
                root.then_some(()).ok_or_else(|| "needs root".to_string())
            }
            Need::Program(name) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let found = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
                found.then_some(()).ok_or_else(|| format!("needs {name} on the PATH"))
            }
        }
    }
}

/// Everything that a study could leave on a host, as lines; two snapshots of a clean host are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostState(BTreeSet<String>);

impl HostState {
    pub(crate) fn read() -> Self {
        let mut lines = BTreeSet::new();
        let mut add = |kind: &str, text: &str| {
            lines.extend(text.lines().map(|line| format!("{kind}: {line}")));
        };
        add("link", &links());
        add("netns", &command("ip", &["netns", "list"]));
        add("nft", &command("nft", &["list", "ruleset"]));
        add("mount", &mounts());
        add("containers", &containers());
        add("process", &processes().join("\n"));
        add("cgroup", &cgroups(Path::new("/sys/fs/cgroup")).join("\n"));
        Self(lines)
    }

    /// What the other has and this one has not, and the other way round.
    pub(crate) fn difference(&self, after: &Self) -> Vec<String> {
        let gone = self.0.difference(&after.0).map(|line| format!("- {line}"));
        gone.chain(after.0.difference(&self.0).map(|line| format!("+ {line}"))).collect()
    }
}

fn command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// Names and states of links, without their indexes and counters.
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

/// Names and images of the engine's containers, where an engine answers.
fn containers() -> String {
    command("docker", &["ps", "--all", "--format", "{{.Names}} {{.Image}}"])
}

/// Processes that run the program or carry its mark.
fn processes() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let this = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid == this || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // One that has ended and waits for its parent to notice holds nothing.
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if status.lines().any(|line| line.starts_with("State:") && line.contains("zombie")) {
            continue;
        }
        let marked = fs::read(entry.path().join("environ"))
            .is_ok_and(|environ| environ.split(|b| *b == 0).any(|v| v.starts_with(b"TARE_RUN=")));
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        // Other tests run the program too; what a study leaves are systems, agents and proxies.
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

/// Paths of all cgroup directories.
fn cgroups(root: &Path) -> Vec<String> {
    // Beside the test's own cgroup stand the sessions of others, which come and go as they like.
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
            // The parent of all containers of the tests' own engine, which makes it for the first
            // and ends with it; what stands below counts.
            if !name.to_string_lossy().starts_with("tare-engine-") {
                found.push(path.display().to_string());
            }
            open.push(path);
        }
    }
    found
}

/// A lock that tests take which compare the host's state: one at a time, over all test programs.
pub(crate) fn alone() -> fs::File {
    let path = std::env::temp_dir().join("tare-tests.lock");
    let file = fs::File::create(&path).expect("the lock file can be made");
    file.lock().expect("the lock can be taken");
    file
}
