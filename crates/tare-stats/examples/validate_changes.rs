//! Prints how often methods find a change in a series of records, and how often they find one in a
//! series without any, for the table in docs/concepts/history.md. Run
//! `cargo run --release --package tare-stats --example validate_changes`.
//!
//! A series has 20 records. A record's figure is the logarithm of a cost ratio: the truth, the luck
//! of its start, and the noise of its rounds, which its own interval contains.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::time::Instant;

use statrs::distribution::{ContinuousCDF, StudentsT};
use tare_stats::change::{Point, RECORDS_MIN, changes};
use tare_stats::{Estimate, difference};
use tare_std::rng::Rng;

const SERIES: u32 = 2_000;
const SEED: u64 = 42;
const RECORDS: usize = 20;
/// Rounds of each record.
const ROUNDS: u32 = 40;
/// The permutations of a test, as in the paper.
const PERMUTATIONS: usize = 199;

/// The noise of the records' starts. The noise of the rounds is 0.5 % everywhere.
#[derive(Clone, Copy, PartialEq)]
enum Luck {
    None,
    Normal(f64),
    /// Student's t with 3 degrees of freedom, scaled to this deviation.
    HeavyTails(f64),
    /// Every tenth record is off by ten times the noise.
    Outliers(f64),
    /// Each record is 0.6 times as far off as the one before, plus new luck.
    Correlated(f64),
    /// The truth walks by this much from record to record.
    Drift(f64),
}

impl Luck {
    const ALL: [Self; 7] = [
        Self::None,
        Self::Normal(0.01),
        Self::Normal(0.015),
        Self::HeavyTails(0.01),
        Self::Outliers(0.01),
        Self::Correlated(0.01),
        Self::Drift(0.005),
    ];

    fn name(self) -> String {
        match self {
            Self::None => "rounds alone, 0.5 %".into(),
            Self::Normal(s) => format!("starts differ by {} %", s * 100.0),
            Self::HeavyTails(s) => format!("starts differ by {} %, heavy tails", s * 100.0),
            Self::Outliers(s) => format!("starts differ by {} %, one in ten by 10 %", s * 100.0),
            Self::Correlated(s) => format!("starts differ by {} %, correlated 0.6", s * 100.0),
            Self::Drift(s) => format!("drift of {} % a record", s * 100.0),
        }
    }

    fn series(self, rng: &mut Rng, level: impl Fn(usize) -> f64) -> Vec<Point> {
        let error = 0.005;
        let mut state = 0.0;
        let mut record = |at: usize| {
            let luck = match self {
                Self::None => 0.0,
                Self::Normal(s) => s * rng.normal(),
                Self::HeavyTails(s) => {
                    let chi: f64 = (0..3).map(|_| rng.normal().powi(2)).sum();
                    s * rng.normal() / chi.sqrt()
                }
                Self::Outliers(s) => {
                    let factor = if rng.below(10) == 0 { 10.0 } else { 1.0 };
                    s * factor * rng.normal()
                }
                Self::Correlated(s) => {
                    state = 0.6 * state + 0.8 * s * rng.normal();
                    state
                }
                Self::Drift(s) => {
                    state += s * rng.normal();
                    state
                }
            };
            Point { value: level(at) + luck + error * rng.normal(), error }
        };
        (0..RECORDS).map(&mut record).collect()
    }
}

#[derive(Clone, Copy)]
enum Method {
    Tare,
    EnergyPermuted,
    EnergyStudent,
    IntervalsOfPairs,
    TenPercent,
}

impl Method {
    const ALL: [Self; 5] = [
        Self::Tare,
        Self::EnergyPermuted,
        Self::EnergyStudent,
        Self::IntervalsOfPairs,
        Self::TenPercent,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Tare => "tare's rule",
            Self::EnergyPermuted => "E-divisive means, permutations at 1 %",
            Self::EnergyStudent => "E-divisive means, t-test at 0.1 %",
            Self::IntervalsOfPairs => "intervals of neighbouring records",
            Self::TenPercent => "10 % over the last record",
        }
    }

    /// The places where a change is found.
    fn find(self, points: &[Point], rng: &mut Rng) -> Vec<usize> {
        match self {
            Self::Tare => changes(points).iter().map(|change| change.at).collect(),
            Self::EnergyPermuted => divisive(points, &mut |values, at, best| {
                let mut shuffled = values.to_vec();
                let mut beyond = 0;
                for _ in 0..PERMUTATIONS {
                    rng.shuffle(&mut shuffled);
                    beyond += usize::from(energy(&shuffled).is_some_and(|(_, q)| q >= best));
                }
                let _ = at;
                (beyond + 1) as f64 / (PERMUTATIONS + 1) as f64 <= 0.01
            }),
            Self::EnergyStudent => {
                divisive(points, &mut |values, at, _| student(&values[..at], &values[at..]) < 0.001)
            }
            Self::IntervalsOfPairs => {
                let differs = |at: &usize| {
                    let found = difference(&estimate(points[at - 1]), &estimate(points[*at]));
                    found.is_some_and(|found| found.excludes(0.0))
                };
                (1..points.len()).filter(differs).collect()
            }
            Self::TenPercent => {
                let rose = |at: &usize| (points[*at].value - points[at - 1].value).abs() > 0.0953;
                (1..points.len()).filter(rose).collect()
            }
        }
    }
}

