//! Copies of record files, with what their writer had not merged yet.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::RecordError;

/// What SQLite appends to the name of a record for its write-ahead log and the index of that. Both
/// are left by a writer that was killed.
pub const LOG_SUFFIXES: [&str; 2] = ["-wal", "-shm"];

/// Copies a record that no process writes, and replaces what is at `to`. The log that a killed
/// writer left is merged into the copy, and the log of a record that was at `to` is removed: SQLite
/// would take it for the copy's. A damaged record is copied as it is.
///
/// # Errors
/// If a file cannot be read or written. Then `to` is as before, or without its log.
pub fn copy_record(from: &Path, to: &Path) -> Result<(), RecordError> {
    let part = with_suffix(to, ".part");
    let copied = copy_parts(from, &part).and_then(|()| move_parts(&part, to));
    if copied.is_err() {
        remove_parts(&part);
    }
    copied
}

fn copy_parts(from: &Path, part: &Path) -> Result<(), RecordError> {
    let copy = |from: &Path, to: &Path| {
        fs::copy(from, to).map(drop).map_err(|error| RecordError::file("copy", from, error))
    };
    let [log, to] = [from, part].map(|record| with_suffix(record, LOG_SUFFIXES[0]));
    remove_parts(part);
    copy(from, part)?;
    if log.exists() {
        copy(&log, &to)?;
        // A damaged record stays as it is, with its log beside it.
        if merge_log(part).is_err() {
            remove_parts(part);
            copy(from, part)?;
            copy(&log, &to)?;
        }
    }
    Ok(())
}

fn merge_log(record: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open(record)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))
}

fn move_parts(part: &Path, to: &Path) -> Result<(), RecordError> {
    let failed = |error| RecordError::file("write", to, error);
    for suffix in LOG_SUFFIXES {
        remove(&with_suffix(to, suffix)).map_err(failed)?;
        let log = with_suffix(part, suffix);
        if log.exists() {
            fs::rename(&log, with_suffix(to, suffix)).map_err(failed)?;
        }
    }
    fs::rename(part, to).map_err(failed)
}

fn remove_parts(part: &Path) {
    for path in LOG_SUFFIXES.map(|suffix| with_suffix(part, suffix)) {
        let _ = remove(&path);
    }
    let _ = remove(part);
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
