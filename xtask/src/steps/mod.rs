//! Steps of `cargo xtask ci` besides cargo's own commands, one file each.

mod deny;
mod packages;
mod scripts;

use std::path::Path;

use crate::say;

/// What a step does in the checkout.
pub(crate) type Check = fn(&Path) -> anyhow::Result<()>;

/// A step and its name.
type Step = (&'static str, Check);

/// Runs beside the suites in guests: it compiles, and starts nothing.
pub(crate) const BESIDE: Step = ("cargo deny", deny::run);

/// Run after the tests.
pub(crate) const AFTER: [Step; 2] = [("scripts", scripts::run), ("packages", packages::run)];

/// Runs one step; prints why it failed.
pub(crate) fn run(root: &Path, check: Check) -> bool {
    let result = check(root);
    if let Err(error) = &result {
        say(&format!("{error:#}"));
    }
    result.is_ok()
}
