//! A service level objective of a workload: the most that one percentile of the response time may
//! be.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tare_std::units::{nanoseconds, parse_duration};

/// The percentiles that an objective may limit, in percent.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9)];

/// An objective, such as `p99 = 5ms`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// In percent, above 0 and below 100.
    pub percentile: f64,
    pub limit: Duration,
}

/// A text is no objective.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an objective is p50, p90, p95, p99 or p99.9, and a time above 0, such as \"p99 = 5ms\"")]
pub struct BadSlo;

impl Slo {
    /// Returns whether a response time at the percentile keeps the objective.
    pub fn is_kept(&self, response_ns: f64) -> bool {
        response_ns <= self.limit.as_nanos() as f64
    }
}

impl FromStr for Slo {
    type Err = BadSlo;

    fn from_str(text: &str) -> Result<Self, BadSlo> {
        let (name, limit) = text.split_once('=').ok_or(BadSlo)?;
        let known = PERCENTILES.into_iter().find(|(known, _)| *known == name.trim());
        let (_, percentile) = known.ok_or(BadSlo)?;
        let limit = parse_duration(limit.trim()).map_err(|_| BadSlo)?;
        if limit.is_zero() { Err(BadSlo) } else { Ok(Self { percentile, limit }) }
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{} of {}", self.percentile, nanoseconds(self.limit.as_nanos() as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_objectives_or_refused() {
        let slo: Slo = "p99.9 = 2500us".parse().unwrap();
        assert_eq!(slo, Slo { percentile: 99.9, limit: Duration::from_micros(2500) });
        assert_eq!(slo.to_string(), "p99.9 of 2.50 ms");
        assert!(slo.is_kept(2_500_000.0) && !slo.is_kept(2_500_001.0));
        for bad in ["p99", "p98 = 1ms", "p99 = 0ms", "p99 = fast", "p99 < 5ms", ""] {
            assert_eq!(bad.parse::<Slo>(), Err(BadSlo), "{bad}");
        }
    }
}
