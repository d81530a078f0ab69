//! Probes: what observes a slice besides the environment and the driver.
//!
//! Method: every probe opens its files once and reads them again at the two edges of the measured
//! window; what it reports is the difference. Roots are arguments, so that tests read a recorded
//! host. Limits: figures from `/proc/stat` come in ticks of 1/USER_HZ (10 ms nearly everywhere), so
//! that over a slice of 0.2 s on one CPU a single tick is 5 %.
#![forbid(unsafe_code)]

mod context_switches;
mod host_cpu;
mod pressure;
mod softirq;
mod source;
mod stat;
mod steal;

use std::io;
use std::path::PathBuf;

use tare_lab::probe::Probe;
use tare_std::cpus::CpuSet;

/// Where the files of the host are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub proc: PathBuf,
    /// Where the cgroup hierarchies are mounted: one directory per controller (v1), or the unified
    /// one itself (v2).
    pub cgroup: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into() }
    }
}

/// A probe, ready to begin, or why there is none.
pub type Opened = Result<Box<dyn Probe>, ProbeError>;

/// A probe as `tare list` shows it.
#[derive(Clone, Copy, Debug)]
pub struct ProbeKind {
    pub name: &'static str,
    /// One line: what it tells.
    pub help: &'static str,
    /// What it needs of the host.
    pub needs: &'static str,
    /// Names of the counters that it returns.
    pub counters: &'static [&'static str],
    open: fn(&Roots, &CpuSet) -> Opened,
}

impl ProbeKind {
    /// Opens the probe. `cpus` are the CPUs of the plan; probes of the whole host ignore them.
    ///
    /// # Errors
    /// If the host does not have what the probe needs.
    pub fn open(&self, roots: &Roots, cpus: &CpuSet) -> Opened {
        (self.open)(roots, cpus)
    }
}

/// Every probe.
pub const ALL: &[ProbeKind] =
    &[host_cpu::KIND, steal::KIND, softirq::KIND, context_switches::KIND, pressure::KIND];

/// Name of a probe that the host cannot serve, and why.
pub type Unavailable = (&'static str, ProbeError);

/// Opens every probe that the host can serve; the others come back with their reason.
pub fn open_all(roots: &Roots, cpus: &CpuSet) -> (Vec<Box<dyn Probe>>, Vec<Unavailable>) {
    let mut opened = Vec::new();
    let mut missing = Vec::new();
    for kind in ALL {
        match kind.open(roots, cpus) {
            Ok(probe) => opened.push(probe),
            Err(error) => missing.push((kind.name, error)),
        }
    }
    (opened, missing)
}

/// Why a probe cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("cannot open {}; the probe needs {needs}", .path.display())]
    Open {
        path: PathBuf,
        needs: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot read {}", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} has no {what}; the probe needs {needs}", .path.display())]
    Missing { path: PathBuf, what: String, needs: &'static str },
    #[error("probe {probe} was asked for its end before its beginning")]
    NotBegun { probe: &'static str },
}

#[cfg(test)]
mod tests;
