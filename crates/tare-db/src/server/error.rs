//! Why a server cannot start, or ended.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tare_store::OpenError;

use crate::net::reactor::ReactorError;
use crate::node::directory::DirectoryError;
use crate::node::environment::EnvironmentError;
use crate::node::inject::FilterError;
use crate::node::memory::MemoryError;
use crate::node::placement::PlacementError;
use crate::query::catalog::journal::JournalError;
use crate::server::access::AccessError;

/// Why a server cannot start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error(transparent)]
    Schema(#[from] JournalError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot listen on {address}; choose another address or port")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot serve metrics on {address}; choose another address or port (--metrics)")]
    ServeMetrics { address: SocketAddr, source: io::Error },
    #[error(
        "metrics would be open to anyone who can reach {address}: give a loopback address, or \
         --insecure to allow it"
    )]
    MetricsExposed { address: SocketAddr },
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("cannot make the metrics file {}", .path.display())]
    Metrics { path: PathBuf, source: io::Error },
    #[error("cannot start shard {shard}")]
    Thread { shard: usize, source: io::Error },
    #[error("cannot pin shard {shard} to CPU {cpu}")]
    Pin { shard: usize, cpu: u32, source: io::Error },
    #[error("shard {shard} failed")]
    Shard { shard: usize, source: ReactorError },
    #[error("shard {shard} died of a bug; its message is above")]
    Died { shard: usize },
    #[error("cannot write the log")]
    Log { source: io::Error },
}
