//! Counters per operation, and their difference from the baseline.
//!
//! Method: each round gives one value, the sum of a counter divided by the operations of the same
//! slices. Levels (memory at the end, shares, means) are not divided. The figure of an environment
//! is [`tare_stats::estimate`] over its rounds, and its difference from the baseline is the
//! estimate over the differences inside each round. Differences are used instead of ratios, because
//! many counters are 0 in one of the two. If a probe failed in a slice, its round has no value.
//!
//! Limits: there are dozens of counters, and one interval in twenty misses the truth, so chance
//! finds a few differences. The control shows their number and size: a difference is notable only
//! if it exceeds the control's.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Interval, in_order};
use crate::probe::{is_level, names};
use crate::record::{Phase, Record, Slice};
use tare_stats::estimate;

/// Time for which the CPU quota throttled an environment, in ns. It comes from the environment and
/// not from a probe.
pub const THROTTLED_NS: &str = "throttled_ns";

/// One counter of one environment under one workload in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CounterFinding {
    pub workload: String,
    pub phase: Phase,
    pub environment: String,
    /// The probe's name for it, unit last.
    pub name: String,
    /// True for a level, false for a value per operation.
    pub level: bool,
    /// Over all rounds of the environment.
    pub value: Interval,
    /// The environment's value minus the baseline's, paired inside each round. `None` for the
    /// baseline itself, and if no round has both.
    pub difference: Option<Interval>,
    /// Whether the interval of the difference excludes 0.
    pub found: bool,
    /// Whether the difference is found, and larger than any that the control's interval of the same
    /// counter contains. False for the control itself.
    pub stands_out: bool,
}

/// The sum of a counter in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    value: f64,
    /// The number of operations for a sum, of slices for a level.
    over: f64,
}

impl Sum {
    fn mean(self) -> f64 {
        self.value / self.over
    }
}

type RoundSums = BTreeMap<u32, Sum>;

/// Returns every counter of a record, by workload, phase, name and environment (the baseline, its
/// control, then the others in the order of the study). Leaves out counters that are 0 everywhere.
pub fn counters(record: &Record) -> Vec<CounterFinding> {
    let sums = sums(record);
    let environments = in_order(record);
    let baseline = record.study.baseline.as_str();
    let mut found = Vec::new();
    for workload in &record.study.workloads {
        for phase in [Phase::Capacity, Phase::Latency, Phase::Traced] {
            let place = (workload.name.as_str(), phase);
            for name in counter_names(&sums, place) {
                // Traced slices are disturbed, so they supply only counters that no other slice
                // has.
                let elsewhere = |known: &Key<'_>| {
                    known.0 == place.0 && known.1 != Phase::Traced && known.2 == name
                };
                if phase == Phase::Traced && sums.keys().any(elsewhere) {
                    continue;
                }
                let base = sums.get(&(place.0, place.1, name, baseline));
                // The control comes before the environments that are compared with it.
                let mut noise = 0.0;
                for environment in &environments {
                    let here = environment.spec.name.as_str();
                    let key = (place.0, place.1, name, here);
                    let Some(rounds) = sums.get(&key) else { continue };
                    let base = base.filter(|_| here != baseline);
                    let Some(value) = level(rounds) else { continue };
                    let difference = base.and_then(|base| difference(rounds, base));
                    let is_found = difference.is_some_and(|i| i.low > 0.0 || i.high < 0.0);
                    if let Some(i) = difference.filter(|_| environment.control) {
                        noise = i.low.abs().max(i.high.abs());
                    }
                    let beyond = difference.is_some_and(|i| i.value.abs() > noise);
                    found.push(CounterFinding {
                        workload: place.0.to_string(),
                        phase,
                        environment: here.to_string(),
                        name: name.to_string(),
                        level: is_level(name),
                        value,
                        difference,
                        found: is_found,
                        stands_out: is_found && beyond && !environment.control,
                    });
                }
            }
        }
    }
    found
}

