//! Undoing one journal entry. Each is idempotent, and refuses what is not named after its run.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};

use crate::block::BlockError;
use crate::exec::{Command, ExecError, find};
use crate::journal::Entry;
use crate::netns::{self, NetnsError};
use crate::nvme::{self, NvmeError, Target, soft_roce};
use crate::process::{self, Hold};
use crate::{NAME_PREFIX, RUN_VARIABLE, block, cgroup, mounts};

/// How long a killed process may take to end. It is at most waiting for its disk.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// How long a container engine may take to remove something.
const ENGINE_LIMIT: Duration = Duration::from_secs(30);

/// How long an engine is asked again that failed to remove something.
const ENGINE_RETRY: Duration = Duration::from_secs(3);

/// Why something that was made could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    #[error("left {what} alone: it is not named after run {run}")]
    NotOurs { what: String, run: String },
    #[error("processes {pids:?} of run {run} did not end when killed; they may wait for a disk")]
    Unkillable { run: String, pids: Vec<u32> },
    #[error("cannot signal a process of run {run}")]
    Signal { run: String, source: io::Error },
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error(transparent)]
    Nvme(#[from] NvmeError),
    #[error("cannot remove {what}")]
    Command { what: String, source: ExecError },
    #[error("cannot remove {}", .path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("cannot unmount {}", .path.display())]
    Unmount { path: PathBuf, source: io::Error },
    #[error("cannot remove {what} through {}: {answer}; is the engine running?", .socket.display())]
    Engine { what: String, socket: PathBuf, answer: String },
}

/// Ends what may still be making things: every marked process of the run, those in its cgroups
/// thawed first, because on cgroup v1 a frozen process cannot be killed.
pub(crate) fn end_processes(run: &str, entries: &[Entry]) -> Result<(), UndoError> {
    for entry in entries {
        if let Entry::Cgroup { paths } = entry {
            for path in paths {
                check_path(run, path)?;
                folders(path).iter().for_each(|folder| cgroup::thaw_folder(folder));
            }
        }
    }
    match entries.contains(&Entry::Processes) {
        true => kill_run(run),
        false => Ok(()),
    }
}

/// Undoes one entry of a run.
pub(crate) fn undo(run: &str, entry: &Entry) -> Result<(), UndoError> {
    match entry {
        Entry::Processes => kill_run(run),
        Entry::NetworkNamespace { name } => {
            check_name(run, name)?;
            Ok(netns::remove(name)?)
        }
        Entry::Link { name, namespace } => {
            check_name(run, name)?;
            remove_link(name, namespace.as_deref())
        }
        Entry::NftTable { family, name, namespace } => {
            check_name(run, name)?;
            remove_table(family, name, namespace.as_deref())
        }
        Entry::Cgroup { paths } => {
            paths.iter().try_for_each(|path| check_path(run, path))?;
            // All of them first: a process that is frozen through one cannot be killed through
            // another.
            let folders: Vec<PathBuf> = paths.iter().flat_map(|path| folders(path)).collect();
            folders.iter().for_each(|folder| cgroup::thaw_folder(folder));
            folders.iter().rev().try_for_each(|folder| remove_cgroup(run, folder))
        }
        Entry::SubtreeControl { path, controllers } => {
            disable_controllers(path, controllers);
            Ok(())
        }
        Entry::Container { engine, socket, name } => {
            check_name(run, name)?;
            let what = format!("container {name} of {engine}");
            engine_delete(socket, &what, &format!("/containers/{name}?force=true&v=true"))
        }
        Entry::Image { engine, socket, name } => {
            check_name(run, name)?;
            let what = format!("image {name} of {engine}");
            engine_delete(socket, &what, &format!("/images/{name}?force=true"))
        }
        Entry::OciContainer { command, root, id } => {
            check_name(run, id)?;
            check_path(run, root)?;
            delete_oci_container(command, root, id)
        }
        Entry::Mount { path } => {
            check_path(run, path)?;
            unmount_below(path)
        }
        Entry::MountElsewhere { path, pid } => {
            check_path(run, path)?;
            mounts::hide_from(*pid, path)
                .map_err(|source| UndoError::Unmount { path: path.clone(), source })
        }
        Entry::LoopDevice { file } => {
            check_path(run, file)?;
            Ok(block::detach(file)?)
        }
        Entry::Mapping { name } => {
            check_name(run, name)?;
            Ok(block::unmap(name)?)
        }
        Entry::NvmeTarget { name } => {
            check_name(run, name)?;
            Target::open()?.map_or(Ok(()), |target| Ok(target.remove(name)?))
        }
        Entry::NvmeController { name } => {
            check_name(run, name)?;
            Ok(nvme::disconnect(name)?)
        }
        Entry::RdmaDevice { name } => {
            check_name(run, name)?;
            let removed = soft_roce::remove(name);
            removed.map_err(|source| UndoError::Command {
                what: format!("RDMA device {name}"),
                source,
            })
        }
        Entry::Volume { engine, socket, name } => {
            check_name(run, name)?;
            let what = format!("volume {name} of {engine}");
            engine_delete(socket, &what, &format!("/volumes/{name}?force=true"))
        }
        Entry::Directory { path } => {
            check_path(run, path)?;
            unmount_below(path)?;
            remove_directory(path)
        }
        Entry::File { path } => {
            check_path(run, path)?;
            gone(path, fs::remove_file(path))
        }
    }
}

