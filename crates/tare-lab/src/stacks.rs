//! Sampled stacks: the trait of samplers, and the slices that they record.
//!
//! Sampling disturbs the system, so it runs in separate slices after the ordinary rounds, at one
//! fixed rate in every environment, in extra rounds of random order. Their figures never mix with
//! those of the other slices.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::PartError;
use crate::driver::Edge;
use crate::probe::{Probe, Scope};

/// Name of the part for stacks of the system.
pub const SYSTEM: &str = "system";
/// Name of the part for stacks of the client.
pub const CLIENT: &str = "client";
/// Name of the part for stacks of processes that a layer adds, such as a userland proxy.
pub const LAYER: &str = "layer";
/// Name of the part for stacks of everything that ran on the CPUs kept for interrupts.
pub const INTERRUPT_CPUS: &str = "interrupt CPUs";
/// Suffix of kernel frames in a folded stack.
pub const KERNEL_SUFFIX: &str = "_[k]";

/// What stacks show: running threads, waiting threads, or some CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackKind {
    /// Stacks of threads that run on a CPU.
    OnCpu,
    /// Stacks of threads that wait.
    OffCpu,
    /// Stacks of everything that runs on the CPUs kept for interrupts.
    InterruptCpus,
}

impl StackKind {
    pub const ALL: [Self; 3] = [Self::OnCpu, Self::OffCpu, Self::InterruptCpus];

    /// Returns the name on the command line and in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnCpu => "on-cpu",
            Self::OffCpu => "off-cpu",
            Self::InterruptCpus => "interrupt-cpus",
        }
    }

    /// Returns the probe's name for the doubt about a failed sampler.
    pub fn probe(self) -> &'static str {
        match self {
            Self::OnCpu => "stacks",
            Self::OffCpu => "stacks of waiting",
            Self::InterruptCpus => "stacks of interrupt CPUs",
        }
    }
}

/// One distinct stack of a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampledStack {
    /// [`SYSTEM`], [`LAYER`], [`CLIENT`] or [`INTERRUPT_CPUS`].
    pub part: String,
    /// The one subsystem to which the stack counts.
    pub subsystem: String,
    /// Frames from the root to the leaf, separated by `;`. Frames of the kernel end with
    /// [`KERNEL_SUFFIX`].
    pub folded: String,
    /// Off CPU: ns of waiting in this stack inside the window. Otherwise: number of samples.
    pub samples: u64,
}

/// CPU time of a part in the window of a slice, from the CPU accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartCpu {
    pub part: String,
    pub cpu_ns: u64,
    /// The share of it that was idle polling, by the system's own account.
    pub idle_poll_ns: u64,
}

/// One slice in which stacks were sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StackSlice {
    pub id: i64,
    /// Number of the extra round, from 0.
    pub round: u32,
    pub kind: StackKind,
    /// Position inside the round, from 0.
    pub position: u32,
    pub environment: String,
    pub workload: String,
    pub started_unix_ms: u64,
    pub window_ns: u64,
    pub operations: u64,
    pub rate_per_s: f64,
    /// The sampling event, such as `cpu-clock at 999 Hz`.
    pub event: String,
    pub cpu: Vec<PartCpu>,
    pub stacks: Vec<SampledStack>,
    /// Why the slice is void. `None`: it counts.
    pub void: Option<String>,
}

/// Samples the stacks of processes. `tare-probe` has the implementation.
pub trait StackSampler {
    fn kind(&self) -> StackKind;

    /// Returns the sampling event and its rate, such as `cpu-clock at 999 Hz`.
    fn event(&self) -> String;

    /// Prepares to sample the threads of these processes, without sampling yet.
    fn begin(&mut self, scope: &Scope) -> Result<(), PartError>;

    /// Samples from `Edge::Begin` to `Edge::End`.
    fn edge(&mut self, edge: Edge) -> Result<(), PartError>;

    /// Stops, and returns the stacks since `begin`. The campaign calls it while the processes still
    /// exist, also after a failure, so that no sampler keeps running.
    fn end(&mut self) -> Result<Vec<SampledStack>, PartError>;
}

/// The extra rounds after the rounds of a study: samplers and probes that disturb the system run
/// there, in slices of their own.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "the parts are trait objects without Debug")]
pub struct ExtraRounds<'s> {
    /// Each sampler has slices of its own.
    pub samplers: Vec<Box<dyn StackSampler + 's>>,
    /// Probes that disturb the system. All of them observe the same slices.
    pub tracers: Vec<Box<dyn Probe + 's>>,
    pub rounds: u32,
    /// Measured window of one stack slice. Traced slices are as long as the study's.
    pub window: Duration,
}
