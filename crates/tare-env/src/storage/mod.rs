//! The storage layer: the file system or device below a system's data. Each kind has one file;
//! `ALL` drives `tare list`, the names that a study may use, and the documentation.
//!
//! Method: a kind checks its options (`parse`), reports what this host lacks (`needs`), lists what
//! it will create as journal entries (`entries`), creates it (`make`), and reads it back from the
//! mount table of the system's own process (`read_back`). `stop`, `EnvironmentFactory::close` and
//! `tare clean` remove it by undoing the entries, so no kind has code for removal.
//!
//! Each kind returns the location of its data (`DataLocation`): a directory of the host that the
//! runtime bind-mounts, the container's root file system, or a volume of the engine. `runtime::vm`
//! creates the kinds that only a virtual machine has (`guest`) and reads them back in the guest.

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tare_host::block::BlockError;
use tare_host::exec::ExecError;
use tare_host::journal::Entry;
use tare_host::nvme::NvmeError;
use tare_lab::environment::{EnvironmentSpec, LayerState, StorageSpec};
use tare_std::units::parse_bytes;

use crate::layer::network::NetworkError;
use crate::run_context::RunContext;
use crate::unavailable::Unavailable;

mod backing;
mod class;
mod directory;
mod filesystem;
pub mod guest;
mod initial_data;
mod mount_view;
mod nvme_of;
mod options;
mod raw;
mod rootfs;
mod thin;
mod tmpfs;
mod volume;

pub(crate) use class::Claim;
pub(crate) use initial_data::InitialData;
pub(crate) use mount_view::MountView;
use options::Options;
pub(crate) use raw::number_of;
pub(crate) use rootfs::Driver;
use tare_host::device;
pub use tare_host::device::DeviceError;

/// A kind of storage.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The name in a study.
    pub name: &'static str,
    /// A description of one line.
    pub help: &'static str,
    /// The options, each with a description of one line.
    pub options: &'static [(&'static str, &'static str)],
    /// Programs, modules and runtimes that it needs.
    pub needs: &'static str,
    /// How it is removed.
    pub cleanup: &'static str,
    /// What is read back to check that it is in force.
    pub read_back: &'static str,
    /// `None` if `runtime::vm` creates it.
    parse: Option<Parse>,
}

