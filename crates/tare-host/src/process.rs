//! Processes: pinning, safe signals, waiting with a limit, process trees.
//!
//! Signals go through a pidfd that is opened before the process is checked, so that a pid that the
//! kernel reuses in between cannot direct the signal to an unrelated process. Kernels before 5.3
//! have none: there the start time of the process is compared before each signal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use rustix::thread::{CpuSet as RawCpuSet, sched_getaffinity, sched_setaffinity};
use tare_std::cpus::CpuSet;

/// Restricts the calling thread, and all threads and processes that it starts later, to `cpus`.
///
/// # Errors
/// When none of the CPUs exists or the cpuset of the process allows none of them.
pub fn pin_this_thread(cpus: &CpuSet) -> io::Result<()> {
    Ok(sched_setaffinity(None, &raw(cpus)?)?)
}

/// Returns the CPUs on which the calling thread may run.
pub fn cpus_of_this_thread() -> io::Result<CpuSet> {
    let raw = sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    for cpu in (0..RawCpuSet::MAX_CPU).filter(|cpu| raw.is_set(*cpu)) {
        if let Ok(cpu) = u32::try_from(cpu) {
            set.insert(cpu);
        }
    }
    Ok(set)
}

/// Restricts every thread of a process to `cpus`. A thread that ended meanwhile is no error.
pub fn pin(pid: u32, cpus: &CpuSet) -> io::Result<()> {
    let raw = raw(cpus)?;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let number = thread?.file_name().to_string_lossy().parse().unwrap_or(0);
        match Pid::from_raw(number).map(|thread| sched_setaffinity(Some(thread), &raw)) {
            Some(Err(error)) if error != rustix::io::Errno::SRCH => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Restricts one thread to `cpus`. A thread that has ended is no error.
pub fn pin_thread(thread: u32, cpus: &CpuSet) -> io::Result<()> {
    let number = i32::try_from(thread).ok().and_then(Pid::from_raw);
    let raw = raw(cpus)?;
    match number.map(|number| sched_setaffinity(Some(number), &raw)) {
        Some(Err(error)) if error != rustix::io::Errno::SRCH => Err(error.into()),
        _ => Ok(()),
    }
}

fn raw(cpus: &CpuSet) -> io::Result<RawCpuSet> {
    let mut raw = RawCpuSet::new();
    for cpu in cpus.iter() {
        match usize::try_from(cpu) {
            Ok(cpu) if cpu < RawCpuSet::MAX_CPU => raw.set(cpu),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "CPU number too large")),
        }
    }
    Ok(raw)
}

/// A process that can be signalled and waited for. It never refers to another process, even when
/// the kernel reuses the pid.
#[derive(Debug)]
pub struct ProcessHandle {
    pub pid: u32,
    reference: Reference,
}

#[derive(Debug)]
enum Reference {
    Descriptor(OwnedFd),
    /// When the process started, in ticks since the boot.
    Started(String),
}

/// How often a process without a descriptor is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(5);

impl ProcessHandle {
    /// Opens a process; `None` when it does not exist.
    pub fn open(pid: u32) -> Option<Self> {
        let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let reference = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(descriptor) => Reference::Descriptor(descriptor),
            Err(rustix::io::Errno::NOSYS) => Reference::Started(started(pid)?.0),
            Err(_) => return None,
        };
        Some(Self { pid, reference })
    }

    /// Sends a signal. A process that has ended is no error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let sent = match &self.reference {
            Reference::Descriptor(descriptor) => pidfd_send_signal(descriptor, signal),
            Reference::Started(_) if self.has_ended() => Ok(()),
            Reference::Started(_) => {
                let raw = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
                raw.map_or(Ok(()), |pid| kill_process(pid, signal))
            }
        };
        match sent {
            Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the process has ended (a zombie has).
    pub fn has_ended(&self) -> bool {
        self.wait_end(Instant::now()).unwrap_or(true)
    }

    /// Waits until the process has ended (a zombie has); false when the deadline comes first.
    pub fn wait_end(&self, deadline: Instant) -> io::Result<bool> {
        let start = match &self.reference {
            Reference::Descriptor(descriptor) => return readable(descriptor.as_fd(), deadline),
            Reference::Started(start) => start,
        };
        while started(self.pid).is_some_and(|(now, is_zombie)| now == *start && !is_zombie) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            thread::sleep(LOOK.min(left));
        }
        Ok(true)
    }
}

