//! Named network namespaces, `/run/netns/NAME`, in the form that `ip netns` uses: a file on which
//! the namespace is bind-mounted. Creating one starts no process and takes well under a millisecond
//! plus the kernel's time.
//!
//! A network namespace belongs to a thread, so work in another namespace runs on a new thread that
//! ends afterwards.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fd::AsFd;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The directory of named network namespaces. It is compiled into `ip`.
pub const FOLDER: &str = "/run/netns";

/// Why a network namespace could not be created, entered or removed.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    #[error("cannot create network namespace {name}; this needs root (CAP_SYS_ADMIN)")]
    Make { name: String, source: io::Error },
    #[error("cannot enter network namespace {}", .path.display())]
    Enter { path: PathBuf, source: io::Error },
    #[error("cannot remove network namespace {name}")]
    Remove { name: String, source: io::Error },
}

/// Returns the path of a named namespace.
pub fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Creates a named network namespace that holds only a loopback device that is down.
///
/// # Errors
/// When the name is taken or the caller may not create namespaces.
pub fn make(name: &str) -> Result<PathBuf, NetnsError> {
    let target = path(name);
    let made: io::Result<()> = on_own_thread(|| {
        fs::create_dir_all(FOLDER)?;
        File::create_new(&target)?;
        #[expect(deprecated, reason = "unsafe only for the descriptor table, which stays shared")]
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET)?;
        Ok(mount_bind("/proc/thread-self/ns/net", &target)?)
    });
    match made {
        Ok(()) => Ok(target),
        Err(source) => {
            if source.kind() != io::ErrorKind::AlreadyExists {
                // Nothing is mounted yet, so only the empty file remains.
                let _ = fs::remove_file(&target);
            }
            Err(NetnsError::Make { name: name.into(), source })
        }
    }
}

/// Removes a named network namespace and its devices. Idempotent.
///
/// The kernel removes the devices a little later, unless a process is still in the namespace.
pub fn remove(name: &str) -> Result<(), NetnsError> {
    let target = path(name);
    let fail = |source| NetnsError::Remove { name: name.into(), source };
    match unmount(&target, UnmountFlags::DETACH) {
        // EINVAL: nothing is mounted on the file, after a crash between the two steps.
        Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL) => {}
        Err(error) => return Err(fail(error.into())),
    }
    match fs::remove_file(&target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fail(error)),
        _ => Ok(()),
    }
}

/// Moves the calling thread into a network namespace. Only another such call moves it back, so this
/// is for threads that end soon.
pub fn enter(path: &Path) -> io::Result<()> {
    let link = File::open(path)?;
    Ok(move_into_link_name_space(link.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Runs `work` in a network namespace on a new thread and returns its result.
pub fn within<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
    on_own_thread(|| enter(path).map(|()| work()))
        .map_err(|source| NetnsError::Enter { path: path.into(), source })
}

/// Runs `work` in a new unnamed network namespace, which ends with it.
///
/// # Errors
/// When the caller may not create namespaces.
pub fn in_scratch<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    on_own_thread(|| {
        #[expect(deprecated, reason = "unsafe only for the descriptor table, which stays shared")]
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET)?;
        Ok(work())
    })
}

/// Runs `work` on a new thread and waits for it. A panic in it continues in the caller.
pub fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::inode_of_link;

    #[test]
    fn creates_enters_and_removes_namespace() {
        let test = "creates_enters_and_removes_namespace";
        if tare_testkit::skipped(test, &[tare_testkit::Need::Root]) {
            return;
        }
        let name = format!("tare-test{}", std::process::id());
        let link = Path::new("/proc/thread-self/ns/net");
        let here = inode_of_link(link);
        let path = make(&name).unwrap();
        assert!(make(&name).is_err(), "the name is taken");
        let there = within(&path, || inode_of_link(link));
        let links = within(&path, || fs::read_to_string("/proc/thread-self/net/dev"));
        remove(&name).unwrap();
        remove(&name).unwrap();
        assert!(!path.exists());
        assert_ne!(here, there.unwrap());
        assert_eq!(inode_of_link(link), here);
        let links = links.unwrap().unwrap();
        assert!(!links.contains("eth0"), "{links}");
    }
}
