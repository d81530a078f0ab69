//! Directories of configuration files.

use std::fs;
use std::path::{Path, PathBuf};

/// Lists the paths in a directory, sorted by name; empty when the directory cannot be read.
pub(super) fn entries(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
