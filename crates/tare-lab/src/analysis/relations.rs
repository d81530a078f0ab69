//! Compares published relations with ours: confirmed, contradicted or not testable here.
//!
//! **The rule.** A published figure becomes a band: its range, widened by the tolerance (5 points
//! of throughput, a quarter of a latency ratio, or the study's `within_percent`). Our figure is the
//! interval of the paired ratio, made at least as wide as the A/A control's noise on either side.
//! 1. Not testable: one of the two did not run or is emulated, a throughput is the client's limit
//!    and not the system's, or there are fewer than [`ROUNDS_MIN`] rounds.
//! 2. Contradicted: our interval is outside the band.
//! 3. Not testable: our interval is wider than the band, so that it would agree with nearly
//!    anything.
//! 4. Confirmed: otherwise. Interval and band then overlap.
//!
//! For a relation with only a direction (loss or gain): confirmed if our whole interval is on that
//! side of zero; contradicted if our interval excludes every difference in that direction beyond
//! the tolerance; otherwise not testable.
//!
//! Limits: the published figure is from another machine, load and year. Confirmed means that the
//! same relation was found here, and contradicted that it was not. Neither means that the
//! publication measured wrongly.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cells::{Cell, Cells};
use super::{Comparison, Interval, claims, doubts, latency};
use crate::record::{Phase, Record};
use crate::study::{Claim, Expected, Percentile, PublishedRelation, Sign, control_name};
use tare_stats::law::Objections;
use tare_stats::{Estimate, ROUNDS_MIN, estimate, log_ratios};

/// Default tolerance around a published loss of throughput, in points of the baseline's throughput.
pub const WITHIN_POINTS: f64 = 5.0;
/// Default tolerance around a published latency ratio, in percent of it, up or down.
pub const WITHIN_RATIO_PERCENT: f64 = 25.0;

/// A published relation under one workload, with our figure and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relation {
    pub published: PublishedRelation,
    pub workload: String,
    /// The environment with which it is compared: the published one, or the baseline.
    pub against: String,
    /// Our figure in the claim's unit: loss of throughput in percent, or a ratio of latencies. Its
    /// interval does not include the control's noise.
    pub here: Option<Interval>,
    pub verdict: Verdict,
}

/// The verdict on a published relation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    Confirmed,
    Contradicted,
    NotTestable { why: Untestable },
}

impl Verdict {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Contradicted => "contradicted",
            Self::NotTestable { .. } => "not testable here",
        }
    }
}

/// Why a relation could not be tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Untestable {
    /// This host could not run an environment.
    LeftOut { environment: String, reason: String },
    /// The quick part leaves out an environment or the workload.
    NotInQuickPart { name: String },
    /// The budget leaves out an environment or the workload.
    NotInBudget { name: String },
    /// No round has figures of both.
    NotMeasured,
    /// An environment is a guest with an emulated CPU.
    Emulated { environment: String },
    /// The client was at its limit, so that the throughput of the system is not known.
    ClientSaturated { environment: String },
    /// Too few rounds for a reliable interval.
    FewRounds { rounds: u32 },
    /// The interval is wider than the published band.
    TooWide,
}

impl Untestable {
    /// Returns the reason as a clause.
    pub fn text(&self) -> String {
        match self {
            // Reports list the reason with the environments that were left out.
            Self::LeftOut { environment, .. } => format!("\"{environment}\" was left out"),
            Self::NotInQuickPart { name } => {
                format!("\"{name}\" is not in the quick part; run the study without --quick")
            }
            Self::NotInBudget { name } => {
                format!("\"{name}\" did not fit into the budget; give a larger --budget")
            }
            Self::NotMeasured => "no round has a figure of both".into(),
            Self::Emulated { environment } => {
                format!("\"{environment}\" is emulated here: functional, not a measurement")
            }
            Self::ClientSaturated { environment } => {
                format!("the client limits \"{environment}\" here; give it more CPUs or hosts")
            }
            Self::FewRounds { rounds } => {
                format!("{rounds} rounds are too few (at least {ROUNDS_MIN})")
            }
            Self::TooWide => {
                "our interval is too wide; measure more rounds, or on a quieter host".into()
            }
        }
    }
}

/// Returns every published relation of the study, under each workload to which it applies.
pub fn relations(record: &Record) -> Vec<Relation> {
    let study = &record.study;
    if study.published.is_empty() {
        return Vec::new();
    }
    let cells = Cells::of(record);
    let mut relations = Vec::new();
    for published in &study.published {
        let all = || study.workloads.iter().map(|workload| workload.name.clone());
        let workloads = published.workload.clone().map_or_else(|| all().collect(), |one| vec![one]);
        for workload in workloads {
            relations.push(relation(record, &cells, published, workload));
        }
    }
    relations
}

