//! The trait of probes, which observe slices in addition to the environment and the driver.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::PartError;
use crate::seconds::DiskSecond;

/// One observed figure of a slice: the difference between the edges, or the value at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// Lower case, unit last: `steal_ns`, `softirq_ns`, `host_cpu_ns`. The name determines the kind
    /// ([`is_level`]).
    pub name: String,
    pub value: f64,
}

/// Name endings of levels ([`is_level`]).
pub const LEVELS: [&str; 4] = ["_at_end", "_mean", "_max", "_share"];

/// Returns whether a counter is a level (memory at the end, a mean, a maximum, a share of time),
/// whose value has a meaning alone. All others are sums over the slice, which reports divide by the
/// number of operations.
pub fn is_level(name: &str) -> bool {
    LEVELS.iter().any(|ending| name.ends_with(ending))
}

const LAYER_CPU: (&str, &str) = ("layer_cpu_", "_ns");

/// Returns the name of a counter of layer CPU time (ns) that no process account holds, such as the
/// work of kernel threads. The core adds it to the layer's CPU time of the slice.
pub fn layer_cpu_name(part: &str) -> String {
    format!("{}{part}{}", LAYER_CPU.0, LAYER_CPU.1)
}

/// Returns the part of the layer whose CPU time a counter holds: `nvme target` for
/// `layer_cpu_nvme_target_ns`. `None` for any other counter.
pub fn layer_part(name: &str) -> Option<String> {
    let part = name.strip_prefix(LAYER_CPU.0)?.strip_suffix(LAYER_CPU.1)?;
    Some(part.replace('_', " "))
}

/// The processes of a slice, so that a probe can observe them alone. Process ids are the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Processes of the system, the first started one first.
    pub system: Vec<u32>,
    /// Processes that the layer adds outside the system (a userland proxy).
    pub layer: Vec<u32>,
    /// Processes of the client.
    pub client: Vec<u32>,
    /// The data directories of the system's instances as the host sees them. Empty if the host
    /// cannot see them.
    pub data: Vec<PathBuf>,
    /// Whether the window is long enough to be recorded by the second ([`crate::seconds`]).
    pub by_second: bool,
}

/// Names of the counters from which the core derives doubts.
pub mod names {
    /// CPU time that the hypervisor gave to other guests, over all CPUs of the plan, in ns.
    pub const STEAL_NS: &str = "steal_ns";
    /// CPU time of every task on the host, in ns. The core subtracts the study's own time;
    /// processes outside the study used the rest.
    pub const HOST_CPU_NS: &str = "host_cpu_ns";
    /// CPU time of the harness process itself, in ns.
    pub const HARNESS_CPU_NS: &str = "harness_cpu_ns";
    /// Softirq time over all CPUs of the plan and the interrupt CPUs, in ns (resolution of
    /// /proc/stat: 1/USER_HZ).
    pub const SOFTIRQ_NS: &str = "softirq_ns";
    /// CPU time of everything that ran on the CPUs kept for interrupts, in ns.
    pub const INTERRUPT_CPUS_BUSY_NS: &str = "interrupt_cpus_busy_ns";
    /// Share of the time in which the disk below the data directory had I/O in flight.
    pub const DISK_BUSY_SHARE: &str = "disk_busy_share";
    /// Time in which at least one task of the host waited for a disk, in ns.
    pub const IO_PRESSURE_NS: &str = "io_pressure_some_ns";
    /// Operations that the client sent more than 1 ms after they were due, by its own count.
    pub const CLIENT_SENT_LATE: &str = "client_sent_late";
    /// Time in which threads of the client waited for a CPU, in ns.
    pub const CLIENT_RUN_QUEUE_WAIT_NS: &str = "client_run_queue_wait_ns";
    /// Reads that the system answered, by its own count.
    pub const SYSTEM_READS: &str = "system_reads";
    /// Those of them that had to wait for a disk.
    pub const SYSTEM_DISK_READS: &str = "system_disk_reads";
    /// Sum of the latencies of operations inside the system, by its own account, in ns.
    pub const SYSTEM_LATENCY_NS: &str = "system_latency_ns";
    /// Mean latency inside a system that has to be asked for it, in ns, over the whole slice.
    pub const SYSTEM_LATENCY_NS_MEAN: &str = "system_latency_ns_mean";
    /// The share of the speed of the link that the busier direction of the path used.
    pub const LINK_SHARE: &str = "path_link_share";

