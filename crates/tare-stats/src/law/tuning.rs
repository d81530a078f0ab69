//! Decides when a tuning counts as proven.

use serde::Serialize;

use super::Verdict;

/// The effect of a tuning under one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TuningVerdict {
    /// It gains in one metric and loses in none.
    Helps,
    /// It loses in one metric and gains in none.
    Hurts,
    /// It gains in one metric and loses in another.
    Mixed,
    /// No difference may be claimed.
    NotProven,
}

impl TuningVerdict {
    /// Combines the verdicts of all metrics. Each is judged as a cost, so that a gain is a gain by
    /// the tuning.
    ///
    /// ```
    /// use tare_stats::law::{TuningVerdict, Verdict};
    ///
    /// let verdict = TuningVerdict::of([Verdict::Gain, Verdict::WithinNoise]);
    /// assert_eq!(verdict, TuningVerdict::Helps);
    /// ```
    pub fn of(metrics: impl IntoIterator<Item = Verdict>) -> Self {
        let (mut gains, mut loses) = (false, false);
        for verdict in metrics {
            gains |= verdict == Verdict::Gain;
            loses |= verdict == Verdict::Loss;
        }
        match (gains, loses) {
            (true, false) => Self::Helps,
            (false, true) => Self::Hurts,
            (true, true) => Self::Mixed,
            (false, false) => Self::NotProven,
        }
    }
}

/// Returns the proven tunings, which help under one workload and hurt under none. `verdicts` has
/// the verdict of each tuning under each workload. The order is that of the first help.
pub fn proven<'n>(verdicts: &[(&'n str, TuningVerdict)]) -> Vec<&'n str> {
    let harmful = |name: &str| {
        verdicts.iter().any(|(other, verdict)| {
            *other == name && matches!(verdict, TuningVerdict::Hurts | TuningVerdict::Mixed)
        })
    };
    let mut names: Vec<&str> = Vec::new();
    for (name, verdict) in verdicts {
        if *verdict == TuningVerdict::Helps && !names.contains(name) && !harmful(name) {
            names.push(name);
        }
    }
    names
}
