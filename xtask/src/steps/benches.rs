//! Every bench runs to its end as a test, with tiny inputs: without the flag `--bench`, which
//! `cargo bench` passes and `cargo test` does not. No figure is asserted.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let status = Command::new(env!("CARGO"))
        .args(["test", "--release", "--workspace", "--no-fail-fast", "--bench", "*"])
        .current_dir(root)
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "a bench failed as a test: {status}");
    Ok(())
}