/// Returns when a process started, and whether it is a zombie (proc(5), fields 22 and 3 of `stat`).
fn started(pid: u32) -> Option<(String, bool)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before these fields may have blanks.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    Some((fields.nth(18)?.to_string(), matches!(state, "Z" | "X")))
}

/// Kills these processes and waits `limit` at most until all have ended. Returns the survivors.
pub fn kill(pids: &[u32], limit: Duration) -> io::Result<Vec<u32>> {
    let handles: Vec<ProcessHandle> =
        pids.iter().filter_map(|pid| ProcessHandle::open(*pid)).collect();
    kill_handles(&handles, limit)
}

/// Like [`kill`], for open handles.
pub fn kill_handles(handles: &[ProcessHandle], limit: Duration) -> io::Result<Vec<u32>> {
    for handle in handles {
        handle.signal(Signal::KILL)?;
    }
    let deadline = Instant::now() + limit;
    let mut alive = Vec::new();
    for handle in handles {
        if !handle.wait_end(deadline)? {
            alive.push(handle.pid);
        }
    }
    Ok(alive)
}

/// Waits for a child until the deadline, then kills it. `None` means that it was killed.
pub fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    let ended = match ProcessHandle::open(child.id()) {
        Some(handle) => handle.wait_end(deadline)?,
        None => true,
    };
    if ended {
        return child.wait().map(Some);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Waits until a descriptor is readable; false when the deadline comes first.
fn readable(descriptor: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Lists every process on the host.
pub fn all() -> Vec<u32> {
    let Ok(folder) = fs::read_dir("/proc") else { return Vec::new() };
    folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the process that started first.
pub fn oldest(pids: &[u32]) -> Option<u32> {
    let since = |pid: &u32| started(*pid).and_then(|(ticks, _)| ticks.parse::<u64>().ok());
    pids.iter().copied().min_by_key(|pid| (since(pid).unwrap_or(u64::MAX), *pid))
}

/// Lists a process and all its descendants, parents first. Reads `children` of each thread
/// (CONFIG_PROC_CHILDREN), so it takes some tens of µs per process.
pub fn tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let threads = fs::read_dir(format!("/proc/{}/task", found[next]));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        next += 1;
    }
    found
}

/// Returns a variable of the environment with which a process was started. `None` when it is not
/// set, or the process has ended, is not readable, or is inside execve: the kernel wakes the parent
/// of a vfork before it has set up the new environment, so for some µs a new process shows none.
pub fn variable(pid: u32, name: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).ok()?;
    bytes.split(|byte| *byte == 0).find_map(|entry| {
        let rest = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(rest).into_owned())
    })
}

/// Returns the words of a process's command line, without empty ones; none if it has ended.
pub fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Returns a field of `/proc/PID/status`, such as `Seccomp` or `Cpus_allowed_list`.
pub fn status_field(pid: u32, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name == field).then(|| value.trim().to_string())
    })
}

/// Returns a name as the kernel cuts it for a process: at 15 bytes (`TASK_COMM_LEN` without the
/// zero byte).
pub fn cut_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(15)]
}

/// Returns the name of a process's executable, as in [`cut_name`].
pub fn name(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_string())
}

/// Returns the path of the network namespace of a process, for as long as it runs.
pub fn network_namespace(pid: u32) -> PathBuf {
    format!("/proc/{pid}/ns/net").into()
}

/// Returns the inode of a namespace of a process (`net`, `mnt`, `pid` ...).
pub fn namespace_inode(pid: u32, kind: &str) -> Option<u64> {
    inode_of_link(Path::new(&format!("/proc/{pid}/ns/{kind}")))
}

