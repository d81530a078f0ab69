//! Charts of long windows by the second: the longest and the mean latency, throughput, and the
//! longest I/O of the disks.
//!
//! A point is one second of the window. Where there are several trials, the line is their median,
//! with a band from the smallest to the largest value, so that a peak in one of them is visible.

use tare_lab::record::{Phase, Slice};
use tare_lab::seconds::{DiskSecond, LoadSecond};

use super::plot::Line;
use super::time::{Columns, Noted, chart, per_s_tick};
use super::{Series, as_f64, short_time};

/// What is drawn of each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::html) enum OfSecond {
    LongestLatency,
    MeanLatency,
    Throughput,
    LongestIo,
}

impl OfSecond {
    pub(in crate::html) const ALL: [Self; 4] =
        [Self::LongestLatency, Self::MeanLatency, Self::Throughput, Self::LongestIo];

    pub(in crate::html) fn id(self) -> &'static str {
        match self {
            Self::LongestLatency => "longest-second",
            Self::MeanLatency => "mean-second",
            Self::Throughput => "rate-second",
            Self::LongestIo => "disk-second",
        }
    }

    pub(in crate::html) fn title(self) -> &'static str {
        match self {
            Self::LongestLatency => "Longest latency of each second",
            Self::MeanLatency => "Mean latency of each second",
            Self::Throughput => "Operations of each second",
            Self::LongestIo => "Longest I/O of the disks in each second",
        }
    }

    /// The values of a slice from its first second on.
    fn values(self, slice: &Slice) -> Vec<f64> {
        let load = |value: fn(&LoadSecond) -> u64| {
            slice.seconds.load.iter().map(|one| as_f64(value(one))).collect()
        };
        let longest = |one: &DiskSecond| as_f64(one.read_max_ns.max(one.write_max_ns));
        match self {
            Self::LongestLatency => load(|one| one.max_ns),
            Self::MeanLatency => load(|one| one.mean_ns),
            Self::Throughput => load(|one| one.operations),
            Self::LongestIo => slice.seconds.disks.iter().map(longest).collect(),
        }
    }
}

/// Draws a figure of every second of the slices of a phase.
pub(in crate::html) fn by_second(
    series: &[Series<'_>],
    phase: Phase,
    what: OfSecond,
    id: &str,
) -> Option<Noted> {
    let values = |d: &Series<'_>| -> Vec<Vec<f64>> {
        d.of(phase).filter(|slice| slice.void.is_none()).map(|slice| what.values(slice)).collect()
    };
    let all: Vec<Vec<Vec<f64>>> = series.iter().map(values).collect();
    let count = all.iter().flatten().map(Vec::len).max()?;
    let columns = Columns::of_seconds(u32::try_from(count).ok()?, series.len())?;
    let with_seconds =
        series.iter().zip(&all).filter(|(_, slices)| slices.iter().any(|one| !one.is_empty()));
    let lines: Vec<Line<'_, '_>> = with_seconds
        .map(|(d, slices)| {
            columns.line(d, slices.iter().flat_map(|one| (0..).zip(one.iter().copied())))
        })
        .collect();
    let words = (what.title(), "time since the window began");
    match what {
        OfSecond::Throughput => chart(id, words, ("rate", &per_s_tick), &columns, &lines),
        _ => chart(id, words, ("ns", &short_time), &columns, &lines),
    }
}
