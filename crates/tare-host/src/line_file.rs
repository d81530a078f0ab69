//! A file of JSON lines that survives a crash, the base of the journals of runs and of tunings.
//!
//! Lines are only appended, several with one sync. A last line without a line break means that the
//! writer died before its sync returned: readers ignore the line, and the next append ends it. The
//! writer holds a lock (flock) that the kernel releases however the process ends, so a file that
//! can be locked has no live owner.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use crate::process::ProcessHandle;

/// How long to wait for the lock of a process that has ended or is invisible in another pid
/// namespace.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// A file of JSON lines, open for appending.
#[derive(Debug)]
pub struct LineFile {
    file: File,
    /// The last line is cut off.
    torn: bool,
}

impl LineFile {
    /// Creates a file that does not exist yet.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::options().create_new(true).append(true).open(path)?, torn: false })
    }

    /// Opens an existing file and returns it with its text.
    pub fn open(path: &Path) -> io::Result<(Self, String)> {
        let mut file = File::options().read(true).append(true).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok((Self { file, torn: !text.is_empty() && !text.ends_with('\n') }, text))
    }

    /// Takes the lock without waiting; false when another process has it or has removed the file.
    pub fn lock(&self) -> io::Result<bool> {
        let held = flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        Ok(held && self.file.metadata()?.nlink() > 0)
    }

    /// Takes the lock that process `pid` left when it died; false when it is alive.
    pub fn lock_dead(&self, pid: u32) -> bool {
        lock_dead(&self.file, pid)
    }

    /// Appends lines with one write. With `sync` the disk has them when this returns.
    pub fn append<T: Serialize>(&mut self, lines: &[T], sync: bool) -> io::Result<()> {
        let mut text = if self.torn { vec![b'\n'] } else { Vec::new() };
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        self.file.write_all(&text)?;
        self.torn = false;
        if sync { self.file.sync_data() } else { Ok(()) }
    }
}

/// A child between its fork and its execve has a copy of the descriptor, and with it the lock,
/// which closing the file would leave to it. Unlocking takes it from all copies (flock(2)).
impl Drop for LineFile {
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Takes the lock of a file whose owner `pid` is dead; false when it is alive.
///
/// A child that the owner was starting when it was killed holds a copy of the descriptor until its
/// execve closes it. So this waits up to `LOCK_LIMIT` for a lock whose owner has ended.
pub fn lock_dead(file: &File, pid: u32) -> bool {
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        let alive = ProcessHandle::open(pid).is_some_and(|owner| !owner.has_ended());
        if alive || Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Syncs a directory, so that the names in it survive a crash of the machine.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Lists every `NAME.journal` in a directory, sorted by name; empty when the directory is absent.
pub fn journals(folder: &Path) -> io::Result<Vec<std::path::PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "journal"));
    paths.sort();
    Ok(paths)
}

/// Returns the name of a journal file without its extension.
pub fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the current time in seconds since the epoch.
pub fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
