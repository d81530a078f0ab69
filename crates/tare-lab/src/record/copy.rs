//! Copies of record files, with what their writer had not merged yet.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::RecordError;

/// Returns the paths of the write-ahead log of a record and of the index of that. A writer that
/// was killed leaves both.
pub fn logs_of(record: &Path) -> [PathBuf; 2] {
    ["-wal", "-shm"].map(|suffix| with_suffix(record, suffix))
}

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
    let ([log, _], [to, _]) = (logs_of(from), logs_of(part));
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
    for (log, to) in logs_of(part).iter().zip(&logs_of(to)) {
        remove(to).map_err(failed)?;
        if log.exists() {
            fs::rename(log, to).map_err(failed)?;
        }
    }
    fs::rename(part, to).map_err(failed)
}

fn remove_parts(part: &Path) {
    for path in logs_of(part).iter().map(PathBuf::as_path).chain([part]) {
        let _ = remove(path);
    }
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
