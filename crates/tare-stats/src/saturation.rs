//! The rules of a climb: the load doubles from step to step until throughput stops growing. Pure
//! functions of the steps' rates.

/// The least gain of a step over the best so far that counts, as a share.
pub const GROWTH_MIN: f64 = 0.05;

/// This many steps in a row without gain end the climb.
pub const FLAT_STEPS: usize = 2;

/// The saturating load is the least one that reaches this share of the best rate.
pub const SATURATED_SHARE: f64 = 0.95;

/// Returns whether the climb is complete: the last [`FLAT_STEPS`] rates gained nothing.
///
/// ```
/// use tare_stats::saturation::is_flat;
///
/// assert!(!is_flat([100.0, 200.0, 203.0]));
/// assert!(is_flat([100.0, 200.0, 203.0, 199.0]));
/// ```
pub fn is_flat(rates: impl IntoIterator<Item = f64>) -> bool {
    let (mut best, mut flat) = (0.0f64, 0);
    for rate in rates {
        flat = if rate > best * (1.0 + GROWTH_MIN) { 0 } else { flat + 1 };
        best = best.max(rate);
    }
    flat >= FLAT_STEPS
}

/// Returns the step with the least load that reaches [`SATURATED_SHARE`] of the best rate. `None`
/// without a step.
///
/// ```
/// use tare_stats::saturation::knee;
///
/// let steps = [(8, 100.0), (16, 195.0), (32, 200.0)];
/// let found = knee(&steps, |(load, _)| *load, |(_, rate)| *rate);
/// assert_eq!(found, Some(&(16, 195.0)));
/// ```
pub fn knee<S, L: Ord>(
    steps: &[S],
    load: impl Fn(&S) -> L,
    rate: impl Fn(&S) -> f64,
) -> Option<&S> {
    let best = steps.iter().map(&rate).fold(0.0, f64::max);
    steps.iter().filter(|step| rate(step) >= best * SATURATED_SHARE).min_by_key(|step| load(step))
}