fn relation(
    record: &Record,
    cells: &Cells,
    published: &PublishedRelation,
    workload: String,
) -> Relation {
    let study = &record.study;
    let baseline = study.baseline.as_str();
    let against = published.against.clone().unwrap_or_else(|| baseline.to_string());
    let figure =
        |one: &str, other: &str| ratio(record, cells, &workload, &published.claim, one, other);
    let ours = figure(&published.environment, &against);
    let noise = figure(&control_name(baseline), baseline).map_or(0.0, |control| {
        let noise = control.low.abs().max(control.high.abs());
        if noise.is_finite() { noise } else { 0.0 }
    });
    let names = [published.environment.as_str(), against.as_str()];
    let of_client = matches!(published.claim, Claim::Throughput(_));
    let verdict = match untestable_reason(record, &workload, names, of_client) {
        Some(why) => Verdict::NotTestable { why },
        None => match ours {
            None => Verdict::NotTestable { why: Untestable::NotMeasured },
            Some(ours) => judge(Band::of(published), ours, noise),
        },
    };
    let here = ours.map(|ours| Interval::from(in_unit(&published.claim, ours)));
    Relation { published: published.clone(), workload, against, here, verdict }
}

/// Returns why two environments cannot be compared, independent of their figures. `of_client`: also
/// if the client limits one of them.
fn untestable_reason(
    record: &Record,
    workload: &str,
    names: [&str; 2],
    of_client: bool,
) -> Option<Untestable> {
    let quick = record.study.quick.as_ref();
    if quick.is_some_and(|part| part.workloads.iter().any(|name| name == workload)) {
        return Some(Untestable::NotInQuickPart { name: workload.to_string() });
    }
    let budget = record.study.budget_part.as_ref();
    if budget.is_some_and(|part| part.workloads.iter().any(|name| name == workload)) {
        return Some(Untestable::NotInBudget { name: workload.to_string() });
    }
    let objections = names.map(|name| objections(record, workload, name));
    let of_environment = |(name, objections): (&str, &Objections)| {
        if budget.is_some_and(|part| part.environments.iter().any(|other| other == name)) {
            return Some(Untestable::NotInBudget { name: name.to_string() });
        }
        if quick.is_some_and(|part| part.environments.iter().any(|other| other == name)) {
            return Some(Untestable::NotInQuickPart { name: name.to_string() });
        }
        let environment = record.environments.iter().find(|one| one.spec.name == name)?;
        if let Some(reason) = &environment.left_out {
            let (environment, reason) = (name.to_string(), reason.clone());
            return Some(Untestable::LeftOut { environment, reason });
        }
        objections.emulated.then(|| Untestable::Emulated { environment: name.to_string() })
    };
    let client_limits = |(name, objections): (&str, &Objections)| {
        (of_client && objections.client_limited)
            .then(|| Untestable::ClientSaturated { environment: name.to_string() })
    };
    let mut both = names.into_iter().zip(&objections);
    both.clone().find_map(of_environment).or_else(|| both.find_map(client_limits))
}

/// Returns what the doubts about an environment forbid.
fn objections(record: &Record, workload: &str, name: &str) -> Objections {
    let slices = record.slices.iter().filter(|slice| {
        slice.phase == Phase::Capacity && slice.workload == workload && slice.environment == name
    });
    let slices = u32::try_from(slices.count()).unwrap_or(u32::MAX);
    let mut objections = Objections::default();
    let doubts = doubts::about_environment(record, workload, name);
    claims::note_all(&mut objections, &doubts, slices);
    objections
}

/// Returns the log of the claim's figure, environment over the other.
fn ratio(
    record: &Record,
    cells: &Cells,
    workload: &str,
    claim: &Claim,
    environment: &str,
    against: &str,
) -> Option<Estimate> {
    let logs = match claim {
        Claim::Throughput(_) => {
            Comparison::new(cells, workload, Phase::Capacity, environment, against)
                .log_ratios(Cell::throughput_per_s)
        }
        Claim::Latency { percentile, .. } => {
            let both = |phase| {
                let of = |name| latencies(record, workload, name, phase, *percentile);
                let (here, there) = (of(environment), of(against));
                let pair = |(round, here): (&u32, &f64)| Some((*here, *there.get(round)?));
                here.iter().filter_map(pair).collect::<Vec<_>>()
            };
            // Without a phase at a fixed rate, it is the latency of the closed loop.
            let pairs = both(Phase::Latency);
            log_ratios(if pairs.is_empty() { both(Phase::Capacity) } else { pairs })
        }
    };
    estimate(&logs)
}

