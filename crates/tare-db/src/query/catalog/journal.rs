//! The journal of the schema: one line for each change, `crc32c-in-hexadecimal JSON`, synced before
//! the change is answered. If the last line has no end, a crash has torn it, and the server cuts it
//! off; any other line that does not match its checksum is an error.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tare_store::cells::{COLUMN_MAX, FIRST_COLUMN};

use super::Change;

/// Why the schema cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot read the schema in {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the schema in {} is damaged at line {line}: {why}", .path.display())]
    Damaged { path: PathBuf, line: usize, why: String },
    #[error("cannot write the schema to {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot encode a change of the schema")]
    Encode { source: serde_json::Error },
}

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Journal {
    /// Reads all changes, cuts a torn tail off, and opens the journal for appending.
    pub(crate) fn open(
        path: &Path,
        apply: impl FnMut(Change, &[u8]),
    ) -> Result<Self, JournalError> {
        let failed = |source| JournalError::Read { path: path.into(), source };
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let file = options.open(path).map_err(failed)?;
        let length = read(path, apply)?;
        file.set_len(length).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(Self { path: path.into(), file, length })
    }

    /// Appends a change durably and returns its line.
    pub(crate) fn append(&mut self, change: &Change) -> Result<Vec<u8>, JournalError> {
        let json = serde_json::to_vec(change).map_err(|source| JournalError::Encode { source })?;
        let mut line = format!("{:08x} ", crc32c::crc32c(&json)).into_bytes();
        line.extend_from_slice(&json);
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // A line that was written in part must not precede the next change.
            let _ = self.file.set_len(self.length);
            return Err(JournalError::Write { path: self.path.clone(), source });
        }
        self.length += line.len() as u64;
        line.pop();
        Ok(line)
    }
}

/// Reads all changes without writing. Returns the length of the journal without a torn tail, in
/// bytes.
pub(crate) fn read(path: &Path, mut apply: impl FnMut(Change, &[u8])) -> Result<u64, JournalError> {
    let bytes =
        fs::read(path).map_err(|source| JournalError::Read { path: path.into(), source })?;
    let mut length = 0;
    for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let Some(line_bytes) = line.strip_suffix(b"\n") else { break };
        let change = decode(line_bytes).map_err(|why| {
            let (path, line) = (path.into(), index + 1);
            JournalError::Damaged { path, line, why }
        })?;
        apply(change, line_bytes);
        length += line.len() as u64;
    }
    Ok(length)
}

fn decode(line: &[u8]) -> Result<Change, String> {
    let (crc, json) = line.split_at_checked(9).ok_or("the line is too short")?;
    let crc = std::str::from_utf8(&crc[..8]).map_err(|error| error.to_string())?;
    let crc = u32::from_str_radix(crc, 16).map_err(|error| error.to_string())?;
    if crc != crc32c::crc32c(json) {
        return Err("the checksum does not match".into());
    }
    let change = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    if let Change::CreateTable { table } | Change::AlterTable { table } = &change
        && table.columns().any(|column| !(FIRST_COLUMN..=COLUMN_MAX).contains(&column.number))
    {
        return Err("it was written by a version whose data this one cannot read".into());
    }
    Ok(change)
}
