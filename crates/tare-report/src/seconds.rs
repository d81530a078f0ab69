//! Long windows by the second, as every text, the page and JSON have them: average, peak and the
//! longest operation of each second, of the load and of the disks.

use serde::Serialize;
use tare_lab::record::{Phase, Record, Slice};
use tare_lab::seconds::{DiskSecond, LoadSecond};
use tare_std::units::nanoseconds;

use crate::figures::{clean, rate};

pub(crate) const HEAD: [&str; 6] = [
    "environment",
    "op/s, average",
    "op/s, least second",
    "latency, average",
    "longest of a second, median",
    "latency, peak",
];

pub(crate) const DISK_HEAD: [&str; 7] = [
    "environment",
    "reads, average",
    "longest of a second, median",
    "reads, peak",
    "writes, average",
    "longest of a second, median",
    "writes, peak",
];

pub(crate) const DISK_CAPTION: &str = "The disks below the data directories in the same seconds, from their driver to completion \
                                       (times within 12.5 %, averages within 6 %):";

/// One environment over all seconds of its slices that count, of a workload in a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SecondsFigures {
    pub(crate) workload: String,
    pub(crate) environment: String,
    pub(crate) phase: Phase,
    /// Slices that have seconds, and seconds in all of them.
    pub(crate) slices: usize,
    pub(crate) seconds: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<LoadFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reads: Option<Times>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) writes: Option<Times>,
}

/// The load over all seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct LoadFigures {
    pub(crate) operations_per_s: f64,
    pub(crate) operations_least: u64,
    #[serde(flatten)]
    pub(crate) times: Times,
}

/// Times over all seconds, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) mean_ns: f64,
    /// The median over seconds of the longest of each second that had any.
    pub(crate) longest_median_ns: u64,
    pub(crate) peak_ns: u64,
}

/// The count, the mean and the longest time of one second.
type OfSecond = (u64, u64, u64);

impl Times {
    /// `None` if no second had any.
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    fn of(seconds: impl Iterator<Item = OfSecond>) -> Option<Self> {
        let (mut count, mut sum_ns, mut longest) = (0, 0.0, Vec::new());
        for (own, mean_ns, max_ns) in seconds.filter(|(count, ..)| *count > 0) {
            count += own;
            sum_ns += own as f64 * mean_ns as f64;
            longest.push(max_ns);
        }
        longest.sort_unstable();
        Some(Self {
            mean_ns: sum_ns / count as f64,
            longest_median_ns: *longest.get(longest.len() / 2)?,
            peak_ns: *longest.last()?,
        })
    }
}

fn of_load(second: &LoadSecond) -> OfSecond {
    (second.operations, second.mean_ns, second.max_ns)
}

fn of_reads(second: &DiskSecond) -> OfSecond {
    (second.reads, second.read_mean_ns, second.read_max_ns)
}

fn of_writes(second: &DiskSecond) -> OfSecond {
    (second.writes, second.write_mean_ns, second.write_max_ns)
}

/// The phases that a page shows by the second, the one with a fixed rate first.
pub(crate) const PHASES: [Phase; 2] = [Phase::Latency, Phase::Capacity];

/// Returns what is above the table of a phase.
pub(crate) fn caption(phase: Phase) -> &'static str {
    match phase {
        Phase::Capacity => "By the second, at capacity (service time):",
        _ => "By the second, at the fixed rate (response time):",
    }
}

/// Returns the figures of every environment that has seconds, in the order of the study.
pub(crate) fn figures(record: &Record, workload: &str, phase: Phase) -> Vec<SecondsFigures> {
    let names = record.environments.iter().map(|one| one.spec.name.as_str());
    names.filter_map(|name| of_environment(record, workload, phase, name)).collect()
}

/// A table with what is above it.
pub(crate) struct SecondsTable {
    pub(crate) caption: &'static str,
    pub(crate) head: &'static [&'static str],
    pub(crate) rows: Vec<Vec<String>>,
}

/// Returns the tables of a workload that have rows, for texts.
pub(crate) fn tables(record: &Record, workload: &str) -> Vec<SecondsTable> {
    let of_phase = |phase| {
        let figures = figures(record, workload, phase);
        [
            SecondsTable { caption: caption(phase), head: &HEAD, rows: rows(&figures) },
            SecondsTable { caption: DISK_CAPTION, head: &DISK_HEAD, rows: disk_rows(&figures) },
        ]
    };
    PHASES.into_iter().flat_map(of_phase).filter(|table| !table.rows.is_empty()).collect()
}

