//! A named volume of a container engine, beside the bind mount of `directory`. The engine makes it
//! (`runtime::docker`); here is what it is.

use super::options::Options;
use super::{At, DataLocation, Kind, MountView, ReadBack, Storage, StorageError};

pub(super) const KIND: Kind = Kind {
    name: "volume",
    help: "a named volume of the engine (docker, podman), on whatever it keeps its state on",
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

    /// The engine does.
    fn make(&self, _at: &At<'_>) -> Result<(), StorageError> {
        Ok(())
    }

    fn read_back(&self, _at: &At<'_>, seen: &MountView) -> ReadBack {
        // The root of the mount inside is the volume's directory, which bears the run's name.
        let named = seen.root.contains("tare-");
        ReadBack { text: seen.text(), in_force: seen.is_whole() && named }
    }
}
