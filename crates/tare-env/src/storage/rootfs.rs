//! The container's root file system: what an image's layers cost a database whose data was not
//! given a volume.
//!
//! Method: for an OCI runtime Tare itself mounts what an engine would: an overlay whose lower layer
//! is the empty root and whose upper layer lies in the state directory, by the kernel (`overlay`)
//! or by the fuse-overlayfs program. With an engine the driver is the engine's own; it is read back
//! from the engine, and an environment that asks for another one is refused by name.
//!
//! Limits: aufs and devicemapper are drivers of old engines only; devicemapper's thin pools can be
//! had without an engine as `loop-lvm` and `direct-lvm`.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;
use tare_host::RUN_VARIABLE;
use tare_host::exec::Command;
use tare_host::journal::Entry;
use tare_host::process;

use super::options::Options;
use super::{
    At, DataLocation, Kind, MountView, ReadBack, Storage, StorageError, filesystem, make_directory,
    need_program,
};
use crate::unavailable::Unavailable;

pub(super) const KIND: Kind = Kind {
    name: "rootfs",
    help: "the container's root file system: no mount of its own for the data",
    options: &[(
        "driver",
        "overlay (oci's default), fuse-overlayfs; with an engine also btrfs, vfs, aufs, \
         devicemapper, and as default its own",
    )],
    needs: "a container; overlay in the kernel, or fuse-overlayfs; an engine's driver is the engine's",
    cleanup: "unmounted; the upper layer goes with the directory, an engine removes its own",
    read_back: "the root's line in the mount table inside, and the engine's driver",
    parse: Some(|options: &Options<'_>| {
        let own = options.runtime_family() == "oci";
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
        Ok(Box::new(RootFs { driver, own }))
    }),
};

const DRIVERS: &[&str] =
    &["default", "overlay", "fuse-overlayfs", "btrfs", "vfs", "aufs", "devicemapper"];
const DRIVERS_TEXT: &str =
    "one of default, overlay, fuse-overlayfs, btrfs, vfs, aufs, devicemapper";

/// What makes a root file system of an image's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// Whatever the engine uses.
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

    /// Why Docker may not have it any more.
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

    /// Whether Tare can make it without an engine.
    ///
    /// # Errors
    /// What it takes instead.
    pub(super) fn check_own(self) -> Result<(), Unavailable> {
        match self {
            Self::Engines | Self::Overlay => Ok(()),
            Self::FuseOverlayfs => {
                need_program("rootfs with fuse-overlayfs", "fuse-overlayfs", "fuse-overlayfs")
            }
            Self::Devicemapper => Err(self.unavailable(
                format!("it is a driver of Docker{}", self.history()),
                "take storage loop-lvm or direct-lvm, the same thin pool without an engine".into(),
            )),
            _ => Err(self.unavailable(
                format!("it is an engine's driver{}", self.history()),
                "take runtime docker with an engine that has it, or driver overlay".into(),
            )),
        }
    }

    /// Whether an engine's driver, as the engine names it, is this one.
    ///
    /// # Errors
    /// What the engine has instead, and since when it lacks what is asked for.
    pub(crate) fn check_engine(self, engine: &str, driver: &str) -> Result<(), Unavailable> {
        let is_it = match self {
            Self::Engines => true,
            // overlayfs is containerd's name for it.
            Self::Overlay => matches!(driver, "overlay" | "overlay2" | "overlayfs"),
            // Podman's driver is overlay with fuse-overlayfs as its mount program; the mount tells.
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
                "start a Docker before 25.0 with --storage-driver devicemapper, or take storage \
                 loop-lvm or direct-lvm"
            }
            _ => "start the engine with that --storage-driver",
        };
        let why = format!("{engine} has the storage driver {driver}{}", self.history());
        Err(self.unavailable(why, remedy.into()))
    }

    /// The type of the root's mount, where it is always the same.
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
    /// Tare mounts it, not an engine.
    own: bool,
}

/// The root of a container of ours, on which the overlay is mounted.
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

    fn entries(&self, at: &At<'_>) -> Vec<Entry> {
        if self.own { vec![Entry::mount(root(at))] } else { Vec::new() }
    }

    /// Mounts the overlay over its own lower layer, which is there already. An engine's is the
    /// engine's.
    fn make(&self, at: &At<'_>) -> Result<(), StorageError> {
        if !self.own {
            return Ok(());
        }
        let (lower, upper, work) = (root(at), at.folder.join("upper"), at.folder.join("work"));
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
        // It goes on in the background once the mount is there, and ends with it.
        let command = Command::new("fuse-overlayfs").args(["-o", &options]).arg(&lower);
        let mounted = command.variable(RUN_VARIABLE, at.context.run()).run();
        mounted.map(drop).map_err(|source| StorageError::Fuse { path: lower, source })
    }

    fn data(&self, at: &At<'_>) -> PathBuf {
        // The server has a page cache of its own: what is mapped in memory shows only through it.
        match self.driver {
            Driver::FuseOverlayfs => root(at).join("data"),
            _ => at.folder.join("upper/data"),
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
        let as_asked = self.driver.filesystem().is_none_or(|name| seen.filesystem == name);
        let upper = format!("upperdir={}", at.folder.join("upper").display());
        // fuse-overlayfs does not show its layers.
        let ours = !self.own || self.driver != Driver::Overlay || seen.options.contains(&upper);
        // Where the host alone is asked (gVisor), the root stands where we made it; that nothing is
        // mounted over it inside is read there.
        let hosts = seen.is_from_host() && Path::new(&seen.point) == root(at);
        let in_root = seen.point == "/" || hosts;
        let text = match in_root {
            true => format!("in the root file system: {}", seen.text()),
            false => format!("on a mount of its own: {}", seen.text()),
        };
        ReadBack { text, in_force: seen.is_whole() && in_root && as_asked && ours }
    }
}
