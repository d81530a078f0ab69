//! A load tool as a child process where the client runs: its lines as they arrive, its CPU time,
//! and a certain end.

use std::fs;
use std::io::{BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tare_host::cpu_clock;
use tare_std::cpus::CpuSet;

use super::ToolError;
use crate::agent::Signals;
use crate::placement;

/// The environment variable that marks the processes of a study, so that leftovers are found.
const RUN_VARIABLE: &str = "TARE_RUN";
/// The most output that is kept. A tool that prints a line each 200 ms for a day needs less.
const KEPT_BYTES: usize = 64 << 20;
/// How often a tool in an agent looks whether its load is to end.
const STOP_EVERY: Duration = Duration::from_millis(50);
/// Time limit for a process to end after it has closed its output.
const REAP_LIMIT: Duration = Duration::from_secs(10);

/// Where the client runs.
#[derive(Clone, Debug)]
pub(crate) struct ClientPlacement {
    pub(crate) cpus: CpuSet,
    pub(crate) namespace: Option<PathBuf>,
    /// The run that its processes are marked with, unless they inherit that.
    pub(crate) run: Option<String>,
    /// The directory for the tool's files. It is emptied before each run of the tool.
    pub(crate) scratch: PathBuf,
    /// Set in an agent.
    pub(crate) keeper: Option<Keeper>,
}

/// What keeps a tool from outliving the agent that runs it, also when that is killed.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    /// Tare's own program, which becomes the tool ([`become_tool`]).
    pub(crate) program: PathBuf,
    pub(crate) signals: Arc<Signals>,
}

/// Becomes a load tool that is killed once the agent `parent`, which started this process, has
/// ended. Returns only if that fails.
///
/// # Errors
/// If the agent has ended already, or the tool cannot be started.
pub fn become_tool(parent: u32, words: &[String]) -> Result<std::convert::Infallible, ToolError> {
    let [program, arguments @ ..] = words else {
        return Err(ToolError::NotFound { program: String::new() });
    };
    let spawn = |source: std::io::Error| ToolError::Spawn { program: program.clone(), source };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| spawn(errno.into()))?;
    // It may have ended before that.
    let now = getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if now != Some(parent) {
        return Err(ToolError::Stopped { tool: program.clone() });
    }
    Err(spawn(Command::new(program).args(arguments).exec()))
}

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
}

impl CommandLine {
    pub(crate) fn new(program: impl Into<String>) -> Self {
        Self { program: program.into(), arguments: Vec::new() }
    }

    /// Adds arguments separated by blanks.
    pub(crate) fn args(mut self, arguments: &str) -> Self {
        self.arguments.extend(arguments.split_whitespace().map(String::from));
        self
    }

    /// Adds one argument as it is.
    pub(crate) fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }
}

/// A line and when it arrived.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) at: Instant,
    pub(super) text: String,
    is_error: bool,
}

/// What a tool has printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolOutput {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ToolOutput {
    fn keep(&mut self, line: &Line) {
        let into = if line.is_error { &mut self.stderr } else { &mut self.stdout };
        if into.len() < KEPT_BYTES {
            into.push_str(&line.text);
            into.push('\n');
        }
    }

    /// Returns the last lines of its errors, or else of its output, on one line.
    pub(crate) fn said(&self) -> String {
        let text = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !is_frame(line))
            .collect();
        let last = lines[lines.len().saturating_sub(4)..].join("; ");
        match last.is_empty() {
            true => "it printed nothing".into(),
            false => format!("it printed: {}", last.chars().take(600).collect::<String>()),
        }
    }
}

/// Returns whether a line is a frame of a Java stack trace.
fn is_frame(line: &str) -> bool {
    line.starts_with("at ") || line.starts_with("... ")
}

/// A running tool. Dropping this kills and reaps it.
#[derive(Debug)]
pub(super) struct RunningTool {
    child: Child,
    lines: Receiver<Line>,
    pub(super) printed: ToolOutput,
    keeper: Option<Keeper>,
}

/// The result of waiting for a line.
pub(super) enum LineEvent {
    Line(Line),
    /// It has closed its output.
    Ended,
    Late,
    /// The agent's load is to end.
    Stopped,
}

