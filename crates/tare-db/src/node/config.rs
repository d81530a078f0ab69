//! What a server is asked to be.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tare_std::cpus::CpuSet;

use crate::net::tls::TlsFiles;
use crate::node::inject::Inject;
pub use crate::shard::stall::THRESHOLD_DEFAULT;

/// The port of the CQL native protocol.
pub const PORT_DEFAULT: u16 = 9042;
/// How often the log is written and synced in periodic mode unless told otherwise. Cassandra and
/// Scylla take 10 s; a shorter period spreads the cost, so that it shows in every slice of a study.
pub const PERIOD_DEFAULT: Duration = Duration::from_millis(100);

/// Settings of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The data directory; made if it is not there.
    pub data: PathBuf,
    /// Loopback unless told otherwise.
    pub listen: IpAddr,
    /// 0 takes a free port; the report says which.
    pub port: u16,
    /// Shards; `None` is one per CPU.
    pub smp: Option<usize>,
    /// CPUs to use, of those that the process may use; `None` is all of them.
    pub cpus: Option<CpuSet>,
    /// Whether others use the CPUs too, so that the server must sleep when it has nothing to do.
    pub overprovisioned: Choice,
    pub durability: Durability,
    pub io: IoChoice,
    /// Bytes of memory that may be used, for everything and by all shards together; `None` is half
    /// of what the host and the cgroup leave.
    pub memory: Option<u64>,
    /// Where metrics are served in Prometheus' format; `None` is nowhere. Port 0 takes a free one.
    pub metrics: Option<SocketAddr>,
    /// A turn of a shard's loop that takes longer is a stall.
    pub stall_threshold: Duration,
    /// The port on which clients choose their shard: 0 takes a free one, `None` leaves it out. It is
    /// left out with one shard too.
    pub shard_aware_port: Option<u16>,
    /// File of users and hashes of their passwords; without it nobody is asked who they are.
    pub users: Option<PathBuf>,
    /// With it every connection speaks TLS.
    pub tls: Option<TlsFiles>,
    /// Serve beyond loopback although passwords or TLS are missing.
    pub insecure: bool,
    /// A known cost, added so that an instrument can be tried on it; by default none.
    pub inject: Inject,
}

impl Config {
    /// A server on loopback with everything found out by itself.
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
            insecure: false,
            inject: Inject::default(),
        }
    }
}

/// A decision that may be left to the server.
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
    /// After its group is on stable storage.
    Sync,
    /// At once; the log is written and synced this often. A crash of the process or the host
    /// loses at most this much and what the disk is behind.
    Periodic(Duration),
}

impl Durability {
    /// As the store wants it.
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

/// Which engine carries out I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring where the environment allows it, else epoll.
    #[default]
    Auto,
    Uring,
    Epoll,
}