/// Returns one percentile of latency in each round, in ns: of response time at the fixed rate, of
/// service time in the closed loop.
fn latencies(
    record: &Record,
    workload: &str,
    environment: &str,
    phase: Phase,
    percentile: Percentile,
) -> BTreeMap<u32, f64> {
    let slices = record.slices.iter().filter(|slice| {
        slice.void.is_none()
            && slice.phase == phase
            && slice.workload == workload
            && slice.environment == environment
    });
    let figure = |slice: &crate::record::Slice| {
        let histogram = if phase == Phase::Latency { &slice.response } else { &slice.service };
        let found = latency::latency(histogram)?;
        #[expect(clippy::cast_precision_loss, reason = "latencies are far below 2^53 ns")]
        let ns = match percentile {
            Percentile::Mean => found.mean_ns,
            Percentile::P50 => found.p50_ns as f64,
            Percentile::P95 => found.p95_ns as f64,
            Percentile::P99 => found.p99_ns as f64,
            Percentile::P999 => found.p999_ns as f64,
        };
        Some((slice.round, ns))
    };
    slices.filter_map(figure).collect()
}

/// Converts a log ratio to the claim's unit.
fn in_unit(claim: &Claim, log: Estimate) -> Estimate {
    let Estimate { centre, low, high, rounds } = log;
    match claim {
        // The loss rises as the ratio falls.
        Claim::Throughput(_) => {
            let mirrored = Estimate { centre: -centre, low: -high, high: -low, rounds };
            mirrored.map(|log| -100.0 * (-log).exp_m1())
        }
        Claim::Latency { .. } => log.map(f64::exp),
    }
}

/// The range of log ratios that confirm a published figure.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Band {
    Between(f64, f64),
    /// Below 0. From the edge on, the difference is within the tolerance.
    Below(f64),
    /// Above 0. Up to the edge, the difference is within the tolerance.
    Above(f64),
}

impl Band {
    fn of(published: &PublishedRelation) -> Self {
        match &published.claim {
            Claim::Throughput(expected) => {
                let within = published.within_percent.unwrap_or(WITHIN_POINTS);
                // A loss of 100 % has no logarithm.
                let log = |cost: f64| (1.0 - cost.min(99.9) / 100.0).ln();
                let between =
                    |low: f64, high: f64| Self::Between(log(high + within), log(low - within));
                match *expected {
                    Expected::Value(cost) => between(cost, cost),
                    Expected::Range(low, high) => between(low, high),
                    Expected::Sign(Sign::None) => between(0.0, 0.0),
                    Expected::Sign(Sign::Loss) => Self::Below(log(within)),
                    Expected::Sign(Sign::Gain) => Self::Above(log(-within)),
                }
            }
            Claim::Latency { ratio, .. } => {
                let within = published.within_percent.unwrap_or(WITHIN_RATIO_PERCENT);
                let within = (1.0 + within / 100.0).ln();
                match *ratio {
                    Expected::Value(ratio) => {
                        Self::Between(ratio.ln() - within, ratio.ln() + within)
                    }
                    Expected::Range(low, high) => {
                        Self::Between(low.ln() - within, high.ln() + within)
                    }
                    Expected::Sign(Sign::None) => Self::Between(-within, within),
                    Expected::Sign(Sign::Loss) => Self::Above(within),
                    Expected::Sign(Sign::Gain) => Self::Below(-within),
                }
            }
        }
    }
}

