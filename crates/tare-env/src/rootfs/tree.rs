//! Describes every file below a directory in one line, to compare two states of the directory.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Paths below the directory, each with permissions, owner, kind and content (the SHA-256 of a file
/// or the target of a link). Times are left out.
pub(super) type Files = BTreeMap<String, String>;

/// Reads a directory and everything below it, also on other file systems.
pub(super) fn read(root: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            files.insert(name, line(&path)?);
            if path.symlink_metadata()?.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(files)
}

fn line(path: &Path) -> io::Result<String> {
    let about = path.symlink_metadata()?;
    let kind = about.file_type();
    let content = if kind.is_symlink() {
        format!("link {}", fs::read_link(path)?.display())
    } else if kind.is_file() {
        format!("file {}", sha256_of(File::open(path)?)?)
    } else if kind.is_dir() {
        "directory".into()
    } else if kind.is_char_device() || kind.is_block_device() {
        format!("device {:x}", about.rdev())
    } else {
        "other".into()
    };
    Ok(format!("{:o} {}:{} {content}", about.mode() & 0o7777, about.uid(), about.gid()))
}

fn sha256_of(mut file: File) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hex(&digest.finalize())),
            count => digest.update(&chunk[..count]),
        }
    }
}

/// Returns the SHA-256 of bytes in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns one digest of all files.
pub(super) fn digest(files: &Files) -> String {
    let text: String = files.iter().map(|(path, line)| format!("{path}\0{line}\n")).collect();
    sha256(text.as_bytes())
}

/// Returns the paths of files that differ or exist in only one of the two.
pub(super) fn differences(wanted: &Files, found: &Files) -> Vec<String> {
    let changed = wanted.iter().filter(|(path, line)| found.get(*path) != Some(line));
    let new = found.keys().filter(|path| !wanted.contains_key(*path));
    changed.map(|(path, _)| path).chain(new).cloned().collect()
}