/// Checks the options of a kind.
type Parse = fn(&Options<'_>) -> Result<Box<dyn Storage>, StorageError>;

/// Every kind.
pub const ALL: &[Kind] = &[
    directory::KIND,
    tmpfs::KIND,
    raw::KIND,
    filesystem::ext4::KIND,
    filesystem::xfs::KIND,
    filesystem::btrfs::KIND,
    filesystem::f2fs::KIND,
    thin::LOOP_LVM,
    thin::DIRECT_LVM,
    nvme_of::KIND,
    rootfs::KIND,
    volume::KIND,
    class::KIND,
    guest::VIRTIO_BLK,
    guest::VIRTIO_SCSI,
    guest::NVME,
    guest::NINE_P,
    guest::VIRTIOFS,
    guest::UBD,
    guest::HOSTFS,
];

/// Why a storage layer is invalid or could not be created.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("environment {environment:?}: there is no storage {kind:?}; known are {known}")]
    Kind { environment: String, kind: String, known: String },
    #[error("environment {environment:?}: storage {kind:?} has no option {name:?}; it has {known}")]
    Option { environment: String, kind: &'static str, name: String, known: String },
    #[error("environment {environment:?}: storage option {name} = {value:?} is not {wanted}")]
    Value { environment: String, name: String, value: String, wanted: &'static str },
    #[error("environment {environment:?}: runtime {runtime:?} cannot have storage {kind:?}: {why}")]
    Runtime { environment: String, kind: String, runtime: String, why: &'static str },
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error(transparent)]
    Nvme(#[from] NvmeError),
    #[error("all data on {nqn} would be destroyed; to allow that, add --destroy-data-on {nqn}")]
    TargetNotNamed { nqn: String },
    #[error("no port is free on {address} for an NVMe target")]
    Listen { address: IpAddr, source: io::Error },
    #[error("cannot create a soft-RoCE device")]
    SoftRoce(#[source] ExecError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("cannot create {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot create the file system")]
    Format(#[source] ExecError),
    #[error("cannot mount {what} with options {options:?} on {}", .path.display())]
    Mount { what: String, options: String, path: PathBuf, source: io::Error },
    #[error("cannot show {} to the engine (process {pid})", .path.display())]
    Show { path: PathBuf, pid: u32, source: io::Error },
    #[error("cannot mount {} with fuse-overlayfs", .path.display())]
    Fuse { path: PathBuf, source: ExecError },
}

/// The location of a system's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataLocation {
    /// In `At::data`, a directory of the host.
    Directory,
    /// In the container's root file system.
    Root,
    /// In a named volume of the engine.
    Volume,
}

/// The run and the directory in which one start of an environment creates its storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub(crate) context: &'a RunContext,
    /// The directory of this start, which exists when `make` is called.
    pub(crate) folder: &'a Path,
}

impl At<'_> {
    /// Returns the data's directory on the host, for `DataLocation::Directory`.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Returns the path at which the host sees the data through the same file system as the system.
    pub(crate) fn in_root(&self, location: DataLocation, data: &Path) -> PathBuf {
        match location {
            DataLocation::Root => self.folder.join("rootfs/data"),
            _ => data.into(),
        }
    }

    /// Returns the path that the system gets for its data, if the data's directory is at `inside`
    /// for it: the directory or the device node in it.
    pub(crate) fn path_inside(&self, storage: &dyn Storage, inside: &Path) -> String {
        let path = storage.node().map_or_else(|| inside.to_path_buf(), |node| inside.join(node));
        path.to_string_lossy().into_owned()
    }

    /// Returns the name of an object of this start: `tare-RUN-e3-pool`.
    fn name(&self, what: &str) -> String {
        let start = self.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{}-{start}-{what}", self.context.prefix())
    }
}

/// The state that was read back, as text, and whether it is the requested one.
#[derive(Debug)]
pub(crate) struct ReadBack {
    text: String,
    in_force: bool,
}

/// The storage of one environment, with checked options. `make` creates it.
pub(crate) trait Storage: Debug {
    fn location(&self) -> DataLocation {
        DataLocation::Directory
    }

    /// Checks that this host has the programs and modules that it needs.
    ///
    /// # Errors
    /// Names what is missing and how to get it.
    fn needs(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Returns the user's block device that it overwrites, if it uses one.
    fn device(&self) -> Option<&Path> {
        None
    }

    /// Returns the block device's node in the data's directory, if the system gets the node instead
    /// of the directory.
    fn node(&self) -> Option<&'static str> {
        None
    }

    /// Returns what is claimed of a cluster, which then makes the storage.
    fn claim(&self) -> Option<&Claim> {
        None
    }

    /// Returns the NQN of the user's target that it overwrites, if it uses one.
    fn remote(&self) -> Option<&str> {
        None
    }

    /// Lists what `make` creates outside the directory of the start, in order of creation.
    fn entries(&self, _at: &At<'_>) -> Vec<Entry> {
        Vec::new()
    }

    /// Creates it. Callers write the entries to the journal first.
    fn make(&self, at: &At<'_>) -> Result<(), StorageError>;

    /// Returns the data's path on the host, which the probes read.
    fn data(&self, at: &At<'_>) -> PathBuf {
        at.data()
    }

    /// Returns the directory of the host that the engine's volume shows, if Tare creates it.
    fn bound(&self, _at: &At<'_>) -> Option<PathBuf> {
        None
    }

    /// Returns the requested driver of the container's root file system.
    fn driver(&self) -> Option<Driver> {
        None
    }

    /// Returns the process that serves the file system, with its name.
    fn server(&self, _at: &At<'_>) -> Option<(&'static str, u32)> {
        None
    }

    /// Reads back the file system or device below the data.
    fn read_back(&self, at: &At<'_>, seen: &MountView) -> ReadBack;
}

/// Returns the path below which the disk of the data is, from the host's path of the data: that, or
/// the device in it.
pub(crate) fn disk_path(storage: &dyn Storage, data: &Path) -> PathBuf {
    storage.node().map_or_else(|| data.to_path_buf(), |node| data.join(node))
}

/// Returns the storage of an environment, with its options checked against the runtime.
pub(crate) fn parse(spec: &EnvironmentSpec) -> Result<Box<dyn Storage>, StorageError> {
    let StorageSpec { kind: name, options } = &spec.storage;
    let found = ALL.iter().find(|kind| kind.name == name);
    let Some((kind, parse)) = found.and_then(|kind| Some((kind, kind.parse?))) else {
        let (environment, kind) = (spec.name.clone(), name.clone());
        let known = ALL.iter().filter(|kind| kind.parse.is_some()).map(|kind| kind.name);
        let known = known.collect::<Vec<_>>().join(", ");
        return Err(StorageError::Kind { environment, kind, known });
    };
    let options = Options::new(spec, kind, options)?;
    let storage = parse(&options)?;
    let refuse = |why| StorageError::Runtime {
        environment: spec.name.clone(),
        kind: name.clone(),
        runtime: spec.runtime.to_string(),
        why,
    };
    match (storage.location(), family(spec)) {
        (_, runtime) if storage.claim().is_some() && runtime != "kubernetes" => {
            Err(refuse("a claim is of a cluster's storage; use kubernetes"))
        }
        (DataLocation::Root, "process") => {
            Err(refuse("a process of the host uses the host's root file system; use a container"))
        }
        (DataLocation::Root, "kubernetes") => {
            Err(refuse("the root of a pod is its image; use a directory, volume or tmpfs"))
        }
        (DataLocation::Volume, "process" | "oci" | "containerd") => {
            Err(refuse("a volume belongs to an engine; use docker or podman"))
        }
        (_, "docker" | "podman" | "kubernetes") if storage.node().is_some() => {
            Err(refuse("engines get no device here; use an OCI runtime or a process"))
        }
        _ => Ok(storage),
    }
}

/// Returns whether an environment gives its system a block device instead of a directory.
pub fn is_device(spec: &EnvironmentSpec) -> bool {
    family(spec) != "vm" && parse(spec).is_ok_and(|storage| storage.node().is_some())
}

/// Returns whether two concurrent starts of an environment would use the same device or target.
pub(crate) fn is_shared(spec: &EnvironmentSpec) -> bool {
    let shares =
        |storage: Box<dyn Storage>| storage.device().is_some() || storage.remote().is_some();
    family(spec) != "vm" && parse(spec).is_ok_and(shares)
}

/// Checks that this host has the storage of an environment. That of a guest is checked with the
/// guest.
pub(crate) fn check(spec: &EnvironmentSpec) -> Result<(), tare_lab::PartError> {
    if family(spec) == "vm" {
        return Ok(());
    }
    let storage = parse(spec)?;
    if let (Some(driver), "oci" | "containerd") = (storage.driver(), family(spec)) {
        driver.check_own()?;
    }
    Ok(storage.needs()?)
}

/// Returns the size of the image that an environment's storage is on; `None` if it is on none.
pub fn image_bytes(spec: &EnvironmentSpec) -> Option<u64> {
    const DEFAULT_BYTES: u64 = 2 << 30;
    let kind = ALL.iter().find(|kind| kind.name == spec.storage.kind)?;
    let has_size = kind.options.iter().any(|(name, _)| *name == "size");
    let option = |name: &str| spec.storage.options.iter().find(|(known, _)| known == name);
    let on_device =
        ["device", "nqn"].iter().any(|name| option(name).is_some_and(|(_, value)| value != "loop"));
    let in_memory = kind.name == tmpfs::KIND.name;
    // These have an image only for a file system of their own.
    let of_their_own = [rootfs::KIND.name, volume::KIND.name].contains(&kind.name);
    let of_cluster = kind.name == class::KIND.name;
    let has_size = has_size && (!of_their_own || option(filesystem::FILESYSTEM).is_some());
    let size = option("size").and_then(|(_, value)| parse_bytes(value).ok());
    (has_size && !on_device && !in_memory && !of_cluster).then(|| size.unwrap_or(DEFAULT_BYTES))
}

/// Checks that the user allowed the environment to overwrite its device or target.
pub(crate) fn allow(spec: &EnvironmentSpec, context: &RunContext) -> Result<(), StorageError> {
    check_allowed(spec, context.destroy())
}

/// Checks that the devices and targets that an environment overwrites are among those that the user
/// named.
///
/// # Errors
/// Names the device or target, and the option that allows it.
pub fn check_allowed(spec: &EnvironmentSpec, named: &[PathBuf]) -> Result<(), StorageError> {
    if family(spec) == "vm" {
        return Ok(());
    }
    let storage = parse(spec)?;
    if let Some(nqn) = storage.remote()
        && !named.iter().any(|named| named == Path::new(nqn))
    {
        return Err(StorageError::TargetNotNamed { nqn: nqn.into() });
    }
    let device = storage.device();
    Ok(device.map_or(Ok(()), |path| device::check(path, named, Path::new("/")))?)
}

/// Returns the runtime without its argument: `oci` for `oci:runc`.
fn family(spec: &EnvironmentSpec) -> &str {
    spec.runtime.kind()
}

/// Returns the layer's state for a read-back.
pub(crate) fn state(spec: &EnvironmentSpec, found: ReadBack) -> LayerState {
    crate::system::state("storage", &spec.storage, found.text, found.in_force)
}

/// Checks that a program is installed; the error names its package.
fn need_program(what: &str, program: &str, package: &str) -> Result<(), Unavailable> {
    match tare_host::exec::find(program) {
        Some(_) => Ok(()),
        None => Err(Unavailable {
            what: format!("storage {what}"),
            why: format!("there is no program {program}"),
            remedy: format!("apt-get install {package}"),
        }),
    }
}

/// Creates a directory and its parents.
fn make_directory(path: &Path) -> Result<(), StorageError> {
    std::fs::create_dir_all(path).map_err(|source| StorageError::File { path: path.into(), source })
}

#[cfg(test)]
mod tests;
