//! XFS. Its mkfs refuses devices below 300 MB (xfsprogs 5.19).

use super::super::Kind;
use super::super::options::Options;
use super::{CLEANUP, Format, NEEDS, OPTIONS, READ_BACK, parse};

pub(in super::super) static FORMAT: Format = Format {
    name: "xfs",
    mkfs: "mkfs.xfs",
    package: "xfsprogs",
    words: &["-q", "-f"],
    keep_blocks: &["-K"],
    least_bytes: 300 << 20,
    least: "a size in MiB of at least 300M",
    shown_as: &[],
    all_options: None,
};

pub(in super::super) const KIND: Kind = Kind {
    name: "xfs",
    help: "XFS; options such as logbsize=256k, nodiscard",
    options: OPTIONS,
    needs: NEEDS,
    cleanup: CLEANUP,
    read_back: READ_BACK,
    parse: Some(|options: &Options<'_>| parse(&FORMAT, options)),
};
