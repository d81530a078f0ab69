//! Limits the counters whose names come from the host (interrupts, devices). A counter is reported
//! from its first change on, also in later slices without a change, so that slices can be compared.
//! The number of names is limited, so that records stay small.

use tare_lab::probe::Counter;

use crate::counter;

/// The names that have changed so far.
#[derive(Debug)]
pub(crate) struct CounterNames {
    max: usize,
    names: Vec<String>,
}

impl CounterNames {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, names: Vec::new() }
    }

    /// Selects the counters to report. If there is no room for all names, those that grew most in
    /// their first change are kept.
    pub(crate) fn select(&mut self, mut grown: Vec<(String, u64)>) -> Vec<Counter> {
        grown.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut counters = Vec::new();
        for (name, value) in grown {
            let known = self.names.contains(&name);
            if !known && (value == 0 || self.names.len() >= self.max) {
                continue;
            }
            counters.push(counter(name.clone(), value as f64));
            if !known {
                self.names.push(name);
            }
        }
        counters
    }

    /// Selects as [`Self::select`] does, from a list that holds only what has grown: a name that
    /// was reported before and is not in the list has not grown.
    pub(crate) fn select_changed(&mut self, mut grown: Vec<(String, u64)>) -> Vec<Counter> {
        for name in &self.names {
            if grown.iter().all(|(known, _)| known != name) {
                grown.push((name.clone(), 0));
            }
        }
        self.select(grown)
    }
}

/// The growth of named numbers. A name that the first reading lacks counts from zero.
pub(crate) fn grown(begin: &[(String, u64)], end: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let before = |name: &str| begin.iter().find(|(known, _)| known == name).map_or(0, |(_, n)| *n);
    end.into_iter().map(|(name, n)| (name.clone(), n.saturating_sub(before(&name)))).collect()
}

/// Adds to the number of a name, so that several sources with one name are summed.
pub(crate) fn add(sums: &mut Vec<(String, u64)>, name: String, number: u64) {
    match sums.iter_mut().find(|(known, _)| *known == name) {
        Some((_, sum)) => *sum += number,
        None => sums.push((name, number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_changed_names_up_to_the_limit() {
        let mut limited = CounterNames::new(2);
        let mut seen = |values: [u64; 3]| -> Vec<(String, f64)> {
            let names = ["a", "b", "c"].map(String::from);
            let counters = limited.select(names.into_iter().zip(values).collect());
            counters.into_iter().map(|counter| (counter.name, counter.value)).collect()
        };
        assert_eq!(seen([0, 0, 0]), []);
        assert_eq!(seen([0, 5, 0]), [("b".into(), 5.0)]);
        assert_eq!(seen([1, 0, 9]), [("c".into(), 9.0), ("b".into(), 0.0)]);
        assert_eq!(seen([7, 0, 0]), [("b".into(), 0.0), ("c".into(), 0.0)]);
    }
}
