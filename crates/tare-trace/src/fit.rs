//! Which distribution of `tare load` the keys of a trace have, and over how many rows.
//!
//! Method: two numbers that need no order of the keys, so that it does not matter which keys only
//! seem hot by chance: how many different keys were asked for, and how often two operations ask for
//! the same one. A Zipf distribution has an exponent and a number of rows; both follow from the two
//! numbers. Uniform keys are exponent 0. Drawing the fitted distribution as often as the trace asks
//! shows how far the fit is off.
//!
//! Limits: the rows that the trace did not ask for are an estimate. Other distributions (a hot set,
//! a normal one) are reported as the Zipf distribution with the same two numbers, and with the
//! distance. The exact source of keys, such as YCSB's hashed ones, is not told apart.

use std::collections::HashMap;

use tare_load::keys::{Keys, Sampler};
use tare_std::rng::Rng;

use crate::sizes::whole;

/// Fewer pairs of operations on the same key say nothing about the number of rows.
const PAIRS_MIN: f64 = 10.0;
/// Keys whose pairs are at most so many times those of uniform keys are called uniform.
const UNIFORM_EXCESS: f64 = 0.05;
/// The most rows for each key that was asked for.
const ROWS_PER_KEY_MAX: f64 = 1000.0;
const EXPONENT_MAX: f64 = 5.0;
/// Ranks that are added up one by one, and the growth of the groups of the others.
const SINGLE_RANKS: u32 = 1000;
const GROUP_GROWTH: f64 = 1.02;

/// A fitted distribution.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fit {
    pub(crate) keys: Keys,
    pub(crate) rows: u64,
    /// Different keys of the trace.
    pub(crate) seen: u64,
    /// Whether enough keys repeat to tell anything.
    pub(crate) is_known: bool,
    /// Shares of the operations that go to the hottest keys: their number, in the trace, in the
    /// fit.
    pub(crate) hottest: Vec<(u64, f64, f64)>,
}

impl Fit {
    /// Returns the largest difference of the shares.
    pub(crate) fn distance(&self) -> f64 {
        self.hottest.iter().map(|(_, trace, fit)| (trace - fit).abs()).fold(0.0, f64::max)
    }
}

/// Fits the keys of operations, given as hashes. `rows`: the number of rows, if it is known better
/// than from these operations. `is_sequential`: the keys come in their order.
pub(crate) fn fit(hashes: &[u64], rows: Option<u64>, is_sequential: bool) -> Option<Fit> {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    for hash in hashes {
        *counts.entry(*hash).or_default() += 1;
    }
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    let operations = hashes.len() as f64;
    if hashes.len() < 2 {
        return None;
    }
    let seen = counts.len() as u64;
    let pairs: f64 = counts.iter().map(|count| *count as f64 * (*count as f64 - 1.0) / 2.0).sum();
    let repeats = pairs / (operations * (operations - 1.0) / 2.0);
    let observed = Observed { operations, seen: seen as f64, repeats };
    let is_known = is_sequential || pairs >= PAIRS_MIN;
    let rows = rows.map(|rows| rows.max(seen) as f64);
    let (keys, rows) = match (is_sequential, is_known) {
        (true, _) => (Keys::Sequential, rows.unwrap_or(seen as f64)),
        (_, false) => (Keys::Uniform, rows.unwrap_or(seen as f64)),
        _ => observed.distribution(rows, pairs),
    };
    let rows = whole(rows.round()).max(seen);
    let hottest = if is_known { compare(&counts, keys, rows, hashes.len()) } else { Vec::new() };
    Some(Fit { keys, rows, seen, is_known, hottest })
}

/// The numbers of a trace that are fitted.
#[derive(Clone, Copy, Debug)]
struct Observed {
    operations: f64,
    /// Different keys.
    seen: f64,
    /// The share of pairs of operations that are on the same key.
    repeats: f64,
}