    /// Returns the name of the counter of a loader's round-trip time: the median over its
    /// connections, in ns.
    pub fn loader_rtt(loader: u32) -> String {
        format!("loader_{loader}_rtt_ns_mean")
    }

    /// Returns the name of the counter of the least round-trip time that a loader has seen, in ns.
    pub fn loader_rtt_least(loader: u32) -> String {
        format!("loader_{loader}_rtt_least_ns_mean")
    }

    /// CPU time of all neighbours of the environment, in ns. It is in no other account.
    pub const NEIGHBOUR_CPU_NS: &str = "neighbour_cpu_ns";

    /// Returns the name of the counter of the CPU time of one of several neighbours, counted from
    /// 0, in ns.
    pub fn neighbour_cpu_ns(number: usize) -> String {
        format!("neighbour_{}_cpu_ns", number + 1)
    }

    /// The parts of a study whose threads are counted: the system and the client.
    pub const SYSTEM: &str = "system";
    pub const CLIENT: &str = "client";

    /// Returns the name of the counter of the CPU time of the system on one of its hosts, counted
    /// from 0, in ns: its busy time if it reports that.
    pub fn node_cpu_ns(number: usize) -> String {
        format!("node_{}_cpu_ns", number + 1)
    }

    /// Returns the name of the counter of the most that the accounts of a host, counted from 0,
    /// were read later than those of the others, in ns.
    pub fn node_late_ns(number: usize) -> String {
        format!("node_{}_late_ns_max", number + 1)
    }

    /// Returns the name of the counter of the busy time of one event loop, counted from 0, in ns.
    pub fn loop_busy_ns(number: usize) -> String {
        format!("{LOOP}{}_busy_ns", number + 1)
    }

    /// Returns whether a counter is the busy time of an event loop.
    pub fn is_loop_busy(name: &str) -> bool {
        name.starts_with(LOOP)
    }

    /// What the names of the counters of event loops begin with.
    const LOOP: &str = "event_loop_";

    /// Returns the name of the counter of a figure of one of several instances, counted from 0:
    /// [`INSTANCE_OPERATIONS`], [`INSTANCE_CPU`], or one of [`INSTANCE_LATENCIES`].
    pub fn of_instance(number: usize, figure: &str) -> String {
        format!("instance_{}_{figure}", number + 1)
    }

    /// Returns whether a counter is a figure of one of several instances.
    pub fn is_of_instance(name: &str) -> bool {
        name.starts_with("instance_")
    }

    /// Operations of an instance in the window.
    pub const INSTANCE_OPERATIONS: &str = "operations";
    /// CPU time of an instance in ns, without the idle polling that it reports.
    pub const INSTANCE_CPU: &str = "cpu_ns";
    /// Latency of an instance in ns: median, 99 % and 99.9 %.
    pub const INSTANCE_LATENCIES: [&str; 3] = ["p50_ns_mean", "p99_ns_mean", "p99_9_ns_mean"];

    /// Returns the name of the counter that holds the share of a CPU that a part's busiest thread
    /// used.
    pub fn busiest_thread_share(part: &str) -> String {
        format!("{part}_busiest_thread_share")
    }
}

/// Observes slices. `tare-probe` has the implementations, one file each.
pub trait Probe {
    fn name(&self) -> &str;

    /// Returns how the probe reads this host where that is not its usual way. The record shows it
    /// beside the time that a reading takes.
    fn method(&self) -> Option<String> {
        None
    }

    /// Prepares for the next slice, before its load starts. A probe finds and opens its files here,
    /// so that reading at the edges is fast. Probes of the whole host need no preparation.
    fn prepare(&mut self, _scope: &Scope) -> Result<(), PartError> {
        Ok(())
    }

    /// Reads the first values. Takes well under 1 ms.
    fn begin(&mut self) -> Result<(), PartError>;

    /// Reads again and returns the counters of the slice.
    fn end(&mut self) -> Result<Vec<Counter>, PartError>;

    /// Returns what the disks did in each second between the two readings, if the scope asked for
    /// it and the probe follows them.
    fn disk_seconds(&mut self) -> Vec<DiskSecond> {
        Vec::new()
    }
}
