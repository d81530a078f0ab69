//! A user namespace for a system, and a view of its data with the owners of that namespace.
//!
//! Method: a helper process unshares its user namespace; this process writes its maps and keeps a
//! descriptor, so that the namespace ends with this process and leaves nothing on the host. The
//! data keeps its owners on the disk: an id-mapped mount (`mount_setattr(2)`) shows them as ids of
//! the namespace, and files that are created through it belong to the host's ids. No file changes
//! its owner, and unmounting is all that has to be undone.

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::exec::{Command, ExecError};
use crate::process;

/// The host's id of the namespace's root: above those of accounts (/etc/login.defs, /etc/subuid of
/// distributions), below those of systemd-nspawn's own choice.
pub const FIRST_ID: u32 = 1_000_000;

/// How many ids the namespace has: those of POSIX accounts and `nobody`.
pub const ID_COUNT: u32 = 65_536;

/// How long the helper may take to be in its namespace.
const LIMIT: Duration = Duration::from_secs(5);

/// The pause between two looks at it.
const PAUSE: Duration = Duration::from_millis(1);

/// Why a user namespace, or a mount with its ids, could not be made.
#[derive(Debug, thiserror::Error)]
pub enum UserNamespaceError {
    #[error(
        "cannot make a user namespace; it needs CONFIG_USER_NS and user.max_user_namespaces > 0"
    )]
    Make(#[source] io::Error),
    #[error("cannot start the process that holds a new user namespace")]
    Helper(#[from] ExecError),
    #[error(
        "cannot mount {} with the ids of a user namespace; the file system must allow id-mapped mounts \
         (ext4, xfs, btrfs; tmpfs since Linux 6.3)",
        .path.display()
    )]
    Mount { path: PathBuf, source: io::Error },
}

/// A user namespace that maps its ids from 0 to those of the host from [`FIRST_ID`].
#[derive(Debug)]
pub struct UserNamespace(File);

impl UserNamespace {
    /// Makes a user namespace. `mark` is the variable by which `clean` finds the helper.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn make(mark: (&str, &str)) -> Result<Self, UserNamespaceError> {
        let helper = Command::new("unshare").args(["--user", "cat"]).variable(mark.0, mark.1);
        let mut child = helper.spawn(Stdio::piped(), Stdio::null(), Stdio::null())?;
        let made = map(child.id());
        // The helper ends with its input.
        drop(child.stdin.take());
        if made.is_err() {
            let _ = child.kill();
        }
        let _ = child.wait();
        made.map(Self).map_err(UserNamespaceError::Make)
    }

    /// Returns a path by which other programs enter it while this process runs.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()))
    }

    /// Mounts a directory at another one, with its owners shown as ids of the namespace.
    ///
    /// # Errors
    /// When the file system does not support it.
    pub fn mount(&self, from: &Path, to: &Path) -> Result<(), UserNamespaceError> {
        let mounted = || {
            fs::create_dir_all(to)?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(CWD, from, flags)?;
            map_ids(tree.as_raw_fd(), self.0.as_raw_fd())?;
            let from_it = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            Ok(move_mount(tree.as_fd(), OsStr::new(""), CWD, to, from_it)?)
        };
        mounted().map_err(|source| UserNamespaceError::Mount { path: from.into(), source })
    }
}

/// Maps the ids of a process that is about to be in a new user namespace. Returns the namespace.
fn map(pid: u32) -> io::Result<File> {
    let own = process::namespace_inode(std::process::id(), "user");
    let deadline = Instant::now() + LIMIT;
    while process::namespace_inode(pid, "user") == own {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(PAUSE);
    }
    let namespace = File::open(format!("/proc/{pid}/ns/user"))?;
    let map = format!("0 {FIRST_ID} {ID_COUNT}\n");
    fs::write(format!("/proc/{pid}/uid_map"), &map)?;
    fs::write(format!("/proc/{pid}/gid_map"), &map)?;
    Ok(namespace)
}

/// Sets the id map of a detached mount to that of a user namespace.
fn map_ids(mount: i32, namespace: i32) -> io::Result<()> {
    const EMPTY: &CStr = c"";
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(namespace).unwrap_or_default(),
    };
    // JUSTIFICATION: no safe library has this system call.
    // SAFETY: both pointers are to values that outlive the call, the size is that of the structure,
    // and the descriptors are open.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount,
            EMPTY.as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn mapped_mount_shows_other_owners_and_changes_none() {
        let test = "mapped_mount_shows_other_owners_and_changes_none";
        if tare_testkit::skipped(test, &[tare_testkit::Need::Root]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (data, seen) = (folder.path().join("data"), folder.path().join("seen"));
        fs::create_dir(&data).unwrap();
        fs::write(data.join("file"), "x").unwrap();
        let namespace = UserNamespace::make((crate::RUN_VARIABLE, "0000")).unwrap();
        namespace.mount(&data, &seen).unwrap();
        let owner = |path: &Path| fs::metadata(path).unwrap().uid();
        let owners = (owner(&seen.join("file")), owner(&data.join("file")));
        rustix::mount::unmount(&seen, rustix::mount::UnmountFlags::DETACH).unwrap();
        assert_eq!(owners, (FIRST_ID, 0));
    }
}
