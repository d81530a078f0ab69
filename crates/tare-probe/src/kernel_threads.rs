//! `kernel_threads`: CPU time of the kernel threads that carry out I/O: workers (loop devices,
//! writeback, completions of writes), journals, and the threads of file systems and device mappers.
//! No process is charged for it. Without it, a loop device looks cheaper than the disk below it.
//!
//! Source: the first number of `/proc/PID/schedstat`, in ns, of every kernel thread whose name
//! starts with one of [`NAMES`] (`PF_KTHREAD` in the flags of `/proc/PID/stat`, proc_pid_stat(5)).
//! Threads that start during the slice are found at its end and count from zero.
//!
//! Limits: the kernel does not report for whom a worker works. Frozen environments request nothing,
//! but their late writeback, the I/O of other programs and other work of the kernel's queues count
//! too. Interrupts and softirqs are counted elsewhere. The probe reports nothing if the data is on
//! NVMe over fabrics, because [`crate::nvme_work`] counts those workers.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use tare_lab::probe::{Counter, Scope, layer_cpu_name};

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::nvme_work::is_remote;
use crate::process_files::{LAYER, ProcessFiles};
use crate::{CounterKind, ProbeError, ProbeKind, Roots, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "kernel_threads",
    help: "CPU time of the kernel threads that carry out I/O (workers, journals, loop devices), as the layer's",
    needs: "/proc/PID/schedstat (CONFIG_SCHED_INFO), and the host's own /proc",
    limits: "the kernel does not report for whom they work: I/O of other programs and late writeback count too; no \
             counters if the data is on NVMe over fabrics, which has its own probe",
    optional: false,
    disturbs: false,
    counters: &[CounterKind {
        name: "layer_cpu_kernel_threads_ns",
        help: "CPU time of these threads; it is part of the layer's CPU time",
    }],
    open: |roots, _| edge_probe(&KIND, KernelThreads::new(roots)?),
};

/// The prefixes of the names of threads that do I/O for others.
const NAMES: &[&str] = &[
    "kworker/", "loop", "jbd2/", "xfs", "btrfs", "f2fs", "dm", "kdmflush", "kcryptd", "md",
    "bcache",
];
/// `PF_KTHREAD`, include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// The most threads. Each takes about 3 µs to read, and more take longer than an edge may take.
const THREADS_MAX: usize = 1024;
/// Slices between two examinations of all processes.
const EXAMINE_SLICES: u32 = 100;

struct KernelThreads {
    proc: PathBuf,
    sys: PathBuf,
    /// `None` if the slice has no data, or the data is on NVMe over fabrics.
    files: Option<ProcessFiles<1>>,
    /// The processes at the beginning of the slice, so that the edge examines new ones alone.
    seen: HashSet<u32>,
    /// Those of them that carry out I/O.
    known: Vec<u32>,
    /// Slices until all processes are examined again. A new process may have got the id of one that
    /// ended between two slices.
    left: u32,
}

impl KernelThreads {
    fn new(roots: &Roots) -> Result<Self, ProbeError> {
        // A container sees no kernel threads. This reports it at the start of a study.
        drop(files(&roots.proc, &threads(&roots.proc, pids(&roots.proc).into_iter()))?);
        let (proc, sys) = (roots.proc.clone(), roots.sys.clone());
        Ok(Self { proc, sys, files: None, seen: HashSet::new(), known: Vec::new(), left: 0 })
    }
}

impl EdgeReader for KernelThreads {
    /// The CPU time of all threads so far, in ns.
    type Values = Option<u64>;

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        let remote = |data: &PathBuf| is_remote(data, &self.proc, &self.sys);
        let asked = !scope.data.is_empty() && !scope.data.iter().any(remote);
        if !asked {
            self.files = None;
            return Ok(());
        }
        // Examining every process takes 10 ms on a host with a thousand of them.
        let now = pids(&self.proc);
        self.left = match self.left {
            0 => {
                self.seen.clear();
                EXAMINE_SLICES
            }
            left => left - 1,
        };
        let before = self.known.clone();
        self.known.retain(|pid| self.seen.contains(pid) && now.contains(pid));
        self.known.extend(threads(&self.proc, now.difference(&self.seen).copied()));
        self.seen = now;
        if self.files.is_none() || self.known != before || self.left == EXAMINE_SLICES {
            self.files = Some(files(&self.proc, &self.known)?);
        }
        Ok(())
    }

    fn read(&mut self, edge: Edge) -> Result<Self::Values, ProbeError> {
        let Some(files) = &mut self.files else { return Ok(None) };
        let mut sum = files.read()[0];
        if edge == Edge::End {
            let new = pids(&self.proc).into_iter().filter(|pid| !self.seen.contains(pid));
            sum += files.add(&threads(&self.proc, new))?[0];
        }
        Ok(Some(sum))
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let (Some(begin), Some(end)) = (begin, end) else { return Vec::new() };
        vec![counter(layer_cpu_name("kernel_threads"), end.saturating_sub(begin) as f64)]
    }
}

