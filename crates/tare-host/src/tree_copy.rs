//! Copies of directories that share with the original what they can.
//!
//! Method: a file that never changes becomes a hard link. Every other file becomes a reflink
//! (ioctl_ficlone(2)) where the file system can, and a copy elsewhere. Owners and modes are those
//! of the original. The space is checked before the first file is copied. At the end the file
//! system is synced, so that the copy is not written back while something is measured.
//!
//! Limits: sockets, pipes, devices and extended attributes are left out. A hole becomes zeros.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::{ioctl_ficlone, statvfs, syncfs};
use rustix::io::Errno;

/// Why a directory cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum TreeCopyError {
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "there is no space for a copy of {} MiB in {}, whose file system has {} MiB left",
        .needed_bytes.div_ceil(1 << 20), .path.display(), .free_bytes >> 20
    )]
    Space { path: PathBuf, needed_bytes: u64, free_bytes: u64 },
}

/// What becomes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// Its content never changes, so both directories may have the same file.
    Constant,
    /// Its content may change.
    Changing,
    /// It is not copied; nor is what a directory has below it.
    LeftOut,
}

/// The bytes of the files of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCopy {
    /// Shared by hard links.
    pub linked_bytes: u64,
    /// Shared by reflinks.
    pub cloned_bytes: u64,
    pub copied_bytes: u64,
}

/// The contents of a directory, with paths below it.
#[derive(Debug, Default)]
struct Listing {
    /// Each directory before those in it.
    directories: Vec<PathBuf>,
    links: Vec<PathBuf>,
    constant: Vec<(PathBuf, u64)>,
    changing: Vec<(PathBuf, u64)>,
}

/// What the file systems of a copy have turned out to allow.
#[derive(Debug)]
struct Sharing {
    by_link: bool,
    by_clone: bool,
    has_space: bool,
}

/// Copies what is in the directory `from` into the existing directory `to`. `use_of` says what
/// becomes of a file, by its path below `from`.
///
/// # Errors
/// `to` may have a part of the copy then, which the caller removes.
pub fn copy_tree(
    from: &Path,
    to: &Path,
    use_of: &dyn Fn(&Path) -> FileUse,
) -> Result<TreeCopy, TreeCopyError> {
    let mut listing = Listing::default();
    list(from, Path::new(""), use_of, &mut listing)?;
    for directory in &listing.directories {
        let path = to.join(directory);
        fs::create_dir(&path).map_err(|source| TreeCopyError::Write { path, source })?;
    }
    let mut copied = TreeCopy::default();
    let mut sharing = Sharing { by_link: true, by_clone: true, has_space: false };
    let files = [(true, &listing.constant), (false, &listing.changing)];
    let mut left_bytes: u64 = files.iter().flat_map(|(_, files)| *files).map(|(_, len)| len).sum();
    for (is_constant, files) in files {
        for (name, len) in files {
            let (from, to_file) = (from.join(name), to.join(name));
            if is_constant && sharing.link(&from, &to_file)? {
                copied.linked_bytes += len;
            } else if sharing.clone(&from, &to_file)? {
                copied.cloned_bytes += len;
            } else {
                sharing.check_space(to, left_bytes)?;
                copied.copied_bytes += copy_file(&from, &to_file)?;
            }
            left_bytes = left_bytes.saturating_sub(*len);
        }
    }
    for link in &listing.links {
        copy_link(&from.join(link), &to.join(link))?;
    }
    // Last, because a mode may forbid to write into the directory.
    for directory in listing.directories.iter().rev() {
        copy_attributes(&from.join(directory), &to.join(directory))?;
    }
    let synced = File::open(to).and_then(|folder| Ok(syncfs(folder)?));
    synced.map_err(|source| TreeCopyError::Write { path: to.into(), source })?;
    Ok(copied)
}

fn list(
    from: &Path,
    below: &Path,
    use_of: &dyn Fn(&Path) -> FileUse,
    listing: &mut Listing,
) -> Result<(), TreeCopyError> {
    let folder = from.join(below);
    let fail = |source| TreeCopyError::Read { path: folder.clone(), source };
    for entry in fs::read_dir(&folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = below.join(entry.file_name());
        let file_use = use_of(&name);
        if file_use == FileUse::LeftOut {
            continue;
        }
        let about = entry.metadata().map_err(fail)?;
        if about.is_dir() {
            listing.directories.push(name.clone());
            list(from, &name, use_of, listing)?;
        } else if about.is_symlink() {
            listing.links.push(name);
        } else if about.is_file() && file_use == FileUse::Constant {
            listing.constant.push((name, about.len()));
        } else if about.is_file() {
            listing.changing.push((name, about.len()));
        }
    }
    Ok(())
}

