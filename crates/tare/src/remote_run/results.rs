//! Brings the files of a run from another host to where the user asked.

use std::fs::{self, File};
use std::io::{BufReader, empty};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tar::Archive;
use tare_lab::record::{copy_record, free_path, logs_of};

use super::connections::{Connected, Connections, of_program};
use crate::run_server::{Session, SessionSpec};
use crate::stream::warn;

/// Copies the new and changed files of a run here, and returns their paths. A `suffix` follows the
/// name of each file.
pub(super) fn bring(
    connections: &Connections,
    connected: &Connected,
    directory: &Path,
    suffix: Option<&str>,
) -> anyhow::Result<Vec<PathBuf>> {
    let name = connected.host.name();
    let sessions = connected.sessions()?;
    let session = sessions.into_iter().find(|session| session.directory == directory);
    let Session { spec, .. } = session.with_context(|| format!("the run on {name} is gone"))?;
    let words = directory.to_str().context("the name of a run is no text")?;
    let archive =
        connected.host.output(&connected.program.path, &["run-server", "fetch", words], empty());
    let archive = archive.map_err(of_program)?;
    let staging = connections.directory().join(crate::run_server::id(directory));
    fs::create_dir(&staging).with_context(|| format!("cannot create {}", staging.display()))?;
    // It never writes outside of the directory.
    let unpacked = Archive::new(BufReader::new(&archive[..])).unpack(&staging);
    unpacked.with_context(|| format!("cannot unpack the files of {name}"))?;
    let mut placed = Vec::new();
    let files = files(&staging, Path::new(""))?;
    // A log comes with its record.
    let logs: Vec<PathBuf> =
        files.iter().filter(|file| is_record(file)).flat_map(|file| logs_of(file)).collect();
    for file in files.iter().filter(|file| !logs.contains(file)) {
        placed.push(place(&staging, file, &spec, suffix)?);
    }
    fs::remove_dir_all(&staging)?;
    if !placed.is_empty() {
        let list: Vec<String> = summary(&placed);
        warn(&format!("brought from {name}: {}", list.join(", ")));
    }
    Ok(placed)
}

/// Returns paths for a line, those below one directory as the directory.
fn summary(placed: &[PathBuf]) -> Vec<String> {
    const LISTED_MAX: usize = 8;
    match placed {
        [first, ..] if placed.len() > LISTED_MAX => {
            vec![format!("{} files, such as {}", placed.len(), first.display())]
        }
        few => few.iter().map(|path| path.display().to_string()).collect(),
    }
}

/// Returns the files below a directory, sorted by name.
fn files(root: &Path, below: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => found.extend(files(root, &name)?),
            false => found.push(name),
        }
    }
    found.sort();
    Ok(found)
}

fn is_record(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "tare")
}

/// Copies one file to its place and returns that.
fn place(
    staging: &Path,
    file: &Path,
    spec: &SessionSpec,
    suffix: Option<&str>,
) -> anyhow::Result<PathBuf> {
    let mapped = spec
        .outputs
        .iter()
        .find_map(|(there, here)| file.strip_prefix(there).ok().map(|rest| here.join(rest)));
    let mut to = mapped.unwrap_or_else(|| file.to_path_buf());
    if let Some(suffix) = suffix {
        to = with_suffix(&to, suffix);
    }
    let is_record = is_record(&to);
    if is_record && to.exists() && !spec.replace.contains(&file.to_path_buf()) {
        to = free_path(&to);
    }
    if let Some(parent) = to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
    }
    let from = staging.join(file);
    if is_record {
        copy_record(&from, &to)?;
        return Ok(to);
    }
    let copied = File::open(&from).and_then(|_| fs::copy(&from, &to));
    copied.with_context(|| format!("cannot write {}", to.display()))?;
    Ok(to)
}

/// Returns `quick-db1.tare` for `quick.tare`.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map(|extension| extension.to_string_lossy());
    let extension = extension.map(|extension| format!(".{extension}")).unwrap_or_default();
    path.with_file_name(format!("{stem}-{suffix}{extension}"))
}
