//! The stack sampler. It runs the command `perf` from the distribution's package.
//!
//! Method: `perf record` starts before the load and gets its orders over a pipe, so that it samples
//! exactly the measured window. It writes into a memory file of this process, reached as
//! `/proc/PID/fd/N`, so that nothing is left on a disk. If the machine counts cycles, a sample is
//! taken every [`CYCLES`] cycles by a non-maskable interrupt. Otherwise the timer `cpu-clock`
//! ticks. It cannot see code that disables interrupts: the time of that code shows where interrupts
//! are enabled again.
//!
//! Limits: kernel frames are complete. The callers in programs are as good as the method
//! ([`UserFrames`]). The innermost function of a program is always right.

mod running;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use tare_lab::PartError;
use tare_lab::driver::Edge;
use tare_lab::probe::Scope;
use tare_lab::stacks::{
    CLIENT, INTERRUPT_CPUS, LAYER, SYSTEM, SampledStack, StackKind, StackSampler,
};
use tare_std::cpus::CpuSet;

use super::script::{self, Sample};
use super::{UserFrames, folded, subsystem, waits};
use running::{Running, channel, memory_file, path_of, text_of, wait};

/// Samples per second of CPU time. Not a round number, so that it does not keep step with timers.
const FREQUENCY_HZ: u32 = 999;
/// Cycles between two samples: about as many samples per second at 3 GHz.
const CYCLES: u32 = 3_000_000;
/// The event of a thread that leaves its CPU.
const SWITCHES: &str = "sched:sched_switch";
/// The time limit for perf to start, to stop, and to execute an order.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for perf to print the stacks of a slice.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);

