//! The two rules of the climb: when a window is steady, and at which depth a disk is saturated.
//! Pure functions of the rates, which tests call with known curves.

use serde::Serialize;
use tare_stats::saturation;

/// A window is steady if no rate in its last `STEADY_SLOTS` parts is further than this share from
/// their mean.
pub(crate) const STEADY_BAND: f64 = 0.10;

/// How many parts at the end of a window must be within [`STEADY_BAND`].
pub(crate) const STEADY_SLOTS: usize = 5;

/// One step of the climb.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The operations in flight, always this many (closed loop).
    pub depth: usize,
    /// Operations per second.
    pub operations_per_s: f64,
    /// Whether the window ended because its rate was steady rather than by its time limit.
    pub steady: bool,
}

/// Returns whether the last parts of a window are within [`STEADY_BAND`] of their mean, and their
/// regression line rises or falls by at most half the band from end to end.
pub(crate) fn steady(rates: &[f64]) -> bool {
    let Some(last) = rates.len().checked_sub(STEADY_SLOTS).map(|from| &rates[from..]) else {
        return false;
    };
    let count = last.len() as f64;
    let mean = last.iter().sum::<f64>() / count;
    if mean <= 0.0 {
        return false;
    }
    let inside = last.iter().all(|rate| (rate / mean - 1.0).abs() <= STEADY_BAND);
    let middle = (count - 1.0) / 2.0;
    let (mut products, mut squares) = (0.0, 0.0);
    for (index, rate) in last.iter().enumerate() {
        let x = index as f64 - middle;
        products += x * rate;
        squares += x * x;
    }
    let drift = (products / squares) * (count - 1.0) / mean;
    inside && drift.abs() <= STEADY_BAND / 2.0
}

/// Returns whether the climb is complete.
pub(crate) fn climbed(steps: &[Step]) -> bool {
    saturation::is_flat(steps.iter().map(|step| step.operations_per_s))
}

/// Returns the step of the saturation depth.
pub(crate) fn saturation(steps: &[Step]) -> Option<Step> {
    saturation::knee(steps, |step| step.depth, |step| step.operations_per_s).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Climbs a curve as the measurement does, and returns the depths tried and the answer.
    fn climb(curve: impl Fn(usize) -> f64) -> (usize, usize) {
        let mut steps = Vec::new();
        for depth in (0..10).map(|power| 1 << power) {
            steps.push(Step { depth, operations_per_s: curve(depth), steady: true });
            if climbed(&steps) {
                break;
            }
        }
        (steps.len(), saturation(&steps).unwrap().depth)
    }

    #[test]
    fn saturation_of_known_curves() {
        // Linear to 16, then flat.
        assert_eq!(climb(|depth| depth.min(16) as f64 * 1000.0), (7, 16));
        // Flat from the first step.
        assert_eq!(climb(|_| 500.0), (3, 1));
        // Falls after its best.
        let falling =
            |depth: usize| if depth <= 8 { depth as f64 } else { 8.0 - depth as f64 / 64.0 };
        assert_eq!(climb(falling), (6, 8));
        // One flat step (a plateau of a queue) does not end the climb.
        let plateau = |depth: usize| match depth {
            4 => 2.0,
            depth => depth.min(32) as f64,
        };
        assert_eq!(climb(plateau), (8, 32));
        // Never flat within the limit.
        assert_eq!(climb(|depth| depth as f64), (10, 512));
        // Saturating by rho = depth / (depth + 8).
        assert_eq!(climb(|depth| depth as f64 / (depth as f64 + 8.0)).1, 128);
        assert_eq!(saturation(&[]), None);
    }

    #[test]
    fn steadiness_of_known_windows() {
        let check = |rates: &[f64], expect: bool| assert_eq!(steady(rates), expect, "{rates:?}");
        check(&[], false);
        check(&[100.0; 4], false);
        check(&[100.0; 5], true);
        check(&[0.0; 5], false);
        // A start far off does not matter.
        check(&[900.0, 300.0, 101.0, 99.0, 100.0, 102.0, 98.0], true);
        // A write cache that fills.
        check(&[100.0, 98.0, 96.0, 94.0, 92.0], false);
        check(&[100.0, 100.0, 100.0, 100.0, 80.0], false);
        check(&[104.0, 96.0, 104.0, 96.0, 104.0], true);
    }
}
