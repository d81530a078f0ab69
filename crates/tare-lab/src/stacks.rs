//! Sampled stacks, as the core sees them: who takes them, and what a slice of them is.
//!
//! Sampling disturbs what it looks at, so it happens in slices of its own after the rounds, at one
//! fixed rate in every environment, in rounds of random order like all others. Their figures are
//! never mixed with those of the other slices.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::PartError;
use crate::driver::Edge;
use crate::probe::{Probe, Scope};

/// The part of a sample that was taken in the system.
pub const SYSTEM: &str = "system";
/// The part of a sample that was taken in the client.
pub const CLIENT: &str = "client";
/// The part of a sample that was taken in what a layer adds outside the system (a userland proxy).
pub const LAYER: &str = "layer";
/// Suffix of a frame of the kernel in a folded stack.
pub const KERNEL_SUFFIX: &str = "_[k]";

/// What stacks are taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackKind {
    /// What the CPUs work on.
    OnCpu,
    /// What threads wait in.
    OffCpu,
}

impl StackKind {
    pub const ALL: [Self; 2] = [Self::OnCpu, Self::OffCpu];

    /// As it is typed and recorded.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnCpu => "on-cpu",
            Self::OffCpu => "off-cpu",
        }
    }

    /// As what is missing where it cannot be had.
    pub fn probe(self) -> &'static str {
        match self {
            Self::OnCpu => "stacks",
            Self::OffCpu => "stacks of waiting",
        }
    }
}

/// One distinct stack of a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampledStack {
    /// Whose it is: [`SYSTEM`], [`LAYER`] or [`CLIENT`].
    pub part: String,
    /// The one subsystem that it is counted for.
    pub subsystem: String,
    /// Frames from the root to the leaf, separated by `;`. Frames of the kernel end with
    /// [`KERNEL_SUFFIX`].
    pub folded: String,
    /// Samples on the CPU; of waiting, ns that were waited in it inside the window.
    pub samples: u64,
}

/// CPU time of a part in the window of a slice, from the accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartCpu {
    pub part: String,
    pub cpu_ns: u64,
    /// What of it was polling without finding work, by the system's own account.
    pub idle_poll_ns: u64,
}

/// One slice in which stacks were sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StackSlice {
    pub id: i64,
    /// The statistical block: every environment once. From 0.
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
    /// What ticked, such as `cpu-clock at 999 Hz`.
    pub event: String,
    pub cpu: Vec<PartCpu>,
    pub stacks: Vec<SampledStack>,
    /// Why the slice does not count, if it does not.
    pub void: Option<String>,
}

/// Samples the stacks of processes. The implementation lives in `tare-probe`.
pub trait StackSampler {
    fn kind(&self) -> StackKind;

    /// What ticks and how often, such as `cpu-clock at 999 Hz`.
    fn event(&self) -> String;

    /// Gets ready to sample the threads of these processes; samples nothing yet.
    fn begin(&mut self, scope: &Scope) -> Result<(), PartError>;

    /// Samples from `Edge::Begin` to `Edge::End`.
    fn edge(&mut self, edge: Edge) -> Result<(), PartError>;

    /// Stops, and returns what was sampled since `begin`. Called while the processes still exist.
    /// Called also after a failure, so that nothing is left running.
    fn end(&mut self) -> Result<Vec<SampledStack>, PartError>;
}

/// What is to be run after the rounds of a study, in slices of its own, because it disturbs.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "the parts are trait objects without Debug")]
pub struct Afterwards<'s> {
    /// Each has slices of its own.
    pub samplers: Vec<Box<dyn StackSampler + 's>>,
    /// Probes that disturb; all of them look at the same slices.
    pub tracers: Vec<Box<dyn Probe + 's>>,
    pub rounds: u32,
    /// Measured window of one stack slice. Traced slices are as long as the study's.
    pub window: Duration,
}
