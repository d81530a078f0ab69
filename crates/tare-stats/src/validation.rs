//! Simulated campaigns with a known truth: how often each interval covers it, how wide it is, and
//! what that buys. The rule of the product was chosen by this, and the tests hold it to it.
//!
//! A campaign is n blocks of two slices. The log of what a slice measures is the log of the truth
//! plus noise of that slice; the two truths are equal, so the log ratio's truth is 0 and an
//! interval that excludes 0 is a false alarm. All methods move with their data, so a true cost
//! needs no campaigns of its own.

use tare_std::rng::Rng;

use super::estimate;
use super::methods::Method;

/// Standard deviation of a slice's log in quiet normal noise: 3 %.
pub const SLICE_NOISE: f64 = 0.03;

/// The cost that a campaign is asked to find: 3 %, about a bridge without NAT.
pub const COST_TO_FIND: f64 = 1.03;

/// What a host does to the slices of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    Normal,
    /// Both arms lognormal: mostly quiet, now and then much slower.
    Skewed,
    /// Only the environment is lognormal, around the truth as its median: the ratios are skewed.
    SkewedOneArm,
    /// Student's t with 3 degrees of freedom in both arms.
    HeavyTails,
    /// Normal; one slice in ten is Cauchy noise five times as wide.
    Outliers,
    /// Normal, on a random walk from block to block that both arms share.
    DriftShared,
    /// Normal, on a random walk from slice to slice; the arms stand at random among 8 slices.
    DriftInBlock,
    /// Normal, and the environment alone walks from block to block: the cost itself changes. A step
    /// is a tenth of the noise of a log ratio.
    DriftOfCost,
}

impl Noise {
    pub const ALL: [Self; 8] = [
        Self::Normal,
        Self::Skewed,
        Self::SkewedOneArm,
        Self::HeavyTails,
        Self::Outliers,
        Self::DriftShared,
        Self::DriftInBlock,
        Self::DriftOfCost,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Skewed => "skewed",
            Self::SkewedOneArm => "skewed, one arm",
            Self::HeavyTails => "heavy tails (t3)",
            Self::Outliers => "10 % outliers",
            Self::DriftShared => "drift, shared",
            Self::DriftInBlock => "drift in block",
            Self::DriftOfCost => "drift of the cost",
        }
    }

    /// The log ratios of one campaign of `blocks` blocks. The truth is 0.
    pub fn campaign(self, blocks: usize, rng: &mut Rng, log_ratios: &mut Vec<f64>) {
        log_ratios.clear();
        let mut walk = 0.0;
        for _ in 0..blocks {
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
                Self::DriftInBlock => {
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

/// What one method made of many campaigns. Shares are 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    pub method: Method,
    /// Campaigns whose interval holds the truth.
    pub coverage: f64,
    /// Campaigns whose interval excludes 0 although nothing differs.
    pub false_alarms: f64,
    /// Mean width, in percentage points; infinite where an interval had no bounds.
    pub width_mean_percent: f64,
    pub width_median_percent: f64,
    /// Campaigns that would have found [`COST_TO_FIND`].
    pub found: f64,
}

/// Runs `campaigns` campaigns of `blocks` blocks, the same ones for every method.
pub fn simulate(
    noise: Noise,
    blocks: usize,
    campaigns: usize,
    seed: u64,
    methods: &[Method],
) -> Vec<Outcome> {
    let mut rng = Rng::stream(seed, 0);
    let mut resampling = Rng::stream(seed, 1);
    let mut log_ratios = Vec::with_capacity(blocks);
    let mut tallies = vec![(0usize, 0usize, Vec::with_capacity(campaigns)); methods.len()];
    for _ in 0..campaigns {
        noise.campaign(blocks, &mut rng, &mut log_ratios);
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

/// A campaign that stops as soon as the interval is narrower than `width_percent`, looked at after
/// every block from `blocks_min` to `blocks_max`. Returns the share that covers the truth at the
/// stop, and the mean number of blocks.
pub fn simulate_early_stop(
    noise: Noise,
    (blocks_min, blocks_max): (usize, usize),
    width_percent: f64,
    campaigns: usize,
    seed: u64,
) -> (f64, f64) {
    let mut rng = Rng::stream(seed, 0);
    let mut log_ratios = Vec::new();
    let (mut covered, mut blocks_all) = (0usize, 0usize);
    for _ in 0..campaigns {
        noise.campaign(blocks_max, &mut rng, &mut log_ratios);
        for blocks in blocks_min..=blocks_max {
            let Some(estimate) = estimate(&log_ratios[..blocks]) else { continue };
            let narrow = 100.0 * (estimate.high - estimate.low) <= width_percent;
            if narrow || blocks == blocks_max {
                covered += usize::from(!estimate.excludes(0.0));
                blocks_all += blocks;
                break;
            }
        }
    }
    (covered as f64 / campaigns as f64, blocks_all as f64 / campaigns as f64)
}

/// The share of campaigns in which at least one of `environments` that do not differ from the
/// baseline that they share is reported as different, in normal noise.
pub fn simulate_family(environments: usize, blocks: usize, campaigns: usize, seed: u64) -> f64 {
    let mut rng = Rng::stream(seed, 0);
    let mut alarmed = 0usize;
    for _ in 0..campaigns {
        let baseline: Vec<f64> = (0..blocks).map(|_| rng.normal()).collect();
        let mut any = false;
        for _ in 0..environments {
            let log_ratios: Vec<f64> = baseline.iter().map(|b| rng.normal() - b).collect();
            any |= estimate(&log_ratios).is_some_and(|estimate| estimate.excludes(0.0));
        }
        alarmed += usize::from(any);
    }
    alarmed as f64 / campaigns as f64
}
