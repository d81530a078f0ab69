//! Counts operations: their times, keys and rows. Keys are kept as hashes; some are kept whole
//! until the trace has been read, to see whether they come in order.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::fit::{self, Fit};
use crate::sizes::Sizes;

/// The operations whose keys and times are kept. The first ones of a longer trace stand for it.
const KEPT_MAX: usize = 1_000_000;
/// The keys that are kept whole.
const WHOLE_MAX: usize = 20_000;

/// The hash of a key that does not count.
const NONE: u64 = 0;

/// The keys of one kind of operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    hashes: Vec<u64>,
    whole: Vec<Box<[u8]>>,
}

impl Keys {
    /// Notes the key of an operation. Returns its place, for [`Self::remove`].
    pub(crate) fn add(&mut self, key: &[u8]) -> Option<usize> {
        if self.hashes.len() >= KEPT_MAX {
            return None;
        }
        self.hashes.push(hash(key).max(1));
        if self.whole.len() < WHOLE_MAX {
            self.whole.push(key.into());
        }
        Some(self.hashes.len() - 1)
    }

    /// Forgets a key: no row had it.
    pub(crate) fn remove(&mut self, place: usize) {
        if let Some(hash) = self.hashes.get_mut(place) {
            *hash = NONE;
        }
    }

    fn hashes(&self) -> impl Iterator<Item = u64> {
        self.hashes.iter().copied().filter(|hash| *hash != NONE)
    }

    /// Fits these keys; see [`fit::fit`].
    pub(crate) fn fit(&self, rows: Option<u64>) -> Option<Fit> {
        let hashes: Vec<u64> = self.hashes().collect();
        fit::fit(&hashes, rows, fit::is_sequential(&self.whole))
    }
}

pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Appends a part of a key so that keys of numbers sort by them: length, then bytes.
pub(crate) fn push_part(key: &mut Vec<u8>, part: &[u8]) {
    key.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
    key.extend_from_slice(part);
}

/// Fits the keys of several kinds of operations together, as if none of them came in order.
pub(crate) fn fit_together<'k>(all: impl Iterator<Item = &'k Keys>) -> Option<Fit> {
    let hashes: Vec<u64> = all.flat_map(Keys::hashes).collect();
    fit::fit(&hashes, None, false)
}

/// When operations began and ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timing {
    pub(crate) times_ns: Vec<u64>,
    pub(crate) operations: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    in_flight: u64,
    pub(crate) in_flight_most: u64,
    latencies_ns: Vec<u64>,
    pub(crate) connections: BTreeSet<usize>,
}

impl Timing {
    /// Notes so many operations of one request.
    pub(crate) fn begin(&mut self, connection: usize, at_ns: u64, operations: u64) {
        let kept = usize::try_from(operations).unwrap_or(0).min(KEPT_MAX - self.times_ns.len());
        self.times_ns.extend(std::iter::repeat_n(at_ns, kept));
        self.operations += operations;
        self.first_ns = Some(self.first_ns.map_or(at_ns, |first| first.min(at_ns)));
        self.last_ns = self.last_ns.max(at_ns);
        self.in_flight += 1;
        self.in_flight_most = self.in_flight_most.max(self.in_flight);
        self.connections.insert(connection);
    }

    /// Notes the answer to a request that began at a time.
    pub(crate) fn end(&mut self, began_ns: u64, at_ns: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.latencies_ns.len() < KEPT_MAX {
            self.latencies_ns.push(at_ns.saturating_sub(began_ns));
        }
    }

    /// Notes requests that get no answer.
    pub(crate) fn give_up(&mut self, requests: u64) {
        self.in_flight = self.in_flight.saturating_sub(requests);
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.last_ns.saturating_sub(self.first_ns.unwrap_or(self.last_ns)) as f64 / 1e9
    }

    pub(crate) fn rate_per_s(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { self.operations as f64 / seconds } else { 0.0 }
    }

    /// Returns the median and the 99th percentile of the times until the answers.
    pub(crate) fn latency_ns(&self) -> Option<(u64, u64)> {
        let mut sorted = self.latencies_ns.clone();
        sorted.sort_unstable();
        let at = |share: usize| sorted.get(sorted.len() * share / 100).copied();
        Some((at(50)?, at(99)?))
    }

    /// Returns the requests in flight on average, by Little's law from the answered requests that
    /// were kept.
    pub(crate) fn in_flight_mean(&self) -> f64 {
        let answered = self.latencies_ns.len() as f64;
        let mean_s = self.latencies_ns.iter().sum::<u64>() as f64 / 1e9 / answered.max(1.0);
        mean_s * self.rate_per_s()
    }
}

/// One query of the workload to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub(crate) operations: u64,
    pub(crate) keys: Keys,
    pub(crate) answered: u64,
    /// Answers without a row.
    pub(crate) empty: u64,
    /// Rows of the other answers.
    pub(crate) rows: Sizes,
    /// Different statements.
    pub(crate) statements: BTreeSet<u64>,
}

/// Operations that are no part of the workload, by reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut(BTreeMap<String, u64>);

impl LeftOut {
    pub(crate) fn add(&mut self, reason: impl Into<String>, operations: u64) {
        if operations > 0 {
            *self.0.entry(reason.into()).or_default() += operations;
        }
    }

    /// Returns the reasons with their numbers, the most frequent first.
    pub(crate) fn sorted(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> =
            self.0.iter().map(|(reason, count)| (reason.clone(), *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rates_and_requests_in_flight() {
        let mut timing = Timing::default();
        for one in 0..1001 {
            timing.begin(one % 2, 1_000_000 * one as u64, 1);
            if one > 0 {
                timing.end(1_000_000 * (one as u64 - 1), 1_000_000 * (one as u64) + 500_000);
            }
        }
        assert_eq!(timing.connections.len(), 2);
        assert_eq!(timing.in_flight_most, 2);
        assert_eq!(timing.latency_ns(), Some((1_500_000, 1_500_000)));
        assert!((timing.in_flight_mean() - 1.5).abs() < 0.01);
        assert!((timing.rate_per_s() - 1001.0).abs() < 0.1);
        assert_eq!(Timing::default().rate_per_s(), 0.0);
        assert_eq!(Timing::default().latency_ns(), None);
    }

    #[test]
    fn removed_keys_do_not_count() {
        let mut keys = Keys::default();
        for one in 0..100u8 {
            let place = keys.add(&[one % 10]);
            if one >= 50 {
                keys.remove(place.unwrap());
            }
        }
        assert_eq!(keys.hashes().count(), 50);
        assert_eq!(keys.fit(None).unwrap().seen, 10);
    }
}
