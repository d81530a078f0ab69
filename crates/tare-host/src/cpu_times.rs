//! How busy CPUs are, by /proc/stat (proc_stat(5)).

use std::{fs, io};

use tare_std::cpus::CpuSet;

/// Columns of a CPU: user, nice, system, idle, waiting for I/O, interrupts, softirqs, stolen.
/// Time in guests is part of user time.
const COLUMNS: usize = 8;
/// Position and number of those in which nothing ran.
const IDLE: (usize, usize) = (3, 2);

/// The time of some CPUs since the boot, in ticks of 1/USER_HZ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    idle: u64,
    all: u64,
}

impl CpuTimes {
    /// Reads the time of these CPUs; those that are offline count nothing.
    ///
    /// # Errors
    /// If /proc/stat cannot be read or understood.
    pub fn of(cpus: &CpuSet) -> io::Result<Self> {
        let is_one = |name: &str| name.parse().is_ok_and(|cpu| cpus.contains(cpu));
        Self::parse(&fs::read_to_string("/proc/stat")?, is_one)
    }

    /// Reads the time of all CPUs.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_host() -> io::Result<Self> {
        Self::parse(&fs::read_to_string("/proc/stat")?, str::is_empty)
    }

    /// Adds the lines of the CPUs whose name after `cpu` is wanted; their sum has an empty name.
    fn parse(text: &str, wanted: impl Fn(&str) -> bool) -> io::Result<Self> {
        let mut times = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().and_then(|word| word.strip_prefix("cpu"));
            if !name.is_some_and(&wanted) {
                continue;
            }
            let ticks: Result<Vec<u64>, _> = words.take(COLUMNS).map(str::parse).collect();
            let ticks = ticks.map_err(io::Error::other)?;
            times.idle += ticks.iter().skip(IDLE.0).take(IDLE.1).sum::<u64>();
            times.all += ticks.iter().sum::<u64>();
        }
        Ok(times)
    }

    /// Returns the share of the time since an earlier reading in which nothing ran, 0 to 1. Time
    /// that the hypervisor gave to others is not idle.
    pub fn idle_share_since(self, before: Self) -> f64 {
        // The time of waiting for I/O may decrease.
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        since(self.idle, before.idle) / since(self.all, before.all).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  11 1 5 71 11 1 3 2 99 0\ncpu0 10 1 5 70 10 1 3 0 99 0\n\
                        cpu1 1 0 0 1 1 0 0 2 0 0\nintr 5 4 3\nctxt 7\n";

    #[test]
    fn idle_time_is_that_of_the_cpus_asked_for() {
        let of = |cpus: &str| {
            let cpus = CpuSet::parse_list(cpus).unwrap();
            CpuTimes::parse(STAT, |name| name.parse().is_ok_and(|cpu| cpus.contains(cpu))).unwrap()
        };
        assert_eq!(of("0"), CpuTimes { idle: 80, all: 100 });
        assert_eq!(of("0-1"), CpuTimes { idle: 82, all: 105 });
        assert_eq!(of("7"), CpuTimes::default());
        assert_eq!(CpuTimes::parse(STAT, str::is_empty).unwrap(), of("0-1"), "the first line");
        assert!(CpuTimes::parse("cpu0 1 2 x", |_| true).is_err());
        let later = CpuTimes { idle: 90, all: 140 };
        assert!((later.idle_share_since(of("0")) - 0.25).abs() < 1e-9);
        assert!(of("0").idle_share_since(of("0")).abs() < 1e-9);
    }

    #[test]
    fn this_host_has_cpu_time() {
        let (host, first) = (CpuTimes::of_host().unwrap(), CpuSet::parse_list("0").unwrap());
        assert!(host.all > 0 && host.all >= CpuTimes::of(&first).unwrap().all);
    }
}
