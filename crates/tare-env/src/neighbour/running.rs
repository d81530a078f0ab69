//! The processes of one neighbour: start, cgroup, read-back and end.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tare_host::RUN_VARIABLE;
use tare_host::cgroup::{Cgroup, CgroupError};
use tare_host::exec::Command;
use tare_host::journal::{Entry, EntryId};
use tare_host::{netns, process};
use tare_lab::PartError;
use tare_lab::environment::LayerState;
use tare_lab::layer::{Neighbour, NeighbourKind};
use tare_std::cpus::CpuSet;

use super::{Beside, UNDER_LOAD, state};
use crate::client::{batch, without_ipv6};
use crate::layer::neighbour as load;
use crate::run_context::RunContext;
use crate::runtime::contract;
use crate::system;

/// Holds the command back until it is in its cgroup. `$0` is the program, `$@` its arguments.
const GATE: &str = "read -r go && exec \"$0\" \"$@\" </dev/null";

/// How long the workers may take to start, and all processes to end.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long another system may take until it has its rows and is under load.
const SYSTEM_START_LIMIT: Duration = Duration::from_secs(360);
const END_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// How long SIGSTOP may take to stop every thread.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Why a neighbour does not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunningError {
    #[error("cannot create {}", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot start neighbour {neighbour:?}")]
    Start { neighbour: String, source: io::Error },
    #[error("neighbour {neighbour:?} ended at once: {why}")]
    Ended { neighbour: String, why: String },
    #[error(
        "neighbour {neighbour:?} started {found} processes within {} s, not {wanted}",
        START_LIMIT.as_secs()
    )]
    Workers { neighbour: String, found: usize, wanted: usize },
    #[error(
        "neighbour {neighbour:?} is not under load {} s after its start: {said}",
        SYSTEM_START_LIMIT.as_secs()
    )]
    NoLoad { neighbour: String, said: String },
    #[error("process {pid} of neighbour {neighbour:?} does not end after SIGKILL")]
    Unkillable { neighbour: String, pid: u32 },
    #[error(
        "neighbour {neighbour:?} needs {needed} bytes of {what}, and half of what is free in {place} is \
         {free}; give it a smaller size or fewer workers"
    )]
    Space { neighbour: String, needed: u64, what: &'static str, place: String, free: u64 },
}

/// A neighbour and its processes while it runs.
pub(super) struct RunningNeighbour {
    context: Arc<RunContext>,
    environment: String,
    neighbour: Neighbour,
    cpus: CpuSet,
    entries: Vec<EntryId>,
    running: Option<Running>,
}

struct Running {
    child: Child,
    group: Cgroup,
    log: PathBuf,
}