/// Why stacks cannot be sampled.
#[derive(Debug, thiserror::Error)]
pub enum StacksError {
    #[error(
        "cannot run perf: it is not installed; install the package linux-perf (Debian) or linux-tools-generic (Ubuntu)"
    )]
    NotInstalled,
    #[error("cannot run perf {step}")]
    Spawn { step: &'static str, source: io::Error },
    #[error(
        "perf cannot see switches away from a CPU: {said}; it needs root and a kernel with tracepoints"
    )]
    NoSwitches { said: String },
    #[error("perf {step} failed with {status}: {stderr}")]
    Failed { step: &'static str, status: ExitStatus, stderr: String },
    #[error("perf record ended by itself with {status}: {stderr}")]
    Ended { status: ExitStatus, stderr: String },
    #[error("perf did not {order} within {} s", ORDER_TIMEOUT.as_secs())]
    Silent { order: &'static str },
    #[error("perf script did not end within {} s and was killed", SCRIPT_TIMEOUT.as_secs())]
    SlowScript,
    #[error("cannot {step} for perf")]
    Channel { step: &'static str, source: io::Error },
    #[error("there is no process to sample; the host cannot see into this environment")]
    NoProcess,
    #[error("perf got the order \"{order}\" before it was started")]
    NotBegun { order: &'static str },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Cycles,
    Timer,
    /// Every switch away from a CPU.
    Switches,
}

/// Samples stacks with the command `perf`.
#[derive(Debug)]
pub struct Perf {
    program: String,
    /// The environment variable that marks the processes of a study, so that leftovers are found.
    mark: (String, String),
    clock: Clock,
    /// The first observed system decides it for the whole study.
    user: UserFrames,
    /// The CPUs on which everything is sampled, in place of the processes of a study.
    cpus: Option<CpuSet>,
    running: Option<Running>,
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let since = Duration::try_from(now).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl Perf {
    /// Finds perf and an event that it can sample. `mark` is an environment variable and its value
    /// for the processes that perf starts.
    ///
    /// # Errors
    /// If perf is not installed, does not run, or cannot see switches.
    pub fn open(
        kind: StackKind,
        user: UserFrames,
        mark: (&str, &str),
    ) -> Result<Self, StacksError> {
        Self::open_program("perf", kind, user, mark)
    }

    /// Samples everything that runs on some CPUs: those that handle interrupts.
    ///
    /// # Errors
    /// If perf is not installed or does not run.
    pub fn open_on_cpus(cpus: &CpuSet, mark: (&str, &str)) -> Result<Self, StacksError> {
        // Any program may run there, and the interest is in the kernel.
        let perf = Self::open(StackKind::OnCpu, UserFrames::None, mark)?;
        Ok(Self { cpus: Some(cpus.clone()), ..perf })
    }

    fn open_program(
        program: &str,
        kind: StackKind,
        user: UserFrames,
        mark: (&str, &str),
    ) -> Result<Self, StacksError> {
        let mark = (mark.0.to_string(), mark.1.to_string());
        let (clock, event) = match kind {
            StackKind::OnCpu | StackKind::InterruptCpus => (Clock::Timer, "cycles"),
            StackKind::OffCpu => (Clock::Switches, SWITCHES),
        };
        let mut perf =
            Self { program: program.to_string(), mark, clock, user, cpus: None, running: None };
        // Prints `COUNT,,cycles,...`, or `<not supported>` in place of the count.
        let arguments = ["stat", "--field-separator=,", "--event", event, "--", "true"];
        let output = perf.command(&arguments).output().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StacksError::NotInstalled,
            _ => StacksError::Spawn { step: "stat", source },
        })?;
        let text = String::from_utf8_lossy(&output.stderr);
        // The shell and unshare exit with 127 if a program does not exist.
        if output.status.code() == Some(127) {
            return Err(StacksError::NotInstalled);
        }
        let counts = text.lines().filter(|line| line.contains(event)).any(|line| {
            line.split(',').next().is_some_and(|count| count.trim().parse::<u64>().is_ok())
        });
        match (kind, counts) {
            (StackKind::OnCpu | StackKind::InterruptCpus, true) => perf.clock = Clock::Cycles,
            (StackKind::OnCpu | StackKind::InterruptCpus, false) | (StackKind::OffCpu, true) => {}
            (StackKind::OffCpu, false) => {
                let said = text.lines().map(str::trim).find(|line| !line.is_empty());
                let said = said.unwrap_or("perf does not say why").to_string();
                return Err(StacksError::NoSwitches { said });
            }
        }
        Ok(perf)
    }

    /// A perf command that reads no configuration and contacts no server for symbols.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = match self.clock {
            Clock::Cycles | Clock::Timer => Command::new(&self.program),
            // To find tracepoints, perf mounts tracefs and leaves it mounted. The mount namespace
            // keeps that mount off the host.
            Clock::Switches => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "--", &self.program]);
                command
            }
        };
        command
            .args(arguments)
            .env(&self.mark.0, &self.mark.1)
            .env("PERF_CONFIG", "/dev/null")
            .env("LC_ALL", "C")
            .env_remove("DEBUGINFOD_URLS")
            .stdin(Stdio::null());
        command
    }

    fn start(&self, scope: &Scope) -> Result<Running, StacksError> {
        let mut parts = HashMap::new();
        for (part, pids) in
            [(SYSTEM, &scope.system), (LAYER, &scope.layer), (CLIENT, &scope.client)]
        {
            parts.extend(pids.iter().map(|pid| (*pid, part)));
        }
        if scope.system.is_empty() {
            return Err(StacksError::NoProcess);
        }
        let pids: Vec<String> = parts.keys().map(ToString::to_string).collect();
        let observed = match &self.cpus {
            Some(cpus) => ["--cpu".to_string(), cpus.to_string()],
            None => ["--pid".to_string(), pids.join(",")],
        };
        let (data, stderr) = (memory_file("tare-stacks")?, memory_file("tare-stacks-log")?);
        let (order_end, orders) = channel()?;
        let (answers, answer_end) = channel()?;
        let control = format!("fifo:{},{}", path_of(&order_end), path_of(&answer_end));
        let (cycles, hertz) = (CYCLES.to_string(), FREQUENCY_HZ.to_string());
        let clock = match self.clock {
            Clock::Cycles => &["--event", "cycles", "--count", &cycles][..],
            Clock::Timer => &["--event", "cpu-clock", "--freq", &hertz],
            Clock::Switches => &[
                "--event",
                SWITCHES,
                "--count",
                "1",
                "--switch-events",
                "--clockid",
                "CLOCK_MONOTONIC",
            ],
        };
        let log = stderr
            .try_clone()
            .map_err(|source| StacksError::Channel { step: "share a memory file", source })?;
        let child = self
            .command(&["record", "--no-buildid", "--no-buildid-cache"])
            .args(clock)
            .args(self.user.arguments())
            .args(["--delay", "-1", "--control", &control])
            .args(observed)
            .args(["--output", &path_of(&data)])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|source| StacksError::Spawn { step: "record", source })?;
        let _far = (order_end, answer_end);
        let mut running =
            Running { child, data, stderr, orders, answers, _far, parts, window: (0, 0) };
        // perf answers when it is ready. Disabling a sampler that is not enabled changes nothing.
        running.order("disable")?;
        Ok(running)
    }

    /// Runs `perf script`, and folds the stacks that it prints.
    fn fold(&self, running: &Running) -> Result<Vec<SampledStack>, StacksError> {
        let (mut printed, mut stderr) =
            (memory_file("tare-stacks-text")?, memory_file("tare-stacks-log")?);
        let share = |file: &File| {
            file.try_clone()
                .map_err(|source| StacksError::Channel { step: "share a memory file", source })
        };
        let input = path_of(&running.data);
        // Resolving the names of inlined functions is slow for each frame.
        let (fields, more) = match self.clock {
            Clock::Cycles | Clock::Timer => ("pid,ip,sym,dso", &[][..]),
            Clock::Switches => {
                ("pid,tid,time,event,ip,sym,dso,trace", &["--show-switch-events", "--ns"][..])
            }
        };
        let mut child = self
            .command(&["script", "--input", &input, "--fields", fields, "--no-inline"])
            .args(more)
            .stdout(share(&printed)?)
            .stderr(share(&stderr)?)
            .spawn()
            .map_err(|source| StacksError::Spawn { step: "script", source })?;
        let ended = wait(&mut child, SCRIPT_TIMEOUT);
        if !matches!(ended, Ok(Some(_))) {
            let _ = child.kill();
            let _ = child.wait();
        }
        let status = ended
            .map_err(|source| StacksError::Spawn { step: "script", source })?
            .ok_or(StacksError::SlowScript)?;
        if !status.success() {
            let stderr = text_of(&mut stderr);
            return Err(StacksError::Failed { step: "script", status, stderr });
        }
        let mut text = Vec::new();
        printed
            .rewind()
            .and_then(|()| printed.read_to_end(&mut text))
            .map_err(|source| StacksError::Channel { step: "read what was printed", source })?;
        let text = String::from_utf8_lossy(&text);
        Ok(match self.clock {
            Clock::Cycles | Clock::Timer if self.cpus.is_some() => fold_cpus(&text),
            Clock::Cycles | Clock::Timer => fold(&text, &running.parts),
            Clock::Switches => waits::fold(&text, &running.parts, running.window),
        })
    }
}

