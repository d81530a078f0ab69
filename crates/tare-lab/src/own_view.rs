//! What the system itself counted during a slice: reads from disk, and its own latency, which the
//! reports show beside the client's.
//!
//! Limits: shares and latencies are only as fine as the system counts. Those of `tare db` are in
//! buckets of half a doubling, so that its percentiles are known to within a quarter or so.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::Serialize;

use crate::probe::{Counter, names};
use crate::record::{Phase, Record, Slice};
use crate::system::{OwnCounts, OwnLatency};

/// Fewest reads of a slice whose share from disk is judged.
const READS_MIN: f64 = 100.0;

/// What the system of one environment counted under one workload in one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OwnView {
    pub environment: String,
    pub workload: String,
    pub phase: Phase,
    /// Share of reads that had to wait for a disk; `None` without reads.
    pub disk_share: Option<f64>,
    /// The share of reads from disk that the study asks for.
    pub disk_share_asked: Option<f64>,
    /// Mean latency inside the system, in ns.
    pub server_mean_ns: Option<f64>,
    /// Latency inside the system, if it counts more than the mean, and as the client measured it:
    /// service time, and response time at a fixed rate.
    pub server: Option<Times>,
    pub service: Option<Times>,
    pub response: Option<Times>,
    /// Operations/s of the slices at capacity: lowest, mean, highest.
    pub per_s: [f64; 3],
}

/// Mean and percentiles of merged latencies, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
}

/// Stores what the system counted during a slice.
pub(crate) fn fill(slice: &mut Slice, counts: &OwnCounts) {
    let mut add = |name: &str, value: u64| {
        slice.counters.push(Counter { name: name.into(), value: value as f64 });
    };
    if counts.reads > 0 {
        add(names::SYSTEM_READS, counts.reads);
        add(names::SYSTEM_DISK_READS, counts.disk_reads);
    }
    if counts.latency.requests > 0 {
        add(names::SYSTEM_LATENCY_NS, counts.latency.sum_ns);
        slice.server = encode(&counts.latency.buckets).unwrap_or_default();
    }
}

/// Stores the latency inside a system that was asked before a slice and after it. The readings span
/// more than the window, so that the sum belongs to none of its other figures, but the mean does.
pub(crate) fn fill_latency(slice: &mut Slice, latency: &OwnLatency) {
    let Some(value) = latency.mean_ns() else { return };
    slice.counters.push(Counter { name: names::SYSTEM_LATENCY_NS_MEAN.into(), value });
    slice.server = encode(&latency.buckets).unwrap_or_default();
}

/// Returns a histogram of these latencies; `None` if there are none.
fn encode(latencies: &[(u64, u64)]) -> Option<Vec<u8>> {
    let mut histogram = Histogram::<u64>::new(3).ok()?;
    for (ns, count) in latencies.iter().filter(|(_, count)| *count > 0) {
        histogram.record_n(*ns, *count).ok()?;
    }
    if histogram.is_empty() {
        return None;
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&histogram, &mut bytes).ok()?;
    Some(bytes)
}

fn counter(slice: &Slice, name: &str) -> Option<f64> {
    slice.counters.iter().find(|one| one.name == name).map(|one| one.value)
}

/// Returns the share of a slice's reads that came from disk, if the system counts them and there
/// are enough.
pub fn disk_share(slice: &Slice) -> Option<f64> {
    share(std::iter::once(slice))
        .filter(|_| counter(slice, names::SYSTEM_READS).is_some_and(|reads| reads >= READS_MIN))
}

fn share<'s>(slices: impl Iterator<Item = &'s Slice>) -> Option<f64> {
    let (mut reads, mut from_disk) = (0.0, 0.0);
    for slice in slices {
        reads += counter(slice, names::SYSTEM_READS).unwrap_or(0.0);
        from_disk += counter(slice, names::SYSTEM_DISK_READS).unwrap_or(0.0);
    }
    // A read waits before it is answered, so the edges of a window can divide the two.
    (reads > 0.0).then(|| (from_disk / reads).min(1.0))
}

