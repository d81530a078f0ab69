//! Reasons to believe the figures of a load less, and when each arises.

use tare_std::units::significant;

use crate::report::model::{DoubtReport, LoadReport};

/// Share of the client's CPUs; the same as in a study.
const SATURATED_SHARE: f64 = 0.85;
/// Late operations above this share reach the p99.9.
const LATE_SHARE: f64 = 0.001;
/// A rate counts as reached from this share on: the last operations of a window end after it.
const RATE_SHARE: f64 = 0.98;

/// A reason to believe the figures of a load less. Shares are 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadDoubt {
    /// The client used more than 85 % of its CPUs, so it may be what was measured.
    ClientSaturated { share: f64 },
    /// The open loop did not send at the rate that was asked.
    RateNotReached { asked_per_s: f64, reached_per_s: f64 },
    /// The client sent operations more than 1 ms late. Its threads waited for a CPU for this share
    /// of the time, where the kernel tells.
    SentLate { late_share: f64, waited_share: Option<f64> },
    /// Operations failed.
    OperationErrors { error: String, count: u64, operations: u64 },
    /// Throughput or latency changed during the window.
    NotSteady { criterion: String, waited_s: u64 },
}

impl LoadDoubt {
    /// Returns the name of the kind, as in a study's record: `client_saturated`, `sent_late` ...
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ClientSaturated { .. } => "client_saturated",
            Self::RateNotReached { .. } => "rate_not_reached",
            Self::SentLate { .. } => "sent_late",
            Self::OperationErrors { .. } => "operation_errors",
            Self::NotSteady { .. } => "not_steady",
        }
    }

    /// Returns what was observed, as one sentence without its full stop.
    pub fn text(&self) -> String {
        let percent = |share: &f64| format!("{} %", significant(share * 100.0, 2));
        match self {
            Self::ClientSaturated { share } => format!(
                "the client used {} of its CPUs, so it may be what was measured",
                percent(share)
            ),
            Self::RateNotReached { asked_per_s, reached_per_s } => format!(
                "the fixed rate was not reached: {reached_per_s:.0} of {asked_per_s:.0} operations/s"
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
            Self::NotSteady { criterion, waited_s } => {
                format!("the load was not steady ({criterion}) over {waited_s} s")
            }
        }
    }

    /// Returns what to do about it, as one sentence without its full stop.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::ClientSaturated { .. } => {
                "read this throughput as a lower bound; give the client more CPUs (--cpus) or the \
                 system fewer"
            }
            Self::RateNotReached { .. } => {
                "this latency is that of an overloaded system; lower the rate"
            }
            Self::SentLate { .. } => {
                "what was late counts in the response time, which is then partly the client's; give \
                 the client CPUs of its own, or more connections"
            }
            Self::OperationErrors { .. } => {
                "look at the system's log; a failed operation is often cheaper than a good one"
            }
            Self::NotSteady { .. } => "what is measured may still drift; give it a longer lead-in",
        }
    }
}

impl From<&LoadDoubt> for DoubtReport {
    fn from(doubt: &LoadDoubt) -> Self {
        Self { kind: doubt.kind(), text: doubt.text(), advice: doubt.advice() }
    }
}

/// Returns the doubts of a load.
pub(crate) fn of(report: &LoadReport) -> Vec<LoadDoubt> {
    let mut doubts = Vec::new();
    let share = report.client_cpu_share;
    if share > SATURATED_SHARE {
        doubts.push(LoadDoubt::ClientSaturated { share });
    }
    let sent = report.late.as_ref().map_or(0, |late| late.count);
    let late_share = report.late_count as f64 / sent.max(1) as f64;
    if late_share > LATE_SHARE {
        let waited_share = report.client_run_delay_share;
        doubts.push(LoadDoubt::SentLate { late_share, waited_share });
    }
    if let Some(asked_per_s) = report.rate_per_s {
        let reached_per_s = report.throughput_per_s;
        if reached_per_s < RATE_SHARE * asked_per_s || report.dropped > 0 {
            doubts.push(LoadDoubt::RateNotReached { asked_per_s, reached_per_s });
        }
    }
    for error in &report.errors {
        doubts.push(LoadDoubt::OperationErrors {
            error: format!("{}: {}", error.kind, error.first),
            count: error.count,
            operations: report.operations,
        });
    }
    if let Some(steadiness) = report.steadiness.filter(|steadiness| !steadiness.is_steady) {
        doubts.push(LoadDoubt::NotSteady {
            criterion: format!(
                "{} changed by {:+.0} % from the first half to the second; KPSS {:.2} above {}",
                steadiness.of,
                100.0 * steadiness.drift_share,
                steadiness.statistic,
                steadiness.critical
            ),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a positive time in s"
            )]
            waited_s: report.window_s as u64,
        });
    }
    doubts
}
