//! The storage layer: what a system's data lies on. One file per kind; `ALL` drives `tare list`,
//! the words that a study may use, and the documentation.
//!
//! Method: a kind checks its options (`parse`), says what is missing on this host (`needs`), names
//! what it is about to make as journal entries (`entries`), makes it (`make`), and reads it back
//! from the mount table of the system's own process (`read_back`). Taking it down is undoing the
//! entries, which `stop`, `EnvironmentFactory::close` and `tare clean` all do, so no kind has code
//! of its own for that.
//!
//! A kind says where its data stands (`DataLocation`): in a directory of the host that the runtime
//! bind-mounts, in the container's root file system, or in a volume of the engine. Kinds that only
//! a virtual machine has (`guest`) are made and read back by `runtime::vm`, inside the guest.

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tare_host::block::BlockError;
use tare_host::exec::ExecError;
use tare_host::journal::Entry;
use tare_host::nvme::NvmeError;
use tare_lab::environment::{EnvironmentSpec, LayerState, StorageSpec};

use crate::layer::network::NetworkError;
use crate::run_context::RunContext;
use crate::unavailable::Unavailable;

mod backing;
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
    /// As a study writes it.
    pub name: &'static str,
    /// One line: what it is.
    pub help: &'static str,
    /// Its options as (name, one line).
    pub options: &'static [(&'static str, &'static str)],
    /// What it needs of the host.
    pub needs: &'static str,
    /// How it cleans up.
    pub cleanup: &'static str,
    /// How it is read back that it is in force.
    pub read_back: &'static str,
    /// `None`: `runtime::vm` makes it.
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
    guest::VIRTIO_BLK,
    guest::VIRTIO_SCSI,
    guest::NVME,
    guest::NINE_P,
    guest::VIRTIOFS,
    guest::UBD,
    guest::HOSTFS,
];

/// Why a storage layer makes no sense or could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("environment {environment:?}: there is no storage {kind:?}; known are {known}")]
    Kind { environment: String, kind: String, known: String },
    #[error("environment {environment:?}: storage {kind:?} has no option {name:?}; it has {known}")]
    Option { environment: String, kind: &'static str, name: String, known: String },
    #[error("environment {environment:?}: storage option {name} = {value:?} is not {wanted}")]
    Value { environment: String, name: String, value: String, wanted: &'static str },
    #[error(
        "environment {environment:?}: storage {kind:?} does not go with runtime {runtime:?}: {why}"
    )]
    Runtime { environment: String, kind: String, runtime: String, why: &'static str },
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error(transparent)]
    Nvme(#[from] NvmeError),
    #[error("all data on {nqn} would be destroyed; if that is meant, add --destroy-data-on {nqn}")]
    TargetNotNamed { nqn: String },
    #[error("no port is free on {address} for an NVMe target to listen on")]
    Listen { address: IpAddr, source: io::Error },
    #[error("cannot make an RDMA device in software")]
    SoftRoce(#[source] ExecError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("cannot make {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot lay the file system")]
    Format(#[source] ExecError),
    #[error("cannot mount {what} with options {options:?} on {}", .path.display())]
    Mount { what: String, options: String, path: PathBuf, source: io::Error },
    #[error("cannot show {} to the engine (process {pid})", .path.display())]
    Show { path: PathBuf, pid: u32, source: io::Error },
    #[error("cannot mount {} with fuse-overlayfs", .path.display())]
    Fuse { path: PathBuf, source: ExecError },
}

/// Where the data of a system stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataLocation {
    /// In `At::data`, a directory of the host.
    Directory,
    /// In the container's root file system.
    Root,
    /// In a named volume of the engine.
    Volume,
}

/// Where one start of an environment makes its storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub(crate) context: &'a RunContext,
    /// The directory of this start, which exists when `make` is called.
    pub(crate) folder: &'a Path,
}

impl At<'_> {
    /// Where the data stands on the host, if it stands in a directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Where the host meets the data through the same file system as the system does.
    pub(crate) fn in_root(&self, location: DataLocation, data: &Path) -> PathBuf {
        match location {
            DataLocation::Root => self.folder.join("rootfs/data"),
            _ => data.into(),
        }
    }

    /// What the system is told as its data, where it sees the data's directory at `inside`.
    pub(crate) fn path_inside(&self, storage: &dyn Storage, inside: &Path) -> String {
        let path = storage.node().map_or_else(|| inside.to_path_buf(), |node| inside.join(node));
        path.to_string_lossy().into_owned()
    }

    /// The name of a thing of this start: `tare-RUN-e3-pool`.
    fn name(&self, what: &str) -> String {
        let start = self.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{}-{start}-{what}", self.context.prefix())
    }
}

