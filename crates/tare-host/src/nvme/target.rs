//! A target of the kernel's own: one subsystem with one namespace on a block device, behind one port.
//!
//! Method: the tree `nvmet` of configfs (drivers/nvme/target/configfs.c): a directory is made for a
//! subsystem, a namespace and a port, their attributes are written, and the port serves the subsystem as
//! soon as a link to it lies in the port. Configfs is reached through a mount that stands in no tree
//! (fsopen(2), fsmount(2)), so that nothing is mounted where it was not.
//!
//! Limits: ports have numbers and no names. Ours is made from the name of the subsystem, and removed
//! only when it serves no other subsystem.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::{NvmeError, Transport, name_in, nqn};
use crate::module;

/// Where a target listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    pub transport: Transport,
    pub address: IpAddr,
    /// Port of TCP, or of the RDMA connection manager.
    pub service: u16,
}

/// The tree in which the kernel's targets are made.
#[derive(Debug)]
pub struct Target {
    root: PathBuf,
    /// The root is a path through this descriptor.
    _mount: OwnedFd,
}

impl Target {
    /// Opens the tree; `None` where the module is not loaded, so that there is no target either.
    ///
    /// # Errors
    /// When configfs cannot be mounted, which takes root.
    pub fn open() -> Result<Option<Self>, NvmeError> {
        if !module::is_loaded("nvmet") {
            return Ok(None);
        }
        let mount = || -> io::Result<OwnedFd> {
            let context = fsopen("configfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            let none = MountAttrFlags::empty();
            Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, none)?)
        };
        let mount = mount().map_err(NvmeError::Configfs)?;
        // Built in, but not started: the tree is missing.
        let root = PathBuf::from(format!("/proc/self/fd/{}/nvmet", mount.as_raw_fd()));
        Ok(root.exists().then_some(Self { root, _mount: mount }))
    }

    fn subsystem(&self, name: &str) -> PathBuf {
        self.root.join("subsystems").join(nqn(name))
    }

    /// Makes a target that any host may connect to, and lets it listen.
    ///
    /// # Errors
    /// When a step fails, such as listening on an address that is taken; what was made is undone by
    /// [`Self::remove`].
    pub fn make(&self, name: &str, device: &Path, listen: Listen) -> Result<(), NvmeError> {
        let subsystem = self.subsystem(name);
        let namespace = subsystem.join("namespaces/1");
        make(&subsystem)?;
        set(&subsystem, "attr_allow_any_host", "1")?;
        make(&namespace)?;
        set(&namespace, "device_path", &device.to_string_lossy())?;
        set(&namespace, "enable", "1")?;
        let port = self.root.join("ports").join(port_number(name).to_string());
        make(&port)?;
        let family = if listen.address.is_ipv4() { "ipv4" } else { "ipv6" };
        set(&port, "addr_trtype", listen.transport.word())?;
        set(&port, "addr_adrfam", family)?;
        set(&port, "addr_traddr", &listen.address.to_string())?;
        set(&port, "addr_trsvcid", &listen.service.to_string())?;
        let link = port.join("subsystems").join(nqn(name));
        std::os::unix::fs::symlink(&subsystem, &link)
            .map_err(|source| NvmeError::Make { path: link, source })
    }

    /// Removes a target. Whoever is connected to it loses the connection. Idempotent.
    ///
    /// # Errors
    /// When the kernel keeps a part of it.
    pub fn remove(&self, name: &str) -> Result<(), NvmeError> {
        let subsystem = self.subsystem(name);
        let ours = nqn(name);
        for port in self.list("ports") {
            let path = self.root.join("ports").join(&port);
            let mut served = list(&path.join("subsystems"));
            if served.contains(&ours) {
                gone(&path.join("subsystems").join(&ours), |path| fs::remove_file(path))?;
                served.retain(|served| *served != ours);
            } else if port != port_number(name).to_string() {
                continue;
            }
            if served.is_empty() {
                gone(&path, |path| fs::remove_dir(path))?;
            }
        }
        for namespace in list(&subsystem.join("namespaces")) {
            let path = subsystem.join("namespaces").join(namespace);
            gone(&path, |path| fs::remove_dir(path))?;
        }
        gone(&subsystem, |path| fs::remove_dir(path))
    }

    /// Names of the targets that are Tare's.
    pub fn names(&self) -> Vec<String> {
        let subsystems = self.list("subsystems");
        subsystems.iter().filter_map(|nqn| Some(name_in(nqn)?.to_string())).collect()
    }

    fn list(&self, folder: &str) -> Vec<String> {
        list(&self.root.join(folder))
    }
}

/// The number of the port of a target: from its name, above those that people give (FNV-1a, folded).
fn port_number(name: &str) -> u16 {
    let hash = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [a, b, c, d] = hash.to_le_bytes();
    u16::from_le_bytes([a ^ c, b ^ d]) | 0x8000
}

fn make(path: &Path) -> Result<(), NvmeError> {
    fs::create_dir(path).map_err(|source| NvmeError::Make { path: path.into(), source })
}

fn set(folder: &Path, attribute: &str, value: &str) -> Result<(), NvmeError> {
    let path = folder.join(attribute);
    fs::write(&path, value).map_err(|source| NvmeError::Set { path, value: value.into(), source })
}

fn list(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// No error when it is gone already.
fn gone(path: &Path, remove: impl Fn(&Path) -> io::Result<()>) -> Result<(), NvmeError> {
    match remove(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(NvmeError::Remove { path: path.into(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_numbers_of_their_own_that_follow_from_the_name() {
        let numbers: std::collections::BTreeSet<u16> =
            (0..100).map(|start| port_number(&format!("tare-ab12-e{start}"))).collect();
        assert!(numbers.len() > 95, "{}", numbers.len());
        assert!(numbers.iter().all(|number| *number >= 0x8000));
        assert_eq!(port_number("tare-ab12-e0"), port_number("tare-ab12-e0"));
    }

    /// Only the logic of what is whose: the kernel's tree makes and removes attributes by itself.
    #[test]
    fn a_port_that_serves_others_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mount = OwnedFd::from(fs::File::open(folder.path()).unwrap());
        let target = Target { root: folder.path().into(), _mount: mount };
        let (ours, others) = (nqn("tare-ab12-e0"), nqn("tare-ab12-e1"));
        for path in [
            format!("subsystems/{ours}"),
            format!("subsystems/{others}"),
            format!("ports/1/subsystems/{others}"),
            format!("ports/2/subsystems/{others}"),
            "ports/3/subsystems".into(),
        ] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        fs::write(folder.path().join(format!("ports/2/subsystems/{ours}")), "").unwrap();
        target.remove("tare-ab12-e0").unwrap();
        target.remove("tare-ab12-e0").unwrap();
        assert_eq!(target.names(), ["tare-ab12-e1"]);
        assert_eq!(target.list("ports").len(), 3);
        assert_eq!(target.list("ports/2/subsystems"), [others]);
    }
}
