//! Compares the clock of another host with this one's over a pipe.
//!
//! Method: CLOCK_MONOTONIC on both sides, so that steps of the wall clock do not matter. The other
//! side's time was read somewhere between our send and our receipt, so the middle of both is at
//! most half the round trip wrong. Of several exchanges the one with the least error counts. An
//! error grows with its age, because no two clocks run at the same rate.
//!
//! Limits: a clock that changes its rate by more than [`DRIFT_PPM`] against this one, as while NTP
//! slews it at its limit of 500 ppm, is further off than the bound says.

use std::collections::VecDeque;

/// By how much the rates of two clocks may differ. Quartz crystals are within 50 ppm each.
const DRIFT_PPM: u64 = 100;
/// Exchanges that are kept.
const KEPT: usize = 64;

/// The difference of two clocks, and how wrong it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    /// The other clock less this one.
    pub(crate) offset_ns: i64,
    pub(crate) error_ns: u64,
    pub(crate) round_trip_ns: u64,
}

/// One exchange.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    offset_ns: i64,
    round_trip_ns: u64,
    at_ns: u64,
}

impl Exchange {
    fn error_ns(&self, now_ns: u64) -> u64 {
        let age_ns = now_ns.saturating_sub(self.at_ns);
        self.round_trip_ns / 2 + age_ns / 1_000_000 * DRIFT_PPM
    }
}

/// The exchanges with one loader.
#[derive(Debug, Default)]
pub(crate) struct ClockComparison {
    exchanges: VecDeque<Exchange>,
}

impl ClockComparison {
    /// Adds an exchange: our clock at the send and at the receipt, and theirs in between.
    pub(crate) fn add(&mut self, sent_ns: u64, there_ns: u64, received_ns: u64) {
        let middle = (i128::from(sent_ns) + i128::from(received_ns)) / 2;
        let offset = i128::from(there_ns) - middle;
        let exchange = Exchange {
            offset_ns: i64::try_from(offset).unwrap_or(i64::MAX),
            round_trip_ns: received_ns.saturating_sub(sent_ns),
            at_ns: received_ns,
        };
        self.exchanges.push_back(exchange);
        if self.exchanges.len() > KEPT {
            self.exchanges.pop_front();
        }
    }

    /// Returns the best comparison for this time.
    pub(crate) fn best(&self, now_ns: u64) -> Option<ClockOffset> {
        let best = self.exchanges.iter().min_by_key(|one| one.error_ns(now_ns))?;
        Some(ClockOffset {
            offset_ns: best.offset_ns,
            error_ns: best.error_ns(now_ns),
            round_trip_ns: best.round_trip_ns,
        })
    }

    /// Returns the longest of the last round trips.
    pub(crate) fn longest_round_trip_ns(&self) -> u64 {
        let last = self.exchanges.iter().rev().take(8);
        last.map(|one| one.round_trip_ns).max().unwrap_or(0)
    }

    /// Returns when the last exchange was, on our clock.
    pub(crate) fn last_ns(&self) -> Option<u64> {
        self.exchanges.back().map(|last| last.at_ns)
    }
}

impl ClockOffset {
    /// Converts a time of this clock to the other one.
    pub(crate) fn to_there(self, here_ns: u64) -> u64 {
        here_ns.saturating_add_signed(self.offset_ns)
    }

    /// Converts a time of the other clock to this one.
    pub(crate) fn to_here(self, there_ns: u64) -> u64 {
        there_ns.saturating_add_signed(self.offset_ns.saturating_neg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn least_round_trip_wins_until_it_is_old() {
        let mut clock = ClockComparison::default();
        assert_eq!(clock.best(0), None);
        // 2 s ahead; the answer takes as long as the question.
        clock.add(1_000 * MS, 3_005 * MS, 1_010 * MS);
        clock.add(1_020 * MS, 3_021 * MS, 1_022 * MS);
        // Congested: the question took 9 of 10 ms, and the error bound covers that.
        clock.add(1_030 * MS, 3_039 * MS, 1_040 * MS);
        let best = clock.best(1_040 * MS).unwrap();
        assert_eq!((best.offset_ns, best.round_trip_ns), (2_000 * MS as i64, 2 * MS));
        assert!((MS..MS + 10_000).contains(&best.error_ns), "{best:?}");
        assert_eq!((best.to_there(5 * MS), best.to_here(2_005 * MS)), (2_005 * MS, 5 * MS));
        assert_eq!(clock.longest_round_trip_ns(), 10 * MS);
        // After a minute it may be 6 ms off, and an exchange of 4 ms is better.
        let later = 61_000 * MS;
        assert!(clock.best(later).unwrap().error_ns > 6 * MS);
        clock.add(later, later + 2_003 * MS, later + 4 * MS);
        assert_eq!(clock.best(later + 4 * MS).unwrap().offset_ns, 2_001 * MS as i64);
    }

    #[test]
    fn other_clock_may_be_behind() {
        let mut clock = ClockComparison::default();
        clock.add(10_000 * MS, 2 * MS, 10_004 * MS);
        let best = clock.best(10_004 * MS).unwrap();
        assert_eq!(best.offset_ns, -10_000 * MS as i64);
        assert_eq!((best.to_there(10_002 * MS), best.to_here(MS)), (2 * MS, 10_001 * MS));
    }
}
