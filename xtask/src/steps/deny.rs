//! `cargo deny`: licences, duplicates and sources of the dependencies, as `deny.toml` allows them,
//! and the advisories of RustSec where their database can be fetched.
//!
//! Without cargo-deny on the PATH it is built once below the user's cache, unoptimised: that takes
//! 85 s of CPU time instead of several minutes, and a check takes 2 s of CPU time all the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::cargo::cargo;
use crate::say;

const VERSION: &str = "0.20.2";
const NO_DATABASE: &str = "failed to fetch advisory database";

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let program = find()?;
    let check = |what: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["--color", "never", "check", "--hide-inclusion-graph"]).args(what);
        command.current_dir(root).output().context("cannot start cargo-deny")
    };
    let output = check(&["licenses", "bans", "sources"])?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{text}");
    let output = check(&["advisories"])?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if text.contains(NO_DATABASE) {
        say("skipped: advisories: the database of RustSec cannot be fetched from github.com");
        return Ok(());
    }
    ensure!(output.status.success(), "{text}");
    Ok(())
}

/// The program, built if it is missing.
fn find() -> anyhow::Result<PathBuf> {
    let runs = |program: &Path| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    };
    if runs(Path::new("cargo-deny")) {
        return Ok(PathBuf::from("cargo-deny"));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let folder = cache.context("neither XDG_CACHE_HOME nor HOME is set")?;
    let folder = folder.join(format!("tare/cargo-deny-{VERSION}"));
    let program = folder.join("bin/cargo-deny");
    if runs(&program) {
        return Ok(program);
    }
    say(&format!("building cargo-deny {VERSION} below {}", folder.display()));
    std::fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let build = folder.join("build");
    // Outside of the checkout, so that its flags of the linker do not apply.
    let status = cargo(&folder)
        .args(["install", "cargo-deny", "--version", VERSION, "--locked", "--debug", "--quiet"])
        .arg("--root")
        .arg(&folder)
        .arg("--target-dir")
        .arg(&build)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo-deny could not be built: {status}");
    }
    std::fs::remove_dir_all(&build).with_context(|| format!("{}", build.display()))?;
    Ok(program)
}