impl Sharing {
    /// Makes a hard link; false if that is impossible here.
    fn link(&mut self, from: &Path, to: &Path) -> Result<bool, TreeCopyError> {
        if !self.by_link {
            return Ok(false);
        }
        match fs::hard_link(from, to).map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(()) => Ok(true),
            // EMLINK concerns this file alone.
            Err((Some(Errno::MLINK), _)) => Ok(false),
            Err((Some(Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP), _)) => {
                self.by_link = false;
                Ok(false)
            }
            Err((_, source)) => Err(TreeCopyError::Write { path: to.into(), source }),
        }
    }

    /// Makes a reflink; false if that is impossible here.
    fn clone(&mut self, from: &Path, to: &Path) -> Result<bool, TreeCopyError> {
        if !self.by_clone {
            return Ok(false);
        }
        let source = open(from)?;
        let target = create(to)?;
        match ioctl_ficlone(&target, &source) {
            Ok(()) => copy_attributes(from, to).map(|()| true),
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::PERM) => {
                self.by_clone = false;
                let removed = fs::remove_file(to);
                removed.map_err(|source| TreeCopyError::Write { path: to.into(), source })?;
                Ok(false)
            }
            Err(error) => Err(TreeCopyError::Write { path: to.into(), source: error.into() }),
        }
    }

    /// Checks once that all files that are left fit into the file system of `to`.
    fn check_space(&mut self, to: &Path, needed_bytes: u64) -> Result<(), TreeCopyError> {
        if self.has_space {
            return Ok(());
        }
        let about = statvfs(to)
            .map_err(|error| TreeCopyError::Read { path: to.into(), source: error.into() })?;
        let free_bytes = about.f_bavail.saturating_mul(about.f_frsize);
        if free_bytes < needed_bytes {
            return Err(TreeCopyError::Space { path: to.into(), needed_bytes, free_bytes });
        }
        self.has_space = true;
        Ok(())
    }
}

fn open(path: &Path) -> Result<File, TreeCopyError> {
    File::open(path).map_err(|source| TreeCopyError::Read { path: path.into(), source })
}

fn create(path: &Path) -> Result<File, TreeCopyError> {
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    made.map_err(|source| TreeCopyError::Write { path: path.into(), source })
}

fn copy_file(from: &Path, to: &Path) -> Result<u64, TreeCopyError> {
    let (mut source, mut target) = (open(from)?, create(to)?);
    let copied = io::copy(&mut source, &mut target);
    let bytes = copied.map_err(|source| TreeCopyError::Write { path: to.into(), source })?;
    copy_attributes(from, to)?;
    Ok(bytes)
}

fn copy_link(from: &Path, to: &Path) -> Result<(), TreeCopyError> {
    let read = |source| TreeCopyError::Read { path: from.into(), source };
    let target = fs::read_link(from).map_err(read)?;
    let about = fs::symlink_metadata(from).map_err(read)?;
    std::os::unix::fs::symlink(target, to)
        .and_then(|()| lchown(to, Some(about.uid()), Some(about.gid())))
        .map_err(|source| TreeCopyError::Write { path: to.into(), source })
}

/// Gives a file or directory the owner, group and mode of another.
fn copy_attributes(from: &Path, to: &Path) -> Result<(), TreeCopyError> {
    let about =
        fs::metadata(from).map_err(|source| TreeCopyError::Read { path: from.into(), source })?;
    let mode = fs::Permissions::from_mode(about.mode() & 0o7777);
    // A change of the owner takes the set-user-id bit away, so the mode comes after it.
    chown(to, Some(about.uid()), Some(about.gid()))
        .and_then(|()| fs::set_permissions(to, mode))
        .map_err(|source| TreeCopyError::Write { path: to.into(), source })
}

#[cfg(test)]
mod tests {
    use tare_testkit::{Machine, Need, skip, skipped};

    use super::*;
    use crate::exec::{Command, ExecError};

