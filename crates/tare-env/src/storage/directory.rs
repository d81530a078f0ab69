//! A directory of the host, the baseline for all other kinds.

use tare_lab::environment::DIRECTORY;

use super::options::Options;
use super::{At, Kind, MountView, ReadBack, Storage, StorageError, make_directory};

pub(super) const KIND: Kind = Kind {
    name: DIRECTORY,
    help: "a directory in Tare's state directory on the host; bind-mounted",
    options: &[],
    needs: "nothing",
    cleanup: "the directory is removed with the environment",
    read_back: "the mount table inside: the device is that of the directory on the host",
    parse: Some(|_: &Options<'_>| Ok(Box::new(Directory))),
};

#[derive(Debug)]
struct Directory;

impl Storage for Directory {
    fn make(&self, at: &At<'_>) -> Result<(), StorageError> {
        make_directory(&at.data())
    }

    fn read_back(&self, _at: &At<'_>, seen: &MountView) -> ReadBack {
        ReadBack { text: seen.text(), in_force: seen.is_whole() && seen.same_device_as_host() }
    }
}
