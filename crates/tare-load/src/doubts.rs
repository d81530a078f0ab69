//! When a load should not be believed. What a doubt says and advises is the lab's.

use tare_lab::doubt::Doubt;

use crate::report::LoadReport;

/// Of its CPUs; the same share as in a study.
const SATURATED_SHARE: f64 = 0.85;
/// Late operations above this share reach the p99.9.
const LATE_SHARE: f64 = 0.001;
/// Rates are reached to this share: the last operations of a window end after it.
const RATE_SHARE: f64 = 0.98;

/// The doubts of a load.
pub(crate) fn of(report: &LoadReport) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let share = report.client_cpu_share;
    if share > SATURATED_SHARE {
        doubts.push(Doubt::ClientSaturated { share });
    }
    let sent = report.late.as_ref().map_or(0, |late| late.count);
    let late_share = report.late_count as f64 / sent.max(1) as f64;
    if late_share > LATE_SHARE {
        let waited_share = report.client_run_delay_share;
        doubts.push(Doubt::SentLate { late_share, waited_share });
    }
    if let Some(asked_per_s) = report.rate_per_s {
        let reached_per_s = report.throughput_per_s;
        if reached_per_s < RATE_SHARE * asked_per_s || report.dropped > 0 {
            doubts.push(Doubt::RateNotReached { asked_per_s, reached_per_s });
        }
    }
    for error in &report.errors {
        doubts.push(Doubt::OperationErrors {
            error: format!("{}: {}", error.kind, error.first),
            count: error.count,
            operations: report.operations,
        });
    }
    if let Some(steadiness) = report.steadiness.filter(|steadiness| !steadiness.is_steady) {
        doubts.push(Doubt::NotSteady {
            workload: "load".into(),
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
