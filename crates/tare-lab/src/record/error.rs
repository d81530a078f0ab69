//! What can be wrong with a record file.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why a record cannot be made, written or read. Each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{path} exists already; records are never overwritten: choose another name with --output, or go on with it by --resume {path}", path = .path.display())]
    Exists { path: PathBuf },
    #[error("there is no record {}", .path.display())]
    Missing { path: PathBuf },
    #[error("{} is no record of Tare", .path.display())]
    NoRecord { path: PathBuf },
    #[error("{} is a record of version {found}, and this Tare reads up to version {known}; use a newer Tare", .path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("{} is being written by a study that still runs; wait for it, or stop it", .path.display())]
    Locked { path: PathBuf },
    #[error("the disk is full: cannot write {}; free some space and go on with --resume", .path.display())]
    DiskFull { path: PathBuf },
    #[error("cannot {operation} {}: permission denied; choose a folder that you may write to with --output", .path.display())]
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
