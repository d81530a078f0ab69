//! Steps of `cargo xtask ci` besides cargo's own commands, one file each.

mod benches;
mod deny;
mod scripts;

use std::path::Path;
use std::time::Instant;

use crate::say;

type Step = (&'static str, fn(&Path) -> anyhow::Result<()>);

const STEPS: [Step; 3] =
    [("scripts", scripts::run), ("cargo deny", deny::run), ("benches", benches::run)];

/// Runs every step; returns the names of those that failed.
pub(crate) fn run(root: &Path) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        say(&format!("==> {name}"));
        let started = Instant::now();
        if let Err(error) = step(root) {
            say(&format!("{error:#}"));
            failed.push(name);
        }
        say(&format!("{name}: {:.0} s", started.elapsed().as_secs_f64()));
    }
    failed
}
