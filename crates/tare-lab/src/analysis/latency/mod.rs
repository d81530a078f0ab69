//! Latencies at the fixed rate: merges the histograms of all slices (never averages percentiles),
//! and computes for each percentile an interval and a ratio to the baseline's
//! ([`tare_stats::merged`]).
//!
//! A ratio uses the rounds that both have, with the same resamples for both.

use std::collections::BTreeMap;
use std::io::Cursor;

use hdrhistogram::Histogram;
use hdrhistogram::iterators::IterationValue;
use hdrhistogram::serialization::Deserializer;

use super::{Interval, Latency, OverBaseline, Percentile};
use crate::record::{Phase, Record, Slice};
use tare_stats::Estimate;
use tare_stats::dependence::{Unequal, unequal, wander_factor};
use tare_stats::merged::{
    BEYOND_MIN, Bucket, GROUPS_MAX, Resamples, RoundHistograms, around, influences,
};

/// The percentiles that reports show.
pub const PERCENTS: [f64; 4] = [50.0, 95.0, 99.0, 99.9];

/// [`PERCENTS`] as shares. 99.9 / 100 is slightly above 0.999, which would be one operation too
/// far.
const SHARES: [f64; 4] = [0.5, 0.95, 0.99, 0.999];

/// The stream of the record's seed that draws rounds.
const STREAM: u64 = 0x7461_696c;

/// Some histograms could not be read.
#[derive(Clone, Debug)]
pub(super) struct UnreadableHistograms {
    pub(super) reason: String,
    pub(super) slices: u32,
}

/// Histograms of one environment under one workload: all merged, and by round.
struct Histograms {
    all: Histogram<u64>,
    rounds: BTreeMap<u32, Vec<Bucket>>,
}

impl Histograms {
    /// Merges the histograms of all valid latency slices. The first value is `None` if none can be
    /// read.
    fn read(
        record: &Record,
        workload: &str,
        environment: &str,
        which: LatencyKind,
    ) -> (Option<Self>, Option<UnreadableHistograms>) {
        let mut deserializer = Deserializer::new();
        let mut all: Option<Self> = None;
        let mut failed: Option<UnreadableHistograms> = None;
        let slices = record.slices.iter().filter(|slice| {
            slice.phase == Phase::Latency
                && slice.void.is_none()
                && slice.workload == workload
                && slice.environment == environment
        });
        for slice in slices.filter(|slice| !which.of(slice).is_empty()) {
            let outcome = deserializer
                .deserialize::<u64, _>(&mut Cursor::new(which.of(slice)))
                .map_err(|error| error.to_string())
                .and_then(|histogram| match &mut all {
                    None => {
                        all = Some(Self::first(slice.round, histogram));
                        Ok(())
                    }
                    Some(all) => all.add(slice.round, &histogram),
                });
            if let Err(reason) = outcome {
                failed.get_or_insert(UnreadableHistograms { reason, slices: 0 }).slices += 1;
            }
        }
        (all.filter(|all| !all.all.is_empty()), failed)
    }

    fn first(round: u32, mut histogram: Histogram<u64>) -> Self {
        let rounds = BTreeMap::from([(round, buckets(&histogram))]);
        histogram.auto(true);
        Self { all: histogram, rounds }
    }

    fn add(&mut self, round: u32, histogram: &Histogram<u64>) -> Result<(), String> {
        self.all.add(histogram).map_err(|error| error.to_string())?;
        self.rounds.entry(round).or_default().extend(buckets(histogram));
        Ok(())
    }

    /// Returns the numbers of the rounds with a value.
    fn numbers(&self) -> Vec<u32> {
        let full = self.rounds.iter().filter(|(_, buckets)| !buckets.is_empty());
        full.map(|(round, _)| *round).collect()
    }

    /// Resamples these rounds.
    fn drawn(&self, numbers: Vec<u32>, seed: u64) -> ResampledRounds {
        let size = numbers.len().div_ceil(GROUPS_MAX).max(1);
        let group = |numbers: &[u32]| {
            let buckets = numbers.iter().filter_map(|number| self.rounds.get(number));
            buckets.flatten().copied().collect::<Vec<Bucket>>()
        };
        let groups: Vec<Vec<Bucket>> = numbers.chunks(size).map(group).collect();
        let rounds = RoundHistograms::new(&groups);
        let draws =
            Resamples::new(tare_std::rng::Rng::stream(seed, STREAM).next_u64(), groups.len());
        let one = |share: f64| {
            let resampled = rounds.resampled(share, &draws);
            let logs: Vec<f64> = resampled.iter().map(|ns| ns.ln()).collect();
            ResampledPercentile {
                beyond: rounds.beyond(share),
                ns: rounds.percentile(share).unwrap_or(f64::NAN),
                influences: influences(&logs, &rounds.shares_beyond(share)),
                resampled,
            }
        };
        let (read, mean_logs) = (SHARES.map(one), rounds.mean_logs());
        ResampledRounds { read, mean_logs, groups: groups.len(), numbers }
    }
}

