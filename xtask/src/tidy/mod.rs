//! Compares what the project says of itself with what is there. Reads only.
//!
//! Each rule is a file with one function from the [`Tree`] to its findings, so that its tests run
//! on a few files in memory.

mod arrows;
mod changelog;
mod circles;
mod functions;
mod invariants;
mod length;
mod links;
mod markers;
mod names;
mod readmes;
mod shell;
mod skips;
mod source;
mod toolchain;
mod tree;
mod unsafe_code;
mod width;
mod words;

use std::path::Path;

use anyhow::bail;

use tree::Tree;

/// One rule: its name, as ARCHITECTURE.md quotes it, and the function that finds what breaks it.
type Rule = (&'static str, fn(&Tree) -> Vec<String>);

const RULES: [Rule; 16] = [
    ("arrows", arrows::check),
    ("changelog", changelog::check),
    ("circles", circles::check),
    ("functions", functions::check),
    ("invariants", invariants::check),
    ("length", length::check),
    ("links", links::check),
    ("markers", markers::check),
    ("names", names::check),
    ("readmes", readmes::check),
    ("shell", shell::check),
    ("skips", skips::check),
    ("toolchain", toolchain::check),
    ("unsafe", unsafe_code::check),
    ("width", width::check),
    ("words", words::check),
];

/// Runs every rule and fails with the list of findings.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let tree = Tree::read(root)?;
    let mut found: Vec<String> = Vec::new();
    for (name, check) in RULES {
        found.extend(check(&tree).into_iter().map(|finding| format!("{name}: {finding}")));
    }
    if found.is_empty() {
        return Ok(());
    }
    bail!("tidy: {} finding(s)\n  {}", found.len(), found.join("\n  "))
}
