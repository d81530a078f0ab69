//! Errors of record files.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why a record cannot be created, written or read. Each text is one line, with advice.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{path} exists already, and records are never overwritten; choose another name with --output, or continue it with --resume {path}", path = .path.display())]
    Exists { path: PathBuf },
    #[error("no record at {}", .path.display())]
    Missing { path: PathBuf },
    #[error("{} is not a record of Tare", .path.display())]
    NoRecord { path: PathBuf },
    #[error("{} is a record of version {found}, and this Tare reads up to version {known}; use a newer Tare", .path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("{} is in use by a running study; wait for it, or stop it", .path.display())]
    Locked { path: PathBuf },
    #[error("the disk is full: cannot write {}; free some space and continue with --resume", .path.display())]
    DiskFull { path: PathBuf },
    #[error("cannot {operation} {}: permission denied; choose a writable folder with --output", .path.display())]
    Denied { operation: &'static str, path: PathBuf },
    #[error("the record {} is damaged: {what}", .path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("cannot {operation} {}", .path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot {operation} the record {}", .path.display())]
    Sqlite {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
}

impl RecordError {
    pub(super) fn sqlite(
        operation: &'static str,
        path: &Path,
        source: rusqlite::Error,
    ) -> RecordError {
        let path = path.to_path_buf();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull { path },
            Some(ErrorCode::NotADatabase) => Self::NoRecord { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked { path },
            Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                Self::Denied { operation, path }
            }
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, what: source.to_string() },
            _ => Self::Sqlite { operation, path, source },
        }
    }

    pub(super) fn file(operation: &'static str, path: &Path, source: std::io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            std::io::ErrorKind::AlreadyExists => Self::Exists { path },
            std::io::ErrorKind::NotFound if operation == "open" => Self::Missing { path },
            std::io::ErrorKind::PermissionDenied => Self::Denied { operation, path },
            std::io::ErrorKind::StorageFull => Self::DiskFull { path },
            _ => Self::File { operation, path, source },
        }
    }
}
