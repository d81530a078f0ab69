//! The options of `nvme-of`. Without `nqn`, Tare creates the target on this host. With it, the
//! target exists already, and the options of its block device are refused.

use tare_host::nvme::Transport;

use super::{NamespaceUse, NvmeOf, TargetSide, backing, raw};
use crate::storage::options::Options;
use crate::storage::{Storage, StorageError, filesystem};

/// The registered port of NVMe over fabrics, for TCP and RDMA.
pub(super) const SERVICE: u16 = 4420;

/// The kernel's bounds of a queue's depth (drivers/nvme/host/fabrics.h).
const DEPTHS: std::ops::RangeInclusive<u32> = 16..=1024;

pub(super) const ALL: &[(&str, &str)] = &[
    ("transport", "tcp (default) or rdma"),
    (
        "address",
        "of the target; by default loopback, and for rdma a soft-RoCE device that Tare creates",
    ),
    ("nqn", "of an existing target, perhaps on another host; named with --destroy-data-on too"),
    ("port", "of that target: 4420 (default)"),
    ("namespace", "of that target: 1 (default)"),
    backing::SIZE,
    backing::DEVICE,
    backing::ALLOCATE,
    backing::DIRECT_IO,
    ("queues", "for I/O; by default one for each CPU"),
    ("depth", "concurrent commands in each queue, 16 to 1024; by default the kernel's"),
    ("ctrl_loss_tmo", "seconds of reconnecting to a lost target before I/O fails: 10 (default)"),
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
                options.refuse(name, "for a target that Tare creates, only with nqn")?;
            }
            let backing = backing::Backing::parse(options, least_bytes, least)?;
            TargetSide::Own { backing, address }
        }
        Some(nqn) => {
            for name in backing::OF_IMAGES.into_iter().chain([backing::DEVICE.0]) {
                options.refuse(name, "for an existing target, only for one that Tare creates")?;
            }
            let port = options.number("port", 1..=65535, "a port")?.map(u16::try_from);
            TargetSide::Given {
                nqn: is_nqn(nqn).then(|| nqn.to_string()).ok_or_else(|| {
                    options.bad("nqn", "a name such as nqn.2014-08.org.example:disk")
                })?,
                address: address.ok_or_else(|| options.bad("address", "set, and nqn needs it"))?,
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

/// Returns whether a text is an NQN. A comma would end the name for the kernel and start another
/// option.
fn is_nqn(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    text.starts_with("nqn.") && text.len() <= 223 && text.chars().all(plain)
}
