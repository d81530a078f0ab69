use proptest::prelude::*;
use tare_std::rng::Rng;

use super::methods::{self, Method};
use super::validation::{NoiseModel, simulate, simulate_early_stop, simulate_family};
use super::*;

const CAMPAIGNS: usize = 10_000;

fn rule(noise: NoiseModel, rounds: usize) -> validation::Outcome {
    simulate(noise, rounds, CAMPAIGNS, 42, &[Method::Product])[0]
}

#[test]
fn holds_truth_in_normal_noise() {
    for rounds in [3, 5, 10, 40] {
        let coverage = rule(NoiseModel::Normal, rounds).coverage;
        assert!((0.94..=0.96).contains(&coverage), "{rounds} rounds: {coverage}");
    }
}

#[test]
fn a_against_a_alarms_in_at_most_5_percent() {
    // 40,000 campaigns, so that chance moves the rate by 0.11 points (one standard deviation);
    // Student's t sits exactly at 5 %.
    for noise in [NoiseModel::Normal, NoiseModel::Skewed, NoiseModel::HeavyTails] {
        for rounds in [3, 5, 10, 40] {
            let alarms =
                simulate(noise, rounds, 4 * CAMPAIGNS, 7, &[Method::Product])[0].false_alarms;
            assert!(alarms <= 0.05 + 3.0 * 0.0011, "{noise:?}, {rounds} rounds: {alarms}");
        }
    }
}

#[test]
fn holds_truth_in_symmetric_noise() {
    // All models except those with noise or drift in one arm alone.
    for noise in
        [NoiseModel::Skewed, NoiseModel::HeavyTails, NoiseModel::Outliers, NoiseModel::DriftShared]
    {
        for rounds in [3, 5, 10, 40] {
            let coverage = rule(noise, rounds).coverage;
            assert!(coverage >= 0.94, "{noise:?}, {rounds} rounds: {coverage}");
        }
    }
}

#[test]
fn rule_is_narrower_with_heavy_tails() {
    for noise in [NoiseModel::Skewed, NoiseModel::HeavyTails, NoiseModel::Outliers] {
        let methods = [Method::Product, Method::StudentT];
        let outcomes = simulate(noise, 40, CAMPAIGNS, 42, &methods);
        let (rule, t) = (outcomes[0], outcomes[1]);
        assert!(rule.width_median_percent < t.width_median_percent, "{noise:?}: {rule:?} {t:?}");
        assert!(rule.found > t.found, "{noise:?}: {rule:?} {t:?}");
    }
}

#[test]
fn exact_methods_have_no_interval_below_6_rounds() {
    let five = [0.1, 0.2, 0.3, 0.4, 0.5];
    for method in [Method::OrderStatistic, Method::SignedRank] {
        let estimate = method.estimate(&five, &mut Rng::new(0)).unwrap();
        assert_eq!((estimate.low, estimate.high), (f64::NEG_INFINITY, f64::INFINITY), "{method:?}");
        let six = method.estimate(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], &mut Rng::new(0)).unwrap();
        assert_eq!((six.low, six.high), (0.1, 0.6), "{method:?}: 1 - 2/64 = 96.9 %");
    }
}

#[test]
fn every_method_handles_one_and_no_value() {
    for method in Method::ALL {
        assert_eq!(method.estimate(&[], &mut Rng::new(0)), None, "{method:?}");
        let one = method.estimate(&[0.25], &mut Rng::new(0)).unwrap();
        assert_eq!((one.centre, one.rounds), (0.25, 1), "{method:?}");
        assert_eq!((one.low, one.high), (f64::NEG_INFINITY, f64::INFINITY), "{method:?}");
        let same = method.estimate(&[0.25; 12], &mut Rng::new(0)).unwrap();
        assert_eq!(same.centre, 0.25, "{method:?}");
    }
}

#[test]
fn few_rounds_use_student_quantile() {
    // Table values of Student's t, two-sided 95 %.
    for (degrees, table) in [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (28, 2.048)] {
        let t = methods::t_quantile(degrees);
        assert!((t - table).abs() < 0.0005, "{degrees} degrees: {t}");
    }
    let two = estimate(&[0.0, 0.2]).unwrap();
    // Mean 0.1, standard error 0.1.
    assert!((two.high - (0.1 + 12.706 * 0.1)).abs() < 1e-3, "{two:?}");
}

#[test]
fn signed_ranks_match_published_tables() {
    // Wilcoxon's critical values, two-sided 5 %: n = 10: 8, n = 20: 52, n = 40: 264. With values
    // that are powers of 2 every Walsh average is distinct, so the bound is the (c + 1)-th
    // smallest.
    for (n, critical) in [(10, 8), (20, 52), (40, 264)] {
        let values: Vec<f64> = (0..n).map(|k| 2f64.powi(k)).collect();
        let mut walsh: Vec<f64> = Vec::new();
        for (i, a) in values.iter().enumerate() {
            walsh.extend(values[i..].iter().map(|b| f64::midpoint(*a, *b)));
        }
        walsh.sort_unstable_by(f64::total_cmp);
        let estimate = methods::signed_rank(&values).unwrap();
        assert_eq!(estimate.low, walsh[critical], "{n} values");
        assert_eq!(estimate.high, walsh[walsh.len() - 1 - critical], "{n} values");
    }
}

#[test]
fn normal_approximation_has_no_step() {
    // The width shrinks smoothly at the change from the exact to the approximate distribution.
    let mut rng = Rng::new(5);
    let values: Vec<f64> = (0..400).map(|_| rng.normal()).collect();
    let width = |n: usize| {
        let estimate = methods::signed_rank(&values[..n]).unwrap();
        estimate.high - estimate.low
    };
    let (before, after) = (width(64), width(65));
    assert!((before / after - 1.0).abs() < 0.1, "{before} {after}");
    assert!((width(400) - 2.0 * 1.96 / 20.0).abs() < 0.03, "{}", width(400));
}

#[test]
fn stopping_by_width_costs_little_coverage() {
    let (coverage, rounds) = simulate_early_stop(NoiseModel::Normal, (5, 60), 4.0, CAMPAIGNS, 11);
    assert!(coverage > 0.92, "{coverage} after {rounds} rounds");
}

#[test]
fn family_of_comparisons_alarms_more_often() {
    let one = simulate_family(1, 10, CAMPAIGNS, 3);
    let six = simulate_family(6, 10, CAMPAIGNS, 3);
    assert!(one < 0.056 && six > 0.10 && six < 0.30, "{one} {six}");
}

#[test]
fn skips_pairs_without_ratio() {
    let logs = log_ratios([(2.0, 1.0), (0.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0)]);
    assert_eq!(logs, [2f64.ln()]);
}

proptest! {
    /// Ties, neighbours among the floats and several orders of magnitude included.
    #[test]
    fn walsh_average_matches_sorted_list(
        values in proptest::collection::vec(
            prop_oneof![
                (-3i32..4).prop_map(f64::from),
                -1e300f64..1e300,
                1.0f64..1.000_000_000_001,
            ],
            1..40,
        ),
    ) {
        let mut sorted = values;
        sorted.sort_unstable_by(f64::total_cmp);
        let mut walsh = Vec::new();
        for (index, a) in sorted.iter().enumerate() {
            walsh.extend(sorted[index..].iter().map(|b| f64::midpoint(*a, *b)));
        }
        walsh.sort_unstable_by(f64::total_cmp);
        for (rank, expected) in walsh.iter().enumerate() {
            prop_assert_eq!(methods::walsh_average(&sorted, rank), *expected);
        }
    }
}
