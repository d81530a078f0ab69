//! The packages of a release, made of the program that the tests ran, and tried.

use std::path::Path;

use anyhow::Context;

use crate::{built, dist};

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let program = built::program(root)?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let text = |path: &Path| path.to_str().map(String::from).context("a path is not UTF-8");
    let (program, out) = (text(&program)?, text(folder.path())?);
    dist::run(root, &["--program", &program, "--out", &out, "--try"])
}
