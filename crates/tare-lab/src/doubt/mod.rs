//! Doubts: typed reasons to trust a figure less. They are data: stored with the slice, shown with
//! the figure, with advice. When a doubt arises is decided in `judge`.

pub mod judge;

use serde::{Deserialize, Serialize};
use tare_std::units::significant;

/// A reason to trust a slice, an environment or the whole record less. Shares are 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Doubt {
    /// The hypervisor ran somebody else on the CPUs of the plan.
    Steal { share: f64 },
    /// Processes that are not part of the study used the CPUs.
    Strangers { share: f64 },
    /// The client used more than 85 % of its CPUs: it may be what was measured.
    ClientSaturated { share: f64 },
    /// The client had to share CPUs with the system.
    ClientSharesCpus { cpus: String },
    /// The CPU quota held the system back.
    Throttled { share: f64 },
    /// The open loop could not send at the asked rate.
    RateNotReached { asked_per_s: f64, reached_per_s: f64 },
    /// The client sent operations more than 1 ms later than they were due; its threads waited for a
    /// CPU for this share of the time, where the kernel tells.
    SentLate { late_share: f64, waited_share: Option<f64> },
    /// Operations failed.
    OperationErrors { error: String, count: u64, operations: u64 },
    /// A layer that was asked for was not in force; the slice is void.
    LayerNotInForce { layer: String, wanted: String, found: String },
    /// The baseline against itself differs by more than the smallest cost that is claimed.
    ControlBeyondClaim { control_percent: f64, smallest_percent: f64 },
    /// The baseline's network namespace has NAT or a container bridge: the native run is taxed.
    BaselineNotClean { found: String },
    /// The system chose another I/O engine here than in the baseline.
    IoEngineDiffers { baseline: String, here: String },
    /// The guest's instructions are emulated: it works, but its figures are the emulator's.
    Emulated { accelerator: String },
    /// The guest's kernel is a process of the host that intercepts every system call: its figures
    /// are not those of a virtual machine.
    UserModeKernel { accelerator: String },
    /// What it was loaded with did not become steady before it was measured.
    NotSteady { workload: String, criterion: String, waited_s: u64 },
    /// The driver's latency at the fixed rate counts from when an operation was sent, not from
    /// when it was due.
    CoordinatedOmission { driver: String },
    /// The driver's latency is of its whole run, lead-in and tail included.
    LatencyBeyondWindow { driver: String },
    /// A probe could not read.
    ProbeFailed { probe: String, reason: String },
    /// Fewer blocks than are needed for an interval worth its name.
    FewBlocks { blocks: u32 },
    /// An environment of the study could not run on this host and was left out.
    EnvironmentLeftOut { environment: String, reason: String },
}

