//! The lock of a state directory: one tuning at a time.
//!
//! `STATE/tune/lock` is held with flock, which the kernel drops when the process ends however it
//! ends; it holds the process id for whoever is refused. The file goes with the lock, so nothing is
//! left of it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::TuneError;
use tare_host::line_file;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    folder: PathBuf,
}

impl Lock {
    /// Takes the lock of `STATE/tune`, which is made where it is not there.
    pub(super) fn take(folder: &Path) -> Result<Self, TuneError> {
        let path = folder.join("lock");
        let fail = |source| TuneError::Lock { path: path.clone(), source };
        fs::create_dir_all(folder).map_err(fail)?;
        loop {
            let opened =
                File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let mut file = match opened {
                Ok(file) => file,
                // The one before removed the folder between the two steps.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(folder).map_err(fail)?;
                    continue;
                }
                Err(source) => return Err(fail(source)),
            };
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(fail)?;
            let pid = text.trim().parse().unwrap_or(0);
            if !line_file::lock_dead(&file, pid) {
                return Err(TuneError::Busy { pid, path });
            }
            // The one before removes the file before it lets go of it.
            if file.metadata().map_err(fail)?.nlink() == 0 {
                continue;
            }
            file.set_len(0).map_err(fail)?;
            file.rewind().map_err(fail)?;
            file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(fail)?;
            return Ok(Self { file, folder: folder.into() });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A file that stays is harmless: the lock is what the kernel holds, not the file.
        let _ = fs::remove_file(self.folder.join("lock"));
        let _ = fs::remove_dir(&self.folder);
        let _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock);
    }
}