/// Returns which of these counters are higher in an environment than in another (`against`), at
/// capacity: by how much, paired inside each round. Only differences whose interval is above 0, and
/// that exceed any that the control's interval of the same counter contains.
pub fn risen_counters<'n>(
    record: &Record,
    workload: &str,
    environment: &str,
    against: &str,
    names: &[&'n str],
) -> Vec<(&'n str, Interval)> {
    let sums = sums(record);
    let baseline = record.study.baseline.as_str();
    let control = record.environments.iter().find(|one| one.control);
    let between = |name: &'n str, one: &str, other: &str| {
        let of = |environment: &str| {
            let is = |key: &Key<'_>| *key == (workload, Phase::Capacity, name, environment);
            sums.iter().find(|(key, _)| is(key)).map(|(_, rounds)| rounds)
        };
        difference(of(one)?, of(other)?)
    };
    let risen = |name: &&'n str| {
        let found = between(name, environment, against).filter(|found| found.low > 0.0)?;
        let noise = control.and_then(|one| between(name, one.spec.name.as_str(), baseline));
        let noise = noise.map_or(0.0, |i| i.low.abs().max(i.high.abs()));
        (found.value > noise).then_some((*name, found))
    };
    names.iter().filter_map(risen).collect()
}

type Key<'r> = (&'r str, Phase, &'r str, &'r str);

/// Sums counters by workload, phase, name and environment.
fn sums(record: &Record) -> BTreeMap<Key<'_>, RoundSums> {
    let mut sums: BTreeMap<Key<'_>, RoundSums> = BTreeMap::new();
    let counts = |slice: &&Slice| slice.void.is_none() && slice.operations > 0;
    for slice in record.slices.iter().filter(counts) {
        let mut add = |name, value: f64| {
            let key = (slice.workload.as_str(), slice.phase, name, slice.environment.as_str());
            let sum = sums.entry(key).or_default().entry(slice.round).or_default();
            sum.value += value;
            sum.over += if is_level(name) { 1.0 } else { slice.operations as f64 };
        };
        let of_all = slice.counters.iter().filter(|counter| !names::is_of_instance(&counter.name));
        for counter in of_all.filter(|counter| counter.value.is_finite()) {
            add(counter.name.as_str(), counter.value);
        }
        if let Some(ns) = slice.throttled_ns {
            add(THROTTLED_NS, ns as f64);
        }
    }
    sums
}

/// Returns the sorted names of the counters that are not 0 everywhere.
fn counter_names<'r>(
    sums: &BTreeMap<Key<'r>, RoundSums>,
    place: (&str, Phase),
) -> BTreeSet<&'r str> {
    let here = sums.iter().filter(|((workload, phase, ..), _)| (*workload, *phase) == place);
    let moved = here.filter(|(_, rounds)| rounds.values().any(|sum| sum.value != 0.0));
    moved.map(|((_, _, name, _), _)| *name).collect()
}

fn level(rounds: &RoundSums) -> Option<Interval> {
    let values: Vec<f64> = rounds.values().map(|sum| sum.mean()).collect();
    Some(estimate(&values)?.into())
}

