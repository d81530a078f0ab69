//! What a doubt forbids to say: figures stay in the tables, sentences about them are not made.
//!
//! A claim is first of all a claim by its interval and the A/A control ([`crate::headline`]). Beyond that:
//! 1. Nothing is claimed of an environment in which more than one operation in a thousand failed: a failed
//!    operation is often cheaper than a good one.
//! 2. Nothing is claimed between two environments of which one or both are emulated.
//! 3. A gain of throughput is not claimed where strangers, the hypervisor or the client's own limit touch a
//!    quarter of the slices: company takes from all, and what one has more of was another's loss.
//! 4. A layer's gain must lie beyond the control's noise with the whole of its interval, in either figure,
//!    and rule 3 holds for its CPU, too: layers seldom take work away, so that luck is the better guess.
//! 5. Latencies are not compared where the fixed rate was not reached in a quarter of the slices.

use tare_lab::analysis::{Analysis, Finding, Interval};
use tare_lab::doubt::Doubt;

use crate::headline::Metric;

/// A share of slices from which on a doubt is that of the environment and no longer of a moment.
pub(super) const OFTEN: f64 = 0.25;
/// Failed operations in all, from which on no figure is compared.
const FAILED_MAX: f64 = 0.001;

/// Which environments a claim is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate<'a> {
    analysis: &'a Analysis,
    workload: &'a str,
    environments: [&'a str; 2],
}

impl<'a> Gate<'a> {
    pub(crate) fn new(
        analysis: &'a Analysis,
        workload: &'a str,
        environments: [&'a str; 2],
    ) -> Self {
        Self { analysis, workload, environments }
    }

    /// Rules 1 and 2: whether anything may be claimed at all.
    pub(crate) fn open(&self) -> bool {
        !self.any(|doubt, _| match doubt {
            Doubt::OperationErrors { count, operations, .. } => {
                *count as f64 > FAILED_MAX * (*count + *operations) as f64
            }
            Doubt::Emulated { .. } => true,
            _ => false,
        })
    }

    /// Rule 3, for a figure that below 0 is a gain.
    pub(crate) fn allows(&self, metric: Metric, percent: f64) -> bool {
        self.open() && (percent > 0.0 || metric != Metric::Throughput || !self.company())
    }

    /// Rule 4, for a layer's effect that below 0 is a gain. `noise`: the control's, in the same unit.
    pub(crate) fn allows_layer(&self, effect: &Interval, noise: Option<f64>) -> bool {
        let gain = effect.value <= 0.0;
        self.open() && (!gain || !self.company() && -effect.high > noise.unwrap_or(0.0))
    }

    /// Rule 5.
    pub(crate) fn allows_latency(&self) -> bool {
        let late = |doubt: &Doubt, often| matches!(doubt, Doubt::RateNotReached { .. }) && often;
        self.open() && !self.any(late)
    }

    fn company(&self) -> bool {
        self.any(|doubt, often| {
            let shared = matches!(
                doubt,
                Doubt::Strangers { .. } | Doubt::Steal { .. } | Doubt::ClientSaturated { .. }
            );
            shared && often
        })
    }

    /// Whether a doubt about one of the environments is such; told with whether it is there often.
    fn any(&self, such: impl Fn(&Doubt, bool) -> bool) -> bool {
        let ours = |finding: &&Finding| {
            finding.workload == self.workload
                && self.environments.contains(&finding.environment.as_str())
        };
        self.analysis.findings.iter().filter(ours).any(|finding| {
            let slices = f64::from((finding.slices + finding.slices_void).max(1));
            finding
                .doubts
                .iter()
                .any(|(doubt, touched)| such(doubt, f64::from(*touched) >= OFTEN * slices))
        })
    }
}
