//! The data directory: its lock, its layout, and the files of a shard.
//!
//! ```text
//! DATA/lock           locked while a server runs     DATA/shards    how many shards wrote it
//! DATA/schema.log     see `catalog::journal`         DATA/metrics   see `metrics`
//! DATA/report.json    see `report`                   DATA/shard-0/00000000.log   see tare-store
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use rustix::io::Errno;
use tare_store::{Completion, FileId, Files, Op, OpKind};

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

    /// The files of one shard's store.
    pub(crate) fn files(&self, shard: usize) -> Result<ShardFiles, DirectoryError> {
        let path = self.path.join(format!("shard-{shard}"));
        fs::create_dir_all(&path)
            .and_then(|()| sync_directory(&self.path))
            .map_err(|source| DirectoryError::Create { path: path.clone(), source })?;
        Ok(ShardFiles { path, open: BTreeMap::new() })
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).open(path)?.sync_all()
}

/// The files of one shard's store.
#[derive(Debug)]
pub(crate) struct ShardFiles {
    path: PathBuf,
    /// Log segments that are open.
    open: BTreeMap<FileId, Arc<File>>,
}

impl ShardFiles {
    /// The file of a log segment, to be written.
    pub(crate) fn open(&mut self, file: FileId) -> io::Result<Arc<File>> {
        if let Some(open) = self.open.get(&file) {
            return Ok(Arc::clone(open));
        }
        let open = Arc::new(self.open_direct(file, OpenOptions::new().read(true).write(true))?);
        self.open.insert(file, Arc::clone(&open));
        Ok(open)
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.path.join(file.file_name())
    }

    /// Not every file system knows direct I/O (tmpfs before Linux 6.6, 9p).
    fn open_direct(&self, file: FileId, options: &mut OpenOptions) -> io::Result<File> {
        let path = self.path(file);
        let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
        match options.custom_flags(direct).open(&path) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                options.custom_flags(0).open(&path)
            }
            other => other,
        }
    }

    fn create(&mut self, file: FileId, size_bytes: u64) -> io::Result<()> {
        self.open.remove(&file);
        // A file of this name is left over from an attempt that a full disk ended.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let made = self.open_direct(file, &mut options)?;
        match fallocate(&made, FallocateFlags::empty(), 0, size_bytes.max(1)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => {
                drop(made);
                fs::remove_file(self.path(file))?;
                return Err(error.into());
            }
        }
        made.sync_all()?;
        sync_directory(&self.path)?;
        self.open.insert(file, Arc::new(made));
        Ok(())
    }

    fn run(&mut self, file: FileId, kind: &mut OpKind) -> io::Result<usize> {
        match kind {
            OpKind::Read { offset, chunk } => {
                return self.read_at(file, *offset, chunk.bytes_mut());
            }
            OpKind::Write { offset, chunk, sync } => {
                let open = self.open(file)?;
                open.write_all_at(chunk.bytes(), *offset)?;
                if *sync {
                    open.sync_data()?;
                }
                return Ok(chunk.len());
            }
            OpKind::Sync => self.open(file)?.sync_data()?,
            OpKind::Create { size_bytes } => self.create(file, *size_bytes)?,
            OpKind::Truncate { length } => {
                let open = OpenOptions::new().write(true).open(self.path(file))?;
                open.set_len(*length)?;
                open.sync_all()?;
            }
            OpKind::Remove => {
                self.open.remove(&file);
                fs::remove_file(self.path(file))?;
                sync_directory(&self.path)?;
            }
            OpKind::Rename { to } => {
                self.open.remove(&file);
                self.open.remove(to);
                fs::rename(self.path(file), self.path(*to))?;
                sync_directory(&self.path)?;
            }
        }
        Ok(0)
    }
}

impl Files for ShardFiles {
    fn list(&self) -> io::Result<Vec<FileId>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            files.extend(entry?.file_name().to_str().and_then(FileId::from_file_name));
        }
        Ok(files)
    }

    fn length(&self, file: FileId) -> io::Result<u64> {
        Ok(fs::metadata(self.path(file))?.len())
    }

    fn read_at(&self, file: FileId, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        OpenOptions::new().read(true).open(self.path(file))?.read_at(buffer, offset)
    }

    fn carry_out(&mut self, op: Op) -> Completion {
        let Op { id, file, mut kind } = op;
        let result = self.run(file, &mut kind);
        let chunk = match kind {
            OpKind::Read { chunk, .. } | OpKind::Write { chunk, .. } => Some(chunk),
            _ => None,
        };
        Completion { id, chunk, result }
    }

    fn name(&self, file: FileId) -> String {
        self.path(file).display().to_string()
    }
}