fn difference(here: &RoundSums, base: &RoundSums) -> Option<Interval> {
    let pairs = here.iter().filter_map(|(round, sum)| Some((sum, base.get(round)?)));
    let values: Vec<f64> = pairs.map(|(here, base)| here.mean() - base.mean()).collect();
    Some(estimate(&values)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{record, slice};
    use crate::probe::Counter;

    fn counter(name: &str, value: f64) -> Counter {
        Counter { name: name.into(), value }
    }

    /// Returns ten rounds of the baseline and `bridge`, with the given counters.
    fn made(of: impl Fn(&str, u32) -> Vec<Counter>) -> Record {
        let mut record = record();
        for round in 0..10 {
            for environment in ["native", "bridge"] {
                let slice = slice(&mut record, round, environment, 10.0);
                slice.operations = 1000 * u64::from(round + 1);
                slice.counters = of(environment, round);
            }
        }
        record
    }

    #[test]
    fn risen_counters_exceed_the_control() {
        let record = made(|environment, round| {
            let here = f64::from(u8::from(environment == "bridge"));
            let operations = 1000.0 * f64::from(round + 1);
            let noise = f64::from(round % 3) / 100.0;
            vec![
                counter("waits", operations * (2.0 + here + noise)),
                counter("rests", operations * (2.0 - here + noise)),
                counter("level", operations * (1.0 + noise)),
            ]
        });
        let names = ["waits", "rests", "level", "absent"];
        let workload = record.study.workloads[0].name.as_str();
        let found = risen_counters(&record, workload, "bridge", "native", &names);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "waits");
        assert!((found[0].1.value - 1.0).abs() < 0.01, "{found:?}");
    }

    fn find<'f>(found: &'f [CounterFinding], environment: &str, name: &str) -> &'f CounterFinding {
        let one = found.iter().find(|f| f.environment == environment && f.name == name);
        one.unwrap_or_else(|| panic!("no {name} of {environment} in {found:#?}"))
    }

    #[test]
    fn divides_sums_and_keeps_levels() {
        let found = counters(&made(|environment, round| {
            let here = f64::from(u8::from(environment == "bridge"));
            let noise = f64::from(round % 3) / 100.0;
            let operations = 1000.0 * f64::from(round + 1);
            vec![
                counter("switches", operations * (2.0 + 0.5 * here + noise)),
                counter("rss_bytes_at_end", 4096.0 * (1.0 + here)),
            ]
        }));
        let native = find(&found, "native", "switches");
        assert!((native.value.value - 2.01).abs() < 0.01, "{native:?}");
        assert!(native.difference.is_none() && !native.found && !native.level);
        let bridge = find(&found, "bridge", "switches");
        let difference = bridge.difference.unwrap();
        assert!((difference.value - 0.5).abs() < 1e-9 && difference.rounds == 10, "{bridge:?}");
        assert!(bridge.found && bridge.stands_out);
        let memory = find(&found, "bridge", "rss_bytes_at_end");
        assert!(memory.level && memory.found);
        assert_eq!(memory.value.value, 8192.0);
        assert_eq!(memory.difference.unwrap().value, 4096.0);
    }

    #[test]
    fn finds_nothing_in_noise_and_zeros() {
        let found = counters(&made(|environment, round| {
            let sign = if environment == "bridge" { 1.0 } else { -1.0 };
            let noise = sign * if round % 2 == 0 { 1.0 } else { -1.0 };
            vec![counter("faults", 5000.0 + 50.0 * noise), counter("retransmits", 0.0)]
        }));
        assert!(!find(&found, "bridge", "faults").found);
        assert!(found.iter().all(|finding| finding.name != "retransmits"));
    }

    #[test]
    fn control_difference_does_not_stand_out() {
        let mut record = made(|environment, round| {
            let here = f64::from(u8::from(environment == "bridge"));
            let operations = 1000.0 * f64::from(round + 1);
            vec![counter("a", operations * (2.0 + 0.5 * here))]
        });
        for round in 0..10 {
            let slice = slice(&mut record, round, "native-again", 10.0);
            slice.counters = vec![counter("a", 2.6 * slice.operations as f64)];
        }
        let found = counters(&record);
        let [control, bridge] =
            ["native-again", "bridge"].map(|environment| find(&found, environment, "a"));
        assert!(control.found && bridge.found && !control.stands_out && !bridge.stands_out);
    }

    #[test]
    fn missing_counter_is_not_zero() {
        let found = counters(&made(|environment, round| match (environment, round) {
            ("bridge", 0..8) => vec![],
            ("bridge", _) => vec![counter("a", 10_000.0), counter("only_here", 3.0)],
            _ => vec![counter("a", 10_000.0)],
        }));
        assert_eq!(find(&found, "bridge", "a").value.rounds, 2);
        assert_eq!(find(&found, "bridge", "a").difference.unwrap().rounds, 2);
        assert!(find(&found, "bridge", "only_here").difference.is_none());
    }

    #[test]
    fn ignores_void_slices_and_counts_throttling() {
        let mut record = made(|_, _| vec![counter("a", 1.0)]);
        for slice in &mut record.slices {
            slice.throttled_ns = Some(2 * slice.operations);
            slice.void = (slice.round < 9).then(|| "no".into());
        }
        let found = counters(&record);
        assert_eq!(find(&found, "bridge", THROTTLED_NS).value.value, 2.0);
        let one = find(&found, "bridge", "a");
        assert!(one.value.rounds == 1 && !one.found && !one.value.is_bounded());
    }
}
