//! Whether files in a directory can be read and written past the page cache.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fstatfs};
use tare_store::Chunk;
use tare_store::chunk::ALIGNMENT;

/// What was found out by trying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectIo {
    pub(crate) works: bool,
    /// What refused it, with the errno, or that it was tried.
    pub(crate) why: String,
    /// The kind of the file system, as mount(8) names it, or its magic number.
    pub(crate) file_system: String,
}

const NAME: &str = "probe";

/// Writes a block past the page cache, reads it back, and removes it. Everything else that can be
/// wrong with the directory will show where it matters, so that any failure means "no".
pub(crate) fn probe(directory: &Path) -> DirectIo {
    let path = directory.join(NAME);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    options.custom_flags(OFlags::DIRECT.bits().cast_signed());
    let tried = options.open(&path).and_then(|file| try_block(&file));
    // It is only there if it could be opened.
    let _ = fs::remove_file(&path);
    let file_system = File::open(directory).map_or_else(|_| "unknown".into(), |d| kind(&d));
    let why = match &tried {
        Ok(()) => "tried".to_string(),
        Err(error) => match error.raw_os_error() {
            Some(errno) => format!("{error} (errno {errno})"),
            None => error.to_string(),
        },
    };
    DirectIo { works: tried.is_ok(), why, file_system }
}

fn try_block(file: &File) -> io::Result<()> {
    let mut chunk = Chunk::new(ALIGNMENT);
    chunk.take(ALIGNMENT).fill(0x5a);
    file.write_all_at(chunk.bytes(), 0)?;
    chunk.bytes_mut().fill(0);
    let length = file.read_at(chunk.bytes_mut(), 0)?;
    match length == ALIGNMENT && chunk.bytes().iter().all(|&byte| byte == 0x5a) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "it returned other bytes")),
    }
}

/// Magic numbers: statfs(2), linux/magic.h.
fn kind(directory: &File) -> String {
    let Ok(found) = fstatfs(directory) else { return "unknown".into() };
    let name = match found.f_type {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0xf2f5_2010 => "f2fs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlay",
        0x0102_1997 => "9p",
        0x6573_5546 => "fuse",
        0x6969 => "nfs",
        0x2fc1_2fc1 => "zfs",
        other => return format!("{other:#x}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_nothing_behind_and_names_the_file_system() {
        let directory = tempfile::tempdir().unwrap();
        let found = probe(directory.path());
        assert!(found.works || found.why.contains("errno"), "{found:?}");
        assert_ne!(found.file_system, "unknown");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_written_is_no_direct_io() {
        let found = probe(Path::new("/proc/self"));
        assert!(!found.works && found.why.contains("errno"), "{found:?}");
    }
}
