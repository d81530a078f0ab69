//! When a tuning counts as proven.

use serde::Serialize;

use super::Verdict;

/// What a tuning did under one workload.
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
    /// The verdict over all metrics, each judged as a cost: a gain is a gain by the tuning.
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

/// The tunings that are proven, from the verdict of each under each workload: those that help under
/// one workload and hurt under none. In the order of their first help.
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