fn estimate(point: Point) -> Estimate {
    let half = tare_stats::methods::t_quantile(ROUNDS as usize - 1) * point.error;
    let (low, high) = (point.value - half, point.value + half);
    Estimate { centre: point.value, low, high, rounds: ROUNDS }
}

/// Hierarchical division: the best split of a segment, and of both sides if it is significant
/// (Matteson and James, "A nonparametric approach for multiple change point analysis of
/// multivariate data", Journal of the American Statistical Association 109, 2014).
fn divisive(points: &[Point], test: &mut dyn FnMut(&[f64], usize, f64) -> bool) -> Vec<usize> {
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    let mut found = Vec::new();
    let mut todo = vec![(0, values.len())];
    while let Some((from, to)) = todo.pop() {
        let segment = &values[from..to];
        let Some((at, best)) = energy(segment) else { continue };
        if test(segment, at, best) {
            found.push(from + at);
            todo.extend([(from, from + at), (from + at, to)]);
        }
    }
    found.sort_unstable();
    found
}

/// The split with the largest scaled energy distance of its sides, and the distance: mean distances
/// across minus those within (exponent 1), times `mn / (m + n)`.
fn energy(values: &[f64]) -> Option<(usize, f64)> {
    let n = values.len();
    if n < 2 * RECORDS_MIN {
        return None;
    }
    let within = |side: &[f64]| {
        let mut sum = 0.0;
        for (i, a) in side.iter().enumerate() {
            sum += side[i + 1..].iter().map(|b| (a - b).abs()).sum::<f64>();
        }
        2.0 * sum / (side.len() * (side.len() - 1)) as f64
    };
    let distance = |at: usize| {
        let (left, right) = values.split_at(at);
        let across: f64 = left.iter().flat_map(|a| right.iter().map(move |b| (a - b).abs())).sum();
        let sizes = (left.len() * right.len()) as f64;
        let distance = 2.0 * across / sizes - within(left) - within(right);
        (at, distance * sizes / n as f64)
    };
    (RECORDS_MIN..=n - RECORDS_MIN).map(distance).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The probability of Student's test with equal variances.
fn student(a: &[f64], b: &[f64]) -> f64 {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let squares = |x: &[f64]| x.iter().map(|v| (v - mean(x)).powi(2)).sum::<f64>();
    let degrees = (a.len() + b.len() - 2) as f64;
    let variance = (squares(a) + squares(b)) / degrees;
    let error = (variance * (1.0 / a.len() as f64 + 1.0 / b.len() as f64)).sqrt();
    let t = (mean(a) - mean(b)).abs() / error;
    StudentsT::new(0.0, 1.0, degrees).map_or(1.0, |student| 2.0 * (1.0 - student.cdf(t)))
}

fn main() {
    let started = Instant::now();
    let step = 1.05_f64.ln();
    type Level = Box<dyn Fn(usize) -> f64>;
    let cases: [(&[usize], Level); 4] = [
        (&[], Box::new(|_| 0.3)),
        (&[17], Box::new(move |at| 0.3 + if at >= 17 { step } else { 0.0 })),
        (&[10], Box::new(move |at| 0.3 + if at >= 10 { step } else { 0.0 })),
        (&[7, 12], Box::new(move |at| 0.3 + if (7..12).contains(&at) { step } else { 0.0 })),
    ];
    println!(
        "{SERIES} series of {RECORDS} records for each cell; a change is found within one record"
    );
    println!();
    println!(
        "| noise | method | false, none there | 5 % after 17, found | after 10 | after 7, back after 12 |"
    );
    println!("|---|---|---:|---:|---:|---:|");
    for luck in Luck::ALL {
        for method in Method::ALL {
            let mut cells = Vec::new();
            for (truth, level) in &cases {
                let mut rng = Rng::new(SEED);
                let mut count = 0;
                for _ in 0..SERIES {
                    let points = luck.series(&mut rng, level);
                    let found = method.find(&points, &mut rng);
                    let hit = |at: &usize| found.iter().any(|place| place.abs_diff(*at) <= 1);
                    let good =
                        if truth.is_empty() { !found.is_empty() } else { truth.iter().all(hit) };
                    count += u32::from(good);
                }
                cells.push(format!("{:.1} %", 100.0 * f64::from(count) / f64::from(SERIES)));
            }
            println!("| {} | {} | {} |", luck.name(), method.name(), cells.join(" | "));
        }
    }
    println!();
    println!("took {:.1} s", started.elapsed().as_secs_f64());
}
