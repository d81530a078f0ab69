//! The lock of a file (flock) that ends when it is dropped.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;

/// A locked file. The kernel releases the lock however the process ends.
///
/// Closing the file is not enough to release it here: a child between its fork and its execve has a
/// copy of the descriptor, and with it the lock. Unlocking takes it from all copies (flock(2)).
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks a file against everybody else, without waiting; `None` if it is locked.
    ///
    /// # Errors
    /// When the file system cannot lock files.
    pub fn exclusive(file: File) -> io::Result<Option<Self>> {
        Self::taken(file.try_lock(), file)
    }

    /// Locks a file against exclusive locks, without waiting; `None` if there is one.
    ///
    /// # Errors
    /// As [`FileLock::exclusive`].
    pub fn shared(file: File) -> io::Result<Option<Self>> {
        Self::taken(file.try_lock_shared(), file)
    }

    fn taken(locked: Result<(), TryLockError>, file: File) -> io::Result<Option<Self>> {
        match locked {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Deref for FileLock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_the_descriptor_do_not_keep_it() {
        let path = std::env::temp_dir().join(format!("tare-file-lock-{}", std::process::id()));
        let open = || File::create(&path).unwrap();
        let lock = FileLock::exclusive(open()).unwrap().unwrap();
        assert!(FileLock::exclusive(open()).unwrap().is_none());
        assert!(FileLock::shared(open()).unwrap().is_none());
        let copy = lock.try_clone().unwrap();
        drop(lock);

        let shared = FileLock::shared(open()).unwrap().unwrap();
        assert!(FileLock::shared(open()).unwrap().is_some());
        assert!(FileLock::exclusive(open()).unwrap().is_none());
        drop((shared, copy));
        assert!(FileLock::exclusive(open()).unwrap().is_some());
        std::fs::remove_file(&path).unwrap();
    }
}
