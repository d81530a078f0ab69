//! Change points: where the mean of a series of records changes.
//!
//! Each record gives one figure with the interval of its own rounds. The records of one study also
//! differ by the luck of their starts, which no interval of a record contains. So the noise is
//! taken from the series itself, and the intervals of the records are only its lower limit.
//!
//! Method, for a series of at least twice [`RECORDS_MIN`] records:
//! 1. The **robust noise** of a record is the median distance of neighbours (0.954 deviations of
//!    normal noise), which few changes hardly move, and no less than the records' own errors.
//! 2. **Optimal partitioning** by least squares (Jackson et al., "An algorithm for optimal
//!    partitioning of data on an interval", IEEE Signal Processing Letters 12, 2005) divides the
//!    series into segments of at least [`RECORDS_MIN`] records. A segment must reduce the squares
//!    by `PENALTY` `x ln(n)` variances.
//! 3. **Student's t** tests each boundary between its two segments, with the pooled variance of all
//!    segments, which is no less than the records' own errors. The weakest boundary is removed and
//!    the test is repeated until all pass. With `p` possible places a boundary passes at
//!    [`FALSE_SHARE`] `/ p` (Bonferroni), because the partition has chosen the best of all places.
//!
//! `examples/validate_changes.rs` compares this with E-divisive means and with pairs of records;
//! docs/concepts/history.md has its table.
//!
//! Limits: records are assumed to be independent. A slow drift reads as one or more steps.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::law::Noise;
use crate::methods::t_quantile;
use crate::{Estimate, median};

/// The fewest records on each side of a change.
pub const RECORDS_MIN: usize = 3;

/// The share of series without a change in which a test may find one. At most one series in 100 is
/// promised; the partition before the test takes the rest of that 1 %.
pub const FALSE_SHARE: f64 = 0.008;

/// The penalty of a segment, in logarithms of the number of records.
const PENALTY: f64 = 3.0;

/// Median distance of two values with normal noise, in standard deviations: 0.6745 x sqrt(2).
const MEDIAN_DISTANCE: f64 = 0.953_873;

/// The figure of one record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub value: f64,
    /// The standard error by the record's own interval. 0 if it has none.
    pub error: f64,
}

impl From<Estimate> for Point {
    /// Uses the mean of both sides of the interval, divided by Student's factor.
    fn from(estimate: Estimate) -> Self {
        let factor = t_quantile(estimate.rounds.saturating_sub(1) as usize);
        let error = (estimate.high - estimate.low) / 2.0 / factor;
        Self { value: estimate.centre, error: if error.is_finite() { error } else { 0.0 } }
    }
}

/// A change of the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Index of the first record with the new mean.
    pub at: usize,
    /// The new mean minus the old one, with its 95 % interval. `rounds` is the smaller number of
    /// records of the two sides.
    pub step: Estimate,
    /// Number of records with the old mean, up to the previous change.
    pub before: usize,
    /// Number of records with the new mean, up to the next change.
    pub after: usize,
}

/// Returns the changes of a series in the order of time. Empty with less than twice
/// [`RECORDS_MIN`] records.
///
/// ```
/// use tare_stats::change::{Point, changes};
///
/// let point = |value| Point { value, error: 0.005 };
/// let mut series: Vec<Point> = [0.30, 0.31, 0.29, 0.30, 0.31, 0.30, 0.29].map(point).into();
/// assert!(changes(&series).is_empty());
/// series.extend([0.36, 0.35, 0.36].map(point));
/// let found = changes(&series);
/// assert_eq!((found.len(), found[0].at, found[0].after), (1, 7, 3));
/// assert!(found[0].step.low > 0.03 && found[0].step.high < 0.08, "{found:?}");
/// ```
pub fn changes(points: &[Point]) -> Vec<Change> {
    let n = points.len();
    if n < 2 * RECORDS_MIN || points.iter().any(|point| !point.value.is_finite()) {
        return Vec::new();
    }
    let sums = Sums::new(points);
    let noise = robust_noise(points).max(sums.error(0, n));
    let mut edges = partition(&sums, n, PENALTY * (n as f64).ln() * noise * noise);
    loop {
        let found = steps(&sums, &edges);
        let places = n + 1 - 2 * RECORDS_MIN;
        let degrees = (n + 1).saturating_sub(edges.len()).max(1);
        let least = quantile(degrees, 1.0 - FALSE_SHARE / (2.0 * places as f64));
        let weakest = found.iter().min_by(|a, b| a.in_errors.total_cmp(&b.in_errors));
        match weakest {
            Some(step) if step.in_errors.is_nan() || step.in_errors < least => {
                edges.retain(|edge| *edge != step.change.at);
            }
            _ => return found.into_iter().map(|step| step.change).collect(),
        }
    }
}

/// Returns the smallest step of the newest [`RECORDS_MIN`] records of a series that would be found
/// with a probability of about one half, by the noise since the last change. `None` with too few
/// records since then.
///
/// ```
/// use tare_stats::change::{Point, least_step};
///
/// let series = [0.30, 0.31, 0.29, 0.30, 0.31, 0.30, 0.29, 0.30];
/// let least = least_step(&series.map(|value| Point { value, error: 0.005 })).unwrap();
/// assert!((0.02..0.08).contains(&least), "{least}");
/// ```
pub fn least_step(points: &[Point]) -> Option<f64> {
    let from = changes(points).last().map_or(0, |change| change.at);
    let (points, n) = (&points[from..], points.len() - from);
    if n < 2 * RECORDS_MIN || points.iter().any(|point| !point.value.is_finite()) {
        return None;
    }
    let sums = Sums::new(points);
    let deviation = (sums.squares(0, n) / (n - 1) as f64).sqrt().max(sums.error(0, n));
    let places = n + 1 - 2 * RECORDS_MIN;
    let least = quantile(n - 2, 1.0 - FALSE_SHARE / (2.0 * places as f64));
    let (newest, older) = (RECORDS_MIN as f64, (n - RECORDS_MIN) as f64);
    Some(least * deviation * (1.0 / newest + 1.0 / older).sqrt())
}

