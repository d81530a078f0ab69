//! What a study may say of `nvme-of`. Without `nqn` the target is made on this host; with it, it is
//! somebody's, and the options of what lies behind it mean nothing.

use tare_host::nvme::Transport;

use super::{NamespaceUse, NvmeOf, TargetSide, backing, raw};
use crate::storage::options::Options;
use crate::storage::{Storage, StorageError, filesystem};

/// The port that is registered for NVMe over fabrics, with TCP and with RDMA.
pub(super) const SERVICE: u16 = 4420;

/// Bounds that the kernel has (drivers/nvme/host/fabrics.h).
const DEPTHS: std::ops::RangeInclusive<u32> = 16..=1024;

pub(super) const ALL: &[(&str, &str)] = &[
    ("transport", "tcp (default) or rdma"),
    (
        "address",
        "where the target listens; without it loopback, and for rdma a soft-RoCE device of its own",
    ),
    ("nqn", "of a target that is there, perhaps on another host; named with --destroy-data-on too"),
    ("port", "of that target: 4420 (default)"),
    ("namespace", "of that target: 1 (default)"),
    backing::SIZE,
    backing::DEVICE,
    backing::ALLOCATE,
    backing::DIRECT_IO,
    ("queues", "for I/O; one for each CPU unless given"),
    ("depth", "commands under way in each queue, 16 to 1024; the kernel's default unless given"),
    (
        "ctrl_loss_tmo",
        "seconds for which a lost target is looked for before I/O fails: 10 (default)",
    ),
    ("keep_alive_tmo", "seconds after which a silent target is lost: 5 (default)"),
    ("filesystem", "on the namespace: ext4 (default), xfs, btrfs, f2fs, or none: the bare device"),
    ("options", "mount options of the file system"),
    ("mkfs", "more options of mkfs"),
];

pub(super) fn parse(options: &Options<'_>) -> Result<Box<dyn Storage>, StorageError> {
    let transport = match options.word("transport", &["tcp", "rdma"], "tcp or rdma")? {
        0 => Transport::Tcp,
        _ => Transport::Rdma,
    };
    let words = ["ext4", "xfs", "btrfs", "f2fs", "none"];
    let format = match options.word("filesystem", &words, "ext4, xfs, btrfs, f2fs or none")? {
        0 => Some(&filesystem::ext4::FORMAT),
        1 => Some(&filesystem::xfs::FORMAT),
        2 => Some(&filesystem::btrfs::FORMAT),
        3 => Some(&filesystem::f2fs::FORMAT),
        _ => None,
    };
    let (least_bytes, least) =
        format.map_or((raw::LEAST_BYTES, raw::LEAST), |format| (format.least_bytes, format.least));
    let above = match format {
        Some(format) => {
            let (options, mkfs) = (options.mount_options()?, options.mkfs_words()?);
            NamespaceUse::FileSystem { format, options, mkfs }
        }
        None => {
            for name in ["options", "mkfs"] {
                options.refuse(name, "for a bare device, only for a file system")?;
            }
            NamespaceUse::Node
        }
    };
    let address = options.address("address")?;
    let side = match options.get("nqn") {
        None => {
            for name in ["port", "namespace"] {
                options.refuse(name, "for a target of Tare's own, only beside nqn")?;
            }
            let backing = backing::Backing::parse(options, least_bytes, least)?;
            TargetSide::Own { backing, address }
        }
        Some(nqn) => {
            for name in backing::OF_IMAGES.into_iter().chain([backing::DEVICE.0]) {
                options.refuse(name, "for a target that is there, only for one of Tare's own")?;
            }
            let port = options.number("port", 1..=65535, "a port")?.map(u16::try_from);
            TargetSide::Given {
                nqn: is_nqn(nqn).then(|| nqn.to_string()).ok_or_else(|| {
                    options.bad("nqn", "a name such as nqn.2014-08.org.example:disk")
                })?,
                address: address
                    .ok_or_else(|| options.bad("address", "given, and has to be beside nqn"))?,
                service: port.and_then(Result::ok).unwrap_or(SERVICE),
                namespace: options.number("namespace", 1..=1024, "1 to 1024")?.unwrap_or(1),
            }
        }
    };
    let seconds = "whole seconds, 1 to 600";
    Ok(Box::new(NvmeOf {
        transport,
        side,
        queues: options.number("queues", 1..=1024, "1 to 1024")?,
        depth: options.number("depth", DEPTHS, "16 to 1024")?,
        loss_s: options.number("ctrl_loss_tmo", 1..=600, seconds)?.unwrap_or(10),
        keep_alive_s: options.number("keep_alive_tmo", 1..=600, seconds)?.unwrap_or(5),
        above,
    }))
}

/// A comma would be the end of the name for the kernel, and what follows an option of its own.
fn is_nqn(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    text.starts_with("nqn.") && text.len() <= 223 && text.chars().all(plain)
}
