//! Data in the container's root file system: the cost of an image's layers for a database whose
//! data has no volume.
//!
//! Method: for an OCI runtime, Tare mounts what an engine would: an overlay whose lower layer is
//! the empty root and whose upper layer is in the state directory, by the kernel (`overlay`) or by
//! the fuse-overlayfs program. An engine uses its own driver, which is read back from the engine;
//! an environment that requests another driver is refused.
//!
//! Limits: only old engines have aufs and devicemapper. `loop-lvm` and `direct-lvm` provide the
//! thin pools of devicemapper without an engine.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;
use tare_host::RUN_VARIABLE;
use tare_host::exec::Command;
use tare_host::journal::Entry;
use tare_host::process;

use super::filesystem::{FILESYSTEM, FileSystem};
use super::options::Options;
use super::{
    At, DataLocation, Kind, MountView, ReadBack, Storage, StorageError, backing, filesystem,
    make_directory, need_program,
};
use crate::unavailable::Unavailable;

pub(super) const KIND: Kind = Kind {
    name: "rootfs",
    help: "the container's root file system: no mount of its own for the data",
    options: &[
        (
            "driver",
            "overlay (oci's default), fuse-overlayfs; with an engine also btrfs, vfs, aufs, \
             devicemapper, and as default its own",
        ),
        (
            FILESYSTEM,
            "below the upper layer, on an image or a device of its own: ext4, xfs, btrfs, f2fs (oci); \
             default: none, the state directory's",
        ),
        backing::SIZE,
        backing::DEVICE,
    ],
    needs: "a container; overlay in the kernel, or fuse-overlayfs; an engine's driver is the engine's",
    cleanup: "unmounted; the upper layer goes with the directory, an engine removes its own",
    read_back: "the root's line in the mount table inside, and the engine's driver",
    parse: Some(|options: &Options<'_>| {
        let own = matches!(options.runtime_family(), "oci" | "containerd");
        let driver = match options.word("driver", DRIVERS, DRIVERS_TEXT)? {
            1 => Driver::Overlay,
            2 => Driver::FuseOverlayfs,
            3 => Driver::Btrfs,
            4 => Driver::Vfs,
            5 => Driver::Aufs,
            6 => Driver::Devicemapper,
            _ if own => Driver::Overlay,
            _ => Driver::Engines,
        };
        Ok(Box::new(RootFs { driver, own, below: below(options, own)? }))
    }),
};

/// Returns the file system below the upper layer, if the environment has one of its own.
fn below(options: &Options<'_>, own: bool) -> Result<Option<FileSystem>, StorageError> {
    let below = FileSystem::named(options, "for the root file system, only with filesystem")?;
    if below.is_some() && !own {
        let why = "for an engine, whose layers are in its own directory";
        return Err(options.bad(FILESYSTEM, why));
    }
    Ok(below)
}

const DRIVERS: &[&str] =
    &["default", "overlay", "fuse-overlayfs", "btrfs", "vfs", "aufs", "devicemapper"];
const DRIVERS_TEXT: &str =
    "one of default, overlay, fuse-overlayfs, btrfs, vfs, aufs, devicemapper";

/// The driver that combines an image's layers into a root file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// The engine's configured driver.
    Engines,
    Overlay,
    FuseOverlayfs,
    Btrfs,
    Vfs,
    Aufs,
    Devicemapper,
}

impl Driver {
    fn name(self) -> &'static str {
        match self {
            Self::Engines => "default",
            Self::Overlay => "overlay",
            Self::FuseOverlayfs => "fuse-overlayfs",
            Self::Btrfs => "btrfs",
            Self::Vfs => "vfs",
            Self::Aufs => "aufs",
            Self::Devicemapper => "devicemapper",
        }
    }

    /// Returns the Docker version that removed the driver, as the end of a sentence.
    fn history(self) -> &'static str {
        match self {
            Self::Aufs => "; aufs was removed in Docker 24.0",
            Self::Devicemapper => "; devicemapper was removed in Docker 25.0",
            _ => "",
        }
    }

    fn unavailable(self, why: String, remedy: String) -> Unavailable {
        Unavailable { what: format!("storage rootfs with driver {}", self.name()), why, remedy }
    }

    /// Checks that Tare can mount it without an engine.
    ///
    /// # Errors
    /// Names what to use instead.
    pub(super) fn check_own(self) -> Result<(), Unavailable> {
        match self {
            Self::Engines | Self::Overlay => Ok(()),
            Self::FuseOverlayfs => {
                need_program("rootfs with fuse-overlayfs", "fuse-overlayfs", "fuse-overlayfs")
            }
            Self::Devicemapper => Err(self.unavailable(
                format!("it is a driver of Docker{}", self.history()),
                "use storage loop-lvm or direct-lvm, the same thin pool without an engine".into(),
            )),
            _ => Err(self.unavailable(
                format!("it is an engine's driver{}", self.history()),
                "use runtime docker with an engine that has it, or driver overlay".into(),
            )),
        }
    }

    /// Checks that an engine's driver, by the engine's name for it, is this one.
    ///
    /// # Errors
    /// Names the engine's driver and the version that removed the requested one.
    pub(crate) fn check_engine(self, engine: &str, driver: &str) -> Result<(), Unavailable> {
        let is_it = match self {
            Self::Engines => true,
            // overlayfs is containerd's name for it.
            Self::Overlay => matches!(driver, "overlay" | "overlay2" | "overlayfs"),
            // Podman's driver is overlay with fuse-overlayfs as its mount program. The read-back of
            // the mount tells them apart.
            Self::FuseOverlayfs => driver == "fuse-overlayfs" || driver == "overlay",
            _ => driver == self.name(),
        };
        if is_it {
            return Ok(());
        }
        let remedy = match self {
            Self::Aufs => {
                "start a Docker before 24.0 with --storage-driver aufs, on a kernel with aufs"
            }
            Self::Devicemapper => {
                "start a Docker before 25.0 with --storage-driver devicemapper, or use storage \
                 loop-lvm or direct-lvm"
            }
            _ => "start the engine with that --storage-driver",
        };
        let why = format!("{engine} has the storage driver {driver}{}", self.history());
        Err(self.unavailable(why, remedy.into()))
    }

    /// Returns the type of the root's mount, if the driver determines it.
    fn filesystem(self) -> Option<&'static str> {
        match self {
            Self::Overlay => Some("overlay"),
            Self::FuseOverlayfs => Some("fuse.fuse-overlayfs"),
            Self::Btrfs => Some("btrfs"),
            Self::Aufs => Some("aufs"),
            Self::Engines | Self::Vfs | Self::Devicemapper => None,
        }
    }
}

