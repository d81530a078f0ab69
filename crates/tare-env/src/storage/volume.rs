//! A named volume of a container engine, the alternative to the bind mount of `directory`. The
//! engine creates it (`runtime::docker`); this file describes it and reads it back.
//!
//! Method: with a file system of its own, the volume is a directory of that, which the engine's
//! driver `local` binds (`type=none,o=bind`). Without, it is a directory of the engine's.

use std::path::{Path, PathBuf};

use tare_host::journal::Entry;

use super::filesystem::{FILESYSTEM, FileSystem};
use super::options::Options;
use super::{
    At, DataLocation, Kind, MountView, ReadBack, Storage, StorageError, backing, make_directory,
};
use crate::unavailable::Unavailable;

pub(super) const KIND: Kind = Kind {
    name: "volume",
    help: "a named volume of the engine (docker, podman), in the engine's state directory",
    options: &[
        (
            FILESYSTEM,
            "below the volume, on an image or a device of its own: ext4, xfs, btrfs, f2fs; default: none, the \
             engine's",
        ),
        backing::SIZE,
        backing::DEVICE,
    ],
    needs: "docker or podman",
    cleanup: "the engine removes the volume; its file system is unmounted",
    read_back: "the engine's inspection, and the mount table inside",
    parse: Some(|options: &Options<'_>| {
        let below = FileSystem::named(options, "for a volume, only with filesystem")?;
        Ok(Box::new(Volume { below }))
    }),
};

#[derive(Debug)]
struct Volume {
    /// The file system that the volume is a directory of; `None` is that of the engine's directory.
    below: Option<FileSystem>,
}

impl Storage for Volume {
    fn location(&self) -> DataLocation {
        DataLocation::Volume
    }

    fn needs(&self) -> Result<(), Unavailable> {
        self.below.as_ref().map_or(Ok(()), Storage::needs)
    }

    fn device(&self) -> Option<&Path> {
        self.below.as_ref().and_then(Storage::device)
    }

    fn entries(&self, at: &At<'_>) -> Vec<Entry> {
        self.below.as_ref().map_or_else(Vec::new, |below| below.entries(at))
    }

    /// Creates the file system and its directory. The engine creates the volume.
    fn make(&self, at: &At<'_>) -> Result<(), StorageError> {
        let Some(below) = &self.below else { return Ok(()) };
        below.make(at)?;
        self.bound(at).map_or(Ok(()), |directory| make_directory(&directory))
    }

    fn bound(&self, at: &At<'_>) -> Option<PathBuf> {
        // The root of a file system may hold lost+found, which a database takes for its data.
        self.below.as_ref().map(|_| at.data().join(at.name("volume")))
    }

    fn read_back(&self, at: &At<'_>, seen: &MountView) -> ReadBack {
        // The root of the mount inside is the volume's directory, whose name contains the run's.
        let named = seen.root.contains("tare-");
        let mut found = ReadBack { text: seen.text(), in_force: seen.is_whole() && named };
        if let Some(below) = &self.below {
            let host = MountView::of_host(&at.data());
            let same = seen.is_mount_of(&host);
            let below = below.read_back(at, &host);
            found.text += &format!("; a directory of {}", below.text);
            found.in_force &= below.in_force && same;
        }
        found
    }
}