fn buckets(histogram: &Histogram<u64>) -> Vec<Bucket> {
    let bucket = |value: IterationValue<u64>| {
        let high = value.value_iterated_to();
        (histogram.lowest_equivalent(high), high, value.count_since_last_iteration())
    };
    histogram.iter_recorded().map(bucket).collect()
}

/// One percentile of some rounds, and of each of their resamples.
struct ResampledPercentile {
    beyond: u64,
    ns: f64,
    resampled: Vec<f64>,
    /// How much each group of rounds moves the logarithm of the percentile.
    influences: Vec<f64>,
}

struct ResampledRounds {
    numbers: Vec<u32>,
    groups: usize,
    /// The mean logarithm of each group's latencies.
    mean_logs: Vec<f64>,
    read: [ResampledPercentile; PERCENTS.len()],
}

impl ResampledRounds {
    /// Returns an interval with its number of rounds, which may exceed the number of groups. It is
    /// wider by `factor` than for independent rounds.
    fn interval(
        &self,
        centre: f64,
        resampled: &[f64],
        factor: f64,
        back: fn(f64) -> f64,
    ) -> Interval {
        let rounds = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let estimate = around(centre, resampled, self.groups).widened(factor);
        Interval::from(Estimate { rounds, ..estimate }.map(back))
    }
}

/// The start of the times in a histogram.
#[derive(Clone, Copy, Debug)]
pub(super) enum LatencyKind {
    /// From the intended start.
    Response,
    /// From the send.
    Service,
}

impl LatencyKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::Service => "service",
        }
    }

    fn of(self, slice: &Slice) -> &[u8] {
        match self {
            Self::Response => &slice.response,
            Self::Service => &slice.service,
        }
    }
}

/// The baseline's histograms, resampled once for all environments with the same rounds.
struct Baseline {
    histograms: Histograms,
    drawn: ResampledRounds,
}

/// Latencies under one workload, compared with the baseline's.
pub(super) struct Latencies<'r> {
    record: &'r Record,
    workload: &'r str,
    /// For response and for service times.
    baselines: [(Option<Baseline>, Option<UnreadableHistograms>); 2],
}

impl<'r> Latencies<'r> {
    pub(super) fn new(record: &'r Record, workload: &'r str) -> Self {
        let baseline = |which: LatencyKind| {
            let name = record.study.baseline.as_str();
            let (found, failed) = Histograms::read(record, workload, name, which);
            let drawn = |histograms: Histograms| {
                let drawn = histograms.drawn(histograms.numbers(), record.header.seed);
                Baseline { histograms, drawn }
            };
            (found.map(drawn), failed)
        };
        let baselines = [LatencyKind::Response, LatencyKind::Service].map(baseline);
        Self { record, workload, baselines }
    }

    /// Returns an environment's latencies, and why some of its histograms could not be read.
    pub(super) fn of(
        &self,
        environment: &str,
        is_baseline: bool,
        which: LatencyKind,
    ) -> (Option<Latency>, Option<UnreadableHistograms>) {
        let seed = self.record.header.seed;
        let (baseline, failed) = &self.baselines[which as usize];
        let baseline = baseline.as_ref();
        if is_baseline {
            let own = baseline.map(|one| conclude(&one.histograms, &one.drawn, None, seed));
            return (own, failed.clone());
        }
        let (here, failed) = Histograms::read(self.record, self.workload, environment, which);
        let conclude =
            |here: &Histograms| conclude(here, &here.drawn(here.numbers(), seed), baseline, seed);
        (here.as_ref().map(conclude), failed)
    }
}

/// Returns the latencies of an environment, compared with the baseline's if there is one.
fn conclude(
    here: &Histograms,
    own: &ResampledRounds,
    baseline: Option<&Baseline>,
    seed: u64,
) -> Latency {
    let (mut over, unequal) = match baseline {
        Some(base) => over_baseline(here, own, base, seed),
        None => (Vec::new(), None),
    };
    over.resize(PERCENTS.len(), None);
    let varies_more = unequal.filter(|unequal| unequal.first).map_or(1.0, |unequal| unequal.factor);
    let one =
        |((percent, read), over_baseline): ((&f64, &ResampledPercentile), Option<OverBaseline>)| {
            let logs: Vec<f64> = read.resampled.iter().map(|ns| ns.ln()).collect();
            let factor = varies_more * wander_factor(&read.influences);
            let interval = own.interval(read.ns.ln(), &logs, factor, f64::exp);
            let ns = Interval { value: read.ns, ..interval };
            Percentile {
                percent: *percent,
                beyond: read.beyond,
                ns: (read.beyond >= BEYOND_MIN).then_some(ns),
                over_baseline,
            }
        };
    let percentiles = PERCENTS.iter().zip(&own.read).zip(over).map(one).collect();
    Latency { percentiles, ..summary(&here.all) }
}

