//! The checks of `tare doctor` for drivers: whether the load tools that they run are installed.

use std::path::Path;

use tare_host::doctor::{Check, Verdict};
use tare_host::housekeeping::{Cleanup, Housekeeping};

use crate::tool::scratch;
use crate::{ALL, DriverInfo};

/// The checks and cleanups of this crate.
pub const HOUSEKEEPING: Housekeeping = Housekeeping {
    checks: |_| checks(),
    cleanups: &[Cleanup { what: "loaders", clean: scratch::clean }],
    ..Housekeeping::NOTHING
};

/// Checks which load tools this host has.
pub fn checks() -> Vec<Check> {
    ALL.iter().filter_map(check).collect()
}

/// Checks which load tools this host has for drivers that run on loaders.
pub fn loader_checks() -> Vec<Check> {
    ALL.iter().filter(|driver| driver.sharing.is_some()).filter_map(check).collect()
}

/// Checks the load tool of a driver; `None` for a driver without one.
fn check(driver: &DriverInfo) -> Option<Check> {
    let program = driver.program?;
    let what = format!("driver {}", driver.name);
    let Some(path) = tare_host::exec::find(program.name) else {
        let detail = format!("{} is not on PATH", program.name);
        return Some(Check { what, verdict: Verdict::Missing, detail, remedy: program.get.into() });
    };
    let detail = format!("runs {}", path.display());
    let missing = program.home.filter(|(home, needs)| !Path::new(home).join(needs).exists());
    Some(match missing {
        None => Check { what, verdict: Verdict::Ok, detail, remedy: String::new() },
        Some((home, needs)) => {
            let detail = format!("{detail}; there is no {home}/{needs}");
            Check { what, verdict: Verdict::Limited, detail, remedy: program.get.into() }
        }
    })
}
