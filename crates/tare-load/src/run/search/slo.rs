//! A service level objective: limits of response times.

use std::fmt;

use serde::Serialize;
use tare_stats::quantile_of_answered;
use tare_std::units::nanoseconds;

use crate::report::histogram::Histogram;

/// The most that one percentile of the response time may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// The percentile in percent; 100 is the maximum.
    pub percentile: f64,
    pub limit_ns: u64,
}

/// Limits that must all be kept.
///
/// ```
/// use tare_load::search::{Limit, Slo};
///
/// let slo = Slo::new(vec![Limit { percentile: 99.0, limit_ns: 10_000_000 }]).expect("one limit");
/// assert_eq!(slo.limits().len(), 1);
/// assert_eq!(Slo::new(Vec::new()), None);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Slo(Vec<Limit>);

impl Slo {
    /// Returns `None` without a limit, or with a percentile that is not above 0 and at most 100.
    pub fn new(limits: Vec<Limit>) -> Option<Self> {
        let is_percentile = |limit: &Limit| limit.percentile > 0.0 && limit.percentile <= 100.0;
        (!limits.is_empty() && limits.iter().all(is_percentile)).then_some(Self(limits))
    }

    /// Returns the limits in their order.
    pub fn limits(&self) -> &[Limit] {
        &self.0
    }

    /// Returns the limited latencies, with `missing` operations counted as slower than any; `None`
    /// if the percentile falls among those.
    pub(super) fn latencies_ns(&self, response: &Histogram, missing: u64) -> Vec<Option<u64>> {
        let latency = |limit: &Limit| {
            let quantile = quantile_of_answered(limit.percentile, response.len(), missing)?;
            Some(response.value_at_quantile(quantile))
        };
        self.0.iter().map(latency).collect()
    }

    pub(super) fn holds(&self, latencies_ns: &[Option<u64>]) -> bool {
        let mut pairs = self.0.iter().zip(latencies_ns);
        pairs.all(|(limit, latency)| latency.is_some_and(|ns| ns <= limit.limit_ns))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = nanoseconds(self.limit_ns as f64);
        if self.percentile >= 100.0 {
            return write!(f, "max <= {limit}");
        }
        write!(f, "p{} <= {limit}", self.percentile)
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<String> = self.0.iter().map(Limit::to_string).collect();
        f.write_str(&limits.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::histogram;

    fn slo(percentile: f64, limit_ns: u64) -> Slo {
        Slo::new(vec![Limit { percentile, limit_ns }]).unwrap()
    }

    #[test]
    fn missing_operations_break_every_limit() {
        let mut response = histogram::new();
        (1..=1_000u64).for_each(|ms| histogram::record(&mut response, ms * 1_000_000));
        let check = |percentile: f64, missing: u64, expect_ms: Option<u64>| {
            let found = slo(percentile, 1).latencies_ns(&response, missing);
            let expect = expect_ms.map(|ms| response.highest_equivalent(ms * 1_000_000));
            assert_eq!(found, [expect], "{percentile} {missing}");
        };
        check(50.0, 0, Some(500));
        check(99.0, 0, Some(990));
        check(100.0, 0, Some(1_000));
        check(100.0, 1, None);
        check(99.0, 10, Some(1_000));
        check(99.0, 11, None);
        check(50.0, 1_000, Some(1_000));
        check(50.0, 1_001, None);
        assert_eq!(slo(50.0, 1).latencies_ns(&histogram::new(), 0), [None]);
    }

    #[test]
    fn every_limit_must_be_kept() {
        let limit = |percentile, limit_ns| Limit { percentile, limit_ns };
        let slo = Slo::new(vec![limit(99.0, 5_000_000), limit(99.9, 20_000_000)]).unwrap();
        assert_eq!(slo.to_string(), "p99 <= 5.00 ms, p99.9 <= 20.0 ms");
        assert!(slo.holds(&[Some(5_000_000), Some(20_000_000)]));
        assert!(!slo.holds(&[Some(5_000_001), Some(1)]));
        assert!(!slo.holds(&[Some(1), None]));
        assert!(Slo::new(vec![]).is_none());
        assert!(Slo::new(vec![limit(100.1, 1)]).is_none());
    }
}
