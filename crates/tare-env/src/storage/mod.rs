//! The storage layer: what a system's data lies on. One file per kind; `ALL` drives `tare list`, the
//! words that a study may use, and the documentation.

use tare_lab::environment::DIRECTORY;

pub mod guest;

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
}

/// Every kind.
pub const ALL: &[Kind] = &[
    Kind {
        name: DIRECTORY,
        help: "a directory of Tare's own, on whatever the host keeps its state on; bind-mounted",
        options: &[],
        needs: "nothing",
        cleanup: "the directory goes with the environment",
        read_back: "the mount table inside, where there is one",
    },
    guest::VIRTIO_BLK,
    guest::VIRTIO_SCSI,
    guest::NVME,
    guest::NINE_P,
    guest::VIRTIOFS,
];
