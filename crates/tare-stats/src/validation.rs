//! Simulates campaigns with a known truth: how often each interval holds the truth, how wide it is,
//! and how often it finds a cost. These simulations led to the rule that Tare uses, and the tests
//! check the rule with them.
//!
//! A campaign is n rounds of two slices. The log of a slice's figure is the log of the truth plus
//! the noise of that slice. The two truths are equal, so the true log ratio is 0, and an interval
//! that excludes 0 is a false alarm. All methods shift with their data, so a true cost needs no
//! separate campaigns.

use tare_std::rng::Rng;

use super::estimate;
use super::methods::Method;

/// The standard deviation of a slice's log in quiet normal noise: 3 %.
pub const SLICE_NOISE: f64 = 0.03;

/// The cost that a campaign should find: 3 %, about that of a bridge without NAT.
pub const COST_TO_FIND: f64 = 1.03;

/// A model of the noise in the slices of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseModel {
    Normal,
    /// Both arms are lognormal: mostly quiet, sometimes much slower.
    Skewed,
    /// Only the environment is lognormal, with the truth as its median. The ratios are skewed.
    SkewedOneArm,
    /// Student's t with 3 degrees of freedom in both arms.
    HeavyTails,
    /// Normal noise. One slice in ten has Cauchy noise that is five times as wide.
    Outliers,
    /// Normal noise on a random walk from round to round that both arms share.
    DriftShared,
    /// Normal noise on a random walk from slice to slice. The arms have random positions among 8
    /// slices.
    DriftInRound,
    /// Normal noise, and a random walk of the environment alone from round to round, so that the
    /// cost itself changes. A step is a tenth of the noise of a log ratio.
    DriftOfCost,
    /// Normal noise, and a state of the environment alone that is as large as the noise of a slice.
    /// States of neighbouring rounds correlate by 0.8.
    WanderOfCost,
}

impl NoiseModel {
    pub const ALL: [Self; 9] = [
        Self::Normal,
        Self::Skewed,
        Self::SkewedOneArm,
        Self::HeavyTails,
        Self::Outliers,
        Self::DriftShared,
        Self::DriftInRound,
        Self::DriftOfCost,
        Self::WanderOfCost,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Skewed => "skewed",
            Self::SkewedOneArm => "skewed, one arm",
            Self::HeavyTails => "heavy tails (t3)",
            Self::Outliers => "10 % outliers",
            Self::DriftShared => "drift, shared",
            Self::DriftInRound => "drift in round",
            Self::DriftOfCost => "drift of the cost",
            Self::WanderOfCost => "one environment wanders",
        }
    }

    /// Simulates the log ratios of one campaign of `rounds` rounds. The truth is 0.
    pub fn campaign(self, rounds: usize, rng: &mut Rng, log_ratios: &mut Vec<f64>) {
        log_ratios.clear();
        let mut walk = match self {
            Self::WanderOfCost => normal(rng),
            _ => 0.0,
        };
        for _ in 0..rounds {
            let (environment, baseline) = match self {
                Self::Normal => (normal(rng), normal(rng)),
                Self::Skewed => (lognormal(rng), lognormal(rng)),
                Self::SkewedOneArm => (lognormal(rng), normal(rng)),
                Self::HeavyTails => (student_3(rng), student_3(rng)),
                Self::Outliers => (contaminated(rng), contaminated(rng)),
                Self::DriftShared => {
                    walk += normal(rng);
                    (walk + normal(rng), walk + normal(rng))
                }
                Self::DriftInRound => {
                    let mut places = [0.0; 8];
                    for place in &mut places {
                        walk += normal(rng);
                        *place = walk + normal(rng);
                    }
                    rng.shuffle(&mut places);
                    (places[0], places[1])
                }
                Self::DriftOfCost => {
                    walk += 0.1 * 2f64.sqrt() * normal(rng);
                    (walk + normal(rng), normal(rng))
                }
                Self::WanderOfCost => {
                    walk = 0.8 * walk + 0.6 * normal(rng);
                    (walk + normal(rng), normal(rng))
                }
            };
            log_ratios.push(environment - baseline);
        }
    }
}

fn normal(rng: &mut Rng) -> f64 {
    SLICE_NOISE * rng.normal()
}

fn lognormal(rng: &mut Rng) -> f64 {
    SLICE_NOISE * (rng.normal().exp() - 1.0)
}

fn student_3(rng: &mut Rng) -> f64 {
    let squares: f64 = (0..3).map(|_| rng.normal().powi(2)).sum();
    SLICE_NOISE * rng.normal() / (squares / 3.0).sqrt()
}

