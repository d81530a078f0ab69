use super::*;
use proptest::prelude::*;
use tare_std::rng::Rng;

const DRAWS: u64 = 200_000;

/// Returns how often each key is drawn with a fixed seed.
fn counts(kind: &str, keys: u64) -> Vec<u64> {
    let sampler = Sampler::new(kind.parse().unwrap(), keys);
    let mut counts = vec![0; usize::try_from(keys).unwrap()];
    for index in 0..DRAWS {
        let key = sampler.draw(index, &mut Rng::stream(11, index), 0);
        counts[usize::try_from(key).unwrap()] += 1;
    }
    counts
}

/// Returns the chi-square of counts against probabilities, with neighbours lumped until each
/// expects at least 20, and its limit at about 4.5 standard deviations (Wilson and Hilferty's
/// cube).
fn chi_square(counts: &[u64], probability: impl Fn(u64) -> f64) -> (f64, f64) {
    let (mut chi, mut groups) = (0.0, 0u32);
    let (mut seen, mut expected) = (0.0, 0.0);
    for (key, &count) in (0..).zip(counts) {
        seen += count as f64;
        expected += probability(key) * DRAWS as f64;
        if expected >= 20.0 {
            chi += (seen - expected).powi(2) / expected;
            groups += 1;
            (seen, expected) = (0.0, 0.0);
        }
    }
    let free = f64::from(groups - 1);
    let limit = free * (1.0 - 2.0 / (9.0 * free) + 4.5 * (2.0 / (9.0 * free)).sqrt()).powi(3);
    (chi, limit)
}

fn check(kind: &str, keys: u64, probability: impl Fn(u64) -> f64) {
    let total: f64 = (0..keys).map(&probability).sum();
    assert!((total - 1.0).abs() < 1e-6, "{kind}: the closed form sums to {total}");
    let counts = counts(kind, keys);
    let (chi, limit) = chi_square(&counts, &probability);
    assert!(chi < limit, "{kind}: chi-square {chi} above {limit}");
    // The test must be able to fail: another distribution must exceed the limit.
    let moved = |key: u64| (probability(key) + probability((key + keys / 2) % keys)) / 2.0;
    let (chi, limit) = chi_square(&counts, moved);
    assert!(
        chi > limit || kind == "uniform",
        "{kind}: the test does not see another distribution, {chi}"
    );
}

#[test]
fn draws_follow_the_closed_forms() {
    check("uniform", 100, |_| 0.01);
    for exponent in [0.5, 0.99, 1.0, 1.5, 3.0] {
        let sum: f64 = (1..=1_000).map(|rank| f64::from(rank).powf(-exponent)).sum();
        let weight = |key: u64| ((key + 1) as f64).powf(-exponent) / sum;
        check(&format!("zipfian:{exponent}"), 1_000, weight);
        check(&format!("latest:{exponent}"), 1_000, |key| weight(999 - key));
    }
    let hot = |key: u64| if key < 200 { 0.8 / 200.0 } else { 0.2 / 800.0 };
    check("hotset:0.2:0.8", 1_000, hot);
    let gamma = -(0.05f64).ln() / 857.1428571;
    let inside = 1.0 - (-gamma * 1_000.0).exp();
    let exponential =
        |key: u64| ((-gamma * key as f64).exp() - (-gamma * (key + 1) as f64).exp()) / inside;
    check("exponential:0.95:0.8571428571", 1_000, exponential);
}

#[test]
fn gaussian_is_that_of_cassandra_stress() {
    use statrs::distribution::{ContinuousCDF, Normal};
    // Keys are numbered from 1 there: key k of ours takes what lies from k + 1 to k + 2, the first
    // and the last also what lies outside.
    let normal = Normal::new(1.0 + 0.5 * 999.0, 999.0 / 6.0).unwrap();
    check("gaussian", 1_000, |key| match key {
        0 => normal.cdf(2.0),
        999 => 1.0 - normal.cdf(1_000.0),
        key => normal.cdf(key as f64 + 2.0) - normal.cdf(key as f64 + 1.0),
    });
    let normal = Normal::new(1.0 + 0.25 * 999.0, 99.9).unwrap();
    check("gaussian:0.25:0.1", 1_000, |key| match key {
        0 => normal.cdf(2.0),
        999 => 1.0 - normal.cdf(1_000.0),
        key => normal.cdf(key as f64 + 2.0) - normal.cdf(key as f64 + 1.0),
    });
}

