//! Storage that only a virtual machine has: the device types of its disk image, and shared
//! directories of the host. `runtime::vm` creates them.

use super::Kind;

const NEEDS: &str = "runtime = \"vm:qemu\"";
const NEEDS_UML: &str = "runtime = \"vm:uml\"";
const CLEANUP: &str = "the image is removed with the environment's directory";
const READ_BACK: &str = "mount, driver and write cache of the disk, from inside the guest";

pub const VIRTIO_BLK: Kind = Kind {
    name: "virtio-blk",
    help: "a raw image with ext4 as a paravirtual disk; also \"directory\" in a guest of QEMU",
    options: &[],
    needs: NEEDS,
    cleanup: CLEANUP,
    read_back: READ_BACK,
    parse: None,
};

pub const VIRTIO_SCSI: Kind = Kind {
    name: "virtio-scsi",
    help: "the same image as a disk of a paravirtual SCSI controller",
    options: &[],
    needs: NEEDS,
    cleanup: CLEANUP,
    read_back: READ_BACK,
    parse: None,
};

pub const NVME: Kind = Kind {
    name: "nvme",
    help: "the same image as an emulated NVMe disk",
    options: &[],
    needs: NEEDS,
    cleanup: CLEANUP,
    read_back: READ_BACK,
    parse: None,
};

pub const NINE_P: Kind = Kind {
    name: "9p",
    help: "a directory of the host, shared with the guest by 9p over virtio",
    options: &[
        ("msize", "largest message, 4K to 512000 bytes (default)"),
        ("cache", "mmap (default), none, loose"),
    ],
    needs: NEEDS,
    cleanup: "the directory is removed with the environment's",
    read_back: "the mount table inside the guest",
    parse: None,
};

pub const VIRTIOFS: Kind = Kind {
    name: "virtiofs",
    help: "a directory of the host, served to the guest by a daemon, virtiofsd",
    options: &[("cache", "auto (default), always, none")],
    needs: "runtime = \"vm:qemu\", virtiofsd (part of QEMU 7.2, else a separate package)",
    cleanup: "the daemon is killed; the directory is removed with the environment's",
    read_back: "the mount table inside the guest",
    parse: None,
};

pub const UBD: Kind = Kind {
    name: "ubd",
    help: "the same image as a disk of user-mode Linux; also \"directory\" in such a guest",
    options: &[],
    needs: NEEDS_UML,
    cleanup: CLEANUP,
    read_back: READ_BACK,
    parse: None,
};

pub const HOSTFS: Kind = Kind {
    name: "hostfs",
    help: "a directory of the host, which user-mode Linux reads and writes by system calls",
    options: &[],
    needs: NEEDS_UML,
    cleanup: "the directory is removed with the environment's",
    read_back: "the mount table inside the guest",
    parse: None,
};

/// The kinds of QEMU's guests.
pub const OF_QEMU: &[Kind] = &[VIRTIO_BLK, VIRTIO_SCSI, NVME, NINE_P, VIRTIOFS];

/// The kinds of guests of user-mode Linux.
pub const OF_UML: &[Kind] = &[UBD, HOSTFS];
