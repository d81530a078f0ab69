//! What one crate offers to `tare doctor` and `tare clean`: checks of this host, what it finds by
//! Tare's name, and what it removes or puts back. The program has a list of all of them.

use std::path::Path;

use crate::clean::{self, Leftover, Outcome};
use crate::doctor::{self, Check};

/// The offer of one crate.
#[derive(Clone, Copy, Debug)]
pub struct Housekeeping {
    /// Checks this host. The argument is the state directory.
    pub checks: fn(&Path) -> Vec<Check>,
    /// Finds what bears Tare's name. The argument is the state directory.
    pub leftovers: fn(&Path) -> Vec<Leftover>,
    /// What is cleaned besides the journals of runs.
    pub cleanups: &'static [Cleanup],
}

impl Housekeeping {
    /// The offer of a crate that has nothing to check and leaves nothing.
    pub const NOTHING: Self =
        Self { checks: |_| Vec::new(), leftovers: |_| Vec::new(), cleanups: &[] };
}

/// Undoes what dead processes left of one sort of thing.
#[derive(Clone, Copy, Debug)]
pub struct Cleanup {
    /// The sort, in the plural: the key in the JSON of `tare clean`.
    pub what: &'static str,
    /// Undoes it. The argument is the state directory.
    pub clean: fn(&Path) -> Vec<Cleaned>,
}

/// What a cleanup did with one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned {
    pub id: String,
    pub outcome: Outcome,
    /// The outcome in one line.
    pub line: String,
}

/// The offer of this crate. The journals of runs are cleaned by [`clean::clean`].
pub const HOUSEKEEPING: Housekeeping = Housekeeping {
    checks: |_| doctor::checks(),
    leftovers: clean::leftovers,
    ..Housekeeping::NOTHING
};