/// Returns the noise of the difference of two means of independent records: the bounds of the
/// records' controls combine like errors, and the mean of `n` records has an `n`-th of their sum. A
/// record without a bound adds nothing.
///
/// ```
/// use tare_stats::change::noise_of_means;
/// use tare_stats::law::Noise;
///
/// // Four records of 2 % each before, one of 3 % after.
/// let noise = noise_of_means(&[Some(0.02); 4], &[Some(0.03)]).bound().unwrap();
/// assert!((noise - f64::hypot(0.01, 0.03)).abs() < 1e-12);
/// assert_eq!(noise_of_means(&[None], &[None]), Noise::Within(0.0));
/// ```
pub fn noise_of_means(before: &[Option<f64>], after: &[Option<f64>]) -> Noise {
    let of_mean = |bounds: &[Option<f64>]| {
        let sum = bounds.iter().flatten().fold(0.0, |sum: f64, bound| sum.hypot(*bound));
        sum / (bounds.len().max(1) as f64)
    };
    Noise::Within(of_mean(before).hypot(of_mean(after)))
}

/// A boundary and its size in standard errors.
struct Step {
    change: Change,
    in_errors: f64,
}

/// Returns the step at each edge between two segments. `edges` begins with 0 and ends with the
/// number of points.
fn steps(sums: &Sums, edges: &[usize]) -> Vec<Step> {
    let n = edges.last().copied().unwrap_or(0);
    let squares: f64 = edges.windows(2).map(|pair| sums.squares(pair[0], pair[1])).sum();
    let degrees = (n + 1).saturating_sub(edges.len()).max(1);
    let deviation = (squares / degrees as f64).sqrt().max(sums.error(0, n));
    let step = |three: &[usize]| {
        let &[from, at, to] = three else { return None };
        let (before, after) = (at - from, to - at);
        let error = deviation * (1.0 / before as f64 + 1.0 / after as f64).sqrt();
        let centre = sums.mean(at, to) - sums.mean(from, at);
        let half = t_quantile(degrees) * error;
        let rounds = u32::try_from(before.min(after)).unwrap_or(u32::MAX);
        let step = Estimate { centre, low: centre - half, high: centre + half, rounds };
        let in_errors = if error > 0.0 { centre.abs() / error } else { f64::INFINITY };
        let in_errors = if centre == 0.0 { 0.0 } else { in_errors };
        Some(Step { change: Change { at, step, before, after }, in_errors })
    };
    edges.windows(3).filter_map(step).collect()
}

/// Returns the edges of the segments with the least squares and penalties.
fn partition(sums: &Sums, n: usize, penalty: f64) -> Vec<usize> {
    // `best[j]`: the least cost of the first j points, and where its last segment begins.
    let mut best = vec![(f64::INFINITY, 0); n + 1];
    best[0] = (-penalty, 0);
    for end in RECORDS_MIN..=n {
        for start in 0..=end - RECORDS_MIN {
            let cost = best[start].0 + sums.squares(start, end) + penalty;
            if cost < best[end].0 {
                best[end] = (cost, start);
            }
        }
    }
    let mut edges = vec![n];
    let mut end = n;
    while end > 0 {
        end = best[end].1;
        edges.push(end);
    }
    edges.reverse();
    edges
}

fn robust_noise(points: &[Point]) -> f64 {
    let distances = points.windows(2).map(|pair| (pair[1].value - pair[0].value).abs());
    median(distances).unwrap_or(0.0) / MEDIAN_DISTANCE
}

/// Returns a quantile of Student's t.
fn quantile(degrees: usize, share: f64) -> f64 {
    StudentsT::new(0.0, 1.0, degrees as f64).map_or(f64::INFINITY, |t| t.inverse_cdf(share))
}

/// Sums over the first points, so that a segment costs no loop.
struct Sums {
    values: Vec<f64>,
    squares: Vec<f64>,
    errors: Vec<f64>,
    /// Subtracted from all values, so that no digits are lost.
    middle: f64,
}

impl Sums {
    fn new(points: &[Point]) -> Self {
        let middle = median(points.iter().map(|point| point.value)).unwrap_or(0.0);
        let running = |of: &dyn Fn(&Point) -> f64| {
            let mut sums = vec![0.0];
            let mut sum = 0.0;
            for point in points {
                sum += of(point);
                sums.push(sum);
            }
            sums
        };
        Self {
            values: running(&|point| point.value - middle),
            squares: running(&|point| (point.value - middle).powi(2)),
            errors: running(&|point| point.error.powi(2)),
            middle,
        }
    }

    fn mean(&self, from: usize, to: usize) -> f64 {
        self.middle + (self.values[to] - self.values[from]) / (to - from) as f64
    }

    /// Returns the squared distances from the mean of a segment.
    fn squares(&self, from: usize, to: usize) -> f64 {
        let sum = self.values[to] - self.values[from];
        let squares = self.squares[to] - self.squares[from];
        (squares - sum * sum / (to - from) as f64).max(0.0)
    }

    /// Returns the records' own error, as the root of the mean of the squares.
    fn error(&self, from: usize, to: usize) -> f64 {
        ((self.errors[to] - self.errors[from]) / (to - from) as f64).sqrt()
    }
}

#[cfg(test)]
mod tests;
