//! The data directory: its lock, its layout, and the log segments of a shard as files.
//!
//! ```text
//! DATA/lock           locked while a server runs     DATA/shards    how many shards wrote it
//! DATA/schema.log     see `catalog::journal`         DATA/metrics   see `metrics`
//! DATA/report.json    see `report`                   DATA/shard-0/00000000.log   see tare-store
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use rustix::io::Errno;
use tare_store::Segments;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("cannot make data directory {}", .path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("data directory {} is in use by another server", .path.display())]
    InUse { path: PathBuf },
    #[error("cannot lock data directory {}", .path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("cannot read or write {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "data directory {} was written with {written} shards and cannot be read with {asked}; \
         start with --smp {written}", .path.display()
    )]
    Shards { path: PathBuf, written: usize, asked: usize },
}

/// A locked data directory.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Unlocks when it is dropped.
    _lock: File,
}

impl Directory {
    /// Makes and locks the directory.
    pub(crate) fn open(path: &Path) -> Result<Self, DirectoryError> {
        fs::create_dir_all(path)
            .map_err(|source| DirectoryError::Create { path: path.into(), source })?;
        let failed = |source| DirectoryError::Lock { path: path.into(), source };
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let lock = options.open(path.join("lock")).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.into(), _lock: lock }),
            Err(Errno::WOULDBLOCK) => Err(DirectoryError::InUse { path: path.into() }),
            Err(error) => Err(failed(error.into())),
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Checks that the directory was written with as many shards, or notes it in a new one.
    pub(crate) fn agree_on_shards(&self, asked: usize) -> Result<(), DirectoryError> {
        let path = self.file("shards");
        match fs::read_to_string(&path) {
            Ok(text) => {
                let written = text.trim().parse().map_err(|_| DirectoryError::File {
                    path: path.clone(),
                    source: io::Error::new(io::ErrorKind::InvalidData, "it holds no number"),
                })?;
                let path = self.path.clone();
                (written == asked).then_some(()).ok_or(DirectoryError::Shards {
                    path,
                    written,
                    asked,
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.write(&path, format!("{asked}\n").as_bytes())
            }
            Err(source) => Err(DirectoryError::File { path, source }),
        }
    }

    /// Replaces a file as a whole.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), DirectoryError> {
        let failed = |source| DirectoryError::File { path: path.into(), source };
        let draft = path.with_extension("new");
        let write = || {
            let mut file = File::create(&draft)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&draft, path)?;
            sync_directory(&self.path)
        };
        write().map_err(failed)
    }

    /// The log segments of one shard.
    pub(crate) fn segments(&self, shard: usize) -> Result<LogFiles, DirectoryError> {
        let path = self.path.join(format!("shard-{shard}"));
        fs::create_dir_all(&path)
            .and_then(|()| sync_directory(&self.path))
            .map_err(|source| DirectoryError::Create { path: path.clone(), source })?;
        Ok(LogFiles { path, current: None })
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).open(path)?.sync_all()
}

/// Log segments as files of one directory.
#[derive(Debug)]
pub(crate) struct LogFiles {
    path: PathBuf,
    current: Option<(u64, Arc<File>)>,
}

impl LogFiles {
    /// The segment that was made last; only it is written.
    pub(crate) fn current(&self, segment: u64) -> Option<Arc<File>> {
        let (number, file) = self.current.as_ref()?;
        (*number == segment).then(|| Arc::clone(file))
    }

    fn file(&self, segment: u64) -> PathBuf {
        self.path.join(format!("{segment:08}.log"))
    }
}

impl Segments for LogFiles {
    fn list(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn create(&mut self, segment: u64, size_bytes: u64) -> io::Result<()> {
        let path = self.file(segment);
        let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
        let open = |flags| {
            // A file of this name is left over from an attempt that a full disk ended.
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true);
            options.custom_flags(flags).open(&path)
        };
        // Not every file system knows direct I/O (tmpfs before Linux 6.6, 9p).
        let file = match open(direct) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => open(0)?,
            other => other?,
        };
        match fallocate(&file, FallocateFlags::empty(), 0, size_bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => {
                drop(file);
                fs::remove_file(&path)?;
                return Err(error.into());
            }
        }
        file.sync_all()?;
        sync_directory(&self.path)?;
        self.current = Some((segment, Arc::new(file)));
        Ok(())
    }

    fn read_at(&self, segment: u64, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        OpenOptions::new().read(true).open(self.file(segment))?.read_at(buffer, offset)
    }

    fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.file(segment))?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        fs::remove_file(self.file(segment))?;
        sync_directory(&self.path)
    }

    fn name(&self, segment: u64) -> String {
        self.file(segment).display().to_string()
    }
}
