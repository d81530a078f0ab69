//! Makes the kernel bring its CPU accounts up to date, so that a reading at an edge is exact.
//!
//! The kernel adds to the account of a running thread at each scheduler tick and at each switch
//! (`update_curr` in kernel/sched/fair.c). The account of a thread that runs through is therefore
//! up to one tick old: 4 ms at CONFIG_HZ=250, which is 8 % of a slice of 50 ms. CPU clocks of other
//! processes (clock_getcpuclockid(3)), cpuacct and cpu.stat have the same age.
//!
//! Method: one thread with real-time priority on each CPU. Woken at an edge, it preempts what runs
//! there, and this switch updates the account. It then sleeps again.
//!
//! Limits: it needs CAP_SYS_NICE and, on cgroup v1, a real-time budget in its cgroup; without them
//! the accounts stay up to one tick old. Each edge costs each CPU about 10 µs, the same in every
//! environment. On more than [`CPUS_MAX`] CPUs only the first ones are refreshed.

#[allow(unsafe_code, reason = "sched_setscheduler(2) has no safe interface")]
mod sys;

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet as Affinity, sched_setaffinity};
use tare_std::cpus::CpuSet;

/// The most CPUs: waking more takes longer than an edge may take.
const CPUS_MAX: usize = 64;

/// Time limit for all CPUs at one edge.
const WAIT: Duration = Duration::from_millis(2);

/// The threads, one for each CPU. They end when this is dropped.
#[derive(Debug)]
pub struct AccountRefresh {
    wakers: Vec<Sender<u64>>,
    answers: Receiver<u64>,
    edge: u64,
}

impl AccountRefresh {
    /// Starts the threads. Leaves out CPUs on which this process may not run, and all of them if it
    /// may have no real-time priority.
    pub fn start(cpus: &CpuSet) -> Self {
        let (answer, answers) = mpsc::channel();
        let start = |cpu: u32| {
            let (waker, edges) = mpsc::channel();
            let (answer, (ready, started)) = (answer.clone(), mpsc::channel());
            let work = move || {
                if ready.send(prepare(cpu)).is_err() {
                    return;
                }
                while let Ok(edge) = edges.recv() {
                    if answer.send(edge).is_err() {
                        break;
                    }
                }
            };
            thread::Builder::new().name(format!("refresh-{cpu}")).spawn(work).ok()?;
            started.recv().is_ok_and(|is_prepared| is_prepared).then_some(waker)
        };
        let wakers = cpus.iter().take(CPUS_MAX).filter_map(start).collect();
        Self { wakers, answers, edge: 0 }
    }

    /// Returns how many CPUs are refreshed. 0: accounts are up to one tick old.
    pub fn cpus(&self) -> usize {
        self.wakers.len()
    }

    /// Brings the accounts of these CPUs up to date. Returns as soon as all have switched, or after
    /// 2 ms.
    pub fn refresh(&mut self) {
        self.edge += 1;
        let deadline = Instant::now() + WAIT;
        let mut waiting = self.wakers.iter().filter(|waker| waker.send(self.edge).is_ok()).count();
        while waiting > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok(edge) if edge == self.edge => waiting -= 1,
                // A late answer to an earlier edge.
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
}

/// Binds the calling thread to a CPU, with real-time priority.
fn prepare(cpu: u32) -> bool {
    let mut affinity = Affinity::new();
    if cpu as usize >= Affinity::MAX_CPU {
        return false;
    }
    affinity.set(cpu as usize);
    sched_setaffinity(None, &affinity).is_ok() && sys::make_real_time().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refresh_ends_with_and_without_cpus() {
        let mut none = AccountRefresh::start(&CpuSet::default());
        none.refresh();
        assert_eq!(none.cpus(), 0);
        let mut first = AccountRefresh::start(&CpuSet::parse_list("0").unwrap());
        first.refresh();
        first.refresh();
        assert!(first.cpus() <= 1);
        // A CPU that does not exist is left out.
        assert_eq!(AccountRefresh::start(&CpuSet::parse_list("1023").unwrap()).cpus(), 0);
    }
}