#[test]
fn ycsb_ranks_follow_the_formula_of_the_approximation() {
    let zipfian = YcsbZipfian::new();
    let mut rng = Rng::new(5);
    let mut ranks: Vec<u64> = (0..DRAWS).map(|_| zipfian.draw(&mut rng)).collect();
    let zeros = ranks.iter().filter(|rank| **rank == 0).count() as f64 / DRAWS as f64;
    assert!((zeros - 1.0 / ZETA_OF_YCSB).abs() < 0.001, "{zeros}");
    // Kolmogorov and Smirnov's distance, over the ranks that the formula gives.
    ranks.sort_unstable();
    let points = [2, 5, 10, 100, 1_000, 100_000, 10_000_000, 5_000_000_000];
    let distance = points.iter().map(|&point| {
        let below = ranks.partition_point(|rank| *rank < point) as f64 / DRAWS as f64;
        (below - zipfian.share_below(point)).abs()
    });
    // The rank 2 takes what the formula would give to smaller ones, which the first point sees.
    let worst = distance.skip(1).fold(0.0, f64::max);
    assert!(worst < 2.0 / (DRAWS as f64).sqrt(), "{worst}");
    assert_eq!(fnv_hash(0), 0xa8c7_f832_281a_39c5u64.cast_signed().unsigned_abs());
}

const ZETA_OF_YCSB: f64 = 26.469_028_201_783_02;

#[test]
fn scrambled_keys_are_skewed_and_spread() {
    let counts = counts("ycsb-zipfian", 1_000);
    let hottest = counts.iter().max().unwrap();
    let place = usize::try_from(fnv_hash(0) % 1_000).unwrap();
    assert_eq!(counts[place], *hottest);
    assert!((0.036..0.041).contains(&(*hottest as f64 / DRAWS as f64)), "{hottest}");
}

#[test]
fn latest_follows_inserted_keys() {
    let sampler = Sampler::new(Keys::Latest { exponent: 0.99 }, 100);
    let newest = (0..1_000).map(|index| sampler.draw(index, &mut Rng::stream(1, index), 50)).max();
    assert_eq!(newest, Some(149));
}

#[test]
fn distributions_are_read_and_printed() {
    for form in FORMS {
        let name = form.split(':').next().unwrap();
        let keys: Keys = name.parse().unwrap();
        assert_eq!(keys.to_string().parse::<Keys>(), Ok(keys), "{form}");
    }
    assert_eq!(
        "hotset:0.1".parse(),
        Ok(Keys::Hotset { keys: 0.1, operations: 0.8 }),
        "parameters may be left out from the right"
    );
    for bad in ["", "zipf", "uniform:1", "zipfian:x", "zipfian:0", "zipfian:nan", "hotset:0:1"] {
        assert!(bad.parse::<Keys>().is_err(), "{bad}");
    }
    assert_eq!(
        "zipfian:-1".parse::<Keys>().unwrap_err().to_string(),
        "\"zipfian:-1\" is not a distribution of keys: write zipfian:EXPONENT, shares from 0 to 1, an exponent above 0"
    );
}

proptest! {
    #[test]
    fn keys_stay_in_range_and_repeat(
        keys in 1u64..=1 << 62, index: u64, seed: u64, form in 0..FORMS.len(),
        exponent in 0.01f64..20.0,
    ) {
        let name = FORMS[form].split(':').next().unwrap();
        let kinds = [name.parse().unwrap(), Keys::Zipfian { exponent }];
        for kind in kinds {
            let sampler = Sampler::new(kind, keys);
            let draw = || sampler.draw(index, &mut Rng::stream(seed, index), 0);
            prop_assert!(draw() < keys, "{} over {}", kind, keys);
            prop_assert_eq!(draw(), draw());
        }
    }
}
