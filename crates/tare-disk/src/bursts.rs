//! Computes the rate of a window whose completions may come in bursts. Pure functions of the
//! completion times, which tests call with streams of a known rate.
//!
//! A throttle releases the allowance of a time slice at once and then nothing until the next slice:
//! blk-throttle rounds elapsed time up to whole slices of 100 ms (tg_within_bps_limit in the
//! kernel's block/blk-throttle.c); token buckets of clouds are similar. Counting completions
//! between two fixed times then counts a burst too many or too few. The throttle starts a new slice
//! with each window, so every round has the same error, and the spread does not show it. A window
//! is therefore counted from the end of one burst to the end of another, in whole periods. One
//! without a whole burst, such as a window with a long stall, is counted as it is, and that is not
//! reliable. A stream without bursts is counted from its first completion to its last, which is
//! exact to less than one operation; a fixed window is not.

/// A gap that ends a burst is longer than this many mean distances between completions.
const GAP: f64 = 4.0;

/// A gap that ends a burst is also longer than this share of the longest gap: within a throttle's
/// bursts a device may answer in batches, which are bursts on a smaller scale.
const LONGEST_SHARE: f64 = 0.25;

/// Streams whose gaps fill less than this share of the time are smooth. With exponential distances
/// 5 e^-4 = 9 % would be such gaps by chance; a throttle at half of a disk's rate leaves 50 %.
const SILENT_SHARE: f64 = 0.25;

/// The fewest whole bursts for a reliable rate.
pub(crate) const BURSTS_MIN: usize = 5;

/// The fewest completions of a smooth stream for a reliable rate.
const OPERATIONS_MIN: u64 = 8;

/// Completions at about the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Completions {
    /// The time of the last of them, in seconds since the start of the window.
    pub at_s: f64,
    pub count: u64,
}

/// The result of counting.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    pub operations: u64,
    pub seconds: f64,
    /// How many whole bursts there were; 0 in a smooth stream.
    pub bursts: usize,
    /// Whether completions came in bursts, even if none of them was whole.
    pub bursty: bool,
}

impl Counted {
    /// Returns whether the rate is reliable.
    pub(crate) fn is_enough(&self) -> bool {
        match self.bursty {
            true => self.bursts >= BURSTS_MIN,
            false => self.operations >= OPERATIONS_MIN,
        }
    }

    /// Returns the mean time from one burst to the next, in seconds.
    pub(crate) fn period_s(&self) -> Option<f64> {
        (self.bursts > 0).then(|| self.seconds / self.bursts as f64)
    }
}

