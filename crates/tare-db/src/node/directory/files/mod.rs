//! The files of one shard's store, in a directory of their own. Operations on them run here where
//! the caller may wait: on a thread of the reactor, or while the store is being opened.
//!
//! Files are read and written past the page cache if the file system allows it (`O_DIRECT`,
//! open(2)); the store makes offsets, lengths and addresses multiples of 4 KiB.

mod freeing;

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
use freeing::Freeing;

/// A shard's directory, which threads share.
#[derive(Debug)]
pub(crate) struct ShardDirectory {
    path: PathBuf,
    /// Whether files are opened past the page cache.
    direct: bool,
    freeing: Freeing,
}

/// The open files of one shard.
#[derive(Debug)]
pub(crate) struct ShardFiles {
    folder: Arc<ShardDirectory>,
    open: BTreeMap<FileId, Arc<File>>,
    /// The file that was read last while the store was opened, open for reads through the page
    /// cache.
    read: RefCell<Option<(FileId, File)>>,
    /// The simulator has the files, and none is opened here.
    #[cfg(feature = "simulation")]
    is_simulated: bool,
}

/// An operation with the file that it concerns.
#[derive(Debug)]
pub(crate) struct FileWork {
    pub(crate) op: Op,
    /// The open file of an operation on data. A removal takes the last handle along, because
    /// closing it frees the blocks and takes time.
    pub(crate) file: Option<Arc<File>>,
    folder: Arc<ShardDirectory>,
}

/// An operation that has ended, and the file that it created.
#[derive(Debug)]
pub(crate) struct FileDone {
    pub(crate) completion: Completion,
    made: Option<(FileId, File)>,
}

#[cfg(feature = "simulation")]
impl FileDone {
    /// An operation that the simulator has carried out.
    pub(crate) fn simulated(completion: Completion) -> Self {
        Self { completion, made: None }
    }
}

impl ShardDirectory {
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

    /// Removes a file. Its blocks are freed later if it is large, for which it stays open.
    fn remove(&self, file: FileId, open: Option<Arc<File>>) -> io::Result<()> {
        let path = self.path(file);
        let open = open.or_else(|| {
            let file = OpenOptions::new().write(true).open(&path).ok()?;
            Some(Arc::new(file))
        });
        fs::remove_file(&path)?;
        sync_directory(&self.path)?;
        open.into_iter().for_each(|open| self.freeing.free(open));
        Ok(())
    }

    fn rename(&self, from: FileId, to: FileId) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))?;
        sync_directory(&self.path)
    }
}

impl ShardFiles {
    pub(crate) fn new(path: PathBuf, direct: bool) -> Self {
        let folder = Arc::new(ShardDirectory { path, direct, freeing: Freeing::default() });
        Self {
            folder,
            open: BTreeMap::new(),
            read: RefCell::new(None),
            #[cfg(feature = "simulation")]
            is_simulated: false,
        }
    }

    /// Files that only the simulator has.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated() -> Self {
        Self { is_simulated: true, ..Self::new(PathBuf::new(), true) }
    }

    /// Adds the file to an operation. If the file cannot be opened, the operation ends at once.
    pub(crate) fn work(&mut self, op: Op) -> Result<FileWork, Completion> {
        #[cfg(feature = "simulation")]
        if self.is_simulated {
            return Ok(FileWork { op, file: None, folder: Arc::clone(&self.folder) });
        }
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
        Ok(FileWork { op, file, folder: Arc::clone(&self.folder) })
    }

    /// Keeps the file that an operation has created, and returns the completion.
    pub(crate) fn done(&mut self, done: FileDone) -> Completion {
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

impl FileWork {
    /// Whether the operation is on the data of an open file, which io_uring can do. The others need
    /// a thread that may wait.
    pub(crate) fn is_on_data(&self) -> bool {
        matches!(self.op.kind, OpKind::Read { .. } | OpKind::Write { .. } | OpKind::Sync)
    }

    /// Ends the operation with the result that the caller has obtained.
    pub(crate) fn end(self, result: io::Result<usize>) -> FileDone {
        FileDone { completion: complete(self.op, result), made: None }
    }

    /// Carries out the operation and waits for it.
    pub(crate) fn carry_out(mut self) -> FileDone {
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
            (OpKind::Remove, open) => self.folder.remove(id, open.clone()).map(|()| 0),
            (OpKind::Rename { to }, _) => self.folder.rename(id, *to).map(|()| 0),
        };
        FileDone { completion: complete(self.op, result), made }
    }
}

fn complete(op: Op, result: io::Result<usize>) -> Completion {
    let chunk = match op.kind {
        OpKind::Read { chunk, .. } | OpKind::Write { chunk, .. } => Some(chunk),
        _ => None,
    };
    Completion { id: op.id, chunk, result }
}

/// Whether a read that returned so many bytes has reached the end of its file: the rest would start
/// at an offset that direct I/O refuses.
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
        // The operation may change the file, or its name may go to another one.
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
