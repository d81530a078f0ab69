//! Sums over one small file of each thread, or of each process, of a part of a study.
//!
//! Method: the files are opened before the load starts and stay open during the slice. New threads
//! are found at the end and count from zero, and so are processes that the main threads of the
//! system have forked since: PostgreSQL forks one for each connection. A thread or process that
//! ended counts with its last reading.
//!
//! Limits: a thread that starts and ends inside the slice is not seen, and neither is a process
//! that another thread than the main one forks, or any on a kernel without CONFIG_PROC_CHILDREN.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::ProbeError;
use crate::source::Source;

/// The most threads whose `sched` or `status` is read, about 6 µs each. More take longer than an
/// edge may take.
pub(crate) const THREADS_MAX: usize = 160;

/// The most threads whose `schedstat` is read, about 1.5 µs each.
pub(crate) const SCHEDSTAT_THREADS_MAX: usize = 640;

/// The buffer for one file. It grows if that is too small.
const FILE_BYTES: usize = 2048;

/// The parts of a study whose processes are counted separately.
pub(crate) const SYSTEM: &str = "system";
pub(crate) const LAYER: &str = "layer";
pub(crate) const CLIENT: &str = "client";

/// Extracts the numbers from the text of a file.
pub(crate) type Take<const N: usize> = fn(&str) -> Option<[u64; N]>;

/// The files of one part.
pub(crate) struct ProcessFiles<const N: usize> {
    /// `system`, `layer` or `client`.
    pub(crate) of: &'static str,
    proc: PathBuf,
    file: &'static str,
    take: Take<N>,
    per_thread: bool,
    most: usize,
    pids: Vec<u32>,
    known: HashSet<u32>,
    open: Vec<(Source, [u64; N])>,
}

impl<const N: usize> ProcessFiles<N> {
    /// Opens `/proc/PID/task/TID/FILE` of every thread of the processes, at most `most`.
    pub(crate) fn of_threads(
        of: &'static str,
        proc: &Path,
        pids: &[u32],
        file: &'static str,
        take: Take<N>,
        most: usize,
    ) -> Result<Self, ProbeError> {
        Self::new(of, proc, pids, file, take, (true, most))
    }

    /// Opens `/proc/PID/FILE` of every process.
    pub(crate) fn of_processes(
        of: &'static str,
        proc: &Path,
        pids: &[u32],
        file: &'static str,
        take: Take<N>,
    ) -> Result<Self, ProbeError> {
        Self::new(of, proc, pids, file, take, (false, THREADS_MAX))
    }

    /// Opens `/proc/PID/FILE` of at most `most` processes.
    pub(crate) fn of_many(
        of: &'static str,
        proc: &Path,
        pids: &[u32],
        file: &'static str,
        take: Take<N>,
        most: usize,
    ) -> Result<Self, ProbeError> {
        Self::new(of, proc, pids, file, take, (false, most))
    }

    fn new(
        of: &'static str,
        proc: &Path,
        pids: &[u32],
        file: &'static str,
        take: Take<N>,
        (per_thread, most): (bool, usize),
    ) -> Result<Self, ProbeError> {
        let (known, open) = (HashSet::new(), Vec::new());
        let (proc, pids) = (proc.to_path_buf(), pids.to_vec());
        let mut files = Self { of, proc, file, take, per_thread, most, pids, known, open };
        files.look()?;
        match files.open.is_empty() {
            true => Err(ProbeError::NoProcess { of }),
            false => Ok(files),
        }
    }

    /// Opens the files that are not open yet. Skips a thread that has just ended.
    pub(crate) fn look(&mut self) -> Result<(), ProbeError> {
        self.follow_children();
        for pid in &self.pids {
            let process = self.proc.join(pid.to_string());
            if !self.per_thread {
                if self.known.insert(*pid) {
                    self.open.extend(opened(&process.join(self.file)));
                }
                continue;
            }
            for thread in fs::read_dir(process.join("task")).into_iter().flatten().flatten() {
                let id = thread.file_name().to_str().and_then(|id| id.parse().ok());
                if id.is_some_and(|id| self.known.insert(id)) {
                    self.open.extend(opened(&thread.path().join(self.file)));
                }
            }
        }
        match self.open.len() {
            threads if threads > self.most => {
                Err(ProbeError::ManyThreads { of: self.of, threads, limit: self.most })
            }
            _ => Ok(()),
        }
    }

    /// Adds the children of the system's processes. The system may itself be a child of a process
    /// of the layer or of the client, so only the system's own children are its part.
    fn follow_children(&mut self) {
        let mut at = 0;
        while self.of == SYSTEM && at < self.pids.len() && self.pids.len() <= self.most {
            let pid = self.pids[at].to_string();
            let path = self.proc.join(&pid).join("task").join(&pid).join("children");
            let children = fs::read_to_string(path).unwrap_or_default();
            for child in children.split_ascii_whitespace().filter_map(|word| word.parse().ok()) {
                if !self.pids.contains(&child) {
                    self.pids.push(child);
                }
            }
            at += 1;
        }
    }

    /// Adds processes, and sums over their files alone.
    pub(crate) fn add(&mut self, pids: &[u32]) -> Result<[u64; N], ProbeError> {
        let before = self.open.len();
        self.pids.extend(pids);
        self.look()?;
        Ok(self.read_from(before))
    }

    /// Returns the numbers of each file at the last reading, in the order in which the files were
    /// found: those of an earlier call are the first of a later one.
    pub(crate) fn each(&self) -> Vec<[u64; N]> {
        self.open.iter().map(|(_, last)| *last).collect()
    }

    /// Sums over all files.
    pub(crate) fn read(&mut self) -> [u64; N] {
        self.read_from(0)
    }

    fn read_from(&mut self, first: usize) -> [u64; N] {
        let mut sums = [0; N];
        for (source, last) in &mut self.open[first..] {
            if let Some(now) = source.read().ok().and_then(self.take) {
                *last = now;
            }
            for (sum, number) in sums.iter_mut().zip(*last) {
                *sum += number;
            }
        }
        sums
    }
}

fn opened<const N: usize>(path: &Path) -> Option<(Source, [u64; N])> {
    Some((Source::with_room(path, "/proc", FILE_BYTES).ok()?, [0; N]))
}
