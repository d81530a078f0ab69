//! What host and guest say to each other: one JSON object a line. Host and guest are the same
//! program, so there is no version to agree on.
//!
//! An order that is longer than a piece (`PIECE_BYTES`) comes piece by piece: the host sends the
//! next one when the guest has said that it has read the one before (`Answer::More`). A serial line
//! of a user-mode kernel needs that, and the others do not mind.

use std::io::{self, BufRead, Read};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Names of the virtio-serial ports: orders and answers, and what the system prints.
pub const ORDERS_PORT: &str = "tare.orders";
pub const LOG_PORT: &str = "tare.log";

/// Where the data is mounted in the guest, and the system's own directory on it.
pub const DATA_MOUNT: &str = "/data";
pub const DATA: &str = "/data/system";

/// Where the bundle of a container lies in the guest, and what it is called.
pub const BUNDLE: &str = "/bundle";
pub const CONTAINER: &str = "tare-system";

/// The serial number by which the guest knows the disk that holds the data.
pub const DATA_SERIAL: &str = "tare-data";

/// Tags of the shares of a guest that takes the host's root for its own: that root, and the
/// directory in which it hands something back.
pub const ROOT_TAG: &str = "tare-root";
pub const HAND_BACK_TAG: &str = "tare-hand-back";

/// Most of an order that may be on its way to the guest without having been read.
///
/// A terminal holds 4096 bytes that nobody has read and throttles its line when 128 of them are
/// left (drivers/tty/n_tty.c). A user-mode kernel then gives up the line's interrupt for reading,
/// and does not take it again when the line is let go on (arch/um/drivers/line.c, Linux 6.1 and
/// 6.12): from then on the guest hears nothing. A signal for the command that runs has room beside
/// a piece.
pub const PIECE_BYTES: usize = 2 << 10;

/// Files of the data directory that are larger than this are not shown to the host.
pub const SHOWN_BYTES_MAX: u64 = 16 << 10;

/// What the host wants.
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
    /// Mounts what the data lies on.
    Mount {
        source: Source,
        filesystem: String,
        options: String,
    },
    /// Starts the system: this program with these arguments.
    Start {
        arguments: Vec<String>,
        /// An OCI runtime's path: it runs what stands in `/bundle`, which has the arguments.
        container: Option<String>,
    },
    /// Takes the host's root for its own.
    TakeRoot(Root),
    /// Runs a command of that root. The answers are what it prints and how it ends; one at a time.
    Run(Run),
    /// Sends a signal to the command that runs.
    Signal {
        signal: i32,
    },
    /// Reads back what is in force.
    Facts,
    /// Reads the accounts and the small files of the data directory.
    Account,
    PowerOff,
}

/// A kernel module by its name, without `.ko`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    pub name: String,
    /// False: the guest goes on without it (a CPU feature that it drives is not there).
    pub needed: bool,
}

/// How a guest takes the host's root for its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    pub share: Share,
    /// The kernel's modules, as a path of the host; `None`: it has none.
    pub modules: Option<PathBuf>,
    /// Modules that nothing asks for by itself. One that the kernel lacks is left out.
    pub load: Vec<String>,
    /// Where the disk with the serial number `DATA_SERIAL` is mounted.
    pub disk: PathBuf,
    /// Where the share for what is handed back is mounted.
    pub hand_back: PathBuf,
    /// Serial numbers of the disks that may be written over.
    pub devices: Vec<String>,
    /// What runs the guest's instructions, and why: `tcg: asked for`.
    pub accelerator: String,
}

/// By what directories of the host come into the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// 9p over virtio, known by `ROOT_TAG` and `HAND_BACK_TAG`.
    NineP,
    /// User-mode Linux's hostfs: what is handed back lies in this directory of the host.
    Hostfs { hand_back: PathBuf },
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Program and arguments.
    pub words: Vec<String>,
    /// All of its environment.
    pub variables: Vec<(String, String)>,
    pub directory: PathBuf,
}

/// One of the two streams that a command prints to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Output,
    Error,
}

/// What the data is mounted from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A disk with this serial number, whatever its driver.
    Disk(String),
    /// A share of the host's with this tag (9p, virtiofs).
    Tag(String),
}

/// What the guest says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The first line: the guest is up.
    Hello {
        kernel: String,
    },
    Done,
    /// A piece of an order has been read, and the order goes on.
    More,
    Started {
        pid: u32,
    },
    /// What the command printed.
    Printed {
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// The command ended: its exit code, else the signal that ended it.
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

/// What is in force inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// `uname -r`.
    pub kernel: String,
    /// CPUs that are online, as a list (`0-1`).
    pub cpus: String,
    /// `MemTotal`: what the kernel left for use.
    pub memory_bytes: u64,
    /// `eth0: virtio_net 198.19.255.2/24`, one per device but the loopback.
    pub network: Vec<String>,
    /// The line of /proc/mounts of the data.
    pub mount: String,
    /// The disk that the data lies on and its queue: (`driver`, `virtio_blk`), (`write_cache`,
    /// ...).
    pub disk: Vec<(String, String)>,
    /// `running`, or how the system ended.
    pub system: String,
    /// `Cpus_allowed_list` of the system.
    pub system_cpus: String,
    /// What the first process of the container says of itself (`NSpid: 71 1; Seccomp: 2; ...`).
    /// Empty without one.
    pub container: String,
}

/// Accounts of the guest. Only differences of times mean anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestUsage {
    /// CPU time of the system's threads by the guest's own account, in ns.
    pub system_cpu_ns: u64,
    /// CPU time that all of the guest used, interrupts included, by its own account, in ns.
    pub guest_cpu_ns: u64,
    /// CPU time that the guest says its host gave to others, in ns.
    pub steal_ns: u64,
    /// Small files of the data directory, by name.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Reads an order's line to its end, and says when it is ready for the next piece. The order is
/// empty when nobody is at the other end.
///
/// # Errors
/// When it cannot be read, or `more` cannot be said.
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
