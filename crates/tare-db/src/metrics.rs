//! The server's account of its time, in a file that the host reads through the bind mount.
//!
//! `DATA/metrics` is mapped and stored into after every turn of a shard's loop, so reading it costs
//! the server nothing. Layout, little-endian:
//!
//! ```text
//! 0   magic "TareMet1"   8   version u32 (1)   12  shards u32   16..64  zero
//! 64 + 128 * shard:  busy_ns, idle_poll_ns, sleep_ns, writes, reads, errors, connections: u64 each
//! ```
//!
//! Every field is stored alone (a relaxed 64-bit store), so fields of one shard may be a turn apart.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

#[allow(unsafe_code, reason = "a shared mapping is raw memory")]
mod page;

/// Name of the file in the data directory.
pub const FILE: &str = "metrics";

const MAGIC: &[u8; 8] = b"TareMet1";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 64;
const SHARD_BYTES: usize = 128;
const FIELDS: usize = 7;

/// One shard's account since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardMetrics {
    /// Time in turns of the loop that found work. Kept by the clock, so that it includes what
    /// others took of the CPU meanwhile.
    pub busy_ns: u64,
    /// Time in turns that found none, while polling.
    pub idle_poll_ns: u64,
    /// Time in the call that waits, when not polling. The kernel also sends and receives in that
    /// call, so for a server that sleeps the CPU time of its threads is the truth, not `busy_ns`.
    pub sleep_ns: u64,
    /// Rows written for clients of this shard.
    pub writes: u64,
    /// SELECT statements answered for clients of this shard.
    pub reads: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Connections that are open now.
    pub connections: u64,
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    pub shards: Vec<ShardMetrics>,
}

impl Metrics {
    /// Sums over the shards.
    pub fn total(&self) -> ShardMetrics {
        self.shards.iter().fold(ShardMetrics::default(), |sum, shard| ShardMetrics {
            busy_ns: sum.busy_ns + shard.busy_ns,
            idle_poll_ns: sum.idle_poll_ns + shard.idle_poll_ns,
            sleep_ns: sum.sleep_ns + shard.sleep_ns,
            writes: sum.writes + shard.writes,
            reads: sum.reads + shard.reads,
            errors: sum.errors + shard.errors,
            connections: sum.connections + shard.connections,
        })
    }
}

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    #[error("cannot read metrics {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is no metrics file of this version of tare db", .path.display())]
    Format { path: PathBuf },
}

/// Reads a metrics file: one open and one read.
pub fn read(path: &Path) -> Result<Metrics, MetricsError> {
    let failed = |source| MetricsError::Read { path: path.to_path_buf(), source };
    let mut bytes = Vec::with_capacity(4096);
    File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(failed)?;
    decode(&bytes).ok_or_else(|| MetricsError::Format { path: path.to_path_buf() })
}

fn decode(bytes: &[u8]) -> Option<Metrics> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let word = |at: usize| Some(u32::from_le_bytes(head[at..at + 4].try_into().ok()?));
    if !head.starts_with(MAGIC) || word(8)? != VERSION {
        return None;
    }
    let shards = usize::try_from(word(12)?).ok()?;
    let shard = |bytes: &[u8]| {
        let mut fields = bytes.as_chunks::<8>().0.iter().map(|field| u64::from_le_bytes(*field));
        Some(ShardMetrics {
            busy_ns: fields.next()?,
            idle_poll_ns: fields.next()?,
            sleep_ns: fields.next()?,
            writes: fields.next()?,
            reads: fields.next()?,
            errors: fields.next()?,
            connections: fields.next()?,
        })
    };
    let shards: Vec<_> = rest.chunks_exact(SHARD_BYTES).take(shards).map_while(shard).collect();
    (shards.len() == usize::try_from(word(12)?).ok()?).then_some(Metrics { shards })
}

/// Where one shard keeps its account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account(&'static [AtomicU64]);

impl Account {
    /// Publishes all fields.
    #[inline]
    pub(crate) fn store(self, now: &ShardMetrics) {
        let fields: [u64; FIELDS] = [
            now.busy_ns,
            now.idle_poll_ns,
            now.sleep_ns,
            now.writes,
            now.reads,
            now.errors,
            now.connections,
        ];
        for (slot, field) in self.0.iter().zip(fields) {
            slot.store(field.to_le(), Ordering::Relaxed);
        }
    }
}

/// Makes the file anew and maps it; one account per shard.
pub(crate) fn create(path: &Path, shards: usize) -> io::Result<Vec<Account>> {
    let length = (HEAD_BYTES + SHARD_BYTES * shards).next_multiple_of(4096);
    let mut bytes = vec![0; length];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let count = u32::try_from(shards).map_err(io::Error::other)?;
    bytes[12..16].copy_from_slice(&count.to_le_bytes());
    let mut options = File::options();
    let mut file = options.read(true).write(true).create(true).truncate(true).open(path)?;
    // Written and synced, not just sized: a store into a hole of a full disk would be fatal.
    file.write_all(&bytes)?;
    file.sync_all()?;
    let words = page::map(&file, length)?;
    let shards = words[HEAD_BYTES / 8..].chunks_exact(SHARD_BYTES / 8).take(shards);
    Ok(shards.map(|words| Account(&words[..FIELDS])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let accounts = create(&path, 3).unwrap();
        let shard = |n| ShardMetrics {
            busy_ns: n,
            idle_poll_ns: n + 1,
            sleep_ns: n + 2,
            writes: n + 3,
            reads: n + 4,
            errors: n + 5,
            connections: n + 6,
        };
        for (n, account) in (0..).zip(&accounts) {
            account.store(&shard(n * 100));
        }
        let metrics = read(&path).unwrap();
        assert_eq!(metrics.shards, [shard(0), shard(100), shard(200)]);
        assert_eq!(metrics.total().reads, 312);
        std::fs::write(&path, b"something else").unwrap();
        assert!(matches!(read(&path), Err(MetricsError::Format { .. })));
        assert!(matches!(read(&dir.path().join("none")), Err(MetricsError::Read { .. })));
    }
}
