//! Claims that a doubt forbids: the figures stay in the tables, but no finding reports them.
//!
//! [`Objections`] has the rules; this module collects its input from the doubts of a record.

use tare_lab::analysis::{Analysis, Finding, Interval};
use tare_lab::doubt::Doubt;
use tare_stats::law::{OFTEN_SHARE, Objections};

use crate::headline::Metric;

/// From this share of slices on, a doubt applies to the environment and not only to a moment.
pub(super) const OFTEN: f64 = OFTEN_SHARE;

/// Decides which claims the doubts about two environments allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimFilter(Objections);

impl ClaimFilter {
    pub(crate) fn new(analysis: &Analysis, workload: &str, environments: [&str; 2]) -> Self {
        let ours = |finding: &&Finding| {
            finding.workload == workload && environments.contains(&finding.environment.as_str())
        };
        let mut objections = Objections::default();
        for finding in analysis.findings.iter().filter(ours) {
            let slices = f64::from((finding.slices + finding.slices_void).max(1));
            for (doubt, touched) in &finding.doubts {
                note(&mut objections, doubt, f64::from(*touched) >= OFTEN * slices);
            }
        }
        Self(objections)
    }

    /// Whether any claim is allowed.
    pub(crate) fn open(&self) -> bool {
        self.0.allow_any()
    }

    /// Whether a figure may be claimed; below 0 it is a gain.
    pub(crate) fn allows(&self, metric: Metric, percent: f64) -> bool {
        match metric {
            Metric::Throughput if percent <= 0.0 => self.0.allow_throughput_gain(),
            Metric::Throughput => self.0.allow_throughput_loss(),
            _ => self.open(),
        }
    }

    /// Whether a layer's effect may be claimed. `noise` is the control's, in the same unit.
    pub(crate) fn allows_layer(&self, effect: &Interval, noise: Option<f64>) -> bool {
        self.0.allow_layer(effect, noise)
    }

    pub(crate) fn allows_latency(&self) -> bool {
        self.0.allow_latency()
    }
}

/// Adds what one doubt forbids. `often`: it affects at least [`OFTEN`] of the slices.
fn note(objections: &mut Objections, doubt: &Doubt, often: bool) {
    match doubt {
        Doubt::OperationErrors { count, operations, .. } => {
            let share = *count as f64 / ((*count + *operations) as f64).max(1.0);
            objections.failed_share = objections.failed_share.max(share);
        }
        Doubt::Emulated { .. } => objections.emulated = true,
        Doubt::Strangers { .. } | Doubt::Steal { .. } | Doubt::ClientSaturated { .. } => {
            objections.contended |= often;
        }
        Doubt::NeitherSaturated { .. } => objections.unsaturated |= often,
        Doubt::RateNotReached { .. } => objections.rate_missed |= often,
        _ => {}
    }
}
