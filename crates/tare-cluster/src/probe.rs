//! The probes of all hosts as one probe. Counters are summed over the hosts; levels are the
//! largest of a maximum, else the mean.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tare_lab::PartError;
use tare_lab::probe::{Counter, Probe, Scope, is_level};

use crate::error::ClusterError;
use crate::protocol::{Answer, Order};
use crate::shared::Shared;

/// Why hosts could not read probes in the last slice, by the name of the probe.
type Failures = Rc<RefCell<BTreeMap<String, ClusterError>>>;

/// Reads the probes of all hosts.
pub(crate) struct ClusterProbe {
    cluster: Rc<Shared>,
    failures: Failures,
}

/// Fails where a host could not read a probe, so that the record names it. It is read after
/// `ClusterProbe`, which has its counters.
struct Reporter {
    name: String,
    failures: Failures,
}

impl ClusterProbe {
    pub(crate) fn new(cluster: Rc<Shared>) -> Self {
        Self { cluster, failures: Failures::default() }
    }

    /// Returns the probe that fails where a host could not read the probe of this name.
    pub(crate) fn reporter(&self, name: &str) -> impl Probe + 'static {
        Reporter { name: name.into(), failures: Rc::clone(&self.failures) }
    }
}

impl Probe for Reporter {
    fn name(&self) -> &str {
        &self.name
    }

    fn begin(&mut self) -> Result<(), PartError> {
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Counter>, PartError> {
        match self.failures.borrow_mut().remove(&self.name) {
            Some(error) => Err(error.into()),
            None => Ok(Vec::new()),
        }
    }
}

impl Probe for ClusterProbe {
    fn name(&self) -> &str {
        "hosts"
    }

    /// Lets the agents observe the environment that thaws next. They know its processes.
    fn prepare(&mut self, _scope: &Scope) -> Result<(), PartError> {
        Ok(())
    }

    fn begin(&mut self) -> Result<(), PartError> {
        self.cluster.all(&Order::BeginProbes)?;
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Counter>, PartError> {
        self.failures.borrow_mut().clear();
        let mut all = Vec::new();
        for (host, (_, answer)) in self.cluster.all(&Order::EndProbes)?.into_iter().enumerate() {
            let Answer::Counters { counters, failed } = answer else {
                return Err(self.cluster.unexpected(host, &Order::EndProbes, &answer).into());
            };
            for (probe, reason) in failed {
                let host = self.cluster.name(host).to_string();
                let error = ClusterError::Failed { host, reason };
                self.failures.borrow_mut().insert(probe, error);
            }
            all.push(counters);
        }
        Ok(combine(&all))
    }
}

/// Combines the counters of hosts. A counter that only some hosts have is that of these.
fn combine(hosts: &[Vec<Counter>]) -> Vec<Counter> {
    let mut combined: Vec<(Counter, u32)> = Vec::new();
    for counter in hosts.iter().flatten() {
        match combined.iter_mut().find(|(known, _)| known.name == counter.name) {
            None => combined.push((counter.clone(), 1)),
            Some((known, _)) if is_largest(&counter.name) => {
                known.value = known.value.max(counter.value);
            }
            Some((known, of)) => {
                known.value += counter.value;
                *of += 1;
            }
        }
    }
    let mean = |(mut counter, of): (Counter, u32)| {
        if is_level(&counter.name) && !counter.name.ends_with("_at_end") {
            counter.value /= f64::from(of);
        }
        counter
    };
    combined.into_iter().map(mean).collect()
}

/// Returns whether the largest value of a counter is that of all hosts: maxima, and the share of a
/// CPU that the busiest thread used.
fn is_largest(name: &str) -> bool {
    name.ends_with("_max") || name.ends_with("_busiest_thread_share")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_hosts_are_combined() {
        let host = |pairs: &[(&str, f64)]| -> Vec<Counter> {
            let counter =
                |(name, value): &(&str, f64)| Counter { name: (*name).into(), value: *value };
            pairs.iter().map(counter).collect()
        };
        let check = |name: &str, values: &[f64], expect: f64| {
            let hosts: Vec<Vec<Counter>> =
                values.iter().map(|value| host(&[(name, *value)])).collect();
            assert_eq!(combine(&hosts), host(&[(name, expect)]), "{name}");
        };
        check("steal_ns", &[1.0, 2.0, 4.0], 7.0);
        check("memory_bytes_at_end", &[1.0, 2.0], 3.0);
        check("disk_busy_share", &[0.2, 0.4], 0.30000000000000004);
        check("queue_mean", &[2.0, 4.0], 3.0);
        check("wait_ns_max", &[2.0, 4.0, 3.0], 4.0);
        check("system_busiest_thread_share", &[0.9, 0.4], 0.9);
        let uneven = combine(&[host(&[("a_ns", 1.0)]), host(&[("b_ns", 2.0)])]);
        assert_eq!(uneven, host(&[("a_ns", 1.0), ("b_ns", 2.0)]));
    }
}