/// Returns the figures of all workloads and phases.
pub(crate) fn all(record: &Record) -> Vec<SecondsFigures> {
    let workloads = record.study.workloads.iter().map(|one| one.name.as_str());
    workloads
        .flat_map(|name| PHASES.into_iter().flat_map(|phase| figures(record, name, phase)))
        .collect()
}

fn of_environment(
    record: &Record,
    workload: &str,
    phase: Phase,
    environment: &str,
) -> Option<SecondsFigures> {
    let is_its = |slice: &&Slice| {
        slice.environment == environment
            && slice.workload == workload
            && slice.phase == phase
            && slice.void.is_none()
            && !slice.seconds.is_empty()
    };
    let slices: Vec<&Slice> = record.slices.iter().filter(is_its).collect();
    let load = || slices.iter().flat_map(|slice| &slice.seconds.load);
    let disks = || slices.iter().flat_map(|slice| &slice.seconds.disks);
    slices.first()?;
    Some(SecondsFigures {
        workload: workload.to_string(),
        environment: environment.to_string(),
        phase,
        slices: slices.len(),
        seconds: load().count().max(disks().count()),
        load: load_figures(load()),
        reads: Times::of(disks().map(of_reads)),
        writes: Times::of(disks().map(of_writes)),
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn load_figures<'a>(seconds: impl Iterator<Item = &'a LoadSecond> + Clone) -> Option<LoadFigures> {
    let operations: u64 = seconds.clone().map(|one| one.operations).sum();
    Some(LoadFigures {
        operations_per_s: operations as f64 / seconds.clone().count() as f64,
        operations_least: seconds.clone().map(|one| one.operations).min()?,
        times: Times::of(seconds.map(of_load))?,
    })
}

/// Returns the rows under [`HEAD`]; empty if the driver does not count by the second.
pub(crate) fn rows(figures: &[SecondsFigures]) -> Vec<Vec<String>> {
    let row = |one: &SecondsFigures| {
        let load = one.load?;
        #[expect(clippy::cast_precision_loss, reason = "a count far below 2^53")]
        let least = rate(load.operations_least as f64);
        let [mean, longest, peak] = texts(Some(load.times));
        let name = clean(&one.environment);
        Some(vec![name, rate(load.operations_per_s), least, mean, longest, peak])
    };
    figures.iter().filter_map(row).collect()
}

/// Returns the rows under [`DISK_HEAD`]; empty if no disk was followed or none had anything to do.
pub(crate) fn disk_rows(figures: &[SecondsFigures]) -> Vec<Vec<String>> {
    let with_disk = figures.iter().filter(|one| one.reads.is_some() || one.writes.is_some());
    let row = |one: &SecondsFigures| {
        let mut row = vec![clean(&one.environment)];
        row.extend(texts(one.reads));
        row.extend(texts(one.writes));
        row
    };
    with_disk.map(row).collect()
}

#[expect(clippy::cast_precision_loss, reason = "times far below 2^53 ns")]
fn texts(times: Option<Times>) -> [String; 3] {
    times.map_or_else(
        || ["-", "-", "-"].map(String::from),
        |times| {
            [times.mean_ns, times.longest_median_ns as f64, times.peak_ns as f64].map(nanoseconds)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn figures_are_over_all_seconds_that_count() {
        let (record, _) = fixture::quick();
        assert!(all(&record).is_empty());
        let (record, _) = fixture::by_second();
        let found = figures(&record, "write", Phase::Latency);
        let of = |name: &str| found.iter().find(|one| one.environment == name).unwrap();
        let native = of("native");
        let slices: Vec<&Slice> = record
            .slices
            .iter()
            .filter(|one| one.environment == "native" && one.phase == Phase::Latency)
            .collect();
        let seconds = || slices.iter().flat_map(|slice| &slice.seconds.load);
        assert_eq!((native.slices, native.seconds), (slices.len(), seconds().count()));
        let load = native.load.unwrap();
        assert_eq!(Some(load.times.peak_ns), seconds().map(|one| one.max_ns).max());
        assert_eq!(Some(load.operations_least), seconds().map(|one| one.operations).min());
        assert!(load.times.mean_ns < load.times.longest_median_ns as f64);
        assert_eq!(native.reads, None, "only writes");
        assert!(native.writes.unwrap().peak_ns > 0);
        assert_eq!((rows(&found).len(), disk_rows(&found).len()), (found.len(), found.len()));
        assert!(figures(&record, "write", Phase::Slo).is_empty());
    }
}