/// Whether a name is one of the run's: `tare-RUN`, or that and more after a character that is no
/// letter or digit.
fn is_ours(run: &str, name: &str) -> bool {
    let rest = name.strip_prefix(NAME_PREFIX).and_then(|rest| rest.strip_prefix(run));
    run.len() == 4
        && rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

fn check_name(run: &str, name: &str) -> Result<(), UndoError> {
    // A slash or a dot pair would make another place of the name.
    if is_ours(run, name) && !name.contains('/') && !name.contains("..") {
        return Ok(());
    }
    Err(UndoError::NotOurs { what: name.into(), run: run.into() })
}

fn check_path(run: &str, path: &Path) -> Result<(), UndoError> {
    let mut ours = false;
    let mut plain = path.is_absolute();
    for component in path.components() {
        match component {
            Component::Normal(name) => ours |= is_ours(run, &name.to_string_lossy()),
            Component::RootDir => {}
            _ => plain = false,
        }
    }
    if ours && plain {
        return Ok(());
    }
    Err(UndoError::NotOurs { what: path.display().to_string(), run: run.into() })
}

/// No error when the thing is gone already.
fn gone(path: &Path, result: io::Result<()>) -> Result<(), UndoError> {
    match result {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(UndoError::Remove { path: path.into(), source })
        }
        _ => Ok(()),
    }
}

/// A process that is just ending may write once more while the directory is emptied.
fn remove_directory(path: &Path) -> Result<(), UndoError> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match fs::remove_dir_all(path) {
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty
                    && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            result => return gone(path, result),
        }
    }
}

/// Kills every process with the run's mark, until two looks in a row find none: one that was
/// forking while we looked, or was inside execve and showed no environment, is found by the next.
fn kill_run(run: &str) -> Result<(), UndoError> {
    let own = std::process::id();
    let mut alive = Vec::new();
    let mut looks_without = 0;
    for _ in 0..50 {
        // The hold comes before the look, so that what was looked at is what is signalled.
        let marked = |pid: u32| {
            let hold = Hold::open(pid)?;
            (process::variable(pid, RUN_VARIABLE).as_deref() == Some(run)).then_some(hold)
        };
        let holds: Vec<Hold> =
            process::all().into_iter().filter(|pid| *pid != own).filter_map(marked).collect();
        if holds.is_empty() {
            looks_without += 1;
            if looks_without == 2 {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(2));
            continue;
        }
        looks_without = 0;
        alive = process::kill_held(&holds, KILL_LIMIT)
            .map_err(|source| UndoError::Signal { run: run.into(), source })?;
        if !alive.is_empty() {
            break;
        }
    }
    match alive.is_empty() {
        true => Ok(()),
        false => Err(UndoError::Unkillable { run: run.into(), pids: alive }),
    }
}

fn remove_link(name: &str, namespace: Option<&Path>) -> Result<(), UndoError> {
    let devices = || fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let devices = match namespace {
        None => devices(),
        Some(path) => match netns::within(path, devices) {
            Ok(devices) => devices,
            // The namespace is gone, and the device with it.
            Err(_) => return Ok(()),
        },
    };
    let there = |line: &str| line.trim_start().split_once(':').is_some_and(|(n, _)| n == name);
    if !devices.lines().any(there) {
        return Ok(());
    }
    let mut command = Command::new("ip").args(["link", "delete", "dev", name]);
    if let Some(path) = namespace {
        command = command.in_namespace(path);
    }
    match command.run() {
        // It went away meanwhile, with its peer.
        Err(ExecError::Failed { stderr, .. }) if stderr.contains("Cannot find device") => Ok(()),
        Err(source) => Err(UndoError::Command { what: format!("link {name}"), source }),
        Ok(_) => Ok(()),
    }
}

fn remove_table(family: &str, name: &str, namespace: Option<&Path>) -> Result<(), UndoError> {
    if namespace.is_some_and(|path| !path.exists()) {
        return Ok(());
    }
    let mut command = Command::new("nft").args(["delete", "table", family, name]);
    if let Some(path) = namespace {
        command = command.in_namespace(path);
    }
    match command.run() {
        Err(ExecError::Failed { stderr, .. }) if stderr.contains("No such file") => Ok(()),
        Err(source) => Err(UndoError::Command { what: format!("nft table {name}"), source }),
        Ok(_) => Ok(()),
    }
}

/// A cgroup directory and all below it, parents first; none when it is gone.
fn folders(path: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = path.exists().then(|| path.into()).into_iter().collect();
    let mut next = 0;
    while next < folders.len() {
        let below = fs::read_dir(&folders[next]).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let below: Vec<PathBuf> = below.map(|entry| entry.path()).collect();
        folders.extend(below);
        next += 1;
    }
    folders
}

