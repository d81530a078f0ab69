//! A target in this kernel: one subsystem with one namespace on a block device, behind one port.
//!
//! Method: in the tree `nvmet` of configfs (drivers/nvme/target/configfs.c), create a directory for
//! the subsystem, the namespace and the port, write their attributes, and link the subsystem into
//! the port, which then serves it. A detached mount (fsopen(2), fsmount(2)) gives access to
//! configfs, so that no mount point changes.
//!
//! Limits: ports have numbers and no names. The number derives from the name of the subsystem, and
//! the port is removed only when it serves no other subsystem.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::{NvmeError, Transport, name_in, nqn};
use crate::module;

/// The address on which a target listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    pub transport: Transport,
    pub address: IpAddr,
    /// Port of TCP, or of the RDMA connection manager.
    pub service: u16,
}

/// The configfs tree of the kernel's targets.
#[derive(Debug)]
pub struct Target {
    root: PathBuf,
    /// `root` is a path through this descriptor.
    _mount: OwnedFd,
}

impl Target {
    /// Opens the tree; `None` when the module is not loaded, and so no target exists.
    ///
    /// # Errors
    /// When configfs cannot be mounted, which needs root.
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
        // The tree is missing when the module is built in but not started.
        let root = PathBuf::from(format!("/proc/self/fd/{}/nvmet", mount.as_raw_fd()));
        Ok(root.exists().then_some(Self { root, _mount: mount }))
    }

    fn subsystem(&self, name: &str) -> PathBuf {
        self.root.join("subsystems").join(nqn(name))
    }

    /// Creates a target that accepts any host, and starts it.
    ///
    /// # Errors
    /// When a step fails, such as listening on an address in use. [`Self::remove`] undoes the steps
    /// before it.
    pub fn make(&self, name: &str, device: &Path, listen: ListenAddress) -> Result<(), NvmeError> {
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

    /// Removes a target and so drops its connections. Idempotent.
    ///
    /// # Errors
    /// When the kernel refuses to remove a part.
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

    /// Lists the names of Tare's targets.
    pub fn names(&self) -> Vec<String> {
        let subsystems = self.list("subsystems");
        subsystems.iter().filter_map(|nqn| Some(name_in(nqn)?.to_string())).collect()
    }

    fn list(&self, folder: &str) -> Vec<String> {
        list(&self.root.join(folder))
    }
}

/// Derives the port number of a target from its name (FNV-1a, folded), above the usual manual ones.
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

/// Removes a path; no error when it is gone already.
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
    fn port_numbers_derive_from_names() {
        let numbers: std::collections::BTreeSet<u16> =
            (0..100).map(|start| port_number(&format!("tare-ab12-e{start}"))).collect();
        assert!(numbers.len() > 95, "{}", numbers.len());
        assert!(numbers.iter().all(|number| *number >= 0x8000));
        assert_eq!(port_number("tare-ab12-e0"), port_number("tare-ab12-e0"));
    }

    /// Covers ownership only: in the kernel's tree, attributes come and go by themselves.
    #[test]
    fn keeps_port_that_serves_other_subsystem() {
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
