//! Runs host commands. All host commands go through this module.
//!
//! Method: a child that must start in another network namespace or on other CPUs is spawned from
//! its own thread. It inherits both from the spawning thread, so no code has to run between fork
//! and exec. Output goes to memory files instead of pipes, so that a grandchild that keeps a
//! descriptor open (a container started by a runtime) can never block the caller. A pidfd is polled
//! until the time limit, then the child is killed.
//!
//! Limits: output is read after the command ends, so commands that print forever do not fit.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as StdCommand, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use tare_std::cpus::CpuSet;

use crate::{memory_policy, netns, process};

/// Time limit of a command that sets none.
pub const TIME_LIMIT: Duration = Duration::from_secs(20);

/// How many commands `history` keeps.
const HISTORY_MAX: usize = 1000;

/// A host command to run.
#[derive(Clone, Debug)]
pub struct Command {
    program: OsString,
    arguments: Vec<OsString>,
    variables: Vec<(String, String)>,
    input: Option<String>,
    namespace: Option<PathBuf>,
    cpus: Option<CpuSet>,
    nodes: Option<CpuSet>,
    output: Option<(Arc<File>, Arc<File>)>,
    own_group: bool,
    time_limit: Duration,
}

/// The output of a command that ended with status 0, and its duration.
#[derive(Clone, Debug)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    pub elapsed: Duration,
}

/// A finished command, for the report of what Tare did to the host.
#[derive(Clone, Debug)]
pub struct CommandRecord {
    pub argv: Vec<String>,
    /// `exit status: 0`, `signal: 9 (SIGKILL)`, or the reason why it did not start.
    pub status: String,
    pub stderr: String,
    pub elapsed: Duration,
}

/// Why a host command failed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("cannot run {program}: it is not installed{}", install_hint(.program))]
    NotInstalled { program: String },
    #[error("cannot run {argv}")]
    Spawn { argv: String, source: io::Error },
    #[error("{argv} failed with {status}: {stderr}")]
    Failed { argv: String, status: ExitStatus, stderr: String },
    #[error("{argv} did not end within {} s and was killed: {stderr}", .limit.as_secs())]
    TimedOut { argv: String, limit: Duration, stderr: String },
}

/// Names the Debian and Ubuntu package of a missing program.
fn install_hint(program: &str) -> String {
    let package = match Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or(program) {
        "ip" => "iproute2",
        "nft" => "nftables",
        "runc" => "runc",
        "crun" => "crun",
        "unshare" | "nsenter" => "util-linux",
        "losetup" => "mount",
        "dmsetup" => "dmsetup",
        _ => return "; install it or give its absolute path".into(),
    };
    format!("; install the package {package} (apt-get install {package})")
}

