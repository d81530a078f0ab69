//! ext4. By default it initializes inode tables in the background after mounting; here mkfs does,
//! to keep that work out of the measurement. `dioread_nolock` is the default since Linux 5.6,
//! `dioread_lock` was before.

use super::super::Kind;
use super::super::options::Options;
use super::{CLEANUP, Format, NEEDS, OPTIONS, READ_BACK, parse};

pub(in super::super) static FORMAT: Format = Format {
    name: "ext4",
    mkfs: "mkfs.ext4",
    package: "e2fsprogs",
    words: &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    keep_blocks: &["-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
    least_bytes: 64 << 20,
    least: "a size in MiB of at least 64M",
    shown_as: &[("dioread_lock", "nodioread_nolock")],
    all_options: Some(|device| {
        std::fs::read_to_string(format!("/proc/fs/ext4/{device}/options")).unwrap_or_default()
    }),
};

pub(in super::super) const KIND: Kind = Kind {
    name: "ext4",
    help: "ext4; options such as dioread_lock, data=journal, nobarrier",
    options: OPTIONS,
    needs: NEEDS,
    cleanup: CLEANUP,
    read_back: READ_BACK,
    parse: Some(|options: &Options<'_>| parse(&FORMAT, options)),
};
