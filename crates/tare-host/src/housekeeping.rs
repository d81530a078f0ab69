//! The functions that a crate provides to `tare doctor` and `tare clean`: checks of this host,
//! searches for leftovers, and cleanups. The program lists those of all crates.

use std::path::Path;

use crate::clean::{self, Leftover, Outcome};
use crate::doctor::{self, Check};

/// The checks, searches and cleanups of one crate.
#[derive(Clone, Copy, Debug)]
pub struct Housekeeping {
    /// Checks this host. The argument is the state directory.
    pub checks: fn(&Path) -> Vec<Check>,
    /// Lists host objects named `tare-*`. The argument is the state directory.
    pub leftovers: fn(&Path) -> Vec<Leftover>,
    /// Cleanups besides the journals of runs.
    pub cleanups: &'static [Cleanup],
}

impl Housekeeping {
    /// For a crate without checks, leftovers and cleanups.
    pub const NOTHING: Self =
        Self { checks: |_| Vec::new(), leftovers: |_| Vec::new(), cleanups: &[] };
}

/// Removes the objects of one sort that dead processes left.
#[derive(Clone, Copy, Debug)]
pub struct Cleanup {
    /// The sort, in the plural: the key in the JSON of `tare clean`.
    pub what: &'static str,
    /// Removes them. The argument is the state directory.
    pub clean: fn(&Path) -> Vec<Cleaned>,
}

/// The result of a cleanup for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned {
    pub id: String,
    pub outcome: Outcome,
    /// The outcome in one line.
    pub line: String,
}

/// The checks and searches of this crate. [`clean::clean`] cleans the journals of runs.
pub const HOUSEKEEPING: Housekeeping = Housekeeping {
    checks: |_| doctor::checks(),
    leftovers: clean::leftovers,
    ..Housekeeping::NOTHING
};
