//! btrfs. `nodatacow` writes in place, without checksums, as ext4 and XFS do.

use super::super::Kind;
use super::super::options::Options;
use super::{CLEANUP, Format, NEEDS, OPTIONS, READ_BACK, parse};

pub(in super::super) static FORMAT: Format = Format {
    name: "btrfs",
    mkfs: "mkfs.btrfs",
    package: "btrfs-progs",
    words: &["-q", "-f"],
    keep_blocks: &["--nodiscard"],
    least_bytes: 128 << 20,
    least: "a size in MiB of at least 128M",
    shown_as: &[],
    all_options: None,
};

pub(in super::super) const KIND: Kind = Kind {
    name: "btrfs",
    help: "btrfs; options such as nodatacow, compress=zstd:3",
    options: OPTIONS,
    needs: NEEDS,
    cleanup: CLEANUP,
    read_back: READ_BACK,
    parse: Some(|options: &Options<'_>| parse(&FORMAT, options)),
};
