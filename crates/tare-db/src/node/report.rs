//! The report of a server: what it found in its environment and what it chose. It is written to
//! `DATA/report.json` when the server is ready.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use crate::node::config::Durability;
use crate::node::environment::Environment;

/// Name of the file in the data directory.
pub const FILE: &str = "report.json";

/// The report of one start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub version: String,
    /// The process id, in the server's own pid namespace.
    pub pid: u32,
    pub listen: IpAddr,
    pub port: u16,
    /// The port on which clients choose their shard, if there are several shards.
    #[serde(default)]
    pub shard_aware_port: Option<u16>,
    /// Whether clients need a password.
    #[serde(default)]
    pub passwords: bool,
    #[serde(default)]
    pub tls: bool,
    /// Whether clients may connect without TLS too.
    #[serde(default)]
    pub tls_optional: bool,
    pub shards: usize,
    /// The CPUs that the server may use.
    pub cpus: CpuSet,
    /// The CPU of each shard; empty where the kernel places them.
    pub pinned: Vec<u32>,
    pub polling: bool,
    pub polling_why: String,
    /// The I/O engine: `io_uring` or `epoll`.
    pub io_engine: String,
    /// Why this engine is in use: what failed, with the errno, if it is not the first choice.
    pub io_engine_why: String,
    /// The durability: `sync` or `periodic`.
    pub durability: String,
    /// The period of `periodic`, in ms.
    pub period_ms: Option<u64>,
    /// Bytes of memory that may be used, by all shards together.
    pub memory_bytes: u64,
    /// Whether files are read and written past the page cache.
    #[serde(default)]
    pub direct_io: bool,
    /// What refused direct I/O, with the errno, or that it was tried.
    #[serde(default)]
    pub direct_io_why: String,
    /// The kind of file system that holds the data.
    #[serde(default)]
    pub file_system: String,
    /// The address that serves metrics.
    #[serde(default)]
    pub metrics: Option<SocketAddr>,
    /// The facts about the environment.
    #[serde(default)]
    pub environment: Option<Environment>,
    /// Entries of the commit log that were replayed.
    pub replayed: u64,
    /// CPU time that each operation burns, in ns, so that an instrument can be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injected_busy_ns: Option<u64>,
    /// Instructions of the system call filter without effect, for the same purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injected_filter: Option<u16>,
}

impl Report {
    pub(crate) fn durability(durability: Durability) -> (String, Option<u64>) {
        match durability {
            Durability::Sync => ("sync".into(), None),
            Durability::Periodic(period) => {
                ("periodic".into(), Some(u64::try_from(period.as_millis()).unwrap_or(u64::MAX)))
            }
        }
    }
}

/// Why a report cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("cannot read report {}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is no report of tare db", .path.display())]
    Format { path: PathBuf, source: serde_json::Error },
}

/// Reads a report.
pub fn read(path: &Path) -> Result<Report, ReportError> {
    let bytes = std::fs::read(path)
        .map_err(|source| ReportError::Read { path: path.to_path_buf(), source })?;
    serde_json::from_slice(&bytes)
        .map_err(|source| ReportError::Format { path: path.to_path_buf(), source })
}
