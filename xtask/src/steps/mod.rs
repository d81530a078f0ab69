//! Steps of `cargo xtask ci` besides cargo's own commands, one file each.

mod benches;
mod deny;
mod packages;
mod scripts;

use std::path::Path;

use crate::say;

/// What a step does in the checkout.
pub(crate) type Check = fn(&Path) -> anyhow::Result<()>;

pub(crate) const ALL: [(&str, Check); 3] =
    [("scripts", scripts::run), ("packages", packages::run), ("benches", benches::run)];

/// The steps that only compile.
pub(crate) const COMPILING: [(&str, Check); 1] = [("cargo deny", deny::run)];

/// Runs one step; prints why it failed.
pub(crate) fn run(root: &Path, check: Check) -> bool {
    let result = check(root);
    if let Err(error) = &result {
        say(&format!("{error:#}"));
    }
    result.is_ok()
}
