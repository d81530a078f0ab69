//! Background work of a system, by its own account: flushes, compactions, checkpoints, garbage
//! collections. It is read when an environment is thawed and before it is frozen again, so that
//! reading it costs nothing in the window.

use crate::doubt::Doubt;
use crate::probe::Counter;

/// What the names of its counters begin with.
pub const PREFIX: &str = "background_";

/// Work that takes a smaller share of the window has no doubt.
const TIME_SHARE: f64 = 0.02;

/// A kind of background work, since the start of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundWork {
    /// In the plural, as in `compactions`. A time in ns ends in `_ns`.
    pub name: &'static str,
    /// How many have ended, or the time that they took.
    pub total: u64,
    /// Whether one runs now, which `total` does not include yet.
    pub is_running: bool,
}

impl BackgroundWork {
    /// Returns work of which only the total is known.
    pub fn total(name: &'static str, total: u64) -> Self {
        Self { name, total, is_running: false }
    }
}

/// Adds the work of another instance, or another reading of the same kind.
pub(crate) fn add(sum: &mut Vec<BackgroundWork>, more: Vec<BackgroundWork>) {
    for one in more {
        match sum.iter_mut().find(|own| own.name == one.name) {
            Some(own) => {
                own.total += one.total;
                own.is_running |= one.is_running;
            }
            None => sum.push(one),
        }
    }
}

/// Returns the counters of the work between two readings: what ended, and what runs at the second.
pub(crate) fn counters(before: &[BackgroundWork], after: &[BackgroundWork]) -> Vec<Counter> {
    let since = |one: &BackgroundWork| {
        let earlier = before.iter().find(|own| own.name == one.name)?;
        let ended = one.total.saturating_sub(earlier.total) + u64::from(one.is_running);
        Some(Counter { name: format!("{PREFIX}{}", one.name), value: ended as f64 })
    };
    after.iter().filter_map(since).collect()
}

/// Returns the doubts of a slice with these counters, in whose window (ns) background work ran.
pub fn doubts(counters: &[Counter], window_ns: u64) -> Vec<Doubt> {
    let window = window_ns as f64;
    let doubt = |counter: &Counter| {
        let name = counter.name.strip_prefix(PREFIX)?;
        let (name, share) = match name.strip_suffix("_ns") {
            Some(name) => (name, Some(counter.value / window)),
            None => (name, None),
        };
        let is_enough = share.map_or(counter.value > 0.0, |share| share > TIME_SHARE);
        is_enough.then(|| Doubt::BackgroundWork { work: name.replace('_', " "), share })
    };
    counters.iter().filter_map(doubt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_and_running_work_counts() {
        let work = |total, is_running| BackgroundWork { name: "flushes", total, is_running };
        for (before, after, expect) in [
            (work(3, false), work(3, false), 0.0),
            (work(3, false), work(5, false), 2.0),
            (work(3, true), work(3, true), 1.0),
            (work(3, false), work(4, true), 2.0),
            // The system was started again.
            (work(3, false), work(0, false), 0.0),
        ] {
            let found = counters(std::slice::from_ref(&before), std::slice::from_ref(&after));
            assert_eq!(found[0].value, expect, "{before:?} {after:?}");
            assert_eq!(found[0].name, "background_flushes");
        }
        // What the first reading does not have is not known.
        assert_eq!(counters(&[], &[work(1, true)]), []);
        let mut sum = vec![work(1, false)];
        add(&mut sum, vec![work(2, true), BackgroundWork::total("collections_ns", 7)]);
        assert_eq!(sum, [work(3, true), BackgroundWork::total("collections_ns", 7)]);
    }

    #[test]
    fn work_is_doubted_when_it_ran_or_took_a_share_of_the_time() {
        let found = |name: &str, value: f64| {
            let counter = Counter { name: name.into(), value };
            doubts(&[counter], 1_000_000).iter().map(Doubt::text).collect::<Vec<_>>()
        };
        assert_eq!(found("background_flushes", 0.0), [""; 0]);
        assert_eq!(found("background_flushes", 1.0), ["background work ran: flushes"]);
        assert_eq!(found("background_garbage_collections_ns", 20_000.0), [""; 0]);
        let text = "background work took 5.0 % of the time: garbage collections";
        assert_eq!(found("background_garbage_collections_ns", 50_000.0), [text]);
        assert_eq!(found("flushes", 9.0), [""; 0]);
    }
}
