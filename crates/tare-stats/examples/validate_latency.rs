//! Prints the coverage and width of the intervals of percentiles of latency on simulated campaigns
//! with a known truth, for the table in docs/concepts/cost.md. Run
//! `cargo run --release --package tare-stats --example validate_latency`.
//!
//! Model: a round has 400 operations of each environment. A response time is
//! `(1 + 0.3 x) * e^w` with an exponential x and the state w of its round and environment. Both
//! environments share 5 % of state (standard deviation), and each has 5 % of its own. What is added
//! depends on the disturbance. The truth is the percentile of 5,000 rounds together, and the ratio
//! of two such percentiles.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use tare_stats::dependence::{unequal, wander_factor};
use tare_stats::merged::{Bucket, RESAMPLES, Resamples, RoundHistograms, around, influences};
use tare_stats::methods::{student_t, t_quantile};
use tare_stats::{Estimate, median};
use tare_std::rng::Rng;

const CAMPAIGNS: usize = 1000;
const SEED: u64 = 42;
const ROUNDS: [usize; 5] = [3, 5, 10, 40, 100];
const OPERATIONS: usize = 400;
/// Buckets of a histogram are 0.2 % wide.
const STEP: f64 = 0.002;

/// What disturbs rounds in addition to the usual noise.
#[derive(Clone, Copy, PartialEq)]
enum Disturbance {
    Quiet,
    /// Each environment has 15 % of state of its own.
    Stormy,
    /// In this share of the rounds of each environment, 3 % of the operations take 10 times as long
    /// and more.
    Pauses(f64),
    /// The shared state has 15 % and a correlation of neighbours of 0.9.
    HostWanders,
    /// The environment alone has 15 % more, with this correlation of neighbours.
    Wanders(f64),
    /// The environment alone has a lognormal state (median 1, sigma 1) times the first number, with
    /// the second as correlation of neighbours.
    Skewed(f64, f64),
}

impl Disturbance {
    /// The response times of a round of the environment or the baseline, as buckets.
    fn round(self, is_environment: bool, shared: f64, own: f64, rng: &mut Rng) -> Vec<Bucket> {
        let noise = if self == Self::Stormy { 0.15 } else { 0.05 };
        let host = if self == Self::HostWanders { 0.15 } else { 0.05 };
        let mut state = host * shared + noise * rng.normal();
        match self {
            Self::Wanders(_) if is_environment => state += 0.15 * own,
            Self::Skewed(size, _) if is_environment => state += size * own.exp_m1(),
            _ => {}
        }
        let pauses = matches!(self, Self::Pauses(share) if rng.next_f64() < share);
        let exponential = |rng: &mut Rng| -(1.0 - rng.next_f64()).ln();
        let one = |_| {
            let mut log = state + (1.0 + 0.3 * exponential(rng)).ln();
            if pauses && rng.below(100) < 3 {
                log += (10.0 + 10.0 * exponential(rng)).ln();
            }
            bucket(log)
        };
        let mut buckets: Vec<Bucket> = (0..OPERATIONS).map(one).collect();
        buckets.sort_unstable();
        buckets
    }

    /// The rounds of one campaign: the environment's and the baseline's.
    fn campaign(self, rounds: usize, rng: &mut Rng) -> [Vec<Vec<Bucket>>; 2] {
        let (host, own) = match self {
            Self::HostWanders => (0.9f64, 0.0),
            Self::Wanders(correlation) | Self::Skewed(_, correlation) => (0.0, correlation),
            _ => (0.0, 0.0),
        };
        let next = |state: f64, kept: f64, rng: &mut Rng| {
            kept * state + (1.0 - kept * kept).sqrt() * rng.normal()
        };
        let (mut shared, mut alone) = (rng.normal(), rng.normal());
        let mut arms = [Vec::with_capacity(rounds), Vec::with_capacity(rounds)];
        for _ in 0..rounds {
            (shared, alone) = (next(shared, host, rng), next(alone, own, rng));
            arms[0].push(self.round(true, shared, alone, rng));
            arms[1].push(self.round(false, shared, alone, rng));
        }
        arms
    }
}

/// The bucket of a logarithm, in millionths.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time above 0")]
fn bucket(log: f64) -> Bucket {
    let step = (log / STEP).floor();
    let edge = |step: f64| (1e6 * (STEP * step).exp()) as u64;
    (edge(step), edge(step + 1.0) - 1, 1)
}

/// What a method gets: figure, resamples and influences on the log scale.
struct Sample<'s> {
    centre: f64,
    resampled: &'s [f64],
    in_blocks: &'s [f64],
    influences: &'s [f64],
    /// Each round's own percentile.
    by_round: &'s [f64],
    /// How much wider because one environment varies more.
    unequal: f64,
}

