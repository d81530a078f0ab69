//! Doubts: typed reasons to trust a figure less. They are data: stored with the slice, shown with
//! the figure, with advice.

use serde::{Deserialize, Serialize};

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
    /// A probe could not read.
    ProbeFailed { probe: String, reason: String },
    /// Fewer blocks than are needed for an interval worth its name.
    FewBlocks { blocks: u32 },
    /// An environment of the study could not run on this host and was left out.
    EnvironmentLeftOut { environment: String, reason: String },
}
