//! A file of JSON lines that survives a crash: what both journals, of runs and of tunings, stand on.
//!
//! Lines are only ever appended, several with one sync. A last line without its line break was being
//! written when the writer died, before its sync returned: it is ignored and ended before anything is
//! appended. The writer holds a lock (flock) that the kernel drops when the process ends however it
//! ends, so that a file that can be locked belongs to nobody alive.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use crate::process::Hold;

/// How long the lock of a process that has ended may stay: its owner may be on the other side of a
/// pid namespace, where it cannot be seen.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// Such a file, open for appending.
#[derive(Debug)]
pub struct LineFile {
    file: File,
    /// Its last line was cut off.
    torn: bool,
}

impl LineFile {
    /// Makes a file that is not there yet.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::options().create_new(true).append(true).open(path)?, torn: false })
    }

    /// Opens a file and reads it.
    pub fn open(path: &Path) -> io::Result<(Self, String)> {
        let mut file = File::options().read(true).append(true).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok((Self { file, torn: !text.is_empty() && !text.ends_with('\n') }, text))
    }

    /// Takes the lock without waiting; false when another has it, or when the file was removed
    /// meanwhile.
    pub fn lock(&self) -> io::Result<bool> {
        let held = flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        Ok(held && self.file.metadata()?.nlink() > 0)
    }

    /// Takes the lock that process `pid` left when it died; false when it is alive.
    pub fn lock_dead(&self, pid: u32) -> bool {
        lock_dead(&self.file, pid)
    }

    /// Appends lines in one write. With `sync` the disk has them when this returns.
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

/// Takes the lock of a file whose owner `pid` is dead; false when it is alive.
///
/// A child that the owner was just starting when it was killed holds a copy of the descriptor until
/// its execve closes it. So a lock whose owner has ended is waited for, a little.
pub fn lock_dead(file: &File, pid: u32) -> bool {
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        let alive = Hold::open(pid).is_some_and(|owner| !owner.has_ended());
        if alive || Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Makes the names in a folder survive a crash of the machine.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Every `NAME.journal` in a folder, in the order of the names. None where there is no folder.
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

/// The name of a journal's file without its extension.
pub fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Seconds since the epoch, now.
pub fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
