//! The files of one shard's store, in a directory of their own, and how operations on them are
//! carried out where the caller may wait: by a helper thread of the reactor, or while the store is
//! being opened.
//!
//! Files are written and read past the page cache where the file system takes that (`O_DIRECT`,
//! open(2)); offsets, lengths and addresses are multiples of 4 KiB, which the store sees to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use tare_store::chunk::ALIGNMENT;
use tare_store::io::{Completion, FileId, Files, Op, OpKind};

use super::sync_directory;

/// A shard's directory, as threads share it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Whether files are opened past the page cache.
    direct: bool,
}

/// The files of one shard that are open.
#[derive(Debug)]
pub(crate) struct ShardFiles {
    folder: Arc<Folder>,
    open: BTreeMap<FileId, Arc<File>>,
    /// The file that was read last while the store was opened, through the page cache.
    read: RefCell<Option<(FileId, File)>>,
}

/// An operation with what it is on.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) op: Op,
    /// The open file of operations on data. Removal brings the last handle along, because closing
    /// it frees the blocks and takes its time.
    pub(crate) file: Option<Arc<File>>,
    folder: Arc<Folder>,
}

/// An operation that has ended, and the file that it made.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) completion: Completion,
    made: Option<(FileId, File)>,
}

impl Folder {
    fn path(&self, file: FileId) -> PathBuf {
        self.path.join(file.file_name())
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if self.direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        options
    }

    fn create(&self, file: FileId, size_bytes: u64) -> io::Result<File> {
        let path = self.path(file);
        // A file of this name is left over from an attempt that a full disk or a crash ended.
        let made = self.options().create(true).truncate(true).open(&path)?;
        if size_bytes > 0 {
            match fallocate(&made, FallocateFlags::empty(), 0, size_bytes) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => {
                    drop(made);
                    fs::remove_file(&path)?;
                    return Err(error.into());
                }
            }
        }
        made.sync_all()?;
        sync_directory(&self.path)?;
        Ok(made)
    }

    fn truncate(&self, file: FileId, length: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path(file))?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn remove(&self, file: FileId) -> io::Result<()> {
        fs::remove_file(self.path(file))?;
        sync_directory(&self.path)
    }

    fn rename(&self, from: FileId, to: FileId) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))?;
        sync_directory(&self.path)
    }
}

impl ShardFiles {
    pub(crate) fn new(path: PathBuf, direct: bool) -> Self {
        let folder = Arc::new(Folder { path, direct });
        Self { folder, open: BTreeMap::new(), read: RefCell::new(None) }
    }

    /// Adds to an operation what it is on. A file that cannot be opened ends it at once.
    pub(crate) fn work(&mut self, op: Op) -> Result<Work, Completion> {
        let file = match &op.kind {
            OpKind::Create { .. } | OpKind::Truncate { .. } | OpKind::Remove => {
                self.open.remove(&op.file)
            }
            OpKind::Rename { to } => {
                self.open.remove(to);
                self.open.remove(&op.file)
            }
            OpKind::Read { .. } | OpKind::Write { .. } | OpKind::Sync => match self.file(op.file) {
                Ok(file) => Some(file),
                Err(error) => return Err(complete(op, Err(error))),
            },
        };
        Ok(Work { op, file, folder: Arc::clone(&self.folder) })
    }

    /// Keeps the file that an operation has made, and returns the operation's end.
    pub(crate) fn done(&mut self, done: Done) -> Completion {
        if let Some((id, file)) = done.made {
            self.open.insert(id, Arc::new(file));
        }
        done.completion
    }

    fn file(&mut self, id: FileId) -> io::Result<Arc<File>> {
        if let Some(file) = self.open.get(&id) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.folder.options().open(self.folder.path(id))?);
        self.open.insert(id, Arc::clone(&file));
        Ok(file)
    }
}

impl Work {
    /// Whether it is on the data of an open file, which io_uring can do; all else needs a thread
    /// that may wait.
    pub(crate) fn is_on_data(&self) -> bool {
        matches!(self.op.kind, OpKind::Read { .. } | OpKind::Write { .. } | OpKind::Sync)
    }

    /// Ends the operation with a result that somebody else has brought about.
    pub(crate) fn end(self, result: io::Result<usize>) -> Done {
        Done { completion: complete(self.op, result), made: None }
    }

    /// Carries the operation out and waits for it.
    pub(crate) fn carry_out(mut self) -> Done {
        let mut made = None;
        let id = self.op.file;
        let none = || io::Error::from(io::ErrorKind::NotFound);
        let result = match (&mut self.op.kind, &self.file) {
            (OpKind::Read { offset, chunk }, Some(file)) => read(file, *offset, chunk.bytes_mut()),
            (OpKind::Write { offset, chunk, sync }, Some(file)) => {
                let written = file.write_all_at(chunk.bytes(), *offset);
                let synced = written.and_then(|()| if *sync { file.sync_data() } else { Ok(()) });
                synced.map(|()| chunk.len())
            }
            (OpKind::Sync, Some(file)) => file.sync_data().map(|()| 0),
            (OpKind::Read { .. } | OpKind::Write { .. } | OpKind::Sync, None) => Err(none()),
            (OpKind::Create { size_bytes }, _) => self.folder.create(id, *size_bytes).map(|file| {
                made = Some((id, file));
                0
            }),
            (OpKind::Truncate { length }, _) => self.folder.truncate(id, *length).map(|()| 0),
            (OpKind::Remove, _) => self.folder.remove(id).map(|()| 0),
            (OpKind::Rename { to }, _) => self.folder.rename(id, *to).map(|()| 0),
        };
        Done { completion: complete(self.op, result), made }
    }
}

fn complete(op: Op, result: io::Result<usize>) -> Completion {
    let chunk = match op.kind {
        OpKind::Read { chunk, .. } | OpKind::Write { chunk, .. } => Some(chunk),
        _ => None,
    };
    Completion { id: op.id, chunk, result }
}

/// Whether a read that brought so many bytes has come to the end of its file: the rest could only
/// be read at an offset that direct I/O refuses.
pub(crate) fn is_end(read: usize) -> bool {
    !read.is_multiple_of(ALIGNMENT)
}

/// Reads until the buffer is full or the file ends.
fn read(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() && !is_end(done) {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(length) => done += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl Files for ShardFiles {
    fn list(&self) -> io::Result<Vec<FileId>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder.path)? {
            files.extend(entry?.file_name().to_str().and_then(FileId::from_file_name));
        }
        Ok(files)
    }

    fn length(&self, file: FileId) -> io::Result<u64> {
        Ok(fs::metadata(self.folder.path(file))?.len())
    }

    fn read_at(&self, file: FileId, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut last = self.read.borrow_mut();
        let handle = match last.take() {
            Some((id, handle)) if id == file => handle,
            _ => OpenOptions::new().read(true).open(self.folder.path(file))?,
        };
        let result = handle.read_at(buffer, offset);
        *last = Some((file, handle));
        result
    }

    fn carry_out(&mut self, op: Op) -> Completion {
        // Whatever it does to the file, the handle that reads it may be another's afterwards.
        self.read.get_mut().take();
        match self.work(op) {
            Ok(work) => {
                let done = work.carry_out();
                self.done(done)
            }
            Err(completion) => completion,
        }
    }

    fn name(&self, file: FileId) -> String {
        self.folder.path(file).display().to_string()
    }
}

#[cfg(test)]
mod tests;
