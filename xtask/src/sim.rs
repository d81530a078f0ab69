//! `cargo xtask sim`: runs the simulator (`tare-sim`), which has a program of its own, so that the
//! chores need neither the database nor its dependencies.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::cargo::cargo;
use crate::say;

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let run = ["run", "--quiet", "--release", "--package", "tare-sim", "--"];
    let build = ["build", "--quiet", "--release", "--package", "tare-sim"];
    let built = cargo(root).args(build).status().context("cannot start cargo")?;
    if !built.success() {
        bail!("the simulator cannot be built");
    }
    let started = Instant::now();
    let status = cargo(root).args(run).args(arguments).status().context("cannot start cargo")?;
    say(&format!("{:.1} s", started.elapsed().as_secs_f64()));
    if status.success() { Ok(()) } else { bail!("the simulator has found something, see above") }
}