impl Observed {
    fn distribution(&self, rows: Option<f64>, pairs: f64) -> (Keys, f64) {
        let rows_at = |exponent| rows.unwrap_or_else(|| self.rows(exponent));
        let uniform = rows_at(0.0);
        // The deviation of the number of pairs of uniform keys, as a share: that of the index of
        // dispersion of the counts, which is 1 with a deviation of the root of 2 / rows.
        let deviation = (2.0 / uniform).sqrt() * uniform / self.operations;
        let excess = self.repeats * uniform - 1.0;
        if excess < (3.0 * deviation.max(pairs.sqrt().recip())).max(UNIFORM_EXCESS) {
            return (Keys::Uniform, uniform);
        }
        let (mut low, mut high) = (0.0, EXPONENT_MAX);
        for _ in 0..30 {
            let middle = f64::midpoint(low, high);
            let (_, repeats) = expected(rows_at(middle), middle, self.operations);
            if repeats < self.repeats { low = middle } else { high = middle }
        }
        // Three digits are more than the trace tells.
        let exponent = (f64::midpoint(low, high) * 1000.0).round().max(1.0) / 1000.0;
        (Keys::Zipfian { exponent }, rows_at(exponent))
    }

    /// Returns the number of rows of which so many different ones would be asked for.
    fn rows(&self, exponent: f64) -> f64 {
        let (mut low, mut high) = (self.seen.ln(), (self.seen * ROWS_PER_KEY_MAX).ln());
        for _ in 0..26 {
            let middle = f64::midpoint(low, high);
            let (seen, _) = expected(middle.exp(), exponent, self.operations);
            if seen < self.seen { low = middle } else { high = middle }
        }
        f64::midpoint(low, high).exp()
    }
}

/// Returns the expected number of different keys of so many operations, and the probability that
/// two of them are on the same key. Ranks beyond the first ones are added up in groups.
fn expected(rows: f64, exponent: f64, operations: f64) -> (f64, f64) {
    let mut groups: Vec<(f64, f64)> = Vec::new();
    let mut from = 1.0;
    while from <= rows {
        let width = if from <= f64::from(SINGLE_RANKS) {
            1.0
        } else {
            (from * (GROUP_GROWTH - 1.0)).floor().min(rows - from + 1.0).max(1.0)
        };
        let middle = from + (width - 1.0) / 2.0;
        groups.push((width, (-exponent * middle.ln()).exp()));
        from += width;
    }
    let sum: f64 = groups.iter().map(|(width, weight)| width * weight).sum();
    groups.iter().fold((0.0, 0.0), |(seen, repeats), (width, weight)| {
        let share = weight / sum;
        let never = (operations * (-share).ln_1p()).exp();
        (seen + width * (1.0 - never), repeats + width * share * share)
    })
}

/// Returns the shares of the hottest keys in the trace and in draws of the fit.
fn compare(counts: &[u64], keys: Keys, rows: u64, operations: usize) -> Vec<(u64, f64, f64)> {
    let sampler = Sampler::new(keys, rows);
    let mut rng = Rng::new(1);
    let mut drawn: HashMap<u64, u64> = HashMap::new();
    for index in 0..operations as u64 {
        *drawn.entry(sampler.draw(index, &mut rng, 0)).or_default() += 1;
    }
    let mut drawn: Vec<u64> = drawn.into_values().collect();
    drawn.sort_unstable_by(|one, other| other.cmp(one));
    let share = |counts: &[u64], first: usize| {
        counts.iter().take(first).sum::<u64>() as f64 / operations as f64
    };
    let mut places = vec![1, counts.len() / 100, counts.len() / 10, counts.len() / 2];
    places.retain(|place| *place > 0);
    places.dedup();
    let entry = |place| (place as u64, share(counts, place), share(&drawn, place));
    places.into_iter().map(entry).collect()
}

/// Whether keys come in ascending order: in most stretches of the trace, time and key rank alike,
/// and few keys come twice. Several connections may overtake each other.
pub(crate) fn is_sequential(keys: &[Box<[u8]>]) -> bool {
    const STRETCH: usize = 400;
    let mut stretches: Vec<f64> = keys.chunks_exact(STRETCH).map(rank_correlation).collect();
    stretches.sort_unstable_by(f64::total_cmp);
    stretches.get(stretches.len() / 2).is_some_and(|median| *median > 0.8)
}

