//! What cargo builds, and where.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

/// The build directory of cargo.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The path of the program that the build step made. It contains the host's triple, because
/// `.cargo/config.toml` names a target.
pub(crate) fn program(root: &Path) -> anyhow::Result<PathBuf> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let triple = text.lines().find_map(|line| line.strip_prefix("host: "));
    let triple = triple.context("rustc -vV does not name the host")?;
    Ok(target(root).join(triple).join("release/tare"))
}
