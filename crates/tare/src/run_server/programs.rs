//! The copies of the program that `--on` and loaders leave on a host.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const PARENT: &str = "/var/tmp";

/// A copy of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProgramCopy {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// Whether a file is a copy, by its name: `tare-` and the first 16 digits of its hash.
fn is_copy(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hash = name.strip_prefix("tare-").unwrap_or_default();
    let named = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    named && fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Prints the copies as JSON, after their removal if asked.
pub(super) fn print_all(remove: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let entries = fs::read_dir(PARENT).into_iter().flatten().flatten();
    let mut copies: Vec<ProgramCopy> = entries
        .map(|entry| entry.path())
        .filter(|path| is_copy(path))
        .map(|path| ProgramCopy { bytes: fs::metadata(&path).map_or(0, |found| found.len()), path })
        .collect();
    copies.sort_by(|a, b| a.path.cmp(&b.path));
    if remove {
        // Others may own some of them.
        copies.retain(|copy| fs::remove_file(&copy.path).is_ok());
    }
    serde_json::to_writer(&mut *out, &copies)?;
    Ok(writeln!(out)?)
}
