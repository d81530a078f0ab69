//! The tarball: one folder that works wherever it is unpacked.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::Release;
use super::archive::{FILE, PROGRAM, Tar, gzip};
use super::files::Files;

pub(super) fn write(files: &Files, release: &Release, out: &Path) -> anyhow::Result<PathBuf> {
    let top = release.name();
    let mut tar = Tar::new();
    let mut add = |path: &str, mode, bytes: &[u8]| tar.add(&format!("{top}/{path}"), mode, bytes);
    add("tare", PROGRAM, &files.program)?;
    add("LICENSE", FILE, &files.license)?;
    add("README.md", FILE, &files.readme)?;
    add("completions/tare.bash", FILE, &files.bash)?;
    add("completions/_tare", FILE, &files.zsh)?;
    add("completions/tare.fish", FILE, &files.fish)?;
    for (name, text) in &files.man {
        add(&format!("man/{name}"), FILE, text)?;
    }
    for (name, text) in &files.studies {
        add(&format!("studies/{name}"), FILE, text)?;
    }
    let path = out.join(format!("{top}.tar.gz"));
    fs::write(&path, gzip(&tar.finish()?)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
