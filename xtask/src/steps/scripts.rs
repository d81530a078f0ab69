//! The shell tests of `scripts/`: each `tests/scripts/*.sh` runs and succeeds.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let folder = root.join("tests/scripts");
    let entries = fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))?;
    let mut scripts: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    scripts.retain(|path| path.extension().is_some_and(|extension| extension == "sh"));
    scripts.sort();
    ensure!(!scripts.is_empty(), "{}: no script", folder.display());
    for script in scripts {
        let status = Command::new("sh").arg(&script).current_dir(root).status();
        let status = status.with_context(|| format!("cannot start {}", script.display()))?;
        ensure!(status.success(), "{} failed: {status}", script.display());
    }
    Ok(())
}
