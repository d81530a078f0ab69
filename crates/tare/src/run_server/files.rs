//! The files of a run: sent by the host that asks as a tar archive, and sent back if they are new
//! or changed.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tar::{Archive, Builder, EntryType, Header};

use super::session::{self, WORK};

/// What was sent, by path, to tell later what has changed.
const SENT: &str = "sent.json";

/// The state of a file when it was unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    modified_s: i64,
    modified_ns: i64,
    bytes: u64,
}

impl From<&Metadata> for Change {
    fn from(found: &Metadata) -> Self {
        let (modified_s, modified_ns) = (found.mtime(), found.mtime_nsec());
        Self { modified_s, modified_ns, bytes: found.size() }
    }
}

/// The files for a run, in memory.
pub(crate) struct Packer(Builder<Vec<u8>>);

impl Packer {
    /// Starts with what is asked.
    pub(crate) fn new(spec: &session::SessionSpec) -> anyhow::Result<Self> {
        let mut packer = Self(Builder::new(Vec::new()));
        packer.text(Path::new(session::SPEC), &serde_json::to_vec(spec)?)?;
        Ok(packer)
    }

    fn text(&mut self, name: &Path, text: &[u8]) -> anyhow::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        Ok(self.0.append_data(&mut header, name, text)?)
    }

    /// Adds the access to a cluster that the command has.
    pub(crate) fn kubeconfig(&mut self, text: &str) -> anyhow::Result<()> {
        self.text(Path::new(session::KUBECONFIG), text.as_bytes())
    }

    /// Adds a file, or a directory with its files, under a path below the command's directory.
    pub(crate) fn add(&mut self, name: &Path, from: &Path) -> anyhow::Result<()> {
        let to = Path::new(WORK).join(name);
        let added = match from.is_dir() {
            true => self.0.append_dir_all(&to, from),
            false => self.0.append_path_with_name(from, &to),
        };
        added.with_context(|| format!("cannot read {}", from.display()))
    }

    /// Adds an empty file, so that no other takes its name.
    pub(crate) fn take_name(&mut self, name: &Path) -> anyhow::Result<()> {
        self.text(&Path::new(WORK).join(name), b"")
    }

    /// Adds an empty directory.
    pub(crate) fn directory(&mut self, name: &Path) -> anyhow::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o700);
        Ok(self.0.append_data(&mut header, Path::new(WORK).join(name), &b""[..])?)
    }

    /// Returns the archive.
    pub(crate) fn finish(self) -> anyhow::Result<Vec<u8>> {
        Ok(self.0.into_inner()?)
    }
}

/// Unpacks an archive into a new directory of a run.
pub(super) fn receive(input: impl Read, directory: &Path) -> anyhow::Result<()> {
    // It never writes outside of the directory.
    Archive::new(input).unpack(directory).context("cannot unpack the files of the command")?;
    let work = directory.join(WORK);
    fs::create_dir_all(&work)?;
    let sent = states(&work)?;
    fs::write(directory.join(SENT), serde_json::to_vec(&sent)?)?;
    Ok(())
}

/// Prints the new and changed files of a run as a tar archive.
pub(super) fn fetch(directory: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    session::check(directory)?;
    let work = directory.join(WORK);
    let sent = fs::read(directory.join(SENT)).unwrap_or_default();
    let sent: BTreeMap<PathBuf, Change> = serde_json::from_slice(&sent).unwrap_or_default();
    let mut archive = Builder::new(out);
    for (name, state) in states(&work)? {
        if sent.get(&name) != Some(&state) {
            archive.append_path_with_name(work.join(&name), &name)?;
        }
    }
    archive.into_inner()?.flush()?;
    Ok(())
}

/// Returns the state of every file below a directory.
fn states(directory: &Path) -> anyhow::Result<BTreeMap<PathBuf, Change>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let state = fs::symlink_metadata(&path)?;
            if state.is_dir() {
                open.push(path);
            } else if state.is_file() {
                found.insert(path.strip_prefix(directory)?.to_path_buf(), Change::from(&state));
            } else {
                bail!("{} is no file", path.display());
            }
        }
    }
    Ok(found)
}
