//! How requests arrive: evenly, at random, or in bursts.
//!
//! Method: the index of dispersion of counts, variance over mean of the requests in windows of one
//! length. It is 0 for even arrivals and 1 for a Poisson process. The windows hold some 20 requests
//! on average: shorter ones see how the client's threads send, longer ones how the load changes.

use std::collections::BTreeMap;

use serde::Serialize;

const NS_PER_S: u64 = 1_000_000_000;
/// Requests in a window on average.
const WINDOW_REQUESTS: f64 = 20.0;
/// Below and above a Poisson process.
const EVEN_MAX: f64 = 0.5;
const POISSON_MAX: f64 = 2.0;
/// Fewer windows say nothing.
const WINDOWS_MIN: usize = 20;

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    Even,
    Poisson,
    /// More unevenly than at random. `tare load` has nothing closer than Poisson.
    Bursts,
    /// Too few requests to tell.
    Unknown,
}

/// The arrivals, the index of dispersion, and the length of its windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dispersion {
    pub(crate) arrivals: Arrivals,
    pub(crate) index: f64,
    pub(crate) window_ns: u64,
}

/// Classifies requests by their times, which need no order.
pub(crate) fn dispersion(times_ns: &[u64]) -> Dispersion {
    let unknown = Dispersion { arrivals: Arrivals::Unknown, index: 0.0, window_ns: 0 };
    let (Some(first), Some(last)) = (times_ns.iter().min(), times_ns.iter().max()) else {
        return unknown;
    };
    let length_ns = (last - first) as f64;
    let wanted = crate::sizes::whole(length_ns * WINDOW_REQUESTS / times_ns.len() as f64);
    // Captures have microseconds at best.
    let window_ns = wanted.max(100_000);
    let Ok(windows) = usize::try_from((last - first) / window_ns) else { return unknown };
    if windows < WINDOWS_MIN {
        return unknown;
    }
    let mut counts = vec![0u64; windows];
    for time in times_ns {
        let window = usize::try_from((time - first) / window_ns).ok();
        if let Some(count) = window.and_then(|window| counts.get_mut(window)) {
            *count += 1;
        }
    }
    let mean = counts.iter().sum::<u64>() as f64 / windows as f64;
    let squares: f64 = counts.iter().map(|count| (*count as f64 - mean).powi(2)).sum();
    let index = squares / (windows - 1) as f64 / mean;
    let arrivals = match index {
        index if index < EVEN_MAX => Arrivals::Even,
        index if index <= POISSON_MAX => Arrivals::Poisson,
        _ => Arrivals::Bursts,
    };
    Dispersion { arrivals, index, window_ns }
}

/// Returns the least and the most requests of the whole seconds. A second without requests takes no
/// memory: where the clock of a capture jumps there are any number of them.
pub(crate) fn per_second(times_ns: &[u64]) -> Option<(u64, u64)> {
    let (first, last) = (times_ns.iter().min()?, times_ns.iter().max()?);
    let seconds = (last - first) / NS_PER_S;
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for time in times_ns {
        let second = (time - first) / NS_PER_S;
        if second < seconds {
            *counts.entry(second).or_default() += 1;
        }
    }
    let (least, most) = (counts.values().min()?, counts.values().max()?);
    Some((if (counts.len() as u64) < seconds { 0 } else { *least }, *most))
}

#[cfg(test)]
mod tests {
    use tare_std::rng::Rng;

    use super::*;

    #[test]
    fn arrival_processes_are_told_apart() {
        let even: Vec<u64> = (0..20_000).map(|one| one * 500_000).collect();
        assert_eq!(dispersion(&even).arrivals, Arrivals::Even);
        let mut rng = Rng::new(7);
        let mut at = 0.0;
        let poisson: Vec<u64> = (0..20_000)
            .map(|_| {
                at -= (1.0 - rng.next_f64()).ln() * 500_000.0;
                crate::sizes::whole(at)
            })
            .collect();
        let found = dispersion(&poisson);
        assert_eq!(found.arrivals, Arrivals::Poisson);
        assert!((0.8..1.2).contains(&found.index), "{found:?}");
        let bursts: Vec<u64> = (0..20_000).map(|one| one / 100 * 50_000_000 + one % 100).collect();
        assert_eq!(dispersion(&bursts).arrivals, Arrivals::Bursts);
        for few in [&even[..0], &even[..1], &even[..300], &[5; 1000]] {
            assert_eq!(dispersion(few).arrivals, Arrivals::Unknown);
        }
        assert_eq!(per_second(&even), Some((2000, 2000)));
        assert_eq!(per_second(&even[..100]), None);
        assert_eq!(per_second(&[0, 1, 5_000_000_000, u64::MAX]), Some((0, 2)), "the clock jumps");
    }
}
