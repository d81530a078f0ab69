//! A share k of n with the exact interval of Clopper and Pearson, which is never too narrow.
//!
//! The bounds are the shares for which the binomial distribution gives k or more (or k or fewer) of
//! n in 2.5 % of cases. Source: C. J. Clopper, E. S. Pearson, "The use of confidence or fiducial
//! limits illustrated in the case of the binomial", Biometrika 26, 1934.

/// The probability in each tail.
const TAIL: f64 = 0.025;

/// `k` of `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proportion {
    pub(crate) k: u32,
    pub(crate) n: u32,
}

impl Proportion {
    /// Counts the true values.
    pub(crate) fn of(values: impl IntoIterator<Item = bool>) -> Self {
        values
            .into_iter()
            .fold(Self::default(), |sum, one| Self { k: sum.k + u32::from(one), n: sum.n + 1 })
    }

    /// Returns the 95 % interval of the share, from 0 to 1.
    pub(crate) fn interval(self) -> (f64, f64) {
        let Self { k, n } = self;
        let low = if k == 0 { 0.0 } else { root(|p| 1.0 - at_most(k - 1, n, p) - TAIL) };
        let high = if k >= n { 1.0 } else { root(|p| TAIL - at_most(k, n, p)) };
        (low, high)
    }

    /// Formats the share as `48 of 50 (96 %; 95 % [86, 100])`.
    pub(crate) fn text(self) -> String {
        let Self { k, n } = self;
        if n == 0 {
            return "not run".to_string();
        }
        let (low, high) = self.interval();
        let share = 100.0 * f64::from(k) / f64::from(n);
        format!("{k} of {n} ({share:.0} %; 95 % [{:.0}, {:.0}])", 100.0 * low, 100.0 * high)
    }
}

/// The probability of at most `k` of `n` if each has probability `p`.
fn at_most(k: u32, n: u32, p: f64) -> f64 {
    if p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return if k >= n { 1.0 } else { 0.0 };
    }
    // Logarithms, because (1 - p)^n underflows for large n.
    let mut log_term = f64::from(n) * (1.0 - p).ln();
    let mut sum = log_term.exp();
    for i in 0..k {
        log_term += (f64::from(n - i) / f64::from(i + 1)).ln() + (p / (1.0 - p)).ln();
        sum += log_term.exp();
    }
    sum.min(1.0)
}

/// The share at which a growing function crosses 0.
fn root(growing: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if growing(middle) < 0.0 { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_tables() {
        // As in the usual tables of the exact 95 % interval; for none of n the bound is 1 -
        // 0.025^(1/n).
        for (k, n, low, high) in [
            (8, 10, 0.4439, 0.9748),
            (0, 10, 0.0, 0.3085),
            (10, 10, 0.6915, 1.0),
            (1, 20, 0.0013, 0.2487),
            (5, 100, 0.0164, 0.1128),
            (95, 100, 0.8872, 0.9836),
        ] {
            let (found_low, found_high) = Proportion { k, n }.interval();
            assert!((found_low - low).abs() < 5e-5, "{k} of {n}: {found_low} is not {low}");
            assert!((found_high - high).abs() < 5e-5, "{k} of {n}: {found_high} is not {high}");
        }
    }

    #[test]
    fn large_numbers_do_not_underflow() {
        let (low, high) = Proportion { k: 9500, n: 10_000 }.interval();
        assert!(low > 0.945 && high < 0.955, "{low} {high}");
    }

    #[test]
    fn the_text_names_everything() {
        assert_eq!(Proportion { k: 48, n: 50 }.text(), "48 of 50 (96 %; 95 % [86, 100])");
        assert_eq!(Proportion::of([]).text(), "not run");
        assert_eq!(Proportion::of([true, false, true]), Proportion { k: 2, n: 3 });
    }
}