fn contaminated(rng: &mut Rng) -> f64 {
    if rng.below(10) == 0 {
        5.0 * SLICE_NOISE * (std::f64::consts::PI * (rng.next_f64() - 0.5)).tan()
    } else {
        normal(rng)
    }
}

/// The results of one method over many campaigns. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    pub method: Method,
    /// The share of campaigns whose interval holds the truth.
    pub coverage: f64,
    /// The share of campaigns whose interval excludes 0 although nothing differs.
    pub false_alarms: f64,
    /// The mean width, in percentage points. Infinite if an interval has no bounds.
    pub width_mean_percent: f64,
    pub width_median_percent: f64,
    /// The share of campaigns that would have found [`COST_TO_FIND`].
    pub found: f64,
}

/// Runs `campaigns` campaigns of `rounds` rounds. Every method gets the same campaigns.
pub fn simulate(
    noise: NoiseModel,
    rounds: usize,
    campaigns: usize,
    seed: u64,
    methods: &[Method],
) -> Vec<Outcome> {
    let mut rng = Rng::stream(seed, 0);
    let mut resampling = Rng::stream(seed, 1);
    let mut log_ratios = Vec::with_capacity(rounds);
    let mut tallies = vec![(0usize, 0usize, Vec::with_capacity(campaigns)); methods.len()];
    for _ in 0..campaigns {
        noise.campaign(rounds, &mut rng, &mut log_ratios);
        for (method, (covered, found, widths)) in methods.iter().zip(&mut tallies) {
            let Some(estimate) = method.estimate(&log_ratios, &mut resampling) else { continue };
            *covered += usize::from(!estimate.excludes(0.0));
            *found += usize::from(estimate.low + COST_TO_FIND.ln() > 0.0);
            widths.push(100.0 * (estimate.high - estimate.low));
        }
    }
    let share = |count: usize| count as f64 / campaigns as f64;
    let outcome = |(method, (covered, found, mut widths)): (&Method, (usize, usize, Vec<f64>))| {
        widths.sort_unstable_by(f64::total_cmp);
        Outcome {
            method: *method,
            coverage: share(covered),
            false_alarms: share(campaigns - covered),
            width_mean_percent: widths.iter().sum::<f64>() / campaigns as f64,
            width_median_percent: widths.get(campaigns / 2).copied().unwrap_or(f64::INFINITY),
            found: share(found),
        }
    };
    methods.iter().zip(tallies).map(outcome).collect()
}

/// Runs campaigns that stop as soon as the interval is narrower than `width_percent`. The interval
/// is checked after every round from `rounds_min` to `rounds_max`. Returns the share of campaigns
/// whose interval holds the truth at the stop, and the mean number of rounds.
pub fn simulate_early_stop(
    noise: NoiseModel,
    (rounds_min, rounds_max): (usize, usize),
    width_percent: f64,
    campaigns: usize,
    seed: u64,
) -> (f64, f64) {
    let mut rng = Rng::stream(seed, 0);
    let mut log_ratios = Vec::new();
    let (mut covered, mut rounds_all) = (0usize, 0usize);
    for _ in 0..campaigns {
        noise.campaign(rounds_max, &mut rng, &mut log_ratios);
        for rounds in rounds_min..=rounds_max {
            let Some(estimate) = estimate(&log_ratios[..rounds]) else { continue };
            let narrow = 100.0 * (estimate.high - estimate.low) <= width_percent;
            if narrow || rounds == rounds_max {
                covered += usize::from(!estimate.excludes(0.0));
                rounds_all += rounds;
                break;
            }
        }
    }
    (covered as f64 / campaigns as f64, rounds_all as f64 / campaigns as f64)
}

/// Returns the share of campaigns with at least one false alarm, in normal noise. None of the
/// `environments` differs from the baseline that they share.
pub fn simulate_family(environments: usize, rounds: usize, campaigns: usize, seed: u64) -> f64 {
    let mut rng = Rng::stream(seed, 0);
    let mut alarmed = 0usize;
    for _ in 0..campaigns {
        let baseline: Vec<f64> = (0..rounds).map(|_| rng.normal()).collect();
        let mut any = false;
        for _ in 0..environments {
            let log_ratios: Vec<f64> = baseline.iter().map(|b| rng.normal() - b).collect();
            any |= estimate(&log_ratios).is_some_and(|estimate| estimate.excludes(0.0));
        }
        alarmed += usize::from(any);
    }
    alarmed as f64 / campaigns as f64
}
