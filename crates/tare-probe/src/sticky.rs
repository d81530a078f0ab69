//! Counters whose names come from the host (interrupts, devices): only those that moved, and no more
//! than a record can bear. A name that has moved once is reported from then on, also when it stands
//! still, so that its slices can be compared.

use tare_lab::probe::Counter;

use crate::counter;

/// The names that have moved so far.
#[derive(Debug)]
pub(crate) struct Sticky {
    max: usize,
    names: Vec<String>,
}

impl Sticky {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, names: Vec::new() }
    }

    /// What is reported of all growths. Where there is no room for all names, those that grew most
    /// when they first moved have it.
    pub(crate) fn of(&mut self, mut grown: Vec<(String, u64)>) -> Vec<Counter> {
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
}

/// Growth of named numbers. A name that the first reading has not counts from zero.
pub(crate) fn grown(begin: &[(String, u64)], end: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let before = |name: &str| begin.iter().find(|(known, _)| known == name).map_or(0, |(_, n)| *n);
    end.into_iter().map(|(name, n)| (name.clone(), n.saturating_sub(before(&name)))).collect()
}

/// Adds to a name's number: two sources of one name are one.
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
    fn a_name_that_moved_stays_and_there_is_an_end_to_names() {
        let mut sticky = Sticky::new(2);
        let mut seen = |values: [u64; 3]| -> Vec<(String, f64)> {
            let names = ["a", "b", "c"].map(String::from);
            let counters = sticky.of(names.into_iter().zip(values).collect());
            counters.into_iter().map(|counter| (counter.name, counter.value)).collect()
        };
        assert_eq!(seen([0, 0, 0]), []);
        assert_eq!(seen([0, 5, 0]), [("b".into(), 5.0)]);
        assert_eq!(seen([1, 0, 9]), [("c".into(), 9.0), ("b".into(), 0.0)]);
        assert_eq!(seen([7, 0, 0]), [("b".into(), 0.0), ("c".into(), 0.0)]);
    }
}
