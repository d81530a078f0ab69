//! The workloads that come with the program, named as in their sources.

use tare_toml::TomlError;

use super::{Workload, parse};

/// A shipped workload: its name and its file.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    pub name: &'static str,
    /// The TOML text; its comments name the source.
    pub text: &'static str,
}

/// A workload of another tool that is not supported.
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

/// All workloads that `--workload NAME` accepts.
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

const COUNTERS: &str = "tare load cannot derive or verify the value of a counter, and an \
                        increment that is sent again counts twice";

/// Workloads of other tools that `tare load` does not support.
pub const REFUSED: &[Refused] = &[
    Refused { name: "counter_write", why: COUNTERS },
    Refused { name: "counter_read", why: COUNTERS },
    Refused { name: "counter_update", why: COUNTERS },
];

impl Shipped {
    /// Parses the workload.
    ///
    /// # Errors
    /// Never: the tests parse all of them.
    pub fn read(&self) -> Result<Workload, TomlError> {
        parse(self.text, self.name, self.name)
    }
}

/// Why there is no workload of a name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NamedError {
    #[error("no shipped workload is named {0:?}; see tare list workloads")]
    Unknown(String),
    #[error(transparent)]
    Text(#[from] TomlError),
}

/// Returns a shipped workload by its name, or that of a file by its name and text.
///
/// # Errors
/// If no workload ships with the name, or the text is none.
pub fn named(name: &str, text: Option<&str>) -> Result<Workload, NamedError> {
    match (text, find(name)) {
        (Some(text), _) => Ok(parse(text, name, name)?),
        (None, Some(shipped)) => Ok(shipped.read()?),
        (None, None) => Err(NamedError::Unknown(name.into())),
    }
}

/// Returns the workload with this name.
pub fn find(name: &str) -> Option<&'static Shipped> {
    ALL.iter().find(|shipped| shipped.name == name)
}
