//! Storage that only a virtual machine has: devices behind which its disk image lies, and shares of
//! the host's. How they are made is the business of `runtime::vm`.

use super::Kind;

const NEEDS: &str = "runtime = \"vm:qemu\"";
const NEEDS_UML: &str = "runtime = \"vm:uml\"";
const CLEANUP: &str = "the image goes with the environment's directory";
const READ_BACK: &str = "mount, driver and write cache of the disk, from inside the guest";

pub const VIRTIO_BLK: Kind = Kind {
    name: "virtio-blk",
    help: "a raw image with ext4 as a paravirtual disk; what a guest has as \"directory\"",
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
    help: "a directory of the host's, shared with the guest by 9p over virtio",
    options: &[
        ("msize", "largest message, 4K to 512000 bytes (default)"),
        ("cache", "mmap (default), none, loose"),
    ],
    needs: NEEDS,
    cleanup: "the directory goes with the environment's",
    read_back: "the mount table inside the guest",
    parse: None,
};

pub const VIRTIOFS: Kind = Kind {
    name: "virtiofs",
    help: "a directory of the host's, served to the guest by a daemon, virtiofsd",
    options: &[("cache", "auto (default), always, none")],
    needs: "runtime = \"vm:qemu\", virtiofsd (with QEMU 7.2, else a package of its own)",
    cleanup: "the daemon is killed; the directory goes with the environment's",
    read_back: "the mount table inside the guest",
    parse: None,
};

pub const UBD: Kind = Kind {
    name: "ubd",
    help: "the same image as a disk of user-mode Linux; what such a guest has as \"directory\"",
    options: &[],
    needs: NEEDS_UML,
    cleanup: CLEANUP,
    read_back: READ_BACK,
    parse: None,
};

pub const HOSTFS: Kind = Kind {
    name: "hostfs",
    help: "a directory of the host's, which user-mode Linux reads and writes by system calls",
    options: &[],
    needs: NEEDS_UML,
    cleanup: "the directory goes with the environment's",
    read_back: "the mount table inside the guest",
    parse: None,
};

/// Those of QEMU's guests.
pub const OF_QEMU: &[Kind] = &[VIRTIO_BLK, VIRTIO_SCSI, NVME, NINE_P, VIRTIOFS];

/// Those of guests of user-mode Linux.
pub const OF_UML: &[Kind] = &[UBD, HOSTFS];
