//! Everything that must pass before a change is good, in the order in which it fails fastest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::say;

/// Name of a step and the cargo arguments that it runs.
const STEPS: [(&str, &[&str]); 6] = [
    ("format", &["fmt", "--all", "--check"]),
    ("clippy", &["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    ("build", &["build", "--release", "--workspace", "--bins", "--examples"]),
    (
        "tests",
        &["test", "--release", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"],
    ),
    ("doc tests", &["test", "--release", "--workspace", "--doc"]),
    ("docs", &["doc", "--release", "--workspace", "--no-deps"]),
];

/// Runs every step; fails at the end with the names of those that failed.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let mut failed: Vec<&str> = Vec::new();
    announce("tidy");
    if let Err(error) = crate::tidy::run(root) {
        say(&format!("{error:#}"));
        failed.push("tidy");
    }
    for (name, arguments) in STEPS {
        announce(name);
        let started = Instant::now();
        let status = Command::new(env!("CARGO"))
            .args(arguments)
            .current_dir(root)
            .env("RUSTDOCFLAGS", "-D warnings")
            .status()
            .with_context(|| format!("cannot start cargo for the step {name:?}"))?;
        say(&format!("{name}: {:.0} s", started.elapsed().as_secs_f64()));
        if !status.success() {
            failed.push(name);
            if matches!(name, "clippy" | "build") {
                break;
            }
        }
    }
    if !failed.contains(&"build") && !failed.contains(&"clippy") {
        announce("drivers");
        let started = Instant::now();
        let script = root.join("tests/drivers/run");
        let status = Command::new(&script)
            .arg(program(root)?)
            .current_dir(root)
            .status()
            .with_context(|| format!("cannot start {}", script.display()))?;
        say(&format!("drivers: {:.0} s", started.elapsed().as_secs_f64()));
        if !status.success() {
            failed.push("drivers");
        }
        failed.extend(crate::steps::run(root));
    }
    if failed.is_empty() {
        say("ci: everything passed");
        return Ok(());
    }
    bail!("ci: failed: {}", failed.join(", "))
}

/// The program that the build step made. The target's folder carries the host's own triple, because
/// `.cargo/config.toml` names it.
pub(crate) fn program(root: &Path) -> anyhow::Result<PathBuf> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let triple = text.lines().find_map(|line| line.strip_prefix("host: "));
    let triple = triple.context("rustc -vV does not name the host")?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join(triple).join("release/tare"))
}

fn announce(step: &str) {
    say(&format!("==> {step}"));
}
