//! Probes: what observes a slice besides the environment and the driver.
//!
//! Method: every probe opens its files once and reads them again at the two edges of the measured
//! window; what it reports is the difference. A probe of the system alone learns before a slice which
//! processes these are. Roots are arguments, so that tests read a recorded host. Limits: figures from `/proc/stat` come in ticks of 1/USER_HZ (10 ms nearly everywhere), so
//! that over a slice of 0.2 s on one CPU a single tick is 5 %.
mod between;
mod bpf;
mod context_switches;
mod cost;
mod cpu_shares;
mod disk;
mod disk_latency;
pub mod doctor;
mod files;
mod host_cpu;
mod interrupts;
mod kernel_threads;
mod kvm;
mod memory;
mod net_devices;
mod nvme_work;
mod page_faults;
mod pressure;
mod run_queue;
mod softirq;
mod softirq_counts;
pub mod source;
pub mod stacks;
mod stat;
mod steal;
mod sticky;
mod switches;
mod syscalls;
mod tcp;
mod tracefs;

pub use cost::{Cost, cost};

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tare_lab::probe::{Counter, Probe};
use tare_std::cpus::CpuSet;

/// The skeleton that `add-a-probe.md` shows is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/internals/add-a-probe.md")]
struct AddAProbe;

/// Where the files of the host are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub proc: PathBuf,
    /// Where the cgroup hierarchies are mounted: one directory per controller (v1), or the unified
    /// one itself (v2).
    pub cgroup: PathBuf,
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into(), sys: "/sys".into() }
    }
}

/// A probe, ready to begin, or why there is none.
pub type Opened = Result<Box<dyn Probe>, ProbeError>;

/// A counter as the reference shows it. A part in braces stands for what the host has.
#[derive(Clone, Copy, Debug)]
pub struct CounterKind {
    /// Unit last. What it is per: the slice, which the analysis divides by its operations, unless
    /// [`tare_lab::probe::is_level`].
    pub name: &'static str,
    pub help: &'static str,
}

/// A probe as `tare list` shows it.
#[derive(Clone, Copy, Debug)]
pub struct ProbeKind {
    pub name: &'static str,
    /// One line: what it tells.
    pub help: &'static str,
    /// What it needs of the host.
    pub needs: &'static str,
    /// What its figures do not say, and how coarse they are.
    pub limits: &'static str,
    /// True: a host without it lacks nothing, and nobody is told.
    pub optional: bool,
    /// True: it costs what it looks at, and is read in slices of its own.
    pub disturbs: bool,
    /// The counters that it returns.
    pub counters: &'static [CounterKind],
    pub open: fn(&Roots, &CpuSet) -> Opened,
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

/// Every probe. The order is that in which they are read at both edges.
pub const ALL: &[ProbeKind] = &[
    host_cpu::KIND,
    steal::KIND,
    cpu_shares::KIND,
    softirq::KIND,
    softirq_counts::KIND,
    interrupts::KIND,
    context_switches::KIND,
    switches::KIND,
    run_queue::KIND,
    page_faults::KIND,
    memory::KIND,
    tcp::KIND,
    net_devices::KIND,
    disk::KIND,
    disk_latency::KIND,
    kernel_threads::KIND,
    nvme_work::KIND,
    pressure::CPU,
    pressure::IO,
    pressure::MEMORY,
    kvm::KIND,
    syscalls::KIND,
];

/// Name of a probe that the host cannot serve, and why.
pub type Unavailable = (&'static str, ProbeError);

/// Opens every probe that does not disturb and that the host can serve; the others come back with
/// their reason.
pub fn open_all(roots: &Roots, cpus: &CpuSet) -> (Vec<Box<dyn Probe>>, Vec<Unavailable>) {
    open(roots, cpus, false)
}

/// The same of those that do disturb.
pub fn open_disturbing(roots: &Roots, cpus: &CpuSet) -> (Vec<Box<dyn Probe>>, Vec<Unavailable>) {
    open(roots, cpus, true)
}

fn open(roots: &Roots, cpus: &CpuSet, disturbs: bool) -> (Vec<Box<dyn Probe>>, Vec<Unavailable>) {
    let mut opened = Vec::new();
    let mut missing = Vec::new();
    for kind in ALL.iter().filter(|kind| kind.disturbs == disturbs) {
        match kind.open(roots, cpus) {
            Ok(probe) => opened.push(probe),
            Err(_) if kind.optional => {}
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
    #[error("the host can see no process of the {of}")]
    NoProcess { of: &'static str },
    #[error("a reading of {} takes {} µs, more than the {} µs that an edge may take", .path.display(), .took.as_micros(), .limit.as_micros())]
    Slow { path: PathBuf, took: Duration, limit: Duration },
    #[error("the {of} has {threads} threads; more than {limit} take too long to read")]
    ManyThreads { of: &'static str, threads: usize, limit: usize },
    #[error("the host cannot see the data directory")]
    NoData,
    #[error("cannot {step} of BPF{verdict}; the probe needs {}", bpf::NEEDS)]
    Bpf {
        step: &'static str,
        /// What the kernel's verifier says, in parentheses, if it says anything.
        verdict: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "this process runs in a pid namespace of its own, and the kernel counts by the host's process ids; run tare on the host"
    )]
    PidNamespace,
}

/// A counter with its value.
pub(crate) fn counter(name: impl Into<String>, value: f64) -> Counter {
    Counter { name: name.into(), value }
}

/// A name from the host as a part of a counter's name: `virtio3-input.0` is `virtio3_input_0`.
pub(crate) fn word(name: &str) -> String {
    let mut word = String::new();
    for c in name.chars().take(WORD_MAX) {
        match c.is_ascii_alphanumeric() {
            true => word.push(c.to_ascii_lowercase()),
            false if !word.ends_with('_') => word.push('_'),
            false => {}
        }
    }
    word.trim_matches('_').to_string()
}

/// Names of interrupts have no end of their own.
const WORD_MAX: usize = 40;

#[cfg(test)]
mod tests;
