//! The configuration of a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tare_std::cpus::CpuSet;

use crate::node::inject::Inject;

/// The port of the CQL native protocol.
pub const PORT_DEFAULT: u16 = 9042;
/// How often periodic mode writes and syncs the log by default. Cassandra and Scylla take 10 s; a
/// shorter period spreads the cost, so that every slice of a study shows it.
pub const PERIOD_DEFAULT: Duration = Duration::from_millis(100);

/// The default threshold above which an iteration of a shard's loop is a stall: a little less than
/// Seastar's (`--blocked-reactor-notify-ms`, 25).
pub const THRESHOLD_DEFAULT: Duration = Duration::from_millis(20);

/// The settings of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The data directory, which is created if it does not exist.
    pub data: PathBuf,
    /// The address to listen on, by default loopback.
    pub listen: IpAddr,
    /// The port; 0 takes a free one, which the report names.
    pub port: u16,
    /// Number of shards; `None` means one per CPU.
    pub smp: Option<usize>,
    /// The CPUs to use, out of those that the process may use; `None` means all of them.
    pub cpus: Option<CpuSet>,
    /// Whether others use the CPUs too, so that an idle server has to sleep.
    pub overprovisioned: Choice,
    pub durability: Durability,
    pub io: IoChoice,
    /// Bytes of memory that all shards together may use, for everything; `None` means half of what
    /// the host and the cgroup leave.
    pub memory: Option<u64>,
    /// The address that serves metrics in Prometheus' format; `None` serves none. Port 0 takes a
    /// free one.
    pub metrics: Option<SocketAddr>,
    /// An iteration of a shard's loop that takes longer is a stall.
    pub stall_threshold: Duration,
    /// The port on which clients choose their shard: 0 takes a free one, `None` opens none. A
    /// server with one shard opens none either.
    pub shard_aware_port: Option<u16>,
    /// A file of users and hashes of their passwords; without it clients need no password.
    pub users: Option<PathBuf>,
    /// With it connections speak TLS.
    pub tls: Option<TlsFiles>,
    /// Whether connections without TLS are accepted beside those with it.
    pub tls_optional: bool,
    /// Whether to listen beyond loopback without passwords or TLS.
    pub insecure: bool,
    /// A known cost to add, so that an instrument can be checked with it; by default none.
    pub inject: Inject,
}

impl Config {
    /// A server on loopback that chooses everything else by itself.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: PORT_DEFAULT,
            smp: None,
            cpus: None,
            overprovisioned: Choice::Auto,
            durability: Durability::Periodic(PERIOD_DEFAULT),
            io: IoChoice::Auto,
            memory: None,
            metrics: None,
            stall_threshold: THRESHOLD_DEFAULT,
            shard_aware_port: Some(0),
            users: None,
            tls: None,
            tls_optional: false,
            insecure: false,
            inject: Inject::default(),
        }
    }
}

/// The files that TLS needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file with the server's certificate first, then the certificates that sign it.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
}

/// A setting that the server may choose by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    #[default]
    Auto,
    Yes,
    No,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After the group of the write is on stable storage.
    Sync,
    /// At once. The log is written and synced this often. A crash of the process or the host loses
    /// at most the writes of this time, and those that the disk has not finished.
    Periodic(Duration),
}

impl Durability {
    /// The setting in the form that the store needs.
    pub(crate) fn for_store(self) -> tare_store::Durability {
        match self {
            Self::Sync => tare_store::Durability::Sync,
            Self::Periodic(period) => {
                let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
                tare_store::Durability::Periodic { period_ns }
            }
        }
    }
}

/// The engine that carries out I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring where the environment allows it, else epoll.
    #[default]
    Auto,
    Uring,
    Epoll,
}
