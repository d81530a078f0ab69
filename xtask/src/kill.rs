//! `cargo xtask kill --times N`: kills the real database under load so many times with each of its
//! engines, and checks what was acknowledged. The test of the program that CI runs a few times.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// Kills where nothing else is asked for.
const TIMES: &str = "100";

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let times = match arguments {
        [] => TIMES,
        ["--times", times] => times,
        _ => bail!("usage: cargo xtask kill [--times N]"),
    };
    times.parse::<u64>().with_context(|| format!("{times:?} is no number of kills"))?;
    let status = Command::new(env!("CARGO"))
        .args(["test", "--release", "--package", "tare", "--test", "kill", "--", "--nocapture"])
        .env("TARE_KILLS", times)
        .current_dir(root)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("kill: acknowledged writes were lost, or a server did not come up; see above");
    }
    Ok(())
}
