//! Chores of the project: `cargo xtask ci`, `tidy`, `bench`, `dist`, `calibrate`, `covariates`,
//! `sim` and `kill`.
#![forbid(unsafe_code)]

mod bench;
mod built;
mod calibrate;
mod cargo;
mod ci;
mod covariates;
mod dist;
mod kill;
mod sim;
mod steps;
mod tidy;

use std::path::PathBuf;

use anyhow::{Context, bail};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["ci"] => ci::run(&root()?),
        ["tidy"] => tidy::run(&root()?),
        ["bench", rest @ ..] => bench::run(&root()?, rest),
        ["dist", rest @ ..] => dist::run(&root()?, rest),
        ["calibrate", rest @ ..] => calibrate::run(&root()?, rest),
        [calibrate::BURNER] => calibrate::burner(),
        [calibrate::NEIGHBOUR] => calibrate::neighbour(),
        ["covariates", rest @ ..] => covariates::run(rest),
        ["sim", rest @ ..] => sim::run(&root()?, rest),
        ["kill", rest @ ..] => kill::run(&root()?, rest),
        _ => bail!(
            "usage: cargo xtask ci | tidy | bench | dist | calibrate | covariates | sim | kill"
        ),
    }
}

/// Prints a line of a chore's progress or result.
#[expect(clippy::print_stderr, reason = "progress of a chore")]
fn say(line: &str) {
    eprintln!("{line}");
}

/// Prints a line of a chore's result.
#[expect(clippy::print_stdout, reason = "the result of a chore")]
fn print(line: &str) {
    println!("{line}");
}

/// The repository's root: the folder above this package.
fn root() -> anyhow::Result<PathBuf> {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.parent().map(PathBuf::from).context("the xtask package has no parent folder")
}
