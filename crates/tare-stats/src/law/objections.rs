//! Doubts about environments that forbid claims about them.
//!
//! 1. Nothing is claimed about an environment in which more than one operation in a thousand
//!    failed, because a failed operation is often cheaper than a successful one.
//! 2. Nothing is claimed about two environments if one or both are emulated.
//! 3. No throughput is claimed if other programs or the hypervisor took more than their limit of
//!    the CPUs ([`STRANGERS_SHARE_MAX`], [`STEAL_SHARE_MAX`]) in a quarter of the slices: what is
//!    left for a system depends on the scheduler, and not on its layers alone. CPU time per
//!    operation does not depend on how long a system waits for a CPU.
//! 4. No gain of throughput is claimed if the client was at its limit in a quarter of the slices.
//!    It holds all environments back, so that the apparent gain of one can be a loss of the other.
//! 5. The whole interval of a layer's gain must be beyond the control's noise, and rules 3 and 4
//!    apply to its CPU too. Layers rarely remove work, so that chance is the likelier explanation.
//! 6. No difference in throughput is claimed if neither system nor client was busy in a quarter of
//!    the slices. The throughput is then that of a round trip, not a capacity.
//! 7. Latencies are not compared if the fixed rate was missed in a quarter of the slices.
//! 8. No difference in CPU time is claimed if one of the environments polls without an account of
//!    its busy time: its CPU time is that of polling.

use crate::Interval;

/// The largest share of the CPUs that programs outside the study may use in a slice whose
/// throughput counts. An idle machine shows 1 to 2 %.
pub const STRANGERS_SHARE_MAX: f64 = 0.05;

/// The largest share of the CPUs that the hypervisor may take in a slice whose throughput counts.
pub const STEAL_SHARE_MAX: f64 = 0.01;

/// The share of slices from which on a doubt applies to the whole environment.
pub const OFTEN_SHARE: f64 = 0.25;

/// The largest share of failed operations with which figures are compared.
pub const FAILED_SHARE_MAX: f64 = 0.001;

/// The doubts about the environments of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objections {
    /// The largest share of failed operations, from 0 to 1.
    pub failed_share: f64,
    /// One of the environments runs on an emulated CPU.
    pub emulated: bool,
    /// Other programs or the hypervisor took more than their limit in [`OFTEN_SHARE`] of the
    /// slices.
    pub contended: bool,
    /// The client was at its limit in [`OFTEN_SHARE`] of the slices.
    pub client_limited: bool,
    /// The load filled the network link in [`OFTEN_SHARE`] of the slices.
    pub link_limited: bool,
    /// Neither system nor client was busy at capacity in [`OFTEN_SHARE`] of the slices.
    pub unsaturated: bool,
    /// The fixed rate was missed in [`OFTEN_SHARE`] of the slices.
    pub rate_missed: bool,
    /// The busy time of a system that polls is unknown in a slice of one of the environments.
    pub busy_time_unknown: bool,
}

impl Objections {
    /// Rules 1 and 2: whether anything may be claimed at all.
    pub fn allow_any(&self) -> bool {
        self.failed_share <= FAILED_SHARE_MAX && !self.emulated
    }

    /// Rule 8: whether a difference in CPU time may be claimed.
    pub fn allow_cpu(&self) -> bool {
        self.allow_any() && !self.busy_time_unknown
    }

    /// Rules 3 and 6: whether a difference in throughput may be claimed.
    pub fn allow_throughput(&self) -> bool {
        self.allow_any() && !self.withholds_throughput()
    }

    /// Whether throughput was not that of the system's own limit.
    pub fn withholds_throughput(&self) -> bool {
        self.contended || self.unsaturated || self.link_limited
    }

    /// Rule 4: whether a gain of throughput may be claimed.
    pub fn allow_throughput_gain(&self) -> bool {
        self.allow_throughput() && !self.client_limited
    }

    /// Rule 5: whether a layer's effect may be claimed. Below 0 is a gain. `noise` is that of the
    /// control, in the same unit.
    pub fn allow_layer(&self, effect: &Interval, noise: Option<f64>) -> bool {
        let gain = effect.value <= 0.0;
        let quiet = !self.contended && !self.client_limited;
        self.allow_cpu() && (!gain || quiet && -effect.high > noise.unwrap_or(0.0))
    }

    /// Whether a loss of throughput, or a gain of it, may be claimed: rules 1 to 4 and 6.
    pub fn allow_throughput_change(&self, gain: bool) -> bool {
        if gain { self.allow_throughput_gain() } else { self.allow_throughput() }
    }

    /// Rule 7: whether latencies may be compared.
    pub fn allow_latency(&self) -> bool {
        self.allow_any() && !self.rate_missed
    }
}
