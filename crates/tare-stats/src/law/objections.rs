//! What doubts about the environments of a claim forbid.
//!
//! 1. Nothing is claimed of an environment in which more than one operation in a thousand failed: a
//!    failed operation is often cheaper than a good one.
//! 2. Nothing is claimed between two environments of which one or both are emulated.
//! 3. A gain of throughput is not claimed where other programs, the hypervisor or the client's own
//!    limit touch a quarter of the slices: they take from all environments, and what one has more of
//!    was another's loss.
//! 4. A layer's gain must lie beyond the control's noise with the whole of its interval, and rule 3
//!    holds for its CPU, too: layers seldom take work away, so that luck is the better guess.
//! 5. Latencies are not compared where the fixed rate was not reached in a quarter of the slices.

use crate::Interval;

/// A share of slices from which on a doubt is that of the environment and no longer of a moment.
pub const OFTEN_SHARE: f64 = 0.25;

/// Share of failed operations from which on no figure is compared.
pub const FAILED_SHARE_MAX: f64 = 0.001;

/// What was observed in the environments that a claim is about.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objections {
    /// Operations that failed, as a share of all, 0 to 1, where it is largest.
    pub failed_share: f64,
    /// One of the environments runs on an emulated CPU.
    pub emulated: bool,
    /// Other programs, the hypervisor or the client's limit touched [`OFTEN_SHARE`] of the slices.
    pub contended: bool,
    /// The fixed rate was not reached in [`OFTEN_SHARE`] of the slices.
    pub rate_missed: bool,
}

impl Objections {
    /// Rules 1 and 2: whether anything may be claimed at all.
    pub fn allow_any(&self) -> bool {
        self.failed_share <= FAILED_SHARE_MAX && !self.emulated
    }

    /// Rule 3: whether a gain of throughput may be claimed.
    pub fn allow_throughput_gain(&self) -> bool {
        self.allow_any() && !self.contended
    }

    /// Rule 4, for a layer's effect that below 0 is a gain. `noise`: the control's, in the same unit.
    pub fn allow_layer(&self, effect: &Interval, noise: Option<f64>) -> bool {
        let gain = effect.value <= 0.0;
        self.allow_any() && (!gain || !self.contended && -effect.high > noise.unwrap_or(0.0))
    }

    /// Rule 5: whether latencies may be compared.
    pub fn allow_latency(&self) -> bool {
        self.allow_any() && !self.rate_missed
    }
}
