//! The directory of a tool on a loader. It goes with the agent; one that was killed leaves it, and
//! the next agent or `tare clean` removes it. An agent that lives holds a lock on its own.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tare_host::clean::Outcome;
use tare_host::housekeeping::Cleaned;
use tare_std::file_lock::FileLock;

use super::ToolError;

/// Where the directories are, and how their names begin, before the process id of the agent and a
/// number: agents in several process namespaces may share the directory.
const PARENT: &str = "/var/tmp";
const PREFIX: &str = "tare-loader-";

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    _lock: FileLock,
}

impl Scratch {
    /// Creates the directory of this process, and removes those of dead ones.
    pub(super) fn create() -> Result<Self, ToolError> {
        remove_dead(Path::new(PARENT));
        Self::create_in(Path::new(PARENT))
    }

    fn create_in(parent: &Path) -> Result<Self, ToolError> {
        let pid = std::process::id();
        let mut path = PathBuf::new();
        for number in 0..100 {
            path = parent.join(format!("{PREFIX}{pid}-{number}"));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(ToolError::Scratch { path, source }),
                // Another agent that starts just now may take it for that of a dead one.
                Ok(()) => {
                    if let Ok(Some(lock)) = lock(&path) {
                        return Ok(Self { path, _lock: lock });
                    }
                }
            }
        }
        let source = io::ErrorKind::AlreadyExists.into();
        Err(ToolError::Scratch { path, source })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks a directory; `None` if its agent lives.
fn lock(path: &Path) -> io::Result<Option<FileLock>> {
    FileLock::exclusive(File::open(path)?)
}

/// Removes the directories of agents that were killed.
pub(crate) fn clean(_state: &Path) -> Vec<Cleaned> {
    remove_dead(Path::new(PARENT))
}

fn remove_dead(parent: &Path) -> Vec<Cleaned> {
    let mut cleaned = Vec::new();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        // A link is not followed.
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !name.starts_with(PREFIX) || !is_directory || matches!(lock(&path), Ok(None)) {
            continue;
        }
        let (outcome, said) = match fs::remove_dir_all(&path) {
            Ok(()) => (Outcome::Cleaned { entries: 1 }, "removed".to_string()),
            Err(error) => {
                let line = format!("cannot be removed: {error}");
                (Outcome::Failed { errors: vec![line.clone()] }, line)
            }
        };
        let line = format!("directory of a killed loader {}: {said}", path.display());
        cleaned.push(Cleaned { id: name, outcome, line });
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_dead_agents_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["tare-loader-1-0", "tare-0123456789abcdef"] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        let alive = [(); 2].map(|()| Scratch::create_in(parent.path()).unwrap());
        let cleaned = remove_dead(parent.path());
        let ids: Vec<&str> = cleaned.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["tare-loader-1-0"]);
        assert!(alive.iter().all(|one| one.path().exists()));
        let of_first = alive[0].path().to_path_buf();
        drop(alive);
        assert!(!of_first.exists());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }
}
