//! Snapshots of a data directory that no server uses, and their restoration. Both are a copy whose
//! table files are hard links, so that it takes milliseconds however large the data is.
//!
//! Table files and manifests never change once they have their names, so two directories may share
//! them; a compaction removes only its own links. Logs and the schema are copied; after a clean
//! stop they are small. The copy gets its name when it is complete and durable, so there is all of
//! it or none. `put` fills an existing directory, such as a mount point; if it fails, its caller
//! has to remove the directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tare_std::file_lock::FileLock;
use tare_store::FileId;

use crate::node::directory::{DirectoryError, lock, sync_directory};

/// Why a copy cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("there is no database in {}", .path.display())]
    NoData { path: PathBuf },
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("{} exists already; name a directory that does not exist", .path.display())]
    Exists { path: PathBuf },
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot make {}", .path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error(
        "cannot link {} to {}; a snapshot has to be on the file system of its data", .from.display(),
        .to.display()
    )]
    Link { from: PathBuf, to: PathBuf, source: io::Error },
}

/// The contents of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopySummary {
    pub shards: u64,
    /// Files that are shared, and their bytes.
    pub linked: u64,
    pub linked_bytes: u64,
    /// Files that are copied, and their bytes.
    pub copied: u64,
    pub copied_bytes: u64,
}

/// How table files and manifests are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// As hard links; if that is impossible, there is no copy.
    Needed,
    /// As hard links, or as copies if the two directories are on different file systems.
    Wanted,
}

/// Whether a directory holds the data of a server.
pub fn is_data(path: &Path) -> bool {
    path.join("shards").is_file()
}

/// Makes the data directory or snapshot `to` out of the snapshot or data directory `from`.
pub fn copy(from: &Path, to: &Path, sharing: Sharing) -> Result<CopySummary, SnapshotError> {
    // The lock keeps servers from writing meanwhile.
    let _locked = lock_data(from)?;
    if to.exists() {
        return Err(SnapshotError::Exists { path: to.into() });
    }
    let mut name = to.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    let draft = to.with_file_name(name);
    let make = |source| SnapshotError::Make { path: draft.clone(), source };
    // An earlier attempt may have left its draft.
    if draft.exists() {
        fs::remove_dir_all(&draft).map_err(make)?;
    }
    let filled =
        fs::create_dir_all(&draft).map_err(make).and_then(|()| fill(from, &draft, sharing));
    if filled.is_err() {
        // If this fails, the next attempt removes it.
        let _ = fs::remove_dir_all(&draft);
    }
    let copied = filled?;
    let parent = match to.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let named = fs::rename(&draft, to).and_then(|()| sync_directory(parent));
    named.map_err(|source| SnapshotError::Make { path: to.into(), source })?;
    Ok(copied)
}

/// Puts the data of the snapshot or data directory `from` into the directory `to`, which must not
/// hold data. If this fails, `to` may hold a part of it.
pub fn put(from: &Path, to: &Path, sharing: Sharing) -> Result<CopySummary, SnapshotError> {
    let _locked = lock_data(from)?;
    if is_data(to) {
        return Err(SnapshotError::Exists { path: to.into() });
    }
    fill(from, to, sharing)
}

fn lock_data(path: &Path) -> Result<FileLock, SnapshotError> {
    if !is_data(path) {
        return Err(SnapshotError::NoData { path: path.into() });
    }
    Ok(lock(path)?)
}

fn fill(from: &Path, to: &Path, sharing: Sharing) -> Result<CopySummary, SnapshotError> {
    let make = |source| SnapshotError::Make { path: to.into(), source };
    let mut copied = CopySummary::default();
    for name in entries(from)? {
        let (from, to) = (from.join(&name), to.join(&name));
        match name.as_str() {
            "shards" | "schema.log" => copy_file(&from, &to, &mut copied)?,
            _ if name.starts_with("shard-") => {
                copied.shards += 1;
                fs::create_dir(&to)
                    .map_err(|source| SnapshotError::Make { path: to.clone(), source })?;
                fill_shard(&from, &to, sharing, &mut copied)?;
            }
            // Lock, report and metrics belong to the server that ran.
            _ => {}
        }
    }
    sync_directory(to).map_err(make)?;
    Ok(copied)
}

fn fill_shard(
    from: &Path,
    to: &Path,
    sharing: Sharing,
    copied: &mut CopySummary,
) -> Result<(), SnapshotError> {
    for name in entries(from)? {
        let (from, to) = (from.join(&name), to.join(&name));
        match FileId::from_file_name(&name) {
            Some(FileId::Table(_) | FileId::Manifest) => {
                match fs::hard_link(&from, &to).and_then(|()| fs::metadata(&from)) {
                    Ok(metadata) => {
                        copied.linked += 1;
                        copied.linked_bytes += metadata.len();
                    }
                    Err(error)
                        if sharing == Sharing::Wanted
                            && error.kind() == io::ErrorKind::CrossesDevices =>
                    {
                        copy_file(&from, &to, copied)?;
                    }
                    Err(source) => return Err(SnapshotError::Link { from, to, source }),
                }
            }
            Some(FileId::Log(_)) => copy_file(&from, &to, copied)?,
            Some(FileId::ManifestDraft) | None => {}
        }
    }
    sync_directory(to).map_err(|source| SnapshotError::Make { path: to.into(), source })
}

