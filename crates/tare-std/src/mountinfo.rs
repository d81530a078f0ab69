//! The mount table of a process: `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).
//!
//! Method: works on the text, so that callers may read it from a recorded host. The crate `procfs`
//! reads the same file, but brings three more crates, and the crates that need the table
//! (the database among them) need nothing else of it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// `MAJOR:MINOR` of the file system. The major number is 0 where the file system has no device,
    /// and on btrfs.
    pub number: &'a str,
    /// The directory within the file system that is mounted.
    pub root: PathBuf,
    /// The mount point, as the process sees it.
    pub point: PathBuf,
    /// Options of the mount, separated by commas.
    pub options: &'a str,
    /// The type of the file system, such as `ext4`.
    pub file_system: &'a str,
    /// What is mounted, such as `/dev/vda1`.
    pub source: PathBuf,
    /// Options of the superblock, separated by commas, as they are written in the table.
    pub super_options: &'a str,
}

impl<'a> Mount<'a> {
    /// Parses a line. `None` if it is not a line of a mount table.
    fn parse(line: &'a str) -> Option<Self> {
        // id parent major:minor root point options optional* - type source superoptions
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        let mut right = right.split(' ');
        Some(Self {
            number: left.next()?,
            root: unescape(left.next()?),
            point: unescape(left.next()?),
            options: left.next()?,
            file_system: right.next()?,
            source: unescape(right.next()?),
            super_options: right.next().unwrap_or_default(),
        })
    }
}

/// Returns the mounts of a table, in the order in which they were mounted. Other lines are skipped.
pub fn mounts(table: &str) -> impl DoubleEndedIterator<Item = Mount<'_>> {
    table.lines().filter_map(Mount::parse)
}

/// Returns the mount that holds an absolute path: of those with the longest mount point the last,
/// which is on top.
pub fn mount_of<'a>(table: &'a str, path: &Path) -> Option<Mount<'a>> {
    let holding = mounts(table).filter(|mount| path.starts_with(&mount.point));
    // `max_by_key` takes the last of equals.
    holding.max_by_key(|mount| mount.point.components().count())
}

/// Decodes a path: space, tab, line break and backslash are written as a backslash and three octal
/// digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        30 27 0:30 / /data rw - tmpfs none rw\n\
        31 27 8:1 /sub /data ro,noatime shared:2 master:1 - xfs /dev/sda1 rw,attr2\n\
        no line of a table\n\
        32 27 0:40 / /data/a\\040b rw - nfs4 host:/x\n";

    #[test]
    fn every_field_is_parsed() {
        let all: Vec<Mount<'_>> = mounts(TABLE).collect();
        assert_eq!(all.len(), 4);
        let expect = Mount {
            number: "8:1",
            root: "/sub".into(),
            point: "/data".into(),
            options: "ro,noatime",
            file_system: "xfs",
            source: "/dev/sda1".into(),
            super_options: "rw,attr2",
        };
        assert_eq!(all[2], expect);
        assert_eq!(all[3].super_options, "");
    }

    #[test]
    fn a_path_is_on_the_longest_and_last_mount() {
        let check = |path: &str, expect: &str| {
            assert_eq!(mount_of(TABLE, Path::new(path)).unwrap().file_system, expect, "{path}");
        };
        check("/etc", "ext4");
        check("/data", "xfs");
        check("/data/b", "xfs");
        check("/database", "ext4");
        check("/data/a b/c", "nfs4");
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn escapes_are_bytes() {
        assert_eq!(unescape(r"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(r"/plain\x"), Path::new(r"/plain\x"));
        assert_eq!(unescape(r"/\303\244"), Path::new("/ä"));
    }
}