/// Returns the inode in a namespace link (`net:[4026531840]`).
pub fn inode_of_link(link: &Path) -> Option<u64> {
    let text = fs::read_link(link).ok()?;
    text.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// Stops every thread of these processes (SIGSTOP) and waits until they are stopped.
///
/// # Errors
/// `TimedOut` when one of them is not stopped within `limit`.
pub fn stop(pids: &[u32], limit: Duration) -> io::Result<()> {
    for handle in pids.iter().filter_map(|pid| ProcessHandle::open(*pid)) {
        handle.signal(Signal::STOP)?;
    }
    let deadline = Instant::now() + limit;
    let mut attempt = 0;
    while !pids.iter().all(|pid| is_stopped(*pid)) {
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "SIGSTOP has no effect"));
        }
        attempt += 1;
        thread::sleep(stop_poll(attempt));
    }
    Ok(())
}

/// Returns the pause after a check that processes have stopped. `attempt` counts the checks from 1.
/// Most threads stop within 0.1 ms, and a stop is part of each slice of a study.
pub(crate) fn stop_poll(attempt: u32) -> Duration {
    Duration::from_micros(20 << attempt.clamp(1, 4).saturating_sub(1))
        .min(Duration::from_micros(200))
}

/// Resumes processes that `stop` stopped (SIGCONT).
pub fn resume(pids: &[u32]) -> io::Result<()> {
    pids.iter()
        .filter_map(|pid| ProcessHandle::open(*pid))
        .try_for_each(|handle| handle.signal(Signal::CONT))
}

/// Whether all threads of a process are stopped, or it has ended.
fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses and may hold any character.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        matches!(state, None | Some('T' | 't' | 'Z' | 'X'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn pinning_is_inherited() {
        let all = cpus_of_this_thread().unwrap();
        let first = all.iter().next().unwrap();
        let one = CpuSet::parse_list(&first.to_string()).unwrap();
        let (here, there) = thread::spawn(move || {
            pin_this_thread(&one).unwrap();
            let child = Command::new("cat").arg("/proc/self/status").output().unwrap();
            (cpus_of_this_thread().unwrap(), String::from_utf8(child.stdout).unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(here.to_string(), first.to_string());
        assert!(there.contains(&format!("Cpus_allowed_list:\t{first}\n")), "{there}");
    }

    #[test]
    fn process_without_a_descriptor_is_waited_for_and_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let reference = |start: String| ProcessHandle { pid, reference: Reference::Started(start) };
        let own = reference(started(pid).unwrap().0);
        assert!(!own.has_ended() && !own.wait_end(Instant::now() + LOOK).unwrap());
        // Another process had this pid before.
        let earlier = reference("1".into());
        assert!(earlier.has_ended());
        earlier.signal(Signal::KILL).unwrap();
        assert!(!own.has_ended(), "the signal was not for it");
        assert!(kill_handles(&[own], Duration::from_secs(10)).unwrap().is_empty());
        assert!(started(pid).unwrap().1, "a zombie has ended");
        child.wait().unwrap();
    }

    #[test]
    fn stops_resumes_and_kills_process() {
        let mut child = Command::new("sleep").arg("60").env("TARE_TEST", "x y").spawn().unwrap();
        let pid = child.id();
        // Between the two halves of execve a process shows no environment.
        while variable(pid, "TARE_TEST").is_none() {
            thread::yield_now();
        }
        assert_eq!(variable(pid, "TARE_TEST").as_deref(), Some("x y"));
        assert!(tree(std::process::id()).contains(&pid));
        stop(&[pid], Duration::from_secs(2)).unwrap();
        assert!(is_stopped(pid));
        resume(&[pid]).unwrap();
        assert!(kill(&[pid], Duration::from_secs(2)).unwrap().is_empty());
        child.wait().unwrap();
        assert!(kill(&[pid], Duration::from_secs(2)).unwrap().is_empty());
    }
}