    /// Fills a directory with one file of each kind.
    fn fill(folder: &Path) {
        fs::create_dir_all(folder.join("inner/deep")).unwrap();
        fs::create_dir(folder.join("temporary")).unwrap();
        for (name, bytes) in [("inner/rows", 5000), ("inner/deep/log", 300), ("temporary/x", 1)] {
            fs::write(folder.join(name), vec![b'x'; bytes]).unwrap();
        }
        std::os::unix::fs::symlink("rows", folder.join("inner/link")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap());
        let only_owner = |name: &str, mode| {
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        only_owner("inner/deep/log", 0o600);
        only_owner("inner/deep", 0o500);
    }

    fn use_of(path: &Path) -> FileUse {
        match path.to_str() {
            Some("inner/rows") => FileUse::Constant,
            Some("temporary") => FileUse::LeftOut,
            _ => FileUse::Changing,
        }
    }

    fn inode(path: &Path) -> u64 {
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn copy_links_constant_files_and_keeps_modes() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fill(&from);
        fs::create_dir(&to).unwrap();
        let copied = copy_tree(&from, &to, &use_of).unwrap();
        assert_eq!(copied.linked_bytes, 5000);
        assert_eq!(copied.cloned_bytes + copied.copied_bytes, 300);
        assert_eq!(inode(&from.join("inner/rows")), inode(&to.join("inner/rows")));
        assert_ne!(inode(&from.join("inner/deep/log")), inode(&to.join("inner/deep/log")));
        assert_eq!(fs::read_link(to.join("inner/link")).unwrap(), Path::new("rows"));
        assert!(!to.join("socket").exists() && !to.join("temporary").exists());
        let mode = |name: &str| fs::metadata(to.join(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode("inner/deep"), mode("inner/deep/log")), (0o500, 0o600));
        // A change of the copy leaves the original.
        fs::write(to.join("inner/deep/log"), "y").unwrap();
        assert_eq!(fs::read(from.join("inner/deep/log")).unwrap().len(), 300);
        let again = copy_tree(&from, &to, &use_of).unwrap_err().to_string();
        assert!(again.starts_with("cannot write ") && again.ends_with("inner"), "{again}");
    }

    #[test]
    fn owners_survive() {
        let test = "owners_survive";
        if skipped(test, &[Need::Root]) {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fill(&from);
        for name in ["inner", "inner/deep", "inner/deep/log"] {
            chown(from.join(name), Some(65_534), Some(65_533)).unwrap();
        }
        fs::create_dir(&to).unwrap();
        copy_tree(&from, &to, &use_of).unwrap();
        let owner = |name: &str| {
            let about = fs::metadata(to.join(name)).unwrap();
            (about.uid(), about.gid())
        };
        for name in ["inner", "inner/deep", "inner/deep/log"] {
            assert_eq!(owner(name), (65_534, 65_533), "{name}");
        }
        assert_eq!(owner("inner/rows"), (0, 0));
    }

    /// A file system that is unmounted on drop.
    struct Mounted(tempfile::TempDir);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::empty());
        }
    }

    #[test]
    fn copy_without_space_is_refused_before_it_begins() {
        let test = "copy_without_space_is_refused_before_it_begins";
        if skipped(test, &[Need::Root]) {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let small = Mounted(tempfile::tempdir().unwrap());
        let at = small.0.path().to_string_lossy().into_owned();
        run(&["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", &at]).unwrap();
        fs::write(place.path().join("rows"), vec![0; 3 << 20]).unwrap();
        let error = copy_tree(place.path(), small.0.path(), &use_of).unwrap_err().to_string();
        assert!(error.starts_with("there is no space for a copy of 3 MiB in "), "{error}");
        assert_eq!(fs::read_dir(small.0.path()).unwrap().count(), 0);
        // Another file system has no links to this one.
        fs::create_dir(place.path().join("inner")).unwrap();
        fs::rename(place.path().join("rows"), place.path().join("inner/rows")).unwrap();
        fs::write(place.path().join("inner/rows"), vec![b'r'; 70_000]).unwrap();
        let copied = copy_tree(place.path(), small.0.path(), &use_of).unwrap();
        assert_eq!(copied, TreeCopy { copied_bytes: 70_000, ..TreeCopy::default() });
        assert_eq!(fs::read(small.0.path().join("inner/rows")).unwrap(), vec![b'r'; 70_000]);
    }

    fn run(words: &[&str]) -> Result<(), ExecError> {
        Command::new(words[0]).args(&words[1..]).run().map(drop)
    }

    #[test]
    fn files_are_cloned_where_the_file_system_can() {
        let test = "files_are_cloned_where_the_file_system_can";
        if skipped(test, &[Need::Root, Need::Program("mkfs.xfs"), Need::Program("losetup")]) {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let image = place.path().join("image");
        File::create(&image).unwrap().set_len(320 << 20).unwrap();
        let mounted = Mounted(tempfile::tempdir().unwrap());
        let (image, at) = (image.to_string_lossy(), mounted.0.path().to_string_lossy());
        run(&["mkfs.xfs", "-q", "-m", "reflink=1", &image]).unwrap();
        if let Err(error) = run(&["mount", "-o", "loop", &image, &at]) {
            return skip(test, Machine::KernelLacks(format!("a mount of XFS: {error}")));
        }
        let (from, to) = (mounted.0.path().join("from"), mounted.0.path().join("to"));
        fill(&from);
        fs::create_dir(&to).unwrap();
        let copied = copy_tree(&from, &to, &use_of).unwrap();
        let expect = TreeCopy { linked_bytes: 5000, cloned_bytes: 300, copied_bytes: 0 };
        assert_eq!(copied, expect);
        let log = to.join("inner/deep/log");
        assert_eq!(fs::metadata(&log).unwrap().mode() & 0o7777, 0o600);
        fs::write(&log, "y").unwrap();
        assert_eq!(fs::read(from.join("inner/deep/log")).unwrap().len(), 300);
    }
}