/// Counts equal stacks, each for the part that its process belongs to.
fn fold(text: &str, parts: &HashMap<u32, &'static str>) -> Vec<SampledStack> {
    count(text, |sample| parts.get(&sample.pid).copied())
}

/// Counts the stacks of everything that ran on the sampled CPUs. The idle loop is no work.
fn fold_cpus(text: &str) -> Vec<SampledStack> {
    count(text, |sample| (!is_idle(sample)).then_some(INTERRUPT_CPUS))
}

/// Whether a CPU had nothing to do: the idle task, outside of interrupts and softirqs.
fn is_idle(sample: &Sample) -> bool {
    let interrupted = |name: &str| {
        ["irq", "interrupt", "sysvec_", "el1_int"].iter().any(|word| name.contains(word))
    };
    // Functions of locks in the idle loop have such words too, but are too short to matter.
    sample.pid == 0 && !sample.frames.iter().any(|frame| interrupted(&frame.name))
}

/// Counts equal stacks, each for the part that `part_of` gives.
fn count(text: &str, part_of: impl Fn(&Sample) -> Option<&'static str>) -> Vec<SampledStack> {
    let mut counts: BTreeMap<(String, String, &'static str), u64> = BTreeMap::new();
    for sample in script::samples(text) {
        let Some(part) = part_of(&sample) else { continue };
        let mut frames = sample.frames;
        script::drop_unknown_roots(&mut frames);
        let subsystem = subsystem::of(part, &frames);
        let key = (part.to_string(), folded(&frames), subsystem);
        *counts.entry(key).or_default() += 1;
    }
    let stack = |((part, folded, subsystem), samples): ((String, String, &str), u64)| {
        SampledStack { part, subsystem: subsystem.to_string(), folded, samples }
    };
    counts.into_iter().map(stack).collect()
}

impl StackSampler for Perf {
    fn kind(&self) -> StackKind {
        match self.clock {
            _ if self.cpus.is_some() => StackKind::InterruptCpus,
            Clock::Cycles | Clock::Timer => StackKind::OnCpu,
            Clock::Switches => StackKind::OffCpu,
        }
    }

    fn event(&self) -> String {
        let event = match self.clock {
            Clock::Cycles => format!("cycles, every {CYCLES}"),
            Clock::Timer => format!("cpu-clock at {FREQUENCY_HZ} Hz"),
            Clock::Switches => "every switch away from a CPU".to_string(),
        };
        let cpus = self.cpus.as_ref().map(|cpus| format!(" on CPUs {cpus}")).unwrap_or_default();
        format!("{event}{cpus}; {}", self.user.name())
    }

    fn begin(&mut self, scope: &Scope) -> Result<(), PartError> {
        self.running = None;
        if let Some(pid) = scope.system.first().filter(|_| self.cpus.is_none()) {
            self.user = self.user.settled(*pid, self.clock == Clock::Switches);
        }
        self.running = Some(self.start(scope)?);
        Ok(())
    }

    fn edge(&mut self, edge: Edge) -> Result<(), PartError> {
        let order = match edge {
            Edge::Begin => "enable",
            Edge::End => "disable",
        };
        let running = self.running.as_mut().ok_or(StacksError::NotBegun { order })?;
        // The sampled time includes the whole window.
        match edge {
            Edge::Begin => {
                running.order(order)?;
                running.window = (monotonic_ns(), u64::MAX);
            }
            Edge::End => {
                running.window.1 = monotonic_ns();
                running.order(order)?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<SampledStack>, PartError> {
        let mut running = self.running.take().ok_or(StacksError::NotBegun { order: "end" })?;
        running.stop()?;
        Ok(self.fold(&running)?)
    }
}

#[cfg(test)]
mod tests;
