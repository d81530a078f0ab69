//! The workloads that ship, named as their sources name them.

use tare_toml::TomlError;

use super::{Workload, parse};

/// A workload that ships: its name and its file.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    pub name: &'static str,
    /// TOML, with its source in the comments.
    pub text: &'static str,
}

/// One that has a name elsewhere, and is none here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub name: &'static str,
    pub why: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../../workloads/", $name, ".toml")) }),*]
    };
}

/// Every workload that `--workload NAME` takes.
pub const ALL: &[Shipped] = shipped![
    "write",
    "read",
    "mixed",
    "blog-gaussian",
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-d",
    "ycsb-e",
    "ycsb-f",
    "key-value-512",
    "key-value-1024",
    "scylla-bench-sequential",
    "scylla-bench-uniform",
    "scylla-bench-timeseries",
    "scans",
];

const COUNTERS: &str = "a counter has no value of its own that could be derived or verified, and an \
                        increment that is sent again counts twice; tare load does not count";

/// Workloads of other tools that this one does not do.
pub const REFUSED: &[Refused] = &[
    Refused { name: "counter_write", why: COUNTERS },
    Refused { name: "counter_read", why: COUNTERS },
    Refused { name: "counter_update", why: COUNTERS },
];

impl Shipped {
    /// Returns the workload.
    ///
    /// # Errors
    /// Never, as the tests see to.
    pub fn read(&self) -> Result<Workload, TomlError> {
        parse(self.text, self.name, self.name)
    }
}

/// Returns the workload with this name.
pub fn find(name: &str) -> Option<&'static Shipped> {
    ALL.iter().find(|shipped| shipped.name == name)
}