type Method = fn(&Sample<'_>) -> Option<Estimate>;

fn rule(sample: &Sample<'_>) -> Option<Estimate> {
    let Sample { centre, resampled, influences, unequal, .. } = *sample;
    let factor = wander_factor(influences) * unequal;
    Some(around(centre, resampled, influences.len()).widened(factor))
}

fn whole_rounds(sample: &Sample<'_>) -> Option<Estimate> {
    Some(around(sample.centre, sample.resampled, sample.influences.len()))
}

fn dependent_only(sample: &Sample<'_>) -> Option<Estimate> {
    Some(whole_rounds(sample)?.widened(wander_factor(sample.influences)))
}

fn blocks(sample: &Sample<'_>) -> Option<Estimate> {
    Some(around(sample.centre, sample.in_blocks, sample.influences.len()))
}

/// Student's t over the means of five batches of rounds.
fn batches(sample: &Sample<'_>) -> Option<Estimate> {
    let rounds = sample.influences.len();
    let length = rounds / 5;
    if length < 2 {
        return None;
    }
    let means: Vec<f64> = sample
        .influences
        .chunks_exact(length)
        .take(5)
        .map(|batch| batch.iter().sum::<f64>() / length as f64)
        .collect();
    let of_batches = student_t(&means)?;
    let half = (of_batches.high - of_batches.low) / 2.0;
    let plain = student_t(sample.influences)?;
    Some(whole_rounds(sample)?.widened(half / ((plain.high - plain.low) / 2.0)))
}

/// The variance at the slowest cosines, always.
fn slow_cosines(sample: &Sample<'_>) -> Option<Estimate> {
    let n = sample.influences.len() as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
    let cosines = ((0.4 * n.powf(2.0 / 3.0)) as usize).max(1);
    let mean = sample.influences.iter().sum::<f64>() / n;
    let squares: f64 = sample.influences.iter().map(|x| (x - mean).powi(2)).sum();
    let slow = (1..=cosines).map(|number| {
        let phase = |at: usize| std::f64::consts::PI * number as f64 * (at as f64 + 0.5) / n;
        let all = sample.influences.iter().enumerate();
        all.map(|(at, x)| (x - mean) * phase(at).cos()).sum::<f64>().powi(2) * 2.0 / n
    });
    let ratio = slow.sum::<f64>() / cosines as f64 / (squares / (n - 1.0));
    let factor = t_quantile(cosines) / t_quantile(sample.influences.len() - 1) * ratio.sqrt();
    Some(whole_rounds(sample)?.widened(factor))
}

fn resampled_percentiles(sample: &Sample<'_>) -> Option<Estimate> {
    let mut sorted = sample.resampled.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (low, high) = (sorted[RESAMPLES / 40], sorted[RESAMPLES - 1 - RESAMPLES / 40]);
    Some(Estimate { centre: sample.centre, low, high, rounds: 0 })
}

fn student_by_round(sample: &Sample<'_>) -> Option<Estimate> {
    student_t(sample.by_round)
}

const METHODS: [(&str, Method); 8] = [
    ("tare's rule", rule),
    ("whole rounds alone", whole_rounds),
    ("dependence alone", dependent_only),
    ("blocks of rounds", blocks),
    ("five batches", batches),
    ("slow cosines, always", slow_cosines),
    ("percentiles of the resamples", resampled_percentiles),
    ("Student's t on each round's", student_by_round),
];

/// The length of blocks for a correlation of neighbours.
/// Source: Politis, White, "Automatic Block-Length Selection for the Dependent Bootstrap",
/// Econometric Reviews 23 (2004), with the spectrum of a first-order process.
fn block_length(values: &[f64]) -> usize {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    let products: f64 = values.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    let own = (n * products / squares + 1.0) / (n - 4.0).max(1.0);
    let correlation = if own.is_finite() { own.clamp(0.0, 0.9) } else { 0.0 };
    let scale = 2.0 * correlation / (1.0 - correlation * correlation);
    let length = (1.5 * scale * scale * n).cbrt().ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to n / 2")]
    let length = length.clamp(1.0, (n / 2.0).max(1.0)) as usize;
    length
}

fn logs(values: Vec<f64>) -> Vec<f64> {
    values.into_iter().map(f64::ln).collect()
}

fn minus(over: &[f64], under: &[f64]) -> Vec<f64> {
    over.iter().zip(under).map(|(over, under)| over - under).collect()
}

/// Coverage of ratio and level, and widths of the ratio in percentage points, of every method.
#[derive(Clone, Default)]
struct Tally {
    bounded: usize,
    ratio: usize,
    level: usize,
    widths: Vec<f64>,
}

fn simulate(disturbance: Disturbance, quantile: f64, rounds: usize) -> Vec<Tally> {
    let truth = {
        let rounds = disturbance.campaign(5_000, &mut Rng::stream(SEED, 1));
        rounds.map(|rounds| {
            let all = RoundHistograms::new(&[rounds.concat()]);
            all.percentile(quantile).unwrap_or(f64::NAN).ln()
        })
    };
    let draws = Resamples::new(SEED, rounds);
    let mut tallies = vec![Tally::default(); METHODS.len()];
    let mut rng = Rng::stream(SEED, 2);
    for _ in 0..CAMPAIGNS {
        let arms = disturbance.campaign(rounds, &mut rng);
        let by_round = arms.clone().map(|arm| -> Vec<f64> {
            let own = arm.into_iter().map(|round| RoundHistograms::new(&[round]));
            own.map(|own| own.percentile(quantile).unwrap_or(f64::NAN).ln()).collect()
        });
        let arms = arms.map(|arm| RoundHistograms::new(&arm));
        let centres = [0, 1].map(|arm: usize| {
            let found: Option<f64> = arms[arm].percentile(quantile);
            found.unwrap_or(f64::NAN).ln()
        });
        let resampled = [0, 1].map(|arm: usize| logs(arms[arm].resampled(quantile, &draws)));
        let influence = [0, 1]
            .map(|arm: usize| influences(&resampled[arm], &arms[arm].shares_beyond(quantile)));
        let both = minus(&influence[0], &influence[1]);
        let in_blocks = |values: &[f64]| {
            let draws = Resamples::in_blocks(SEED, rounds, block_length(values));
            [0, 1].map(|arm: usize| logs(arms[arm].resampled(quantile, &draws)))
        };
        let found = unequal(&arms[0].mean_logs(), &arms[1].mean_logs());
        let ratio_blocks = in_blocks(&both);
        let ratio = Sample {
            centre: centres[0] - centres[1],
            resampled: &minus(&resampled[0], &resampled[1]),
            in_blocks: &minus(&ratio_blocks[0], &ratio_blocks[1]),
            influences: &both,
            by_round: &minus(&by_round[0], &by_round[1]),
            unequal: found.map_or(1.0, |found| found.factor),
        };
        let level = Sample {
            centre: centres[0],
            resampled: &resampled[0],
            in_blocks: &in_blocks(&influence[0])[0],
            influences: &influence[0],
            by_round: &by_round[0],
            unequal: found.filter(|found| found.first).map_or(1.0, |found| found.factor),
        };
        for ((_, method), tally) in METHODS.iter().zip(&mut tallies) {
            let (Some(ratio), Some(level)) = (method(&ratio), method(&level)) else { continue };
            if ratio.low.is_finite() {
                tally.bounded += 1;
                tally.ratio += usize::from(!ratio.excludes(truth[0] - truth[1]));
                tally.level += usize::from(!level.excludes(truth[0]));
                tally.widths.push(100.0 * (ratio.high - ratio.low));
            }
        }
    }
    tallies
}

fn main() {
    let disturbances = [
        ("quiet", Disturbance::Quiet, 0.99),
        ("stormy rounds", Disturbance::Stormy, 0.99),
        ("pauses in 3 rounds of 10", Disturbance::Pauses(0.3), 0.99),
        ("pauses in 1 round of 10", Disturbance::Pauses(0.1), 0.99),
        ("the host wanders", Disturbance::HostWanders, 0.95),
        ("one environment alone wanders, 0.5", Disturbance::Wanders(0.5), 0.95),
        ("one environment alone wanders, 0.8", Disturbance::Wanders(0.8), 0.95),
        ("one environment alone is skewed", Disturbance::Skewed(0.1, 0.0), 0.95),
        ("one environment alone is very skewed", Disturbance::Skewed(0.3, 0.0), 0.95),
        ("one environment alone wanders, skewed", Disturbance::Skewed(0.1, 0.8), 0.95),
    ];
    println!(
        "| noise | percentile | method | 3 rounds | 5 rounds | 10 rounds | 40 rounds | 100 rounds |"
    );
    println!("|---|---|---|---:|---:|---:|---:|---:|");
    for (name, disturbance, quantile) in disturbances {
        let columns = ROUNDS.map(|rounds| simulate(disturbance, quantile, rounds));
        for (number, (method, _)) in METHODS.iter().enumerate() {
            let cells: Vec<String> = columns.iter().map(|column| cell(&column[number])).collect();
            println!("| {name} | p{} | {method} | {} |", 100.0 * quantile, cells.join(" | "));
        }
    }
}

/// `95.3 % (94.1), 12.2`: coverage of ratio and level, and the median width of the ratio.
fn cell(tally: &Tally) -> String {
    if tally.bounded == 0 {
        return "no interval".into();
    }
    let share = |held: usize| 100.0 * held as f64 / tally.bounded as f64;
    let width = median(tally.widths.iter().copied()).unwrap_or(f64::NAN);
    format!("{:.1} % ({:.1}), {width:.1}", share(tally.ratio), share(tally.level))
}