fn entries(directory: &Path) -> Result<Vec<String>, SnapshotError> {
    let read = || {
        let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name()));
        names.collect::<io::Result<Vec<_>>>()
    };
    let failed = |source| SnapshotError::Read { path: directory.into(), source };
    let mut names: Vec<String> =
        read().map_err(failed)?.into_iter().filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    Ok(names)
}

fn copy_file(from: &Path, to: &Path, copied: &mut CopySummary) -> Result<(), SnapshotError> {
    let copy = || {
        let bytes = fs::copy(from, to)?;
        File::open(to)?.sync_all()?;
        Ok(bytes)
    };
    let make = |source| SnapshotError::Make { path: to.into(), source };
    copied.copied_bytes += copy().map_err(make)?;
    copied.copied += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::directory::Directory;

    #[test]
    fn copy_shares_only_immutable_files() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        let shard = data.join("shard-0");
        fs::create_dir_all(&shard).unwrap();
        for name in ["shards", "schema.log", "metrics"] {
            fs::write(data.join(name), name).unwrap();
        }
        for name in ["00000003.table", "manifest", "manifest.new", "00000001.log", "stray"] {
            fs::write(shard.join(name), name).unwrap();
        }
        let snapshot = place.path().join("snapshot");
        let copied = copy(&data, &snapshot, Sharing::Needed).unwrap();
        assert_eq!((copied.shards, copied.linked, copied.copied), (1, 2, 3));
        assert_eq!(
            entries(&snapshot.join("shard-0")).unwrap(),
            ["00000001.log", "00000003.table", "manifest"]
        );
        assert_eq!(entries(&snapshot).unwrap(), ["schema.log", "shard-0", "shards"]);
        fs::write(shard.join("00000001.log"), "more").unwrap();
        let log = fs::read_to_string(snapshot.join("shard-0/00000001.log")).unwrap();
        assert_eq!(log, "00000001.log");

        assert!(matches!(
            copy(&data, &snapshot, Sharing::Needed),
            Err(SnapshotError::Exists { .. })
        ));
        let nothing = place.path().join("nothing");
        assert!(matches!(
            copy(&nothing, &data, Sharing::Needed),
            Err(SnapshotError::NoData { .. })
        ));
        let held = Directory::open(&data).unwrap();
        let another = place.path().join("another");
        assert!(matches!(copy(&data, &another, Sharing::Needed), Err(SnapshotError::Directory(_))));
        drop(held);
        copy(&snapshot, &another, Sharing::Needed).unwrap();
        assert!(another.join("shard-0/00000003.table").is_file());

        // The target is an existing directory, such as a mount point.
        let mounted = place.path().join("mounted");
        fs::create_dir_all(mounted.join("lost+found")).unwrap();
        assert_eq!(put(&snapshot, &mounted, Sharing::Wanted).unwrap(), copied);
        assert!(mounted.join("shard-0/manifest").is_file());
        let again = put(&snapshot, &mounted, Sharing::Wanted);
        assert!(matches!(again, Err(SnapshotError::Exists { .. })), "{again:?}");
    }

    #[test]
    fn files_are_copied_across_file_systems() {
        use tare_testkit::{Machine, skip};
        let test = "files_are_copied_across_file_systems";
        let memory = Path::new("/dev/shm");
        let place = tempfile::tempdir().unwrap();
        let Ok(other) = tempfile::tempdir_in(memory) else {
            return skip(test, Machine::OneFileSystem);
        };
        use std::os::unix::fs::MetadataExt as _;
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        if device(place.path()) == device(other.path()) {
            return skip(test, Machine::OneFileSystem);
        }
        let data = place.path().join("data");
        fs::create_dir_all(data.join("shard-0")).unwrap();
        for name in ["shards", "schema.log", "shard-0/00000003.table", "shard-0/manifest"] {
            fs::write(data.join(name), name).unwrap();
        }
        let refused = copy(&data, &other.path().join("copy"), Sharing::Needed);
        assert!(matches!(refused, Err(SnapshotError::Link { .. })), "{refused:?}");
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0, "nothing is left of it");
        let copied = copy(&data, &other.path().join("copy"), Sharing::Wanted).unwrap();
        assert_eq!((copied.linked, copied.copied), (0, 4));
        let table = fs::read_to_string(other.path().join("copy/shard-0/00000003.table")).unwrap();
        assert_eq!(table, "shard-0/00000003.table");
    }
}
