//! The difference of two independent estimates: Welch's interval, computed from two intervals.
//!
//! Method: the standard error of an estimate is the distance to the bound of its 95 % interval,
//! divided by Student's factor for its rounds. The two errors combine like variances, with the
//! degrees of freedom of Welch and Satterthwaite (B. L. Welch, "The generalization of 'Student's'
//! problem when several different population variances are involved", Biometrika 34, 1947). Two
//! intervals by Student's t give exactly Welch's interval (with whole degrees of freedom, rounded
//! down). A signed-rank interval can be asymmetric, so each bound uses the errors on its side (the
//! idea of MOVER: Zou and Donner, Statistics in Medicine 27, 2008).
//!
//! Limits: the two estimates are assumed to be independent, and each interval to be right.

use super::Estimate;
use super::methods::t_quantile;

/// Returns `to - from` with its 95 % interval, on the (log) scale of both.
///
/// The interval has no bounds if one of the two has none. `None` if an estimate is not finite.
pub fn difference(from: &Estimate, to: &Estimate) -> Option<Estimate> {
    let centre = to.centre - from.centre;
    if !centre.is_finite() {
        return None;
    }
    let rounds = from.rounds.min(to.rounds);
    // The lower bound combines the low side of `to` with the high side of `from`.
    let down = half_width(Side::new(to, to.low), Side::new(from, from.high));
    let up = half_width(Side::new(to, to.high), Side::new(from, from.low));
    Some(Estimate { centre, low: centre - down, high: centre + up, rounds })
}

/// One side of an interval.
struct Side {
    /// The standard error on this side.
    error: f64,
    degrees: f64,
}

impl Side {
    fn new(estimate: &Estimate, bound: f64) -> Self {
        let degrees = estimate.rounds.saturating_sub(1);
        let factor = t_quantile(degrees as usize);
        let error = (bound - estimate.centre).abs() / factor;
        Self {
            error: if degrees == 0 { f64::INFINITY } else { error },
            degrees: f64::from(degrees),
        }
    }
}

/// The half width of two sides together. Infinite if one of them is.
fn half_width(a: Side, b: Side) -> f64 {
    let error = a.error.hypot(b.error);
    if !error.is_finite() {
        return f64::INFINITY;
    }
    if error == 0.0 {
        return 0.0;
    }
    // Satterthwaite's degrees, by shares of the variance so that nothing underflows.
    let share = |side: &Side| (side.error / error).powi(4) / side.degrees;
    let degrees = (1.0 / (share(&a) + share(&b))).floor().max(1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 2^33")]
    let degrees = degrees as usize;
    t_quantile(degrees) * error
}

#[cfg(test)]
mod tests {
    use tare_std::rng::Rng;

    use super::*;
    use crate::estimate;

    fn sample(rng: &mut Rng, rounds: usize, truth: f64, noise: f64) -> Estimate {
        let logs: Vec<f64> = (0..rounds).map(|_| truth + noise * rng.normal()).collect();
        estimate(&logs).unwrap()
    }

    #[test]
    fn two_student_intervals_give_welch() {
        // Means 0 and 1, standard errors 0.1 and 0.2, 5 rounds each: Satterthwaite's degrees are
        // 0.05^2 / (0.01^2 / 4 + 0.04^2 / 4) = 5.88, rounded down 5, for which t is 2.5706.
        let t4 = t_quantile(4);
        let of = |centre: f64, error: f64| Estimate {
            centre,
            low: centre - t4 * error,
            high: centre + t4 * error,
            rounds: 5,
        };
        let found = difference(&of(0.0, 0.1), &of(1.0, 0.2)).unwrap();
        assert!((found.high - 1.0 - 2.5706 * 0.05f64.sqrt()).abs() < 1e-3, "{found:?}");
        assert!((1.0 - found.low - 2.5706 * 0.05f64.sqrt()).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn swapping_the_two_mirrors_the_interval() {
        let mut rng = Rng::new(5);
        for rounds in [2, 5, 12] {
            let (a, b) = (sample(&mut rng, rounds, 0.1, 0.03), sample(&mut rng, 7, 0.2, 0.1));
            let (there, back) = (difference(&a, &b).unwrap(), difference(&b, &a).unwrap());
            for (x, y) in
                [(there.centre, -back.centre), (there.low, -back.high), (there.high, -back.low)]
            {
                assert!((x - y).abs() < 1e-12, "{there:?} {back:?}");
            }
        }
    }

    #[test]
    fn one_round_has_no_bounds_and_no_noise_has_no_width() {
        let mut rng = Rng::new(5);
        let (one, many) = (sample(&mut rng, 1, 0.1, 0.03), sample(&mut rng, 12, 0.2, 0.03));
        let found = difference(&one, &many).unwrap();
        assert!(found.low == f64::NEG_INFINITY && found.high == f64::INFINITY, "{found:?}");
        let exact = Estimate { centre: 0.5, low: 0.5, high: 0.5, rounds: 8 };
        let found = difference(&exact, &exact).unwrap();
        assert_eq!((found.low, found.centre, found.high), (0.0, 0.0, 0.0));
        let endless = Estimate { centre: f64::INFINITY, ..exact };
        assert!(difference(&endless, &exact).is_none());
    }

    /// How often the interval holds the truth: 4,000 pairs of campaigns a case, so that chance
    /// moves the share by 0.35 points (one standard deviation).
    #[test]
    fn difference_holds_truth_in_95_percent() {
        const PAIRS: u32 = 4_000;
        for (rounds_a, rounds_b, noise_a, noise_b) in [
            (5, 5, 0.03, 0.03),
            (5, 40, 0.03, 0.03),
            (6, 6, 0.09, 0.03),
            (12, 12, 0.03, 0.03),
            (12, 40, 0.02, 0.06),
        ] {
            let mut rng = Rng::new(42);
            let mut held = 0;
            for _ in 0..PAIRS {
                let a = sample(&mut rng, rounds_a, 0.3, noise_a);
                let b = sample(&mut rng, rounds_b, 0.5, noise_b);
                held += u32::from(!difference(&a, &b).unwrap().excludes(0.2));
            }
            let share = f64::from(held) / f64::from(PAIRS);
            assert!(share >= 0.94, "{rounds_a} and {rounds_b} rounds: {share}");
        }
    }
}
