//! The image: what the program prints with `tare image`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::Release;
use super::files::Files;

/// The image's name without its version.
pub(super) const NAME: &str = "tare";

pub(super) fn write(files: &Files, release: &Release, out: &Path) -> anyhow::Result<PathBuf> {
    let path = out.join(format!("{}.oci.tar", release.name()));
    fs::write(&path, &files.image).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
