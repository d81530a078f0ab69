//! Tests whether a load was steady, on the intervals of the window. The test is that of
//! Kwiatkowski, Phillips, Schmidt and Shin, "Testing the null hypothesis of stationarity against
//! the alternative of a unit root" (Journal of Econometrics 54, 1992), for a constant level.
//!
//! Its null hypothesis is a steady load. With thousands of operations in an interval, it finds
//! drifts that are too small to matter, so that a drift must also have a minimum size. It cannot
//! distinguish a change that is slow against the window from a steady state.

use serde::Serialize;

/// The least number of intervals for the test.
const INTERVALS_MIN: usize = 10;
/// The critical value at 1 %: table 1 of the paper, for a constant level.
const CRITICAL: f64 = 0.739;
/// The smallest relevant change from the first half to the second, as a share.
const DRIFT_SHARE: f64 = 0.05;

/// The result of the test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Steadiness {
    /// The tested series: `throughput` or `response time`.
    pub of: &'static str,
    pub intervals: usize,
    /// The statistic of the test. Above `critical` the test rejects a steady load.
    pub statistic: f64,
    pub critical: f64,
    /// The change from the mean of the first half to that of the second, as a share of the first.
    pub drift_share: f64,
    pub is_steady: bool,
}

impl Steadiness {
    /// Tests the values of the intervals in their order. Returns `None` for fewer than 10 values.
    pub fn of(of: &'static str, values: &[f64]) -> Option<Self> {
        if values.len() < INTERVALS_MIN {
            return None;
        }
        let statistic = statistic(values);
        let (first, second) = values.split_at(values.len() / 2);
        let (first, second) = (mean(first), mean(second));
        let drift_share = if first > 0.0 { second / first - 1.0 } else { 0.0 };
        let is_steady = statistic <= CRITICAL || drift_share.abs() <= DRIFT_SHARE;
        let intervals = values.len();
        Some(Self { of, intervals, statistic, critical: CRITICAL, drift_share, is_steady })
    }
}

/// The sum of the squared partial sums of the residuals, divided by n^2 times their long-run
/// variance. The variance includes autocorrelation up to a lag of 4 (n / 100)^(1/4) with Bartlett's
/// weights: equations 10 to 13 of the paper. 0 for a constant series.
fn statistic(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = mean(values);
    let residuals: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let covariance = |lag: usize| {
        let pairs = residuals.iter().zip(residuals.iter().skip(lag));
        pairs.map(|(one, other)| one * other).sum::<f64>() / count
    };
    let lag_max = (4.0 * (count / 100.0).powf(0.25)).floor();
    let lags = (1..residuals.len()).take_while(|&lag| lag as f64 <= lag_max);
    let lagged: f64 = lags.map(|lag| (1.0 - lag as f64 / (lag_max + 1.0)) * covariance(lag)).sum();
    let variance = covariance(0) + 2.0 * lagged;
    if variance <= 0.0 {
        return 0.0;
    }
    let mut partial = 0.0;
    let squares = residuals.iter().map(|residual| {
        partial += residual;
        partial * partial
    });
    squares.sum::<f64>() / (count * count * variance)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_std::rng::Rng;

    fn noise(seed: u64, count: usize, change: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut rng = Rng::new(seed);
        (0..count).map(|at| 1_000.0 + 20.0 * rng.normal() + change(at)).collect()
    }

    #[test]
    fn statistic_matches_paper() {
        // By hand: 1 .. 4 has the residuals -1.5 -0.5 0.5 1.5, the partial sums -1.5 -2 -1.5 0, so
        // 8.5; lag 1 (4 (4 / 100)^(1/4) = 1.79): variance 1.25 + 2 * 0.5 * 0.3125 = 1.5625.
        let expect = 8.5 / (16.0 * 1.5625);
        assert!((statistic(&[1.0, 2.0, 3.0, 4.0]) - expect).abs() < 1e-12);
        assert_eq!(statistic(&[3.0; 20]), 0.0);
    }

    #[test]
    fn steady_noise_passes_about_99_times_in_100() {
        for count in [20, 60, 300] {
            let failed =
                (0..500).filter(|&seed| statistic(&noise(seed, count, |_| 0.0)) > CRITICAL).count();
            assert!(failed <= 15, "{count}: {failed} of 500");
        }
    }

    #[test]
    fn finds_drifts_and_jumps_of_relevant_size() {
        let check = |values: &[f64], expect: bool| {
            let found = Steadiness::of("throughput", values).unwrap();
            assert_eq!(found.is_steady, expect, "{found:?}");
        };
        check(&noise(1, 60, |_| 0.0), true);
        check(&noise(2, 60, |at| at as f64 * 5.0), false);
        // The start is slow for a third of the time, and for a twentieth.
        check(&noise(3, 60, |at| if at < 20 { -200.0 } else { 0.0 }), false);
        check(&noise(4, 60, |at| if at < 3 { -200.0 } else { 0.0 }), true);
        // The drift is certain but too small to matter.
        check(&noise(5, 600, |at| at as f64 / 30.0), true);
        assert!(Steadiness::of("throughput", &[1.0; 9]).is_none());
    }
}
