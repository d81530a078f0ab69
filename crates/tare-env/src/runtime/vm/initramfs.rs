//! The guest's root: a cpio archive in the `newc` format, which the kernel unpacks
//! (Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! It holds the program, the host's files that the system needs, the modules, and the two device
//! files that a process needs for its standard streams before /dev is mounted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::runtime::bundle::MOUNT_POINTS;

/// File types and modes of stat(2).
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const PLAIN: u32 = 0o100_644;
const DEVICE: u32 = 0o020_600;

/// The name of the program in the guest's root.
pub(crate) const PROGRAM_NAME: &str = "tare";

/// The contents of the archive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents<'a> {
    pub(crate) program: &'a Path,
    /// Files of the host, copied to the same paths.
    pub(crate) files: &'a [PathBuf],
    /// The names and contents of the modules.
    pub(crate) modules: &'a [(String, Vec<u8>)],
    /// The modules that the guest loads before it receives orders.
    pub(crate) boot: &'a [String],
    /// The bundle in `/bundle`, if an OCI runtime is among the files.
    pub(crate) bundle: Option<&'a Bundle>,
}

/// A container's configuration, and the files that need mount points in its root.
#[derive(Clone, Debug)]
pub(crate) struct Bundle {
    pub(crate) config: String,
    pub(crate) files: Vec<PathBuf>,
}

/// Writes the archive.
pub(crate) fn write(path: &Path, contents: &Contents<'_>) -> io::Result<()> {
    let mut archive = Archive { out: BufWriter::new(File::create(path)?), files: 0, bytes: 0 };
    for folder in ["dev", "modules"] {
        archive.entry(folder, DIRECTORY, (0, 0), &[])?;
    }
    // Major and minor numbers from Documentation/admin-guide/devices.txt.
    archive.entry("dev/console", DEVICE, (5, 1), &[])?;
    archive.entry("dev/null", DEVICE, (1, 3), &[])?;
    archive.entry(PROGRAM_NAME, PROGRAM, (0, 0), &fs::read(contents.program)?)?;
    let files = whole(contents.files)?;
    archive.folders("", &files)?;
    for file in &files {
        archive.entry(&name_of(file), PROGRAM, (0, 0), &fs::read(file)?)?;
    }
    if let Some(bundle) = contents.bundle {
        for folder in ["bundle", "bundle/rootfs"] {
            archive.entry(folder, DIRECTORY, (0, 0), &[])?;
        }
        for name in MOUNT_POINTS {
            archive.entry(&format!("bundle/rootfs/{name}"), DIRECTORY, (0, 0), &[])?;
        }
        let (folders, files): (Vec<_>, Vec<_>) =
            bundle.files.iter().cloned().partition(|path| path.is_dir());
        // A path below each makes the directory itself a mount point.
        let within: Vec<PathBuf> = folders.iter().map(|folder| folder.join("-")).collect();
        archive.folders("bundle/rootfs/", &[within, files.clone()].concat())?;
        for file in files.iter().map(|file| name_of(file)).chain([PROGRAM_NAME.into()]) {
            archive.entry(&format!("bundle/rootfs/{file}"), PLAIN, (0, 0), &[])?;
        }
        archive.entry("bundle/config.json", PLAIN, (0, 0), bundle.config.as_bytes())?;
    }
    for (name, content) in contents.modules {
        archive.entry(&format!("modules/{name}.ko"), PLAIN, (0, 0), content)?;
    }
    let list: String = contents.boot.iter().map(|name| format!("{name}\n")).collect();
    archive.entry("modules/boot", PLAIN, (0, 0), list.as_bytes())?;
    archive.entry("TRAILER!!!", 0, (0, 0), &[])?;
    archive.out.flush()
}

/// Returns the files, with each directory replaced by all files below it. Links are followed.
fn whole(paths: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut left: Vec<PathBuf> = paths.to_vec();
    while let Some(path) = left.pop() {
        match fs::metadata(&path) {
            Ok(data) if data.is_dir() => {
                for entry in fs::read_dir(&path)? {
                    left.push(entry?.path());
                }
            }
            Ok(_) => files.push(path),
            // A dangling link is left out.
            Err(error) if path.is_symlink() && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

/// Returns the name of a path in the archive, which has no leading slash.
fn name_of(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').to_string()
}

struct Archive<W> {
    out: W,
    files: u32,
    bytes: usize,
}

impl<W: Write> Archive<W> {
    /// Adds the directories of these files, each before its contents.
    fn folders(&mut self, below: &str, files: &[PathBuf]) -> io::Result<()> {
        let parents = files.iter().flat_map(|file| file.ancestors().skip(1));
        let names = parents.map(name_of).filter(|name| !name.is_empty());
        for folder in names.collect::<BTreeSet<_>>() {
            self.entry(&format!("{below}{folder}"), DIRECTORY, (0, 0), &[])?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        name: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        self.files += 1;
        let size = u32::try_from(content.len()).map_err(io::Error::other)?;
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        // inode, mode, uid, gid, links, mtime, size, device, device of a device file, name,
        // checksum
        let (number, (major, minor)) = (self.files, device);
        let fields = [number, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0];
        let header: String = fields.iter().map(|field| format!("{field:08x}")).collect();
        self.put(b"070701")?;
        self.put(header.as_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad()?;
        self.put(content)?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len();
        self.out.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        let zeros = self.bytes.next_multiple_of(4) - self.bytes;
        self.put(&[0; 4][..zeros])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_have_their_sizes() {
        let mut archive = Archive { out: Vec::new(), files: 0, bytes: 0 };
        archive.entry("ab", PLAIN, (0, 0), b"hello").unwrap();
        archive.entry("TRAILER!!!", 0, (0, 0), &[]).unwrap();
        let text = String::from_utf8(archive.out).unwrap();
        let head = "07070100000001000081a40000000000000000000000010000000000000005\
                    000000000000000000000000000000000000000300000000ab\0";
        assert!(text.starts_with(head), "{text:?}");
        // 110 bytes of header and 3 of the name are padded to 116.
        assert_eq!(&text[116..121], "hello");
        assert_eq!(&text[124..130], "070701");
        assert_eq!(text.len() % 4, 0);
    }
}
