//! Drops what the kernel's page cache holds of files, so that reads of them go to the disk.
//!
//! Method: fdatasync(2), because only clean pages can be dropped, then posix_fadvise(2) with
//! `POSIX_FADV_DONTNEED`, for each file. Only these files are affected, unlike with
//! `/proc/sys/vm/drop_caches`. Pages that a process has mapped stay.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise, fdatasync};

/// The cached pages of a file cannot be dropped.
#[derive(Debug, thiserror::Error)]
#[error("cannot drop the cached pages of {}", .path.display())]
pub struct DropPagesError {
    path: PathBuf,
    source: io::Error,
}

/// Drops the cached pages of all files below a directory, on its file system. A file that goes away
/// meanwhile is left out.
///
/// # Errors
/// If a file or directory cannot be read.
pub fn drop_pages(folder: &Path) -> Result<(), DropPagesError> {
    let fail = |path: &Path, source| DropPagesError { path: path.into(), source };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fail(folder, error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| fail(folder, error))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(|error| fail(&path, error))?;
        if kind.is_dir() {
            drop_pages(&path)?;
        } else if kind.is_file() {
            match drop_pages_of_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                dropped => dropped.map_err(|error| fail(&path, error))?,
            }
        }
    }
    Ok(())
}

fn drop_pages_of_file(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    fdatasync(&file)?;
    // A length of 0 is the whole file.
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_folders_keep_their_content() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        let file = folder.path().join("inner/data");
        fs::write(&file, vec![7; 100_000]).unwrap();
        std::os::unix::fs::symlink("/nowhere", folder.path().join("link")).unwrap();
        drop_pages(folder.path()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), vec![7; 100_000]);
        drop_pages(&folder.path().join("gone")).unwrap();
    }
}
