//! Archives whose bytes follow from their contents alone: no times, no users, one order.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;

pub(super) const FILE: u32 = 0o644;
pub(super) const PROGRAM: u32 = 0o755;

/// A tar archive under construction.
pub(super) struct Tar {
    builder: tar::Builder<Vec<u8>>,
    folders: BTreeSet<String>,
}

impl Tar {
    pub(super) fn new() -> Tar {
        Tar { builder: tar::Builder::new(Vec::new()), folders: BTreeSet::new() }
    }

    /// Adds a file and the folders above it.
    pub(super) fn add(&mut self, path: &str, mode: u32, bytes: &[u8]) -> anyhow::Result<()> {
        for (at, _) in path.match_indices('/') {
            if self.folders.insert(path[..at].to_string()) {
                self.entry(&path[..=at], tar::EntryType::Directory, PROGRAM, &[])?;
            }
        }
        self.entry(path, tar::EntryType::Regular, mode, bytes)
    }

    fn entry(
        &mut self,
        path: &str,
        kind: tar::EntryType,
        mode: u32,
        bytes: &[u8],
    ) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        self.builder
            .append_data(&mut header, path, bytes)
            .with_context(|| format!("cannot add {path} to an archive"))
    }

    pub(super) fn finish(self) -> anyhow::Result<Vec<u8>> {
        self.builder.into_inner().context("cannot end an archive")
    }
}

/// Compressed bytes; gzip's header has no time and no name.
pub(super) fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).context("cannot compress")?;
    encoder.finish().context("cannot compress")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_every_folder_once_and_no_time() {
        let make = || {
            let mut tar = Tar::new();
            tar.add("a/b/c", PROGRAM, b"x").unwrap();
            tar.add("a/d", FILE, b"y").unwrap();
            tar.finish().unwrap()
        };
        let bytes = make();
        assert_eq!(bytes, make());
        let mut archive = tar::Archive::new(&bytes[..]);
        let entries: Vec<(String, u32, u64)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let path = entry.path().unwrap().display().to_string();
                (path, entry.header().mode().unwrap(), entry.header().mtime().unwrap())
            })
            .collect();
        let wanted = [("a/", 0o755), ("a/b/", 0o755), ("a/b/c", 0o755), ("a/d", 0o644)];
        let wanted = wanted.map(|(path, mode)| (path.to_string(), mode, 0));
        assert_eq!(entries, wanted);
    }
}