impl RunningTool {
    /// Starts a tool in an empty scratch directory.
    pub(super) fn start(
        placement: &ClientPlacement,
        words: &CommandLine,
    ) -> Result<Self, ToolError> {
        let scratch = |source| ToolError::Scratch { path: placement.scratch.clone(), source };
        if placement.scratch.exists() {
            fs::remove_dir_all(&placement.scratch).map_err(scratch)?;
        }
        fs::create_dir_all(&placement.scratch).map_err(scratch)?;
        let mut command = command(placement, words)?;
        command
            .current_dir(&placement.scratch)
            // Numbers with decimal points and messages in English.
            .env("LC_ALL", "C")
            // The terminal's interrupt goes to the harness, which stops the tool cleanly.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut spawn = || {
            placement::bind(&placement.cpus)?;
            let program = || words.program.clone();
            command.spawn().map_err(|source| match source.kind() {
                std::io::ErrorKind::NotFound => ToolError::NotFound { program: program() },
                _ => ToolError::Spawn { program: program(), source },
            })
        };
        // A child inherits namespace and affinity from the thread that starts it. With a keeper it
        // also ends with that thread, which is the agent's own; otherwise it is a new one.
        let mut child = match placement.keeper {
            Some(_) => spawn()?,
            None => placement::within(placement.namespace.as_deref(), spawn)??,
        };
        let (sender, lines) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            let sender = sender.clone();
            std::thread::spawn(move || pass(stdout, false, &sender));
        }
        if let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || pass(stderr, true, &sender));
        }
        let keeper = placement.keeper.clone();
        Ok(Self { child, lines, printed: ToolOutput::default(), keeper })
    }

    /// Waits for the next line until `deadline`.
    pub(super) fn next_line(&mut self, deadline: Instant) -> LineEvent {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let signals = self.keeper.as_ref().map(|keeper| &keeper.signals);
            if signals.is_some_and(|signals| signals.stop.load(Ordering::Relaxed)) {
                return LineEvent::Stopped;
            }
            let limit = if signals.is_some() { left.min(STOP_EVERY) } else { left };
            match self.lines.recv_timeout(limit) {
                Ok(line) => {
                    self.printed.keep(&line);
                    return LineEvent::Line(line);
                }
                Err(RecvTimeoutError::Disconnected) => return LineEvent::Ended,
                Err(RecvTimeoutError::Timeout) if limit < left => {}
                Err(RecvTimeoutError::Timeout) => return LineEvent::Late,
            }
        }
    }

    /// Waits for its end until `deadline`; `None` if it still runs then.
    pub(super) fn end(&mut self, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
        loop {
            match self.next_line(deadline) {
                LineEvent::Line(_) => {}
                LineEvent::Late => return Ok(None),
                LineEvent::Stopped => return Err(std::io::ErrorKind::Interrupted.into()),
                LineEvent::Ended => break,
            }
        }
        let deadline = Instant::now() + REAP_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(None)
    }

    /// Returns its CPU time so far, also that of threads that have ended, in ns: a Java tool has
    /// many that end early.
    pub(super) fn cpu_ns(&self) -> u64 {
        let time = cpu_clock::of_process(self.child.id()).unwrap_or_default();
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the CPU time of its running threads, from the scheduler's statistics.
    pub(super) fn threads(&self) -> ThreadTimes {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let of_task = |path: PathBuf| {
            let text = fs::read_to_string(path.join("schedstat")).ok()?;
            let id = path.file_name()?.to_str()?.parse().ok()?;
            Some((id, text.split(' ').next()?.parse().ok()?))
        };
        let tasks = tasks.into_iter().flatten().flatten();
        ThreadTimes(tasks.filter_map(|task| of_task(task.path())).collect())
    }

    /// Returns the CPU time of the thread that used most between two readings, in ns. The compilers
    /// of a Java tool do not count: they work for long, and no operation waits for them.
    pub(super) fn busiest_thread_ns(&self, begin: &ThreadTimes, end: &ThreadTimes) -> u64 {
        let mut used: Vec<(u32, u64)> =
            end.0.iter().map(|(id, ns)| (*id, ns.saturating_sub(begin.of(*id)))).collect();
        used.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let counts = |id: u32| {
            let path = format!("/proc/{}/task/{id}/comm", self.child.id());
            !fs::read_to_string(path).is_ok_and(|name| is_compiler(&name))
        };
        used.into_iter().find(|(id, _)| counts(*id)).map_or(0, |(_, ns)| ns)
    }
}

/// Returns the command that starts a tool: by its keeper, if it has one.
fn command(placement: &ClientPlacement, words: &CommandLine) -> Result<Command, ToolError> {
    let CommandLine { program, arguments } = words;
    let mut command = match &placement.keeper {
        None => Command::new(program),
        Some(keeper) => {
            let found = tare_host::exec::find(program)
                .ok_or_else(|| ToolError::NotFound { program: program.clone() })?;
            let mut command = Command::new(&keeper.program);
            let parent = std::process::id().to_string();
            command.args(["load-agent", "--become", &parent, "--"]).arg(found);
            command
        }
    };
    command.args(arguments);
    if let Some(run) = &placement.run {
        command.env(RUN_VARIABLE, run);
    }
    Ok(command)
}

/// Returns whether a thread of this name compiles a Java program (HotSpot's `C1 CompilerThre` and
/// `C2 CompilerThre`, as the kernel cuts them).
fn is_compiler(name: &str) -> bool {
    name.starts_with("C1 Compiler") || name.starts_with("C2 Compiler")
}

/// The CPU time of each thread of a process, in ns, by its id.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadTimes(Vec<(u32, u64)>);

impl ThreadTimes {
    fn of(&self, id: u32) -> u64 {
        self.0.iter().find(|(known, _)| *known == id).map_or(0, |(_, ns)| *ns)
    }
}

impl Drop for RunningTool {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes lines on; they end with a newline or a carriage return.
fn pass(from: impl Read, is_error: bool, to: &Sender<Line>) {
    let mut line = Vec::new();
    let send = |line: &mut Vec<u8>| {
        let text = String::from_utf8_lossy(line).into_owned();
        line.clear();
        to.send(Line { at: Instant::now(), text, is_error }).is_ok()
    };
    for byte in BufReader::new(from).bytes().map_while(Result::ok) {
        match byte {
            b'\n' | b'\r' if send(&mut line) => {}
            b'\n' | b'\r' => return,
            _ if line.len() < KEPT_BYTES => line.push(byte),
            _ => {}
        }
    }
    if !line.is_empty() {
        send(&mut line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_of_java_are_known_by_name() {
        for (name, expect) in
            [("C2 CompilerThre\n", true), ("C1 CompilerThre\n", true), ("G1 Main Marker\n", false)]
        {
            assert_eq!(is_compiler(name), expect, "{name}");
        }
        let times = ThreadTimes(vec![(7, 10), (9, 5)]);
        assert_eq!((times.of(9), times.of(8)), (5, 0));
    }
}