/// Returns what the systems of a workload counted, in the order of the environments: at the fixed
/// rate if there is such a phase, else at capacity. Empty if no system counts by itself.
pub fn of(record: &Record, workload: &str) -> Vec<OwnView> {
    let spec = record.study.workloads.iter().find(|one| one.name == workload);
    let asked = spec.and_then(|one| one.reads_from_disk);
    let mut views = Vec::new();
    for environment in &record.environments {
        let name = environment.spec.name.as_str();
        let of = |phase| {
            let ours = record.slices.iter().filter(move |slice| {
                slice.phase == phase
                    && slice.void.is_none()
                    && slice.workload == workload
                    && slice.environment == name
            });
            ours.collect::<Vec<&Slice>>()
        };
        let (at_rate, capacity) = (of(Phase::Latency), of(Phase::Capacity));
        let (phase, slices) = match at_rate.is_empty() {
            true => (Phase::Capacity, &capacity),
            false => (Phase::Latency, &at_rate),
        };
        let names = (workload, name);
        views.extend(
            view(names, phase, slices, asked)
                .zip(per_s(&capacity))
                .map(|(view, per_s)| OwnView { per_s, ..view }),
        );
    }
    match views.iter().any(|view| view.disk_share.is_some() || view.server_mean_ns.is_some()) {
        true => views,
        false => Vec::new(),
    }
}

fn view(
    (workload, environment): (&str, &str),
    phase: Phase,
    slices: &[&Slice],
    disk_share_asked: Option<f64>,
) -> Option<OwnView> {
    slices.first()?;
    let mut server = times(slices, |slice| &slice.server);
    let server_mean_ns = mean_ns(slices, server.map(|(_, count)| count));
    // The mean is exact, the buckets are not.
    if let Some(((times, _), mean_ns)) = server.as_mut().zip(server_mean_ns) {
        times.mean_ns = mean_ns;
    }
    let only = |found: Option<(Times, f64)>| found.map(|(times, _)| times);
    Some(OwnView {
        environment: environment.into(),
        workload: workload.into(),
        phase,
        disk_share: share(slices.iter().copied()),
        disk_share_asked,
        server_mean_ns,
        server: only(server),
        service: only(times(slices, |slice| &slice.service)),
        response: only(times(slices, |slice| &slice.response)),
        per_s: [0.0; 3],
    })
}

/// Returns the mean latency inside the system over slices: from its sums, which are of `count`
/// operations, or from its means, each of which counts as much as its slice has operations.
fn mean_ns(slices: &[&Slice], count: Option<f64>) -> Option<f64> {
    let sums: Vec<f64> =
        slices.iter().filter_map(|slice| counter(slice, names::SYSTEM_LATENCY_NS)).collect();
    if let Some(count) = count.filter(|_| !sums.is_empty()) {
        return Some(sums.iter().sum::<f64>() / count);
    }
    let (mut sum, mut operations) = (0.0, 0.0);
    for slice in slices {
        if let Some(mean) = counter(slice, names::SYSTEM_LATENCY_NS_MEAN) {
            sum += mean * slice.operations as f64;
            operations += slice.operations as f64;
        }
    }
    (operations > 0.0).then(|| sum / operations)
}

/// Returns the lowest, mean and highest operations/s of slices.
fn per_s(slices: &[&Slice]) -> Option<[f64; 3]> {
    let of = |slice: &&Slice| slice.operations as f64 * 1e9 / slice.window_ns as f64;
    let whole: Vec<&Slice> = slices.iter().copied().filter(|slice| slice.window_ns > 0).collect();
    let operations: f64 = whole.iter().map(|slice| slice.operations as f64).sum();
    let ns: f64 = whole.iter().map(|slice| slice.window_ns as f64).sum();
    let low = whole.iter().map(of).fold(f64::INFINITY, f64::min);
    let high = whole.iter().map(of).fold(0.0, f64::max);
    (ns > 0.0).then(|| [low, operations * 1e9 / ns, high])
}