/// Applies the rule.
fn judge(band: Band, ours: Estimate, noise: f64) -> Verdict {
    let not_testable = |why| Verdict::NotTestable { why };
    if ours.rounds < ROUNDS_MIN || !ours.low.is_finite() || !ours.high.is_finite() {
        return not_testable(Untestable::FewRounds { rounds: ours.rounds });
    }
    let low = ours.low.min(ours.centre - noise);
    let high = ours.high.max(ours.centre + noise);
    match band {
        Band::Between(from, to) if high < from || low > to => Verdict::Contradicted,
        Band::Between(from, to) if high - low > to - from => not_testable(Untestable::TooWide),
        Band::Between(..) => Verdict::Confirmed,
        Band::Below(_) if high < 0.0 => Verdict::Confirmed,
        Band::Above(_) if low > 0.0 => Verdict::Confirmed,
        Band::Below(edge) if low >= edge => Verdict::Contradicted,
        Band::Above(edge) if high <= edge => Verdict::Contradicted,
        Band::Below(_) | Band::Above(_) => not_testable(Untestable::TooWide),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(claim: Claim, within_percent: Option<f64>) -> PublishedRelation {
        PublishedRelation {
            environment: "ext4".into(),
            against: Some("raw".into()),
            workload: None,
            claim,
            within_percent,
            source: "a paper".into(),
            hardware: None,
        }
    }

    /// Checks the verdict on a cost in throughput, in percent, with its interval and the control's
    /// noise.
    #[track_caller]
    fn check(expected: Expected, [low, value, high]: [f64; 3], noise_percent: f64, verdict: &str) {
        let log = |cost: f64| (1.0 - cost / 100.0).ln();
        let ours = Estimate { centre: log(value), low: log(high), high: log(low), rounds: 12 };
        let band = Band::of(&published(Claim::Throughput(expected), None));
        let found = judge(band, ours, -log(noise_percent));
        let words = match &found {
            Verdict::NotTestable { why: Untestable::TooWide } => "too wide",
            other => other.name(),
        };
        assert_eq!(words, verdict, "{expected:?} against {value} [{low}, {high}]");
    }

    #[test]
    fn confirms_near_and_contradicts_far_figures() {
        let published = Expected::Value(25.0);
        check(published, [23.0, 24.0, 25.5], 1.0, "confirmed");
        check(published, [17.0, 19.0, 20.5], 1.0, "confirmed");
        check(published, [-1.0, 0.5, 2.0], 1.0, "contradicted");
        check(published, [38.0, 40.0, 42.0], 1.0, "contradicted");
        check(published, [2.0, 25.0, 40.0], 1.0, "too wide");
        // The control's noise counts as part of the interval.
        check(published, [14.0, 15.0, 16.0], 1.0, "contradicted");
        check(published, [14.0, 15.0, 16.0], 9.0, "too wide");
        check(Expected::Range(6.0, 12.0), [0.5, 3.0, 5.0], 1.0, "confirmed");
        check(Expected::Range(6.0, 12.0), [-2.0, -1.0, 0.5], 0.5, "contradicted");
        check(Expected::Sign(Sign::None), [-1.0, 0.5, 2.0], 1.0, "confirmed");
        check(Expected::Sign(Sign::None), [8.0, 9.0, 11.0], 1.0, "contradicted");
    }

    #[test]
    fn confirms_sign_beyond_noise_only() {
        let loss = Expected::Sign(Sign::Loss);
        check(loss, [2.0, 4.0, 6.0], 1.0, "confirmed");
        check(loss, [-1.0, 0.5, 2.0], 1.0, "contradicted");
        check(loss, [-20.0, -15.0, -9.0], 1.0, "contradicted");
        check(loss, [-3.0, 6.0, 14.0], 1.0, "too wide");
        check(loss, [2.0, 4.0, 6.0], 8.0, "too wide");
        let gain = Expected::Sign(Sign::Gain);
        check(gain, [-30.0, -20.0, -12.0], 1.0, "confirmed");
        check(gain, [10.0, 12.0, 14.0], 1.0, "contradicted");
    }

    #[test]
    fn latency_ratio_tolerates_a_quarter() {
        let claim = Claim::Latency { percentile: Percentile::P999, ratio: Expected::Value(8.1) };
        let verdict = |ratio: [f64; 3]| {
            let [low, centre, high] = ratio.map(f64::ln);
            judge(
                Band::of(&published(claim.clone(), None)),
                Estimate { centre, low, high, rounds: 12 },
                0.01,
            )
        };
        assert_eq!(verdict([6.0, 6.4, 6.9]), Verdict::Confirmed);
        assert_eq!(verdict([1.0, 1.1, 1.3]), Verdict::Contradicted);
        assert_eq!(verdict([3.0, 6.0, 12.0]), Verdict::NotTestable { why: Untestable::TooWide });
    }

    #[test]
    fn few_rounds_are_not_testable() {
        let ours = Estimate { centre: -0.3, low: -0.31, high: -0.29, rounds: ROUNDS_MIN - 1 };
        let band = Band::of(&published(Claim::Throughput(Expected::Value(25.0)), None));
        let why = Untestable::FewRounds { rounds: ROUNDS_MIN - 1 };
        assert_eq!(judge(band, ours, 0.0), Verdict::NotTestable { why });
    }

    #[test]
    fn converts_estimate_to_unit_of_claim() {
        let log = |cost: f64| (1.0 - cost / 100.0).ln();
        let ours = Estimate { centre: log(25.0), low: log(30.0), high: log(20.0), rounds: 9 };
        let converted = in_unit(&Claim::Throughput(Expected::Value(25.0)), ours);
        for (found, expect) in
            [(converted.centre, 25.0), (converted.low, 20.0), (converted.high, 30.0)]
        {
            assert!((found - expect).abs() < 1e-9, "{converted:?}");
        }
    }
}
