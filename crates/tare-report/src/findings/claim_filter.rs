//! Effects of layers that a doubt forbids to claim ([`Objections`], rule 5). What it forbids about
//! costs and latencies is part of their verdicts.

use tare_lab::analysis::{Analysis, Interval, claims};
use tare_stats::law::{OFTEN_SHARE, Objections};

/// From this share of slices on, a doubt applies to the environment and not only to a moment.
pub(super) const OFTEN: f64 = OFTEN_SHARE;

/// Decides which claims the doubts about two environments allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimFilter(Objections);

impl ClaimFilter {
    pub(crate) fn new(analysis: &Analysis, workload: &str, environments: [&str; 2]) -> Self {
        Self(claims::objections(analysis, workload, environments))
    }

    /// Whether a layer's effect may be claimed. `noise` is the control's, in the same unit.
    pub(crate) fn allows_layer(&self, effect: &Interval, noise: Option<f64>) -> bool {
        self.0.allow_layer(effect, noise)
    }
}