/// Counts the completions of a window from `edge_s` to `end_s`, which come in order.
pub(crate) fn count(all: &[Completions], edge_s: f64, end_s: f64) -> Counted {
    let from = all.partition_point(|one| one.at_s < edge_s);
    let to = all.partition_point(|one| one.at_s <= end_s);
    let inside = all.get(from..to).unwrap_or_default();
    let (Some(first), Some(last)) = (inside.first(), inside.last()) else {
        return Counted::default();
    };
    let total: u64 = inside.iter().map(|one| one.count).sum();
    let window_s = end_s - edge_s;
    // Gaps at both ends count too: a window may be shorter than a period.
    let times = inside.iter().map(|one| one.at_s).chain([end_s]);
    let befores = std::iter::once(edge_s).chain(inside.iter().map(|one| one.at_s));
    let gaps: Vec<f64> = times.zip(befores).map(|(at, before)| at - before).collect();
    let longest_s = gaps.iter().copied().fold(0.0, f64::max);
    let gap_s = (GAP * window_s / total as f64).max(LONGEST_SHARE * longest_s);
    let silent_s: f64 = gaps.iter().filter(|gap| **gap > gap_s).sum();
    let bursty = total > 1 && silent_s > SILENT_SHARE * window_s;
    if !bursty {
        let seconds = last.at_s - first.at_s;
        return Counted { operations: total - first.count, seconds, bursts: 0, bursty };
    }
    // The gap after the i-th entry is the one before the next.
    let ends: Vec<usize> = (0..inside.len()).filter(|i| gaps[i + 1] > gap_s).collect();
    let [start, .., end] = ends[..] else {
        return Counted { operations: total, seconds: window_s, bursts: 0, bursty };
    };
    let operations = inside[start + 1..=end].iter().map(|one| one.count).sum();
    let seconds = inside[end].at_s - inside[start].at_s;
    Counted { operations, seconds, bursts: ends.len() - 1, bursty }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_std::rng::Rng;

    fn rate(all: &[Completions], edge_s: f64, end_s: f64) -> (f64, Counted) {
        let counted = count(all, edge_s, end_s);
        (counted.operations as f64 / counted.seconds, counted)
    }

    /// Returns `per_burst` operations at the start of each period, `apart_s` from each other.
    fn bursts(period_s: f64, per_burst: u32, apart_s: f64, end_s: f64) -> Vec<Completions> {
        let mut all = Vec::new();
        let mut start_s = 0.0;
        while start_s < end_s {
            let one = |i: u32| Completions { at_s: start_s + f64::from(i) * apart_s, count: 1 };
            all.extend((0..per_burst).map(one).filter(|one| one.at_s <= end_s));
            start_s += period_s;
        }
        all
    }

    #[test]
    fn throttled_rate_is_independent_of_window_place() {
        // 100 MiB/s in operations of 1 MiB: ten in each 100 ms, completed within 8 ms.
        let all = bursts(0.1, 10, 0.0008, 3.0);
        for (edge_s, end_s) in [(0.03, 0.3), (0.025, 0.26), (0.0, 0.61), (0.1, 1.0), (0.205, 2.95)]
        {
            let (found, counted) = rate(&all, edge_s, end_s);
            assert!(counted.bursty, "{edge_s} {end_s}");
            assert!((found / 100.0 - 1.0).abs() < 1e-9, "{edge_s} {end_s}: {found}");
            // The count of a fixed window.
            let inside = all.iter().filter(|one| (edge_s..end_s).contains(&one.at_s)).count();
            let fixed = inside as f64 / (end_s - edge_s);
            assert!((fixed / 100.0 - 1.0).abs() < 0.5, "{fixed}");
        }
        let (_, counted) = rate(&all, 0.05, 0.95);
        assert!(counted.is_enough() && (counted.period_s().unwrap() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn batches_within_bursts_are_not_bursts() {
        // 2,560 operations in each 100 ms, in batches of 256 that are 1 ms apart.
        let batch = |period: u32, index: u32| Completions {
            at_s: f64::from(period) * 0.1 + f64::from(index) * 0.001,
            count: 256,
        };
        let all: Vec<Completions> =
            (0..30).flat_map(|p| (0..10).map(move |i| batch(p, i))).collect();
        let (found, counted) = rate(&all, 0.03, 0.71);
        assert!(counted.bursts == 5 && (found / 25_600.0 - 1.0).abs() < 1e-9, "{counted:?}");
        assert!(!count(&all, 0.001, 0.15).is_enough());
    }

    #[test]
    fn short_window_is_not_enough() {
        let all = bursts(0.1, 10, 0.0008, 3.0);
        for (edge_s, end_s) in [(0.101, 0.14), (0.15, 0.19), (0.01, 0.15)] {
            let counted = count(&all, edge_s, end_s);
            assert!(!counted.is_enough(), "{edge_s} {end_s}: {counted:?}");
        }
        assert!(!count(&[], 0.0, 1.0).is_enough());
        assert!(!count(&bursts(0.4, 1, 0.0, 3.0), 0.0, 1.0).is_enough());
    }

    #[test]
    fn window_with_a_stall_is_counted_as_it_is() {
        // An operation each ms, and none for 0.4 s.
        let mut all = bursts(0.001, 1, 0.0, 1.0);
        all.retain(|one| !(0.3..0.7).contains(&one.at_s));
        let (found, counted) = rate(&all, 0.1, 1.0);
        assert!(counted.bursty && !counted.is_enough(), "{counted:?}");
        assert!((found / 555.6 - 1.0).abs() < 0.01, "{found}");
    }

    #[test]
    fn smooth_stream_has_no_bursts() {
        let even = bursts(0.01, 1, 0.0, 3.0);
        let (found, counted) = rate(&even, 0.033, 0.255);
        assert!(!counted.bursty && counted.is_enough());
        assert!((found / 100.0 - 1.0).abs() < 1e-9, "{found}");
        let mut rng = Rng::stream(7, 1);
        for _ in 0..50 {
            let mut at_s = 0.0;
            let next = |_: u32| {
                let share = (rng.below(1 << 20) + 1) as f64 / f64::from(1u32 << 20);
                at_s -= share.ln() / 1000.0;
                Completions { at_s, count: 1 }
            };
            let random: Vec<Completions> = (0..3000).map(next).collect();
            let (found, counted) = rate(&random, 0.25, 2.0);
            assert!(!counted.bursty, "{counted:?}");
            assert!((found / 1000.0 - 1.0).abs() < 0.15, "{found}");
        }
    }
}
