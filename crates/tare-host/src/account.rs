//! CPU time that sets of processes have used.
//!
//! Method: the first field of `/proc/PID/task/TID/schedstat` is the time a thread has run, in ns
//! (Documentation/scheduler/sched-stats.rst). The kernel provides it with and without
//! CONFIG_SCHEDSTATS, and updates it at each scheduler tick and switch, so the value of a running
//! thread may be one tick old. A thread that has ended counts with its last value read; CPU time
//! that it used after that reading is lost.

use std::collections::HashMap;
use std::fs;

/// Sums the CPU time of a set of processes. Only differences between readings are meaningful.
#[derive(Debug, Default)]
pub struct Account {
    threads: HashMap<(u32, u32), u64>,
    ended_ns: u64,
}

impl Account {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the CPU time of all threads of these processes so far, in ns. It never decreases.
    pub fn read(&mut self, pids: &[u32]) -> u64 {
        self.read_threads(pids, |_| true)
    }

    /// Like [`Self::read`], for only those threads whose id `wanted` accepts.
    pub fn read_threads(&mut self, pids: &[u32], wanted: impl Fn(u32) -> bool) -> u64 {
        let mut now = HashMap::with_capacity(self.threads.len());
        for pid in pids {
            let Ok(folder) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for thread in folder.flatten() {
                let Some(id) = thread.file_name().to_str().and_then(|id| id.parse().ok()) else {
                    continue;
                };
                if !wanted(id) {
                    continue;
                }
                let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
                let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
                if let Some(ns) = ns {
                    now.insert((*pid, id), ns);
                }
            }
        }
        let ended = self.threads.iter().filter(|(thread, _)| !now.contains_key(thread));
        self.ended_ns += ended.map(|(_, ns)| ns).sum::<u64>();
        self.threads = now;
        self.ended_ns + self.threads.values().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_and_survives_thread_end() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read x"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut account = Account::new();
        let mut last = 0;
        while last < 20_000_000 {
            let now = account.read(&[child.id()]);
            assert!(now >= last);
            last = now;
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(account.read(&[child.id()]) >= last);
    }
}
