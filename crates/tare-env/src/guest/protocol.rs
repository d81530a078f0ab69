//! The protocol between host and guest: one JSON object per line. Both are the same program, so the
//! protocol has no version.
//!
//! The host sends an order that is longer than `PIECE_BYTES` in pieces, each after the guest has
//! acknowledged the one before (`Answer::More`). Only a serial line of a user-mode kernel needs
//! that.

use std::io::{self, BufRead, Read};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The name of the virtio-serial port for orders and answers.
pub const ORDERS_PORT: &str = "tare.orders";
/// The name of the virtio-serial port for the system's output.
pub const LOG_PORT: &str = "tare.log";

/// Where the data is mounted in the guest.
pub const DATA_MOUNT: &str = "/data";
/// The system's directory on that mount.
pub const DATA: &str = "/data/system";

/// The directory of a container's bundle in the guest.
pub const BUNDLE: &str = "/bundle";
/// The id of that container.
pub const CONTAINER: &str = "tare-system";

/// The serial number of the disk that holds the data.
pub const DATA_SERIAL: &str = "tare-data";

/// The 9p tag of the host's root.
pub const ROOT_TAG: &str = "tare-root";
/// The 9p tag of the export directory, in which the guest puts files for the host.
pub const EXPORT_TAG: &str = "tare-export";

/// The most bytes of an order that are sent before the guest has read them.
///
/// A terminal buffers 4096 unread bytes and throttles its line when 128 of them are free
/// (drivers/tty/n_tty.c). A user-mode kernel then releases the line's read interrupt and does not
/// request it again when the line is unthrottled (arch/um/drivers/line.c, Linux 6.1 and 6.12), so
/// the guest receives nothing more. The rest of the buffer has room for a signal to the running
/// command.
pub const PIECE_BYTES: usize = 2 << 10;

/// The largest file of the data directory that is copied to the host.
pub const SHOWN_BYTES_MAX: u64 = 16 << 10;

/// An order of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Loads modules of the initramfs, in this order.
    Load {
        modules: Vec<Module>,
    },
    /// Gives the first network device an address and a default route.
    Network {
        address: Ipv4Addr,
        prefix: u8,
        gateway: Ipv4Addr,
    },
    /// Mounts the storage of the data.
    Mount {
        source: Source,
        filesystem: String,
        options: String,
    },
    /// Starts the system: Tare's program with these arguments.
    Start {
        arguments: Vec<String>,
        /// The path of an OCI runtime that runs `/bundle`, which has the arguments.
        container: Option<String>,
    },
    /// Switches to the host's root.
    TakeRoot(Root),
    /// Runs a command of that root, one at a time. The answers are its output and its end.
    Run(Run),
    /// Sends a signal to the running command.
    Signal {
        signal: i32,
    },
    /// Reads the facts for the read-back.
    Facts,
    /// Reads the accounts and the small files of the data directory.
    Account,
    PowerOff,
}

/// A kernel module by its name, without `.ko`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    pub name: String,
    /// Whether a failure to load it is an error. Some modules need a CPU feature.
    pub needed: bool,
}

/// How a guest switches to the host's root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    pub share: Share,
    /// The host's path of the kernel's modules, if it has any.
    pub modules: Option<PathBuf>,
    /// Modules that the kernel does not load on demand. Missing ones are left out.
    pub load: Vec<String>,
    /// Where the disk with the serial number `DATA_SERIAL` is mounted.
    pub disk: PathBuf,
    /// Where the export directory is mounted.
    pub export: PathBuf,
    /// Serial numbers of the disks that a study may overwrite.
    pub devices: Vec<String>,
    /// The accelerator and the reason for it, such as `tcg: asked for`.
    pub accelerator: String,
}

/// How directories of the host are shared with the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// 9p over virtio, with the tags `ROOT_TAG` and `EXPORT_TAG`.
    NineP,
    /// User-mode Linux's hostfs. `export` is the host's path of the export directory.
    Hostfs { export: PathBuf },
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Program and arguments.
    pub words: Vec<String>,
    /// The whole environment.
    pub variables: Vec<(String, String)>,
    pub directory: PathBuf,
}

/// One of a command's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Output,
    Error,
}

/// The source of the data's mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The disk with this serial number, with any driver.
    Disk(String),
    /// The host's share with this tag (9p, virtiofs).
    Tag(String),
}

/// An answer of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The first line: the guest is up.
    Hello {
        kernel: String,
    },
    Done,
    /// The guest has read a piece of an order and expects the next one.
    More,
    Started {
        pid: u32,
    },
    /// Output of the command.
    Printed {
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// The command ended, with an exit code or by a signal.
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
    },
    Facts(Box<Facts>),
    Account(GuestUsage),
    Failed {
        error: String,
    },
}

/// The facts of a guest for the read-back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// `uname -r`.
    pub kernel: String,
    /// The online CPUs as a list (`0-1`).
    pub cpus: String,
    /// `MemTotal`, which excludes the kernel's own memory.
    pub memory_bytes: u64,
    /// Such as `eth0: virtio_net 198.19.255.2/24`, one per device except the loopback.
    pub network: Vec<String>,
    /// The line of the data in /proc/mounts.
    pub mount: String,
    /// The disk of the data and its queue: (`driver`, `virtio_blk`), (`write_cache`, ...).
    pub disk: Vec<(String, String)>,
    /// `running`, or the exit status of the system.
    pub system: String,
    /// `Cpus_allowed_list` of the system.
    pub system_cpus: String,
    /// The state of the container's first process (`NSpid: 71 1; Seccomp: 2; ...`). Empty without a
    /// container.
    pub container: String,
}

/// Accounts of the guest. Only differences between two readings are meaningful.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestUsage {
    /// CPU time of the system's threads as the guest accounts it, in ns.
    pub system_cpu_ns: u64,
    /// CPU time of the whole guest, with interrupts, as the guest accounts it, in ns.
    pub guest_cpu_ns: u64,
    /// Steal time as the guest accounts it, in ns.
    pub steal_ns: u64,
    /// The small files of the data directory, by name.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Reads an order's line to its end and calls `more` for each further piece. Returns an empty order
/// if the other end is closed.
///
/// # Errors
/// Fails if the order cannot be read, or if `more` fails.
pub(crate) fn read_order(
    from: &mut impl BufRead,
    mut more: impl FnMut() -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let count = from.take(PIECE_BYTES as u64).read_until(b'\n', &mut line)?;
        if count < PIECE_BYTES || line.ends_with(b"\n") {
            return Ok(line);
        }
        more()?;
    }
}
