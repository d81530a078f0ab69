//! A long window by the second: what the load and the disks did in each one. A trial of an hour
//! has one histogram, which does not show when its longest operations were.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The shortest window that is recorded by the second.
pub const WINDOW_MIN: Duration = Duration::from_secs(10);

/// The whole seconds of a window, from its beginning. Empty in a short window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seconds {
    /// Empty if the driver does not count by the second.
    pub load: Vec<LoadSecond>,
    /// The disks below the data directories; empty without one, and where no probe follows them.
    pub disks: Vec<DiskSecond>,
}

/// The operations that ended in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadSecond {
    /// Operations that succeeded.
    pub operations: u64,
    /// Mean and longest response time, in a closed loop service time, in ns.
    pub mean_ns: u64,
    pub max_ns: u64,
}

/// The reads and writes of all disks that ended in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSecond {
    pub reads: u64,
    /// Mean and longest time of a read, in ns; 0 without one.
    pub read_mean_ns: u64,
    pub read_max_ns: u64,
    pub writes: u64,
    pub write_mean_ns: u64,
    pub write_max_ns: u64,
}

impl Seconds {
    pub fn is_empty(&self) -> bool {
        self.load.is_empty() && self.disks.is_empty()
    }
}

impl LoadSecond {
    /// Adds what another client did in the same second.
    pub fn add(&mut self, other: &Self) {
        let operations = self.operations + other.operations;
        let sum = |one: &Self| u128::from(one.mean_ns) * u128::from(one.operations);
        let mean_ns = (sum(self) + sum(other)).checked_div(u128::from(operations)).unwrap_or(0);
        *self = Self {
            operations,
            mean_ns: u64::try_from(mean_ns).unwrap_or(u64::MAX),
            max_ns: self.max_ns.max(other.max_ns),
        };
    }

    /// Adds up what several clients did, as long as all of them have seconds.
    pub fn sum<'a>(clients: impl IntoIterator<Item = &'a [Self]>) -> Vec<Self> {
        let mut clients = clients.into_iter();
        let mut sum = clients.next().unwrap_or_default().to_vec();
        for one in clients {
            sum.truncate(one.len());
            sum.iter_mut().zip(one).for_each(|(sum, one)| sum.add(one));
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_add_up_by_the_second() {
        let second = |operations, mean_ns, max_ns| LoadSecond { operations, mean_ns, max_ns };
        let first = [second(10, 100, 900), second(0, 0, 0), second(7, 7, 7)];
        let other = [second(30, 200, 500), second(0, 0, 0)];
        let sum = LoadSecond::sum([&first[..], &other]);
        assert_eq!(sum, [second(40, 175, 900), second(0, 0, 0)]);
        assert_eq!(LoadSecond::sum([&first[..]]), first);
        assert!(LoadSecond::sum([&first[..], &[]]).is_empty());
        assert!(LoadSecond::sum([]).is_empty());
    }
}
