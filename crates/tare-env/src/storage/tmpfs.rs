//! A file system in memory: the part of a storage layer's cost that remains without a device.
//!
//! Limits: direct I/O on tmpfs needs Linux 6.6 and still copies. Its pages count as memory of the
//! process that wrote them.

use rustix::mount::MountFlags;
use tare_host::journal::Entry;

use super::options::Options;
use super::{At, Kind, MountView, ReadBack, Storage, StorageError, filesystem, make_directory};

pub(super) const KIND: Kind = Kind {
    name: "tmpfs",
    help: "memory, mounted for the environment; direct I/O needs Linux 6.6",
    options: &[("size", "such as 1G (default); at least 16M")],
    needs: "CONFIG_TMPFS, and the memory",
    cleanup: "unmounted",
    read_back: "file system type and size, seen from inside",
    parse: Some(|options: &Options<'_>| {
        let bytes = options.size("size", 1 << 30, 16 << 20, "a size in MiB of at least 16M")?;
        Ok(Box::new(Tmpfs { bytes }))
    }),
};

#[derive(Debug)]
struct Tmpfs {
    bytes: u64,
}

impl Storage for Tmpfs {
    fn entries(&self, at: &At<'_>) -> Vec<Entry> {
        vec![Entry::mount(at.data())]
    }

    fn make(&self, at: &At<'_>) -> Result<(), StorageError> {
        let data = at.data();
        make_directory(&data)?;
        let options = format!("size={},mode=0755", self.bytes);
        filesystem::mount("tmpfs".as_ref(), &data, "tmpfs", MountFlags::empty(), &options)
    }

    fn read_back(&self, _at: &At<'_>, seen: &MountView) -> ReadBack {
        let in_force =
            seen.is_whole() && seen.filesystem == "tmpfs" && seen.size_bytes == Some(self.bytes);
        ReadBack { text: seen.text(), in_force }
    }
}