/// Merges histograms and reads them off. A damaged one is left out; the analysis reports it.
fn times(slices: &[&Slice], which: impl Fn(&Slice) -> &Vec<u8>) -> Option<(Times, f64)> {
    let mut decoder = Deserializer::new();
    let mut all = Histogram::<u64>::new(3).ok()?;
    for slice in slices {
        if let Ok(one) = decoder.deserialize::<u64, _>(&mut which(slice).as_slice()) {
            all.add(&one).ok()?;
        }
    }
    let at = |quantile| all.value_at_quantile(quantile);
    let times =
        Times { mean_ns: all.mean(), p50_ns: at(0.5), p99_ns: at(0.99), p999_ns: at(0.999) };
    (!all.is_empty()).then(|| (times, all.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::empty_slice;

    fn counts(reads: u64, disk_reads: u64) -> OwnCounts {
        OwnCounts {
            reads,
            disk_reads,
            latency: OwnLatency {
                requests: reads,
                sum_ns: reads * 1_700,
                buckets: vec![(500, 0), (1_500, 3 * reads / 4), (2_500, reads / 4)],
            },
        }
    }

    fn slice(reads: u64, disk_reads: u64) -> Slice {
        let mut slice = empty_slice(Phase::Latency);
        (slice.window_ns, slice.operations) = (1_000_000_000, reads);
        fill(&mut slice, &counts(reads, disk_reads));
        slice
    }

    #[test]
    fn counts_are_differences_and_sums() {
        let (before, after) = (counts(100, 20), counts(300, 220));
        let grown = after.since(&before);
        assert_eq!((grown.reads, grown.disk_reads), (200, 200));
        assert_eq!(grown.latency.buckets, [(500, 0), (1_500, 150), (2_500, 50)]);
        assert_eq!(OwnCounts::default().plus(&before).plus(&grown), after);
        // A system that was started again counts from 0.
        assert_eq!(before.since(&after).reads, 0);
    }

    #[test]
    fn share_is_of_all_reads_and_at_most_one() {
        let check = |reads, disk_reads, expect| {
            assert_eq!(disk_share(&slice(reads, disk_reads)), expect, "{disk_reads} of {reads}");
        };
        check(1_000, 950, Some(0.95));
        check(1_000, 1_010, Some(1.0));
        check(1_000, 0, Some(0.0));
        check(99, 90, None);
        check(0, 0, None);
        let (small, large) = (slice(1_000, 0), slice(3_000, 3_000));
        assert_eq!(share([&small, &large].into_iter()), Some(0.75));
    }

    #[test]
    fn view_has_exact_mean_and_merged_percentiles() {
        let (one, mut other) = (slice(1_000, 900), slice(3_000, 2_900));
        other.window_ns *= 2;
        let slices = [&one, &other];
        let view = view(("w", "native"), Phase::Latency, &slices, Some(0.95)).unwrap();
        let server = view.server.unwrap();
        assert!((server.mean_ns - 1_700.0).abs() < 1e-6, "{server:?}");
        let near = |ns: u64, expect: u64| ns.abs_diff(expect) * 500 < expect;
        assert!(near(server.p50_ns, 1_500) && near(server.p99_ns, 2_500), "{server:?}");
        assert_eq!(view.disk_share, Some(0.95));
        assert_eq!((view.service, view.response), (None, None));
        let [low, mean, high] = per_s(&slices).unwrap();
        assert_eq!((low, high), (1_000.0, 1_500.0));
        assert!((mean - 4_000.0 / 3.0).abs() < 1e-6, "{mean}");
    }

    #[test]
    fn latency_of_a_system_that_is_asked_is_a_mean() {
        let of = |operations, sum_ns, buckets: &[(u64, u64)]| {
            let mut slice = empty_slice(Phase::Capacity);
            (slice.window_ns, slice.operations) = (1_000_000_000, operations);
            let latency = OwnLatency { requests: 10, sum_ns, buckets: buckets.to_vec() };
            fill_latency(&mut slice, &latency);
            slice
        };
        let check = |slices: [Slice; 2]| {
            let [one, other] = &slices;
            view(("w", "native"), Phase::Capacity, &[one, other], None).unwrap()
        };
        // 3 of 4 operations are in the slice of 200 ns.
        let found = check([of(100, 1_000, &[]), of(300, 2_000, &[])]);
        assert_eq!((found.server_mean_ns, found.server), (Some(175.0), None));
        let buckets = [(512, 8), (1_536, 2)];
        let found = check([of(100, 1_000, &buckets), of(100, 2_000, &buckets)]);
        let server = found.server.unwrap();
        assert!((server.mean_ns - 150.0).abs() < 1e-6, "{server:?}");
        assert!((511..514).contains(&server.p50_ns), "{server:?}");
        // Nothing was answered.
        let mut idle = empty_slice(Phase::Capacity);
        fill_latency(&mut idle, &OwnLatency::default());
        assert!(idle.counters.is_empty() && idle.server.is_empty());
    }

    #[test]
    fn system_without_counts_has_no_view() {
        let mut slice = empty_slice(Phase::Capacity);
        fill(&mut slice, &OwnCounts::default());
        assert!(slice.counters.is_empty() && slice.server.is_empty());
    }
}
