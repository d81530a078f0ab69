//! The program of a pod's image, as it puts itself where it can be started, and says where that is.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::host::HostBasics;
use crate::node_entry::{NodeEntryError, enter_node};
use crate::program_copy::{DIRECTORY, VERSION, hash_of, path_of_copy};

/// The program of this process.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// Where the program of a pod can be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedProgram {
    /// Its path on the node, or in the pod.
    pub path: String,
    /// Its SHA-256 in hexadecimal digits.
    pub hash: String,
    pub version: String,
    pub basics: HostBasics,
}

/// Why the program cannot be started there.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("cannot read the program of this process")]
    Read { source: io::Error },
    #[error(transparent)]
    Enter(#[from] NodeEntryError),
    #[error("cannot copy this program to {path} on the node")]
    Store { path: String, source: io::Error },
    #[error(
        "cannot start {path} on the node; {DIRECTORY} there has to allow programs (mount option exec)"
    )]
    Start { path: String, source: io::Error },
}

/// Says where this program is in its pod, or copies it to `/var/tmp/tare-HASH` on the node, unless
/// it is there. Then this process is on the node, and has to have had one thread.
///
/// # Errors
/// If the node cannot be entered, or takes no program.
pub fn place_program(on_node: bool) -> Result<PlacedProgram, PlaceError> {
    let read = |source| PlaceError::Read { source };
    let bytes = fs::read(OWN_PROGRAM).map_err(read)?;
    let hash = hash_of(&bytes);
    let path = match on_node {
        true => {
            enter_node()?;
            let path = path_of_copy(&hash);
            store(&bytes, Path::new(&path))
                .map_err(|source| PlaceError::Store { path: path.clone(), source })?;
            let started = Command::new(&path).arg("--version").output();
            started.map_err(|source| PlaceError::Start { path: path.clone(), source })?;
            path
        }
        false => fs::read_link(OWN_PROGRAM).map_err(read)?.to_string_lossy().into_owned(),
    };
    let system = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let basics = HostBasics {
        architecture: text(system.machine()),
        kernel: text(system.release()),
        is_root: rustix::process::geteuid().is_root(),
        seen_from: None,
    };
    Ok(PlacedProgram { path, hash, version: VERSION.into(), basics })
}

/// Stores a program, unless it is there. The rename makes it whole or absent.
fn store(bytes: &[u8], path: &Path) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    let part = path.with_extension(std::process::id().to_string());
    let written = write(bytes, &part).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

fn write(bytes: &[u8], path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o700).open(path)?;
    file.write_all(bytes)?;
    // Whatever the mask of this process is.
    file.set_permissions(Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_stored_once_and_replaced_if_it_differs() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("tare-0123456789abcdef");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        store(b"one", &path).unwrap();
        assert_eq!(mode(), 0o755);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        store(b"one", &path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
        fs::write(&path, "other").unwrap();
        store(b"one", &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1, "no part is left");
        let missing = here.path().join("none/tare-0");
        assert_eq!(store(b"one", &missing).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_program_in_a_pod_stays_there() {
        let placed = place_program(false).unwrap();
        assert_eq!(Path::new(&placed.path), std::env::current_exe().unwrap());
        assert_eq!(placed.hash, hash_of(&fs::read(&placed.path).unwrap()));
        assert_eq!(placed.basics.architecture, std::env::consts::ARCH);
        let text = serde_json::to_vec(&placed).unwrap();
        assert_eq!(serde_json::from_slice::<PlacedProgram>(&text).unwrap(), placed);
    }
}
