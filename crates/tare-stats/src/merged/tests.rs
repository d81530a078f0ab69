use std::collections::BTreeMap;

use proptest::prelude::*;

use tare_std::rng::Rng;

use super::*;

/// A histogram of whole numbers, each a bucket.
fn counted(values: impl IntoIterator<Item = u64>) -> Vec<Bucket> {
    let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
    values.into_iter().for_each(|value| *buckets.entry(value).or_default() += 1);
    buckets.into_iter().map(|(value, count)| (value, value, count)).collect()
}

#[test]
fn percentile_of_all_rounds() {
    let rounds = RoundHistograms::new(&[counted(1..=50), counted(51..=100), Vec::new()]);
    assert_eq!((rounds.len(), rounds.count()), (3, 100));
    for (quantile, value, beyond) in [(0.5, 50.0, 50), (0.95, 95.0, 5), (0.99, 99.0, 1)] {
        assert_eq!(rounds.percentile(quantile), Some(value));
        assert_eq!(rounds.beyond(quantile), beyond);
    }
    assert_eq!(RoundHistograms::new(&[]).percentile(0.5), None);
    assert_eq!(RoundHistograms::new(&[Vec::new()]).percentile(0.5), None);
    assert_eq!(RoundHistograms::new(&[]).beyond(0.5), 0);
}

#[test]
fn no_bounds_for_one_round_or_empty_resample() {
    let one = around(1.0, &[1.0; RESAMPLES], 1);
    assert!(one.low == f64::NEG_INFINITY && one.high == f64::INFINITY, "{one:?}");
    let rounds = RoundHistograms::new(&[counted([5]), Vec::new()]);
    let resampled = rounds.resampled(0.5, &Resamples::new(1, 2));
    assert!(resampled.iter().any(|x| x.is_nan()), "the empty round was drawn twice");
    assert!(!around(5.0, &resampled, 2).high.is_finite());
}

#[test]
fn influence_of_a_round_is_its_share_of_the_tail() {
    let rounds: Vec<Vec<Bucket>> = [10, 10, 10, 500].map(|high| counted(1..=high)).to_vec();
    let rounds = RoundHistograms::new(&rounds);
    let shares = rounds.shares_beyond(0.9);
    assert!(shares[..3].iter().all(|share| *share == 0.0) && shares[3] > 0.1, "{shares:?}");
    let moved = influences(&rounds.resampled(0.9, &Resamples::new(2, 4)), &shares);
    assert!(moved[3] > 0.0 && moved[0] == 0.0, "{moved:?}");
    assert_eq!(influences(&[1.0, 2.0], &[0.5, 0.5]), [0.0, 0.0], "no round is beyond");
    let means = RoundHistograms::new(&[counted([8]), Vec::new()]).mean_logs();
    assert_eq!(means, [8f64.ln(), 0.0]);
}

#[test]
fn interval_of_mean_matches_student() {
    // The resamples of the mean of the values 1 to 12.
    let values: Vec<f64> = (1..=12).map(f64::from).collect();
    let draws = Resamples::new(3, values.len());
    let mean = |times: &[u32]| -> f64 {
        times.iter().zip(&values).map(|(t, x)| f64::from(*t) * x).sum::<f64>() / 12.0
    };
    let resampled: Vec<f64> = draws.times.chunks_exact(12).map(mean).collect();
    let found = around(6.5, &resampled, 12);
    let student = super::super::methods::student_t(&values).unwrap();
    let ratio = (found.high - found.low) / (student.high - student.low);
    assert!((ratio - 1.0).abs() < 0.08, "{ratio}");
}

#[test]
fn same_seed_gives_same_draws() {
    let rounds = RoundHistograms::new(&[counted(1..=20), counted(5..=30), counted(1..=9)]);
    let read = |seed| rounds.resampled(0.9, &Resamples::new(seed, 3));
    assert_eq!(read(7), read(7));
    assert_ne!(read(7), read(8));
}

/// A model of response times. A value is `(1 + 0.3 x) * e^w` with an exponential x and the state w
/// of the host for its round and environment.
#[derive(Clone, Copy, Debug)]
enum HostModel {
    /// The host varies by 5 % in each slice, and by as much for both.
    Quiet,
    /// The host varies by 15 % in each slice.
    Stormy,
    /// In three of ten rounds 3 % of the operations take ten times as long and more.
    Pauses,
}

const OPERATIONS: u64 = 250;
/// Values are stored in steps of a thousandth.
const SCALE: f64 = 1_000.0;