/// Compares every percentile with the baseline's. The second value says which of the two varies
/// more from round to round.
fn over_baseline(
    here: &Histograms,
    own: &ResampledRounds,
    baseline: &Baseline,
    seed: u64,
) -> (Vec<Option<OverBaseline>>, Option<Unequal>) {
    let both = |number: &&u32| baseline.drawn.numbers.binary_search(number).is_ok();
    let common: Vec<u32> = own.numbers.iter().filter(both).copied().collect();
    // Nearly always both have the same rounds, so that their resamples are already paired.
    let redrawn = |of: &Histograms, drawn: &ResampledRounds| {
        (drawn.numbers != common).then(|| of.drawn(common.clone(), seed))
    };
    let redrawn = (redrawn(here, own), redrawn(&baseline.histograms, &baseline.drawn));
    let here = redrawn.0.as_ref().unwrap_or(own);
    let base = redrawn.1.as_ref().unwrap_or(&baseline.drawn);
    let unequal = unequal(&here.mean_logs, &base.mean_logs);
    let factor = unequal.map_or(1.0, |unequal| unequal.factor);
    let pairs = here.read.iter().zip(&base.read);
    (pairs.map(|(over, under)| compare(here, over, under, factor)).collect(), unequal)
}

fn compare(
    drawn: &ResampledRounds,
    over: &ResampledPercentile,
    under: &ResampledPercentile,
    unequal: f64,
) -> Option<OverBaseline> {
    if over.beyond.min(under.beyond) < BEYOND_MIN {
        return None;
    }
    let pairs = || over.resampled.iter().zip(&under.resampled);
    let logs: Vec<f64> = pairs().map(|(over, under)| (over / under).ln()).collect();
    let differences: Vec<f64> = pairs().map(|(over, under)| over - under).collect();
    let value = over.ns / under.ns;
    let influences =
        over.influences.iter().zip(&under.influences).map(|(over, under)| over - under);
    let factor = unequal * wander_factor(&influences.collect::<Vec<f64>>());
    // The exact quotient of the two figures, without rounding errors of the logarithm.
    let ratio = Interval { value, ..drawn.interval(value.ln(), &logs, factor, f64::exp) };
    Some(OverBaseline {
        found: ratio.low > 1.0 || ratio.high < 1.0,
        difference_ns: drawn.interval(over.ns - under.ns, &differences, factor, |ns| ns),
        ratio,
    })
}

/// Returns the service time at capacity, from the merged histograms of all valid slices of the
/// closed loop. `None` if none can be read. For studies without a phase at a fixed rate.
pub fn closed_loop_latency(record: &Record, workload: &str, environment: &str) -> Option<Latency> {
    let mut deserializer = Deserializer::new();
    let slices = record.slices.iter().filter(|slice| {
        slice.phase == Phase::Capacity
            && slice.void.is_none()
            && slice.workload == workload
            && slice.environment == environment
    });
    let mut read = |slice: &Slice| -> Option<Histogram<u64>> {
        deserializer.deserialize(&mut Cursor::new(&slice.service)).ok()
    };
    let mut histograms = slices.filter_map(&mut read);
    let mut merged = histograms.next()?;
    merged.auto(true);
    for histogram in histograms {
        // A histogram with automatic resizing accepts every value.
        let _ = merged.add(&histogram);
    }
    (!merged.is_empty()).then(|| summary(&merged))
}

/// Returns the latencies of one slice's histogram (HdrHistogram V2), without intervals. `None` if
/// it is empty or unreadable.
pub fn latency(histogram: &[u8]) -> Option<Latency> {
    let bytes = &mut Cursor::new(histogram);
    let histogram: Histogram<u64> = Deserializer::new().deserialize(bytes).ok()?;
    (!histogram.is_empty()).then(|| summary(&histogram))
}

fn summary(histogram: &Histogram<u64>) -> Latency {
    let [p50_ns, p95_ns, p99_ns, p999_ns] = SHARES.map(|share| histogram.value_at_quantile(share));
    Latency {
        mean_ns: histogram.mean(),
        p50_ns,
        p95_ns,
        p99_ns,
        p999_ns,
        max_ns: histogram.max(),
        count: histogram.len(),
        percentiles: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
