//! `cargo xtask kill --times N`: kills the real database under load N times with each of its
//! engines, and checks that all acknowledged writes are there. CI runs the same test a few times.

use std::path::Path;

use anyhow::{Context, bail};

use crate::cargo::cargo;

/// The default number of kills.
const TIMES: &str = "100";

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let times = match arguments {
        [] => TIMES,
        ["--times", times] => times,
        _ => bail!("usage: cargo xtask kill [--times N]"),
    };
    times.parse::<u64>().with_context(|| format!("{times:?} is no number of kills"))?;
    let status = cargo(root)
        .args(["test", "--release", "--package", "tare", "--test", "kill", "--", "--nocapture"])
        .env("TARE_KILLS", times)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("kill: acknowledged writes were lost, or a server did not start; see above");
    }
    Ok(())
}
