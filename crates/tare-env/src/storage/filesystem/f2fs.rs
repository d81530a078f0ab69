//! F2FS, the log-structured file system for flash.

use super::super::Kind;
use super::super::options::Options;
use super::{CLEANUP, Format, NEEDS, OPTIONS, READ_BACK, parse};

pub(in super::super) static FORMAT: Format = Format {
    name: "f2fs",
    mkfs: "mkfs.f2fs",
    package: "f2fs-tools",
    words: &["-q", "-f"],
    keep_blocks: &["-t", "0"],
    least_bytes: 128 << 20,
    least: "a size in MiB of at least 128M",
    shown_as: &[],
    all_options: None,
};

pub(in super::super) const KIND: Kind = Kind {
    name: "f2fs",
    help: "F2FS; options such as mode=lfs",
    options: OPTIONS,
    needs: NEEDS,
    cleanup: CLEANUP,
    read_back: READ_BACK,
    parse: Some(|options: &Options<'_>| parse(&FORMAT, options)),
};