impl RunningNeighbour {
    pub(super) fn new(
        context: &Arc<RunContext>,
        environment: &str,
        neighbour: &Neighbour,
        cpus: CpuSet,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            environment: environment.into(),
            neighbour: neighbour.clone(),
            cpus,
            entries: Vec::new(),
            running: None,
        }
    }

    fn name(&self) -> String {
        self.neighbour.name.clone()
    }

    fn workers(&self) -> u32 {
        self.neighbour.workers_on(self.cpus.len())
    }

    /// Returns how many processes it has at least: stress-ng itself and its workers, or another
    /// system and what starts it.
    fn processes_min(&self) -> usize {
        match self.neighbour.kind {
            NeighbourKind::Command => 1,
            NeighbourKind::System => 2,
            _ => 1 + usize::try_from(self.workers()).unwrap_or(usize::MAX - 1),
        }
    }

    /// Refuses a neighbour that would take more than half of what is free.
    fn check_space(&self) -> Result<(), RunningError> {
        let work = self.context.work();
        let memory = load::memory_bytes(&self.neighbour, self.workers());
        let disk = load::disk_bytes(&self.neighbour, self.workers());
        let on_disk = rustix::fs::statvfs(work).ok();
        let on_disk = on_disk.map(|found| found.f_bavail.saturating_mul(found.f_frsize));
        let free = [
            (memory, "memory", "MemAvailable".to_string(), memory_available()),
            (disk, "disk", work.display().to_string(), on_disk),
        ];
        for (needed, what, place, free) in free {
            if let Some(half) = free.map(|free| free / 2).filter(|half| needed > *half) {
                let neighbour = self.name();
                return Err(RunningError::Space { neighbour, needed, what, place, free: half });
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), PartError> {
        self.check_space()?;
        let context = Arc::clone(&self.context);
        let name = format!("n{}", context.next_environment());
        let folder = context.work().join(&name);
        let group_name = format!("{}/{name}", context.prefix());
        let group = context.cgroups().group(&group_name);
        let namespace = format!("{}-{name}", context.prefix());
        let has_network =
            matches!(self.neighbour.kind, NeighbourKind::Network | NeighbourKind::System);

        let mut entries = vec![Entry::directory(folder.clone())];
        if has_network {
            entries.push(Entry::network_namespace(namespace.clone()));
        }
        entries.push(context.cgroups().entry(&group_name));
        self.entries = context.journal().write(entries)?;
        fs::create_dir(&folder)
            .map_err(|source| RunningError::Directory { path: folder.clone(), source })?;
        group.make_folders()?;
        known(group.set_cpuset(&self.cpus))?;
        if let Some(bytes) = load::memory_max(&self.neighbour, self.workers()) {
            known(group.set_memory(bytes))?;
        }
        let namespace = match has_network {
            true => Some(own_network(&context, &namespace)?),
            false => None,
        };
        self.spawn(&folder, namespace.as_deref(), group)
    }

    fn spawn(
        &mut self,
        folder: &Path,
        namespace: Option<&Path>,
        group: Cgroup,
    ) -> Result<(), PartError> {
        let start = |source| RunningError::Start { neighbour: self.name(), source };
        let words = load::command(&self.neighbour, self.workers(), folder);
        let mut command = Command::new("/bin/sh").args(["-c", GATE]);
        if self.neighbour.kind == NeighbourKind::System {
            command = command.arg(self.context.program());
        }
        command = command.args(words).own_group();
        command = command.variable(RUN_VARIABLE, self.context.run()).on_cpus(&self.cpus);
        if let Some(namespace) = namespace {
            command = command.in_namespace(namespace);
        }
        let log = folder.join("log");
        // The output of a command has no limit, and would fill the disk.
        let (out, err) = match self.neighbour.kind {
            NeighbourKind::Command => (Stdio::null(), Stdio::null()),
            _ => {
                let file = File::create(&log).map_err(start)?;
                (file.try_clone().map_err(start)?.into(), file.into())
            }
        };
        let child = command.spawn(Stdio::piped(), out, err)?;
        // From here on `stop` ends the process, even if one of the next steps fails.
        let running = self.running.insert(Running { child, group, log });
        let pid = running.child.id();
        running.group.add(pid)?;
        // Entering a cpuset may have widened the affinity (kernels before 6.2).
        process::pin(pid, &self.cpus)?;
        let gate = running.child.stdin.take();
        let neighbour = self.neighbour.name.clone();
        gate.map_or(Ok(()), |mut gate| gate.write_all(b"go\n"))
            .map_err(|source| RunningError::Start { neighbour, source })?;
        match self.neighbour.kind {
            NeighbourKind::System => Ok(self.wait_for_load(&folder.join(UNDER_LOAD))?),
            _ => Ok(self.wait_for_workers()?),
        }
    }

    /// Waits until another system is under load, when its process creates this file.
    fn wait_for_load(&mut self, sign: &Path) -> Result<(), RunningError> {
        let deadline = Instant::now() + SYSTEM_START_LIMIT;
        while !sign.exists() {
            let neighbour = self.name();
            if let Some(why) = self.ended() {
                return Err(RunningError::Ended { neighbour, why });
            }
            if Instant::now() > deadline {
                return Err(RunningError::NoLoad { neighbour, said: self.said() });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits until all workers run.
    fn wait_for_workers(&mut self) -> Result<(), RunningError> {
        let (wanted, deadline) = (self.processes_min(), Instant::now() + START_LIMIT);
        loop {
            let neighbour = self.name();
            if let Some(why) = self.ended() {
                return Err(RunningError::Ended { neighbour, why });
            }
            let found = self.pids().len();
            if found >= wanted {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(RunningError::Workers { neighbour, found, wanted });
            }
            thread::sleep(POLL);
        }
    }

    /// Returns why it does not run, if its first process has ended.
    fn ended(&mut self) -> Option<String> {
        let Some(running) = &mut self.running else { return Some("it was not started".into()) };
        let status = running.child.try_wait().ok().flatten()?;
        Some(format!("{status}: {}", self.said()))
    }

    /// Returns what it printed last, on one line.
    fn said(&self) -> String {
        let log = self.running.as_ref().map(|running| system::log_tail(&[&running.log]));
        let said = log.unwrap_or_default();
        let said = said.trim().lines().collect::<Vec<_>>().join("; ");
        if said.is_empty() { "it printed nothing".into() } else { said }
    }

    fn pids(&self) -> Vec<u32> {
        self.running.as_ref().map(|running| running.group.pids()).unwrap_or_default()
    }

    /// Kills all processes and waits for their end.
    fn end(&mut self) -> Result<(), PartError> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        let deadline = Instant::now() + END_LIMIT;
        // stress-ng may start a worker again, so it ends first.
        let first = running.child.id();
        // On cgroup v1 a frozen process cannot be killed. Thawing fails where nothing can freeze.
        let _ = running.group.thaw();
        loop {
            let mut pids = running.group.pids();
            pids.sort_by_key(|pid| *pid != first);
            let alive = process::kill(&pids, contract::KILL_LIMIT)?;
            if running.child.try_wait()?.is_some() && running.group.pids().is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let pid = alive.first().copied().unwrap_or(first);
                let neighbour = self.neighbour.name.clone();
                // A later stop tries again.
                self.running = Some(running);
                return Err(RunningError::Unkillable { neighbour, pid }.into());
            }
            // A process that was not in the cgroup yet is no other's: the child is not reaped.
            running.child.kill()?;
            thread::sleep(POLL);
        }
    }
}

impl Beside for RunningNeighbour {
    fn start(&mut self) -> Result<(), PartError> {
        self.stop()?;
        let begun = self.begin();
        if begun.is_err() {
            // The first error names the cause; the journal keeps what `stop` cannot remove.
            let _ = self.stop();
        }
        begun
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        match &self.running {
            Some(running) if running.group.can_freeze() => running.group.freeze()?,
            _ => process::stop(&self.pids(), STOP_LIMIT)?,
        }
        Ok(())
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        match &self.running {
            Some(running) if running.group.can_freeze() => running.group.thaw()?,
            _ => process::resume(&self.pids())?,
        }
        Ok(())
    }

    fn cpu_ns(&self) -> Result<u64, PartError> {
        Ok(self.running.as_ref().map_or(Ok(0), |running| running.group.cpu_ns())?)
    }

    fn read_back(&mut self) -> LayerState {
        if let Some(why) = self.ended() {
            return state(&self.neighbour, format!("it has ended: {why}"), false);
        }
        let pids = self.pids();
        let mut lists: Vec<String> = pids.iter().flat_map(|pid| system::affinities(*pid)).collect();
        lists.sort();
        lists.dedup();
        let inside =
            |list: &String| CpuSet::parse_list(list).is_ok_and(|cpus| cpus.is_subset(&self.cpus));
        let in_force =
            pids.len() >= self.processes_min() && !lists.is_empty() && lists.iter().all(inside);
        let found = format!("{} processes, Cpus_allowed_list: {}", pids.len(), lists.join(" | "));
        state(&self.neighbour, found, in_force)
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.end()?;
        Ok(contract::undo(&self.context, &self.environment, &mut self.entries)?)
    }
}

impl Drop for RunningNeighbour {
    fn drop(&mut self) {
        // Callers that need the error call `stop`; the journal keeps what is left.
        let _ = self.stop();
    }
}

/// Accepts that a host lacks a controller: affinity and sizes bound the neighbour there.
fn known(result: Result<(), CgroupError>) -> Result<(), CgroupError> {
    match result {
        Err(CgroupError::NoController { .. }) => Ok(()),
        other => other,
    }
}

/// Creates a network namespace with a loopback device, after its journal entry.
fn own_network(context: &RunContext, name: &str) -> Result<PathBuf, PartError> {
    let path = netns::make(name)?;
    without_ipv6(&path)?;
    batch(context.run(), Some(&path), "link set lo up\n")?;
    Ok(path)
}

/// Returns `MemAvailable` in bytes.
fn memory_available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}