/// What was read back, in words, and whether it is what was asked for.
#[derive(Debug)]
pub(crate) struct ReadBack {
    text: String,
    in_force: bool,
}

/// The storage of one environment. Its options are checked; nothing is made.
pub(crate) trait Storage: Debug {
    fn location(&self) -> DataLocation {
        DataLocation::Directory
    }

    /// Whether this host has what it takes.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    fn needs(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    /// The block device that it writes over, if it takes one that it does not make.
    fn device(&self) -> Option<&Path> {
        None
    }

    /// The block device's node in the data's directory, where the system is given that in place of
    /// the directory.
    fn node(&self) -> Option<&'static str> {
        None
    }

    /// The NQN of a target that is not ours and that it writes over, if there is one.
    fn remote(&self) -> Option<&str> {
        None
    }

    /// What `make` makes besides files in the directory of the start, in that order.
    fn entries(&self, _at: &At<'_>) -> Vec<Entry> {
        Vec::new()
    }

    /// Makes it. Called once the entries are in the journal.
    fn make(&self, at: &At<'_>) -> Result<(), StorageError>;

    /// The data as the host sees it, where the probes look.
    fn data(&self, at: &At<'_>) -> PathBuf {
        at.data()
    }

    /// The driver of the container's root file system, if it was asked for.
    fn driver(&self) -> Option<Driver> {
        None
    }

    /// A process that serves the file system, with its name.
    fn server(&self, _at: &At<'_>) -> Option<(&'static str, u32)> {
        None
    }

    /// Reads back what the data lies on.
    fn read_back(&self, at: &At<'_>, seen: &MountView) -> ReadBack;
}

/// The storage of an environment, its options checked against its runtime.
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
        (DataLocation::Root, "process") => {
            Err(refuse("a process of the host has the host's root file system; take a container"))
        }
        (DataLocation::Volume, "process" | "oci") => {
            Err(refuse("a volume belongs to an engine; take docker or podman"))
        }
        (_, "docker" | "podman") if storage.node().is_some() => {
            Err(refuse("an engine is given no device here; take an OCI runtime or a process"))
        }
        _ => Ok(storage),
    }
}

/// Whether an environment gives its system a block device in place of a directory.
pub fn is_device(spec: &EnvironmentSpec) -> bool {
    family(spec) != "vm" && parse(spec).is_ok_and(|storage| storage.node().is_some())
}

/// Whether two starts of an environment at once would have the same device or target below them.
pub(crate) fn is_shared(spec: &EnvironmentSpec) -> bool {
    let shares =
        |storage: Box<dyn Storage>| storage.device().is_some() || storage.remote().is_some();
    family(spec) != "vm" && parse(spec).is_ok_and(shares)
}

/// Whether this host has the storage of an environment. A guest's is checked with the guest.
pub(crate) fn check(spec: &EnvironmentSpec) -> Result<(), tare_lab::PartError> {
    if family(spec) == "vm" {
        return Ok(());
    }
    let storage = parse(spec)?;
    if let (Some(driver), "oci") = (storage.driver(), family(spec)) {
        driver.check_own()?;
    }
    Ok(storage.needs()?)
}

/// Whether the device or target that an environment writes over, if it does, may be.
pub(crate) fn allow(spec: &EnvironmentSpec, context: &RunContext) -> Result<(), StorageError> {
    if family(spec) == "vm" {
        return Ok(());
    }
    let storage = parse(spec)?;
    if let Some(nqn) = storage.remote()
        && !context.destroy().iter().any(|named| named == Path::new(nqn))
    {
        return Err(StorageError::TargetNotNamed { nqn: nqn.into() });
    }
    let device = storage.device();
    Ok(device.map_or(Ok(()), |path| device::check(path, context.destroy(), Path::new("/")))?)
}

/// The runtime without its argument: `oci` of `oci:runc`.
fn family(spec: &EnvironmentSpec) -> &str {
    spec.runtime.kind()
}

/// The layer's state, from what was found.
pub(crate) fn state(spec: &EnvironmentSpec, found: ReadBack) -> LayerState {
    crate::system::state("storage", &spec.storage, found.text, found.in_force)
}

/// That a program of a package is missing, unless it is there.
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

/// Makes a directory.
fn make_directory(path: &Path) -> Result<(), StorageError> {
    std::fs::create_dir_all(path).map_err(|source| StorageError::File { path: path.into(), source })
}

#[cfg(test)]
mod tests;
