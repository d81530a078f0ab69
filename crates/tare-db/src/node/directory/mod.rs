//! The data directory: its lock and its layout.
//!
//! ```text
//! DATA/lock           locked while a server runs     DATA/shards    how many shards wrote it
//! DATA/schema.log     see `catalog::journal`         DATA/metrics   see `metrics`
//! DATA/report.json    see `report`                   DATA/shard-0/  the store's files, see `files`
//! ```

mod direct;
mod files;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tare_std::file_lock::FileLock;

pub(crate) use direct::DirectIo;
pub(crate) use files::{FileDone, FileWork, ShardFiles, is_end};

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
    direct: DirectIo,
    _lock: FileLock,
}

impl Directory {
    /// Creates the directory if necessary, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, DirectoryError> {
        fs::create_dir_all(path)
            .map_err(|source| DirectoryError::Create { path: path.into(), source })?;
        let lock = lock(path)?;
        let direct = direct::probe(path);
        Ok(Self { path: path.into(), direct, _lock: lock })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Checks the number of shards that the directory was written with, or notes it in a new one.
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

    /// Replaces a whole file.
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

    /// The files of one shard's store.
    pub(crate) fn files(&self, shard: usize) -> Result<ShardFiles, DirectoryError> {
        let path = self.path.join(format!("shard-{shard}"));
        fs::create_dir_all(&path)
            .and_then(|()| sync_directory(&self.path))
            .map_err(|source| DirectoryError::Create { path: path.clone(), source })?;
        Ok(ShardFiles::new(path, self.direct.works))
    }

    /// Whether files are opened past the page cache.
    pub(crate) fn direct_io(&self) -> &DirectIo {
        &self.direct
    }
}

/// Locks a directory against every other server.
pub(crate) fn lock(path: &Path) -> Result<FileLock, DirectoryError> {
    let failed = |source| DirectoryError::Lock { path: path.into(), source };
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    let file = options.open(path.join("lock")).map_err(failed)?;
    let locked = FileLock::exclusive(file).map_err(failed)?;
    locked.ok_or_else(|| DirectoryError::InUse { path: path.into() })
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).open(path)?.sync_all()
}
