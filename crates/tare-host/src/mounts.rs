//! Mounts in the mount namespace of another process. A container engine may run in its own mount
//! namespace, in which our mounts do not appear by themselves.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use tare_std::mountinfo;

use crate::{netns, process};

/// Lists the mount points of this mount namespace in mount order.
pub(crate) fn points() -> io::Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mountinfo::mounts(&text).map(|mount| mount.point).collect())
}

/// Whether a process is in a mount namespace other than ours.
pub fn is_elsewhere(pid: u32) -> bool {
    process::namespace_inode(pid, "mnt") != process::namespace_inode(std::process::id(), "mnt")
}

/// Mounts the tree at a path of ours at the same path in the mount namespace of another process.
///
/// # Errors
/// When the path does not exist there, or the process is gone.
pub fn show_to(pid: u32, path: &Path) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, path, flags)?;
    inside(pid, || {
        let from_it = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(tree.as_fd(), OsStr::new(""), CWD, path, from_it)?)
    })
}

/// Whether something is mounted on a path in the mount namespace of another process.
pub(crate) fn is_mounted_at(pid: u32, path: &Path) -> bool {
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    mountinfo::mounts(&table).any(|mount| mount.point == path)
}

/// Unmounts a path in the mount namespace of another process. Idempotent, also when the process is
/// gone.
pub(crate) fn hide_from(pid: u32, path: &Path) -> io::Result<()> {
    while is_mounted_at(pid, path) {
        inside(pid, || Ok(unmount(path, UnmountFlags::DETACH)?))?;
    }
    Ok(())
}

/// Runs `work` in the mount namespace of another process on a new thread.
fn inside<T: Send>(pid: u32, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let namespace = File::open(PathBuf::from(format!("/proc/{pid}/ns/mnt")))?;
    netns::on_own_thread(|| {
        // A thread can enter a mount namespace only if it shares its root and working directory
        // with no other thread.
        #[expect(deprecated, reason = "unsafe only for the descriptor table, which stays shared")]
        rustix::thread::unshare(UnshareFlags::FS)?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
        work()
    })
}