/// Kills what is in one cgroup directory and removes it.
fn remove_cgroup(run: &str, folder: &Path) -> Result<(), UndoError> {
    let deadline = Instant::now() + KILL_LIMIT;
    loop {
        let pids = cgroup::pids_of_folder(folder);
        let alive = process::kill(&pids, KILL_LIMIT)
            .map_err(|source| UndoError::Signal { run: run.into(), source })?;
        if !alive.is_empty() {
            return Err(UndoError::Unkillable { run: run.into(), pids: alive });
        }
        match fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // A process that is just ending.
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
            Err(source) => return Err(UndoError::Remove { path: folder.into(), source }),
        }
    }
}

/// Takes controllers off again. Somebody who uses one by now keeps it (EBUSY), which is right.
fn disable_controllers(path: &Path, controllers: &[String]) {
    for controller in controllers {
        let _ = fs::write(path.join("cgroup.subtree_control"), format!("-{controller}"));
    }
}

fn delete_oci_container(command: &[String], root: &Path, id: &str) -> Result<(), UndoError> {
    if !root.join(id).exists() {
        return Ok(());
    }
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    if find(program).is_none() {
        // Its processes are killed by their mark and its state goes with the work directory.
        return Ok(());
    }
    let delete = Command::new(program).args(arguments).arg("--root").arg(root);
    match delete.args(["delete", "--force", id]).run() {
        Ok(_) => Ok(()),
        Err(ExecError::Failed { .. }) if !root.join(id).exists() => Ok(()),
        // The state of a container that was killed half made is not readable for its runtime.
        Err(ExecError::Failed { .. }) => gone(root, fs::remove_dir_all(root.join(id))),
        Err(source) => Err(UndoError::Command { what: format!("container {id}"), source }),
    }
}

/// Unmounts everything at and below a path, the last mounted first, so that removing the directory
/// cannot reach into what was mounted there.
fn unmount_below(path: &Path) -> Result<(), UndoError> {
    let fail = |path: &Path, source| UndoError::Unmount { path: path.into(), source };
    let mounts = mount_points().map_err(|source| fail(path, source))?;
    for mount in mounts.iter().rev().filter(|mount| mount.starts_with(path)) {
        match unmount(mount, UnmountFlags::DETACH) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(fail(mount, error.into())),
        }
    }
    Ok(())
}

/// Mount points of this mount namespace in the order in which they were mounted.
pub(crate) fn mount_points() -> io::Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(text.lines().filter_map(|line| line.split(' ').nth(4)).map(mounts::unescape).collect())
}

/// A `DELETE` of docker's API (also podman's), until it is gone and stays gone: an engine finishes
/// what a process asked for that was killed before the answer.
fn engine_delete(socket: &Path, what: &str, target: &str) -> Result<(), UndoError> {
    let fail =
        |answer: String| UndoError::Engine { what: what.into(), socket: socket.into(), answer };
    let ask = || -> io::Result<(u16, String)> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ENGINE_LIMIT))?;
        stream.set_write_timeout(Some(ENGINE_LIMIT))?;
        write!(stream, "DELETE {target} HTTP/1.0\r\nHost: tare\r\n\r\n")?;
        let mut reader = BufReader::new(stream);
        let mut status = String::new();
        reader.read_line(&mut status)?;
        let mut rest = String::new();
        reader.take(4096).read_to_string(&mut rest)?;
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let body = rest.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok((code, format!("{} {}", status.trim(), body.trim())))
    };
    let begin = Instant::now();
    let mut absences = 0;
    loop {
        match ask() {
            Ok((200..=299, _)) => return Ok(()),
            // It may still be in the making, asked for by a process that was killed meanwhile.
            Ok((404, _)) if absences == 2 => return Ok(()),
            Ok((404, _)) => absences += 1,
            // It is being removed already, for somebody who was killed meanwhile.
            Ok((409, _)) if begin.elapsed() < ENGINE_LIMIT => {}
            // Podman, when the container's process ended while it was about to kill it.
            Ok((500, _)) if begin.elapsed() < ENGINE_RETRY => {}
            Ok((_, answer)) => return Err(fail(answer)),
            // Without its socket the engine is gone, and a container that outlived it is found by
            // the mark of its processes.
            Err(error) => return Err(fail(error.to_string())),
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_run_are_ours() {
        for ours in ["tare-ab12", "tare-ab12-client", "tare-ab12:latest"] {
            assert!(is_ours("ab12", ours), "{ours}");
        }
        for other in ["tare-ab123", "tare-ab1", "ab12", "xtare-ab12", "tare-", "docker0", ""] {
            assert!(!is_ours("ab12", other), "{other}");
        }
        assert!(!is_ours("", "tare-"));
        assert!(check_path("ab12", Path::new("/var/lib/tare/tare-ab12/x")).is_ok());
        assert!(check_path("ab12", Path::new("/var/lib/tare/tare-ab12/../x")).is_err());
        assert!(check_path("ab12", Path::new("tare-ab12/x")).is_err());
    }
}
