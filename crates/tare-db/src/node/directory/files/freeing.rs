//! Frees the blocks of removed files piece by piece.
//!
//! A file system that is mounted with `discard` (ext4(5), xfs(5)) tells the disk at once which
//! blocks are free. A disk may take a second for 4 GB, and all else waits for it meanwhile. So a
//! large file loses its name first, and then one piece after the other. A file that still has a
//! name, such as that of a snapshot, keeps its blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Bytes that are freed at a time.
pub(super) const PIECE_BYTES: u64 = 16 << 20;
/// The pause after a piece.
const PAUSE: Duration = Duration::from_millis(100);
/// The time in which everything that waits should be free. Pauses are shorter for it.
const TIME_MAX: Duration = Duration::from_secs(60);

/// A file, and its length.
type Removed = (Arc<File>, u64);

/// The files that are being freed, by a thread that the first large one starts.
#[derive(Debug, Default)]
pub(super) struct Freeing {
    /// `None` if the thread could not be started.
    files: OnceLock<Option<Sender<Removed>>>,
    waiting_bytes: Arc<AtomicU64>,
}

impl Freeing {
    /// Frees a file that was removed. Without a thread, closing it frees all at once.
    pub(super) fn free(&self, file: Arc<File>) {
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        if bytes <= PIECE_BYTES {
            return;
        }
        let start = || start(Arc::clone(&self.waiting_bytes)).ok();
        if let Some(files) = self.files.get_or_init(start) {
            self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
            // The thread ends only after this value.
            let _ = files.send((file, bytes));
        }
    }
}

fn start(waiting_bytes: Arc<AtomicU64>) -> io::Result<Sender<Removed>> {
    let (files, removed) = channel::<Removed>();
    let life = move || {
        for (file, bytes) in removed {
            // What is left is freed when the file is closed.
            let _ = shrink(&file, bytes, &waiting_bytes);
            drop(file);
            waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    };
    std::thread::Builder::new().name("freeing".into()).spawn(life)?;
    Ok(files)
}

/// Shortens a file to one piece. Where the disk has less room than the file has left, it stops.
fn shrink(file: &File, mut bytes: u64, waiting_bytes: &AtomicU64) -> io::Result<()> {
    while bytes > PIECE_BYTES && file.metadata()?.nlink() == 0 {
        let disk = rustix::fs::fstatvfs(file)?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < bytes {
            return Ok(());
        }
        bytes -= PIECE_BYTES;
        file.set_len(bytes)?;
        // A journal would collect the pieces until it commits.
        file.sync_all()?;
        std::thread::sleep(pause(waiting_bytes.load(Ordering::Relaxed)));
    }
    Ok(())
}

/// The pause after a piece while so many bytes wait.
fn pause(waiting_bytes: u64) -> Duration {
    let pieces = u32::try_from(waiting_bytes / PIECE_BYTES).unwrap_or(u32::MAX);
    PAUSE.min(TIME_MAX / pieces.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_shorter_while_much_waits() {
        assert_eq!(pause(10 * PIECE_BYTES), PAUSE);
        assert_eq!(pause(6000 * PIECE_BYTES), TIME_MAX / 6000);
        assert_eq!(pause(u64::MAX), TIME_MAX / u32::MAX);
    }
}