impl Command {
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            input: None,
            namespace: None,
            cpus: None,
            nodes: None,
            output: None,
            own_group: false,
            time_limit: TIME_LIMIT,
        }
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().into());
        self
    }

    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, arguments: I) -> Self {
        self.arguments.extend(arguments.into_iter().map(|a| a.as_ref().into()));
        self
    }

    /// Sets an environment variable of the command.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Sets the text of the command's standard input, which is empty by default.
    pub fn input(mut self, text: impl Into<String>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Runs the command in the network namespace behind this path.
    pub fn in_namespace(mut self, path: &Path) -> Self {
        self.namespace = Some(path.into());
        self
    }

    /// Restricts the command and its children to these CPUs.
    pub fn on_cpus(mut self, cpus: &CpuSet) -> Self {
        self.cpus = Some(cpus.clone());
        self
    }

    /// Binds the memory of the command and its children to these NUMA nodes.
    pub fn on_nodes(mut self, nodes: &CpuSet) -> Self {
        self.nodes = Some(nodes.clone());
        self
    }

    /// Makes the command and its children write their output to these files. The files must be
    /// readable too, because errors quote the second.
    pub fn output_to(mut self, stdout: File, stderr: File) -> Self {
        self.output = Some((Arc::new(stdout), Arc::new(stderr)));
        self
    }

    /// Puts the command into its own process group, so that Ctrl-C on the terminal does not reach
    /// it.
    pub fn own_group(mut self) -> Self {
        self.own_group = true;
        self
    }

    /// Kills the command (SIGKILL) when it takes longer than this.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// The command as a person would type it.
    fn typed(&self) -> String {
        self.argv().join(" ")
    }

    fn argv(&self) -> Vec<String> {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Starts the command with these standard streams and does not wait for it. The caller owns the
    /// child and must wait for it, or a zombie stays.
    ///
    /// # Errors
    /// `NotInstalled`, or `Spawn` when the system refuses.
    pub fn spawn(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Result<Child, ExecError> {
        let mut command = StdCommand::new(&self.program);
        command.args(&self.arguments).stdin(stdin).stdout(stdout).stderr(stderr);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if self.own_group {
            command.process_group(0);
        }
        let child = match (&self.namespace, &self.cpus, &self.nodes) {
            (None, None, None) => command.spawn(),
            (namespace, cpus, nodes) => netns::on_own_thread(|| {
                if let Some(path) = namespace {
                    netns::enter(path)?;
                }
                if let Some(cpus) = cpus {
                    process::pin_this_thread(cpus)?;
                }
                if let Some(nodes) = nodes {
                    memory_policy::bind_this_thread(nodes)?;
                }
                command.spawn()
            }),
        };
        child.map_err(|source| {
            let found = Path::new(&self.program).components().count() > 1;
            if source.kind() == io::ErrorKind::NotFound && !found {
                ExecError::NotInstalled { program: self.program.to_string_lossy().into_owned() }
            } else {
                ExecError::Spawn { argv: self.typed(), source }
            }
        })
    }

    /// Runs the command to its end and returns what it printed.
    ///
    /// # Errors
    /// When it cannot start, ends with a status other than 0, or exceeds its time limit.
    pub fn run(&self) -> Result<Output, ExecError> {
        let begin = Instant::now();
        let (result, status, stderr) = self.run_unrecorded(begin);
        let ran = CommandRecord { argv: self.argv(), status, stderr, elapsed: begin.elapsed() };
        let mut history = HISTORY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if history.len() == HISTORY_MAX {
            history.pop_front();
        }
        history.push_back(ran);
        result
    }

    fn run_unrecorded(&self, begin: Instant) -> (Result<Output, ExecError>, String, String) {
        let files = || -> io::Result<(Stdio, File, File)> {
            let stdin = match &self.input {
                None => Stdio::null(),
                Some(text) => {
                    let mut file = memory_file()?;
                    file.write_all(text.as_bytes())?;
                    file.rewind()?;
                    Stdio::from(file)
                }
            };
            match &self.output {
                Some((out, err)) => Ok((stdin, out.try_clone()?, err.try_clone()?)),
                None => Ok((stdin, memory_file()?, memory_file()?)),
            }
        };
        let spawned = files()
            .and_then(|(stdin, out, err)| Ok((stdin, out.try_clone()?, err.try_clone()?, out, err)))
            .map_err(|source| ExecError::Spawn { argv: self.typed(), source })
            .and_then(|(stdin, out_end, err_end, out, err)| {
                Ok((self.spawn(stdin, out_end.into(), err_end.into())?, out, err))
            });
        let (mut child, out, err) = match spawned {
            Ok(spawned) => spawned,
            Err(error) => {
                let status = error.to_string();
                return (Err(error), status, String::new());
            }
        };
        let ended = process::wait_until(&mut child, begin + self.time_limit);
        let status = match &ended {
            Ok(Some(status)) => status.to_string(),
            Ok(None) => "timed out".into(),
            Err(error) => error.to_string(),
        };
        let stderr = read_back(&err).trim().to_string();
        let result = match ended {
            Ok(Some(status)) if status.success() => Ok(Output {
                stdout: read_back(&out),
                stderr: stderr.clone(),
                elapsed: begin.elapsed(),
            }),
            Ok(Some(status)) => Err(ExecError::Failed {
                argv: self.typed(),
                status,
                stderr: said(&stderr, &read_back(&out)),
            }),
            Ok(None) => Err(ExecError::TimedOut {
                argv: self.typed(),
                limit: self.time_limit,
                stderr: said(&stderr, ""),
            }),
            Err(source) => Err(ExecError::Spawn { argv: self.typed(), source }),
        };
        (result, status, stderr)
    }
}

/// Returns the output of a failed command on one line of at most 600 characters.
fn said(stderr: &str, stdout: &str) -> String {
    let text = if stderr.trim().is_empty() { stdout.trim() } else { stderr.trim() };
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join("; ");
    match line.is_empty() {
        true => "it printed nothing".into(),
        false => line.chars().take(600).collect(),
    }
}

fn memory_file() -> io::Result<File> {
    Ok(File::from(memfd_create("tare-output", MemfdFlags::CLOEXEC)?))
}

/// Reads a file by position, because processes that still write to it share its offset.
fn read_back(file: &File) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    // A failed read loses only text for error messages.
    while let Ok(count @ 1..) = file.read_at(&mut chunk, bytes.len() as u64) {
        bytes.extend_from_slice(&chunk[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

static HISTORY: Mutex<VecDeque<CommandRecord>> = Mutex::new(VecDeque::new());

/// Returns the last commands, at most a thousand, oldest first.
pub fn history() -> Vec<CommandRecord> {
    HISTORY.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter().cloned().collect()
}

/// Finds a program on PATH, or returns `program` itself if it is the path of a file.
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Path::new(program).is_file().then(|| program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_input_and_returns_output() {
        let output = Command::new("cat").input("a line\n").run().unwrap();
        assert_eq!(output.stdout, "a line\n");
        assert!(history().iter().any(|ran| ran.argv == ["cat"]));
    }

    #[test]
    fn error_names_command_and_reason() {
        let missing = Command::new("tare-no-such-program").run().unwrap_err().to_string();
        assert!(missing.contains("not installed"), "{missing}");
        let failed = Command::new("sh").args(["-c", "echo why >&2; exit 3"]).run().unwrap_err();
        let text = failed.to_string();
        assert!(text.contains("exit status: 3") && text.contains("why"), "{text}");
    }

    #[test]
    fn kills_command_after_time_limit() {
        let limit = Duration::from_millis(50);
        let error = Command::new("sleep").arg("60").time_limit(limit).run().unwrap_err();
        let ExecError::TimedOut { .. } = error else { panic!("{error}") };
    }
}
