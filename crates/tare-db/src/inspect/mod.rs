//! Inspects data without a server: [`check`] verifies a whole data directory, [`dump`] prints a
//! table file. Both only read.

mod check;
mod dump;
mod names;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tare_store::FileId;
use tare_store::table::{PAGE_BYTES, TableError};

use crate::JournalError;
use crate::node::directory::DirectoryError;

pub use check::{CheckSummary, Finding, check};
pub use dump::{Format, dump};

/// Why data cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("{} is no data directory: it has no file \"shards\"", .path.display())]
    NoData { path: PathBuf },
    #[error("{} is no table file: their names are like 00000001.table", .path.display())]
    NoTable { path: PathBuf },
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Schema(#[from] JournalError),
    #[error("in {}", .folder.display())]
    Table { folder: PathBuf, source: TableError },
    #[error("cannot print")]
    Print { source: io::Error },
}

/// A table file that is open for reading.
#[derive(Debug)]
struct TableFile {
    file: File,
    number: u64,
}

impl TableFile {
    fn open(path: &Path) -> Result<Self, InspectError> {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(FileId::Table(number)) = name.and_then(FileId::from_file_name) else {
            return Err(InspectError::NoTable { path: path.into() });
        };
        let file = OpenOptions::new().read(true).open(path);
        let file = file.map_err(|source| InspectError::Read { path: path.into(), source })?;
        Ok(Self { file, number })
    }

    fn reader(&self) -> impl FnMut(u64, &mut [u8]) -> io::Result<usize> {
        |offset, buffer: &mut [u8]| self.file.read_at(buffer, offset)
    }
}

/// The used length of a file, in whole pages: reserved space that is not used is zeros.
fn used_bytes(file: &File) -> io::Result<u64> {
    let mut page = [0; PAGE_BYTES];
    let mut bytes = file.metadata()?.len();
    while bytes > 0 && bytes.is_multiple_of(PAGE_BYTES as u64) {
        file.read_exact_at(&mut page, bytes - PAGE_BYTES as u64)?;
        if page.iter().any(|&byte| byte != 0) {
            break;
        }
        bytes -= PAGE_BYTES as u64;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