impl Doubt {
    /// Name of the kind, as in the record: `steal`, `client_saturated` ...
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Steal { .. } => "steal",
            Self::Strangers { .. } => "strangers",
            Self::ClientSaturated { .. } => "client_saturated",
            Self::ClientSharesCpus { .. } => "client_shares_cpus",
            Self::Throttled { .. } => "throttled",
            Self::RateNotReached { .. } => "rate_not_reached",
            Self::SentLate { .. } => "sent_late",
            Self::OperationErrors { .. } => "operation_errors",
            Self::LayerNotInForce { .. } => "layer_not_in_force",
            Self::ControlBeyondClaim { .. } => "control_beyond_claim",
            Self::BaselineNotClean { .. } => "baseline_not_clean",
            Self::IoEngineDiffers { .. } => "io_engine_differs",
            Self::Emulated { .. } => "emulated",
            Self::UserModeKernel { .. } => "user_mode_kernel",
            Self::NotSteady { .. } => "not_steady",
            Self::CoordinatedOmission { .. } => "coordinated_omission",
            Self::LatencyBeyondWindow { .. } => "latency_beyond_window",
            Self::ProbeFailed { .. } => "probe_failed",
            Self::FewBlocks { .. } => "few_blocks",
            Self::EnvironmentLeftOut { .. } => "environment_left_out",
        }
    }

    /// What was seen, as one sentence without its full stop.
    pub fn text(&self) -> String {
        let percent = |share: &f64| format!("{} %", significant(share * 100.0, 2));
        match self {
            Self::Steal { share } => {
                format!("the hypervisor gave {} of the CPUs' time to others", percent(share))
            }
            Self::Strangers { share } => {
                format!("processes outside the study used {} of the CPUs", percent(share))
            }
            Self::ClientSaturated { share } => format!(
                "the client used {} of its CPUs, so it may be what was measured",
                percent(share)
            ),
            Self::ClientSharesCpus { cpus } => {
                format!("client and system may both run on CPU {cpus}")
            }
            Self::Throttled { share } => {
                format!("the CPU quota held the system back for {} of the time", percent(share))
            }
            Self::RateNotReached { asked_per_s, reached_per_s } => format!(
                "the fixed rate was not reached: {reached_per_s:.0} of {asked_per_s:.0} \
                 operations/s"
            ),
            Self::SentLate { late_share, waited_share } => {
                let waited = waited_share.as_ref().map(|share| {
                    format!("; its threads waited for a CPU for {} of the time", percent(share))
                });
                format!(
                    "the client sent {} of the operations more than 1 ms late{}",
                    percent(late_share),
                    waited.unwrap_or_default()
                )
            }
            Self::OperationErrors { error, count, operations } => {
                format!("{count} operations failed beside {operations} that succeeded: {error}")
            }
            Self::LayerNotInForce { layer, wanted, found } => {
                format!("the layer {layer} was not in force: wanted {wanted}, found {found}")
            }
            Self::ControlBeyondClaim { control_percent, smallest_percent } => {
                let beyond = match (*smallest_percent, control_percent.abs()) {
                    (0.0, _) => "which chance does not explain".to_string(),
                    (smallest, control) if control < smallest => format!(
                        "which chance does not explain (the smallest cost found is {} %)",
                        significant(smallest, 2)
                    ),
                    (smallest, _) => {
                        format!(
                            "as much as the smallest cost found ({} %)",
                            significant(smallest, 2)
                        )
                    }
                };
                let control = significant(*control_percent, 2);
                format!("the baseline differs from itself by {control} %, {beyond}")
            }
            Self::BaselineNotClean { found } => {
                format!("the baseline pays for container networking too: {found}")
            }
            Self::IoEngineDiffers { baseline, here } => {
                format!("the system does its I/O by {here} here, by {baseline} in the baseline")
            }
            Self::Emulated { accelerator } => format!(
                "the guest's CPU is emulated ({accelerator}): functional, not a measurement"
            ),
            Self::UserModeKernel { .. } => {
                "the guest's kernel runs in user mode, where each system call \
                 of its programs is intercepted: its costs are not those of a virtual machine"
                    .to_string()
            }
            Self::NotSteady { workload, criterion, waited_s } => {
                format!("under {workload:?} it was not steady ({criterion}) after {waited_s} s")
            }
            Self::CoordinatedOmission { driver } => format!(
                "at the fixed rate {driver} counts latency from when it sent an operation, not from \
                 when that was due: what waited for a slow system is left out"
            ),
            Self::LatencyBeyondWindow { driver } => {
                format!("{driver} tells the latency of its whole run, lead-in and tail included")
            }
            Self::ProbeFailed { probe, reason } => {
                format!("the probe {probe} could not read: {reason}")
            }
            Self::FewBlocks { blocks } => {
                format!("there are only {blocks} rounds, too few for an interval worth its name")
            }
            Self::EnvironmentLeftOut { environment, reason } => {
                format!("\"{environment}\" was left out: {reason}")
            }
        }
    }

    /// What to do about it, as one sentence without its full stop.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Steal { .. } => {
                "trust CPU per operation before throughput, and repeat at a quieter time or on a \
                 host of your own"
            }
            Self::Strangers { .. } => {
                "stop what else runs here (top shows it) and repeat; CPU per operation bears it \
                 better than throughput"
            }
            Self::ClientSaturated { .. } => {
                "read this throughput as a lower bound; give the client more CPUs ([cpus] client) \
                 or the system fewer"
            }
            Self::ClientSharesCpus { .. } => {
                "part of the cost is the client's company; the pinned environments are free of it"
            }
            Self::Throttled { .. } => {
                "raise the quota, or take the throttling as part of what the quota costs"
            }
            Self::RateNotReached { .. } => {
                "this latency is that of an overloaded system; lower latency_share or the rate"
            }
            Self::SentLate { .. } => {
                "what was late counts in the response time, which is then partly the client's; give \
                 the client CPUs of its own, or more connections"
            }
            Self::OperationErrors { .. } => {
                "look at the system's log; a failed operation is often cheaper than a good one"
            }
            Self::LayerNotInForce { .. } => {
                "the slice does not count; `tare doctor` says what this host can do"
            }
            Self::ControlBeyondClaim { .. } => {
                "do not claim costs of that size from this record; measure longer or on a quieter \
                 host"
            }
            Self::BaselineNotClean { .. } => {
                "real costs are larger than shown; take the baseline where no NAT table or \
                 container bridge is"
            }
            Self::IoEngineDiffers { .. } => {
                "the cost includes another way of doing I/O; security = \"default+io_uring\" \
                 tells the two apart"
            }
            Self::Emulated { .. } => {
                "read no cost of a virtual machine from it; take a host where KVM boots a guest \
                 (`tare doctor` says whether it does)"
            }
            Self::UserModeKernel { .. } => {
                "read no cost of a virtual machine from it: user code runs at full speed, system \
                 calls many times slower; take a host where KVM boots a guest (`tare doctor`)"
            }
            Self::NotSteady { .. } => {
                "what is measured may still drift; give it a longer steadystate_limit, or lead-in"
            }
            Self::CoordinatedOmission { .. } => {
                "read these percentiles as lower bounds; take a driver that counts from the schedule"
            }
            Self::LatencyBeyondWindow { .. } => {
                "compare its percentiles between environments only; make the window long beside the \
                 lead-in"
            }
            Self::ProbeFailed { .. } => "the doubts that rest on this probe are missing here",
            Self::FewBlocks { .. } => "give it a larger budget, or more rounds",
            Self::EnvironmentLeftOut { .. } => "`tare doctor` says what is missing for it",
        }
    }
}