impl HostModel {
    fn round(self, shared: f64, rng: &mut Rng) -> Vec<Bucket> {
        let own = if matches!(self, Self::Stormy) { 0.15 } else { 0.05 };
        let state = (shared + own * rng.normal()).exp();
        let pauses = matches!(self, Self::Pauses) && rng.below(10) < 3;
        let exponential = |rng: &mut Rng| -(1.0 - rng.next_f64()).ln();
        counted((0..OPERATIONS).map(|_| {
            let mut value = state * (1.0 + 0.3 * exponential(rng));
            if pauses && rng.below(100) < 3 {
                value *= 10.0 + 10.0 * exponential(rng);
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
            let value = (SCALE * value) as u64;
            value
        }))
    }

    /// Nearly the percentile of infinitely many rounds.
    fn truth(self, quantile: f64) -> f64 {
        let mut rng = Rng::new(99);
        let many: Vec<Vec<Bucket>> = (0..2_500)
            .map(|_| {
                let shared = 0.05 * rng.normal();
                self.round(shared, &mut rng)
            })
            .collect();
        // One round, as nothing is drawn from it.
        RoundHistograms::new(&[many.concat()]).percentile(quantile).unwrap()
    }

    /// How often the intervals of a level and of the ratio of two equal environments hold the
    /// truth.
    fn coverage(self, quantile: f64, rounds: usize, campaigns: u32) -> [f64; 2] {
        let truth = self.truth(quantile).ln();
        let (mut rng, draws) = (Rng::new(42), Resamples::new(5, rounds));
        let mut held = [0u32; 2];
        for _ in 0..campaigns {
            let state: Vec<f64> = (0..rounds).map(|_| 0.05 * rng.normal()).collect();
            let mut arm = || {
                let all: Vec<_> = state.iter().map(|w| self.round(*w, &mut rng)).collect();
                let all = RoundHistograms::new(&all);
                let logs = all.resampled(quantile, &draws).into_iter().map(f64::ln);
                (all.percentile(quantile).unwrap().ln(), logs.collect::<Vec<f64>>())
            };
            let (here, there) = (arm(), arm());
            let ratios: Vec<f64> = here.1.iter().zip(&there.1).map(|(a, b)| a - b).collect();
            let level = around(here.0, &here.1, rounds);
            let ratio = around(here.0 - there.0, &ratios, rounds);
            held[0] += u32::from(!level.excludes(truth));
            held[1] += u32::from(!ratio.excludes(0.0));
        }
        held.map(|held| f64::from(held) / f64::from(campaigns))
    }
}

/// 150 campaigns a case, so that chance moves a share of 95 % by 1.8 points (one standard
/// deviation).
#[test]
fn ratio_holds_truth() {
    for model in [HostModel::Quiet, HostModel::Stormy, HostModel::Pauses] {
        for quantile in [0.5, 0.99] {
            for rounds in [3, 12] {
                let [level, ratio] = model.coverage(quantile, rounds, 150);
                assert!(ratio >= 0.90, "{model:?} {quantile} {rounds} rounds: {ratio}");
                // A third of the campaigns of 3 rounds contain no pause.
                let rare = matches!(model, HostModel::Pauses) && quantile > 0.95;
                let least = if rare { 0.60 } else { 0.87 };
                assert!(level >= least, "{model:?} {quantile} {rounds} rounds, level: {level}");
            }
        }
    }
}

proptest! {
    /// Drawing and reading is the same as merging what was drawn.
    #[test]
    fn resample_matches_merged_rounds(
        rounds in proptest::collection::vec(proptest::collection::vec(0u64..40, 1..30), 1..6),
        quantile in 0.01f64..1.0,
    ) {
        let flat = RoundHistograms::new(&rounds.iter().map(|b| counted(b.iter().copied())).collect::<Vec<_>>());
        let draws = Resamples::new(11, rounds.len());
        let resampled = flat.resampled(quantile, &draws);
        for (times, read) in draws.times.chunks_exact(rounds.len()).zip(&resampled).take(50) {
            let mut merged: Vec<u64> = Vec::new();
            for (times, round) in times.iter().zip(&rounds) {
                (0..*times).for_each(|_| merged.extend(round));
            }
            merged.sort_unstable();
            let expected = merged.iter().enumerate().find(|(at, _)| {
                (at + 1) as f64 >= quantile * merged.len() as f64
            });
            prop_assert_eq!(*read, *expected.unwrap().1 as f64);
        }
    }
}
