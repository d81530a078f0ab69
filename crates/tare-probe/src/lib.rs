//! Probes, which observe a slice from outside the environment and the driver.
//!
//! Method: a probe opens its files once and reads them at both edges of the measured window. It
//! reports the difference. A probe of the system alone gets the system's processes before each
//! slice. The roots of the file systems are arguments, so that tests can read a recorded host.
//!
//! Limits: figures from `/proc/stat` come in ticks of 1/USER_HZ (10 ms nearly everywhere). In a
//! slice of 0.2 s on one CPU, a single tick is 5 %.
mod account_refresh;
mod block_stack;
mod bpf;
mod card_queues;
mod context_switches;
mod cost;
mod counter_names;
mod cpu_shares;
mod cpu_table;
mod disk;
mod disk_latency;
pub mod doctor;
mod each_second;
mod edge_probe;
mod host_cpu;
mod interrupts;
mod kernel_threads;
mod kvm;
mod memory;
mod net_devices;
mod network_namespaces;
mod nvme_work;
mod page_faults;
mod path_link;
mod pmu;
mod pressure;
mod probe_cpus;
mod process_files;
mod run_queue;
mod softirq;
mod softirq_counts;
pub mod source;
pub mod stacks;
mod stat;
mod steal;
mod switches;
mod syscalls;
mod tcp;
mod tracefs;

pub use account_refresh::AccountRefresh;
pub use cost::{Cost, cost};
pub use path_link::path_link;
pub use probe_cpus::ProbeCpus;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tare_lab::probe::{Counter, Probe};

/// Compiles and runs the skeleton that `add-a-probe.md` shows.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/internals/add-a-probe.md")]
struct AddAProbe;

/// The directories of the host's file systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub proc: PathBuf,
    /// The mount point of the cgroup hierarchies. It has one directory per controller (v1), or is
    /// the unified hierarchy itself (v2).
    pub cgroup: PathBuf,
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into(), sys: "/sys".into() }
    }
}

/// A probe that is ready to start, or the reason why it cannot be opened.
pub type Opened = Result<Box<dyn Probe>, ProbeError>;

/// A counter as the reference shows it. The host fills in a part in braces.
#[derive(Clone, Copy, Debug)]
pub struct CounterKind {
    /// The name, which ends with the unit. The value counts over one slice. The analysis divides it
    /// by the operations of the slice, unless [`tare_lab::probe::is_level`] holds for the name.
    pub name: &'static str,
    pub help: &'static str,
}

/// A probe as `tare list` shows it.
#[derive(Clone, Copy, Debug)]
pub struct ProbeKind {
    pub name: &'static str,
    /// One line that says what the probe measures.
    pub help: &'static str,
    /// The files, kernel options and rights that the probe needs.
    pub needs: &'static str,
    /// What the figures leave out, and their resolution.
    pub limits: &'static str,
    /// True if a host without this probe lacks nothing. The study then reports no missing probe.
    pub optional: bool,
    /// True if the probe slows down what it observes. It then runs in slices of its own.
    pub disturbs: bool,
    /// The counters that the probe returns.
    pub counters: &'static [CounterKind],
    pub open: fn(&Roots, &ProbeCpus) -> Opened,
}

impl ProbeKind {
    /// Opens the probe. Probes of the whole host ignore the CPUs.
    ///
    /// # Errors
    /// If the host lacks something that the probe needs.
    pub fn open(&self, roots: &Roots, cpus: &ProbeCpus) -> Opened {
        (self.open)(roots, cpus)
    }
}

/// All probes, in the order in which they are read at both edges.
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
    path_link::KIND,
    card_queues::KIND,
    disk::KIND,
    disk_latency::KIND,
    kernel_threads::KIND,
    nvme_work::KIND,
    pressure::CPU,
    pressure::IO,
    pressure::MEMORY,
    kvm::KIND,
    syscalls::KIND,
    pmu::KIND,
];

/// The name of a probe that this host cannot run, and the reason.
pub type Unavailable = (&'static str, ProbeError);

/// Opens every probe that does not disturb. Returns the open probes, and the probes that this host
/// cannot run with the reason for each.
pub fn open_all(roots: &Roots, cpus: &ProbeCpus) -> (Vec<Box<dyn Probe>>, Vec<Unavailable>) {
    open(roots, cpus, |kind| !kind.disturbs)
}

/// Opens the probes of these names that disturb. Returns the same as [`open_all`].
pub fn open_disturbing(
    names: &[&str],
    roots: &Roots,
    cpus: &ProbeCpus,
) -> (Vec<Box<dyn Probe>>, Vec<Unavailable>) {
    open(roots, cpus, |kind| kind.disturbs && names.contains(&kind.name))
}

fn open(
    roots: &Roots,
    cpus: &ProbeCpus,
    wanted: impl Fn(&ProbeKind) -> bool,
) -> (Vec<Box<dyn Probe>>, Vec<Unavailable>) {
    let mut opened = Vec::new();
    let mut missing = Vec::new();
    for kind in ALL.iter().filter(|kind| wanted(kind)) {
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
    #[error("probe {probe} was read at the end of a slice before its beginning")]
    NotBegun { probe: &'static str },
    #[error("this machine has no hardware counters for programs; the probe needs {}", pmu::KIND.needs)]
    NoPmu {
        #[source]
        source: io::Error,
    },
    #[error("the host can see no process of the {of}")]
    NoProcess { of: &'static str },
    #[error("reading {} takes {} µs, more than the {} µs that an edge may take, and there is no {}", .path.display(), .took.as_micros(), .limit.as_micros(), .instead.display())]
    Slow {
        path: PathBuf,
        took: Duration,
        limit: Duration,
        /// The folder whose files are faster to read.
        instead: PathBuf,
    },
    #[error("the {of} has {threads} threads; reading more than {limit} takes too long")]
    ManyThreads { of: &'static str, threads: usize, limit: usize },
    #[error("the host cannot see the data directory")]
    NoData,
    #[error("cannot start the thread that reads at every second")]
    Thread(#[source] io::Error),
    #[error("cannot {step} of BPF{verdict}; the probe needs {}", bpf::NEEDS)]
    Bpf {
        step: &'static str,
        /// The message of the kernel's verifier in parentheses, or nothing.
        verdict: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "this process runs in its own pid namespace, but the kernel counts by the host's process ids; run tare on the host"
    )]
    PidNamespace,
}

/// A counter with its value.
pub(crate) fn counter(name: impl Into<String>, value: f64) -> Counter {
    Counter { name: name.into(), value }
}

/// Turns a name from the host into a part of a counter's name: `virtio3-input.0` becomes
/// `virtio3_input_0`.
pub(crate) fn name_part(name: &str) -> String {
    let mut word = String::new();
    for c in name.chars().take(NAME_PART_MAX) {
        match c.is_ascii_alphanumeric() {
            true => word.push(c.to_ascii_lowercase()),
            false if !word.ends_with('_') => word.push('_'),
            false => {}
        }
    }
    word.trim_matches('_').to_string()
}

/// Longer names from the host are cut. The kernel does not limit the names of interrupts.
const NAME_PART_MAX: usize = 40;

#[cfg(test)]
mod tests;