#[derive(Debug)]
struct RootFs {
    driver: Driver,
    /// Whether Tare mounts it, not an engine.
    own: bool,
    /// The file system of the upper layer; `None` is that of the state directory.
    below: Option<FileSystem>,
}

impl RootFs {
    /// Returns the directory of the upper layer and of the overlay's work directory.
    fn layers(&self, at: &At<'_>) -> PathBuf {
        match self.below {
            Some(_) => at.data(),
            None => at.folder.to_path_buf(),
        }
    }
}

/// Returns the root of a container of Tare, on which the overlay is mounted.
fn root(at: &At<'_>) -> PathBuf {
    at.folder.join("rootfs")
}

impl Storage for RootFs {
    fn location(&self) -> DataLocation {
        DataLocation::Root
    }

    fn driver(&self) -> Option<Driver> {
        Some(self.driver)
    }

    fn needs(&self) -> Result<(), Unavailable> {
        self.below.as_ref().map_or(Ok(()), Storage::needs)
    }

    fn device(&self) -> Option<&Path> {
        self.below.as_ref().and_then(Storage::device)
    }

    fn entries(&self, at: &At<'_>) -> Vec<Entry> {
        let below = self.below.as_ref().map(|below| below.entries(at));
        let own = self.own.then(|| Entry::mount(root(at)));
        below.into_iter().flatten().chain(own).collect()
    }

    /// Mounts the overlay over its own lower layer, which exists already. An engine mounts its own.
    fn make(&self, at: &At<'_>) -> Result<(), StorageError> {
        if !self.own {
            return Ok(());
        }
        if let Some(below) = &self.below {
            below.make(at)?;
        }
        let (lower, layers) = (root(at), self.layers(at));
        let (upper, work) = (layers.join("upper"), layers.join("work"));
        make_directory(&upper.join("data"))?;
        make_directory(&work)?;
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        if self.driver == Driver::Overlay {
            let flags = MountFlags::empty();
            return filesystem::mount("overlay".as_ref(), &lower, "overlay", flags, &options);
        }
        // The program continues in the background after mounting, and ends when it is unmounted.
        let command = Command::new("fuse-overlayfs").args(["-o", &options]).arg(&lower);
        let mounted = command.variable(RUN_VARIABLE, at.context.run()).run();
        mounted.map(drop).map_err(|source| StorageError::Fuse { path: lower, source })
    }

    fn data(&self, at: &At<'_>) -> PathBuf {
        // The server has its own page cache: pages mapped in memory are visible only through it.
        match self.driver {
            Driver::FuseOverlayfs => root(at).join("data"),
            _ => self.layers(at).join("upper/data"),
        }
    }

    fn server(&self, at: &At<'_>) -> Option<(&'static str, u32)> {
        if !self.own || self.driver != Driver::FuseOverlayfs {
            return None;
        }
        let path = root(at).to_string_lossy().into_owned();
        let serves = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            words.next().is_some_and(|program| program.ends_with(b"fuse-overlayfs"))
                && words.any(|word| word == path.as_bytes())
        };
        process::all().into_iter().find(serves).map(|pid| ("fuse-overlayfs", pid))
    }

    fn read_back(&self, at: &At<'_>, seen: &MountView) -> ReadBack {
        let as_requested = self.driver.filesystem().is_none_or(|name| seen.filesystem == name);
        let upper = format!("upperdir={}", self.layers(at).join("upper").display());
        // fuse-overlayfs does not show its layers.
        let ours = !self.own || self.driver != Driver::Overlay || seen.options.contains(&upper);
        // With the host's view alone (gVisor), the root is where Tare mounted it. The read-back
        // inside checks that nothing is mounted over it.
        let hosts = seen.is_from_host() && Path::new(&seen.point) == root(at);
        let in_root = seen.point == "/" || hosts;
        let mut text = match in_root {
            true => format!("in the root file system: {}", seen.text()),
            false => format!("on a mount of its own: {}", seen.text()),
        };
        let mut in_force = seen.is_whole() && in_root && as_requested && ours;
        if let Some(below) = &self.below {
            // The system sees only the overlay.
            let below = below.read_back(at, &MountView::of_host(&at.data()));
            text += &format!("; its upper layer on {}", below.text);
            in_force &= below.in_force;
        }
        ReadBack { text, in_force }
    }
}