fn files(proc: &Path, threads: &[u32]) -> Result<ProcessFiles<1>, ProbeError> {
    ProcessFiles::of_many(LAYER, proc, threads, "schedstat", first, THREADS_MAX)
}

/// The ids of all processes and kernel threads.
fn pids(proc: &Path) -> HashSet<u32> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The ids of the kernel threads that carry out I/O.
fn threads(proc: &Path, pids: impl Iterator<Item = u32>) -> Vec<u32> {
    let is_one = |pid: &u32| {
        let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat"));
        stat.is_ok_and(|stat| does_io(&stat))
    };
    pids.filter(is_one).collect()
}

/// Whether a line of `/proc/PID/stat` is that of a kernel thread that carries out I/O. A line is
/// `72 (kworker/0:1H) I 2 0 0 0 -1 69238880 ...`; the flags are the seventh field after the name.
fn does_io(stat: &str) -> bool {
    let parts = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(") "));
    let Some((name, rest)) = parts else { return false };
    let flags = rest.split(' ').nth(6).and_then(|flags| flags.parse::<u32>().ok()).unwrap_or(0);
    flags & KERNEL_THREAD != 0 && NAMES.iter().any(|start| name.starts_with(start))
}

fn first(schedstat: &str) -> Option<[u64; 1]> {
    Some([schedstat.split_ascii_whitespace().next()?.parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: u32 = 69_238_880;

    fn host(lines: &[(u32, &str, u32, u64)]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        for line in lines {
            put(proc.path(), *line);
        }
        proc
    }

    fn put(proc: &Path, (pid, name, flags, ns): (u32, &str, u32, u64)) {
        let folder = proc.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let stat = format!("{pid} ({name}) I 2 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0\n");
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(folder.join("schedstat"), format!("{ns} 5 7\n")).unwrap();
    }

    #[test]
    fn sums_io_threads_and_new_ones() {
        let proc = host(&[
            (10, "kworker/0:1H-kblockd", FLAGS, 1000),
            (11, "jbd2/vda-8", FLAGS, 500),
            (12, "ksoftirqd/0", FLAGS, 9_000_000),
            (13, "kworker/ of a user", 0x40_0000, 9_000_000),
        ]);
        let sys = tempfile::tempdir().unwrap();
        let roots =
            Roots { proc: proc.path().into(), sys: sys.path().into(), cgroup: sys.path().into() };
        let mut probe = KernelThreads::new(&roots).unwrap();
        probe.prepare(&Scope { data: vec![sys.path().into()], ..Scope::default() }).unwrap();
        let begin = probe.read(Edge::Begin).unwrap();
        put(proc.path(), (10, "kworker/0:1H-kblockd", FLAGS, 4000));
        put(proc.path(), (14, "loop0", FLAGS, 70));
        let end = probe.read(Edge::End).unwrap();
        assert_eq!(probe.counters(begin, end)[0], counter("layer_cpu_kernel_threads_ns", 3070.0));

        probe.prepare(&Scope::default()).unwrap();
        let (begin, end) = (probe.read(Edge::Begin).unwrap(), probe.read(Edge::End).unwrap());
        assert!(probe.counters(begin, end).is_empty());
    }

    #[test]
    fn reads_names_with_brackets_and_skips_broken_lines() {
        assert!(does_io(&format!("7 (kworker/u8:1) x)) I 2 0 0 0 -1 {FLAGS} 0")));
        assert!(!does_io("7 (loop0 I 2 0 0 0 -1 69238880"));
        assert!(!does_io(""));
    }
}
