//! A named volume of a container engine, the alternative to the bind mount of `directory`. The
//! engine creates it (`runtime::docker`); this file describes it and reads it back.

use super::options::Options;
use super::{At, DataLocation, Kind, MountView, ReadBack, Storage, StorageError};

pub(super) const KIND: Kind = Kind {
    name: "volume",
    help: "a named volume of the engine (docker, podman), in the engine's state directory",
    options: &[],
    needs: "docker or podman",
    cleanup: "the engine removes the volume",
    read_back: "the engine's inspection, and the mount table inside",
    parse: Some(|_: &Options<'_>| Ok(Box::new(Volume))),
};

#[derive(Debug)]
struct Volume;

impl Storage for Volume {
    fn location(&self) -> DataLocation {
        DataLocation::Volume
    }

    /// Does nothing: the engine creates it.
    fn make(&self, _at: &At<'_>) -> Result<(), StorageError> {
        Ok(())
    }

    fn read_back(&self, _at: &At<'_>, seen: &MountView) -> ReadBack {
        // The root of the mount inside is the volume's directory, whose name contains the run's.
        let named = seen.root.contains("tare-");
        ReadBack { text: seen.text(), in_force: seen.is_whole() && named }
    }
}
