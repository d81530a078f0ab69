//! The load over time in at most `INTERVALS_MAX` intervals, however long it runs: beyond that, each
//! two intervals are merged into one.

use tare_stats::steady::Steadiness;

use crate::report::model::IntervalReport;

const INTERVALS_MAX: usize = 600;

/// A bounded series of intervals.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    intervals: Vec<IntervalReport>,
    /// How many pushed intervals make one kept interval, and how many the last one has.
    stride: usize,
    in_last: usize,
}

impl Default for Series {
    fn default() -> Self {
        Self { intervals: Vec::new(), stride: 1, in_last: 1 }
    }
}

impl Series {
    pub(crate) fn push(&mut self, interval: IntervalReport) {
        match self.intervals.last_mut() {
            Some(last) if self.in_last < self.stride => {
                *last = sum(last, &interval);
                self.in_last += 1;
            }
            _ => {
                if self.intervals.len() == INTERVALS_MAX {
                    let pairs = self.intervals.chunks(2);
                    self.intervals = pairs
                        .map(|pair| match pair {
                            [first, second] => sum(first, second),
                            rest => rest[0],
                        })
                        .collect();
                    self.stride *= 2;
                }
                self.intervals.push(interval);
                self.in_last = 1;
            }
        }
    }

    pub(crate) fn intervals(&self) -> Vec<IntervalReport> {
        self.intervals.clone()
    }

    /// Tests whether the latency, in a closed loop the throughput, was steady; `None` if there is
    /// too little to tell.
    pub(crate) fn steadiness(&self, is_open: bool) -> Option<Steadiness> {
        let full_s = self.intervals.first()?.length_s / 2.0;
        let whole = self.intervals.iter().filter(|interval| interval.length_s > full_s);
        let values: Vec<f64> = whole
            .map(|interval| match is_open {
                true => interval.mean_ns,
                false => interval.operations as f64 / interval.length_s,
            })
            .collect();
        Steadiness::of(if is_open { "response time" } else { "throughput" }, &values)
    }
}

fn sum(first: &IntervalReport, second: &IntervalReport) -> IntervalReport {
    let operations = first.operations + second.operations;
    let weigh = |one: &IntervalReport| one.mean_ns * one.operations as f64;
    IntervalReport {
        begin_s: first.begin_s,
        length_s: first.length_s + second.length_s,
        operations,
        mean_ns: (weigh(first) + weigh(second)) / operations.max(1) as f64,
        max_ns: first.max_ns.max(second.max_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn series_is_bounded_and_keeps_all_counts(count in 1u32..5_000) {
            let mut series = Series::default();
            for at in 0..count {
                series.push(IntervalReport {
                    begin_s: f64::from(at),
                    length_s: 1.0,
                    operations: u64::from(at % 7),
                    mean_ns: 10.0,
                    max_ns: u64::from(at),
                });
            }
            let intervals = series.intervals();
            prop_assert!(intervals.len() <= INTERVALS_MAX);
            let expect: u64 = (0..count).map(|at| u64::from(at % 7)).sum();
            prop_assert_eq!(intervals.iter().map(|one| one.operations).sum::<u64>(), expect);
            let mut end_s = 0.0;
            for interval in &intervals {
                prop_assert!((interval.begin_s - end_s).abs() < 1e-6);
                end_s += interval.length_s;
            }
            prop_assert!((end_s - f64::from(count)).abs() < 1e-6);
            let max_ns = intervals.iter().map(|one| one.max_ns).max();
            prop_assert_eq!(max_ns, Some(u64::from(count - 1)));
        }
    }
}
