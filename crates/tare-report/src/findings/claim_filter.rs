//! Claims that a doubt forbids: the figures stay in the tables, but no finding reports them.
//!
//! [`Objections`] has the rules.

use tare_lab::analysis::{Analysis, Interval, claims};
use tare_stats::law::{OFTEN_SHARE, Objections};

use crate::headline::Metric;

/// From this share of slices on, a doubt applies to the environment and not only to a moment.
pub(super) const OFTEN: f64 = OFTEN_SHARE;

/// Decides which claims the doubts about two environments allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimFilter(Objections);

impl ClaimFilter {
    pub(crate) fn new(analysis: &Analysis, workload: &str, environments: [&str; 2]) -> Self {
        Self(claims::objections(analysis, workload, environments))
    }

    /// Whether any claim is allowed.
    pub(crate) fn open(&self) -> bool {
        self.0.allow_any()
    }

    /// Whether a figure may be claimed; below 0 it is a gain.
    pub(crate) fn allows(&self, metric: Metric, percent: f64) -> bool {
        match metric {
            Metric::Throughput if percent <= 0.0 => self.0.allow_throughput_gain(),
            Metric::Throughput => self.0.allow_throughput(),
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