/// Returns Spearman's rank correlation of place and key; 0 if many keys come twice.
fn rank_correlation(keys: &[Box<[u8]>]) -> f64 {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|place| &keys[*place]);
    let repeats = order.windows(2).filter(|two| keys[two[0]] == keys[two[1]]).count();
    if repeats * 10 > keys.len() {
        return 0.0;
    }
    let squares: f64 =
        order.iter().enumerate().map(|(rank, place)| (rank as f64 - *place as f64).powi(2)).sum();
    let length = keys.len() as f64;
    1.0 - 6.0 * squares / (length * (length * length - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fits draws of a distribution.
    fn fitted(keys: &str, rows: u64, operations: u64, known: Option<u64>) -> Fit {
        let sampler = Sampler::new(keys.parse().unwrap(), rows);
        let mut rng = Rng::new(42);
        let draws: Vec<u64> =
            (0..operations).map(|index| sampler.draw(index, &mut rng, 0)).collect();
        fit(&draws, known, false).unwrap()
    }

    #[test]
    fn exponent_and_rows_are_found() {
        for (exponent, rows, operations) in [
            (0.6, 20_000, 100_000),
            (0.99, 10_000, 50_000),
            (0.99, 100_000, 200_000),
            (1.2, 1000, 50_000),
        ] {
            let fit = fitted(&format!("zipfian:{exponent}"), rows, operations, None);
            let Keys::Zipfian { exponent: found } = fit.keys else { panic!("{fit:?}") };
            assert!((found - exponent).abs() < 0.05, "{exponent}: {fit:?}");
            let ratio = fit.rows as f64 / rows as f64;
            assert!((0.7..1.4).contains(&ratio), "{rows}: {fit:?}");
            assert!(fit.distance() < 0.03, "{fit:?}");
        }
        let fit = fitted("zipfian:0.8", 50_000, 20_000, Some(50_000));
        let Keys::Zipfian { exponent } = fit.keys else { panic!("{fit:?}") };
        assert!((exponent - 0.8).abs() < 0.05, "{fit:?}");
    }

    #[test]
    fn uniform_keys_stay_uniform() {
        for (rows, operations) in [(1000, 50_000), (10_000, 10_000), (100_000, 20_000)] {
            let fit = fitted("uniform", rows, operations, None);
            assert_eq!(fit.keys, Keys::Uniform, "{fit:?}");
            let ratio = fit.rows as f64 / rows as f64;
            assert!((0.9..1.1).contains(&ratio), "{rows}: {fit:?}");
            assert!(fit.distance() < 0.03, "{fit:?}");
        }
        let few = fitted("uniform", 1 << 40, 1000, None);
        assert_eq!((few.keys, few.rows, few.is_known), (Keys::Uniform, 1000, false));
    }

    #[test]
    fn another_distribution_shows_its_distance() {
        let fit = fitted("hotset:0.1:0.9", 10_000, 100_000, None);
        assert!(fit.distance() > 0.05, "{fit:?}");
        assert_eq!(super::fit(&[], None, false), None);
        assert_eq!(super::fit(&[1], None, false), None);
    }

    #[test]
    fn order_is_recognised() {
        let key = |number: u64| Box::from(number.to_be_bytes());
        let in_order: Vec<Box<[u8]>> = (0..4000).map(key).collect();
        assert!(is_sequential(&in_order));
        // Eight connections, each of which is up to 20 operations ahead or behind.
        let overtaking: Vec<_> = (0..4000u64).map(|one| key(one + one * 7 % 41)).collect();
        assert!(is_sequential(&overtaking));
        let wrapping: Vec<_> = (0..4000).map(|one| key(one % 1500)).collect();
        assert!(is_sequential(&wrapping));
        let mut rng = Rng::new(1);
        let random: Vec<_> = (0..4000).map(|_| key(rng.below(10_000))).collect();
        assert!(!is_sequential(&random));
        assert!(!is_sequential(&vec![key(1); 4000]));
        assert!(!is_sequential(&in_order[..100]));
    }
}
