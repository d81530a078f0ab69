//! The cache of trial outcomes, such as whether KVM boots a guest on this host.
//!
//! Each kind of trial has one JSON file, whose content names the host and the program that it holds
//! for. A cached outcome costs nothing to lose: the next run tries again.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The directory of the files, shared by all state directories.
pub(crate) const FOLDER: &str = "/var/cache/tare";

/// Reads a file of the cache, or returns `None` if it is missing or in another format.
pub(crate) fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> Option<T> {
    serde_json::from_str(&fs::read_to_string(folder.join(name)).ok()?).ok()
}

/// Replaces a file of the cache. A failure leaves the file as it was.
pub(crate) fn write<T: Serialize>(folder: &Path, name: &str, outcome: &T) {
    let Ok(text) = serde_json::to_string(outcome) else { return };
    let new = folder.join(format!("{name}.{}", std::process::id()));
    let written = fs::create_dir_all(folder)
        .and_then(|()| fs::write(&new, text + "\n"))
        .and_then(|()| fs::rename(&new, folder.join(name)));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_is_read_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        assert_eq!(read::<u32>(&cache, "trial.json"), None);
        write(&cache, "trial.json", &7);
        assert_eq!(read::<u32>(&cache, "trial.json"), Some(7));
        assert_eq!(read::<String>(&cache, "trial.json"), None, "another format");
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 1, "no temporary file is left");
    }
}
