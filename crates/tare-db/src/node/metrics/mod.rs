//! The server's account of its time and work, in a file that the host reads through the bind mount.
//!
//! The shards' loops store into `DATA/metrics`, which they have mapped, so that reading it costs
//! the server nothing. Layout, little-endian:
//!
//! ```text
//! 0   magic "TareMet1"   8   version u32 (4)   12  shards u32   16..64  zero
//! 64 + 2048 * shard:  the fields of `FIELDS` in their order, u64 each
//!           + 1024 :  latencies of writes: 49 counts, u64 each, and the sum in ns
//!           + 1536 :  latencies of reads, likewise
//! ```
//!
//! Each field is stored by itself (a relaxed 64-bit store), so the fields of one shard may be an
//! iteration apart; those after the first eight are up to 100 ms old.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

mod fields;
mod http;
mod latency;
#[allow(unsafe_code, reason = "a shared mapping is raw memory")]
mod page;
mod text;

pub use fields::{FIELDS, Field, Kind, ShardMetrics};
pub(crate) use http::{resident_bytes, serve};
pub use latency::{BUCKETS, Histogram, Operation, bound_us};
pub use text::{ServerInfo, page as reference_page, render};

/// Name of the file in the data directory.
pub const FILE: &str = "metrics";

const MAGIC: &[u8; 8] = b"TareMet1";
const VERSION: u32 = 4;
const HEAD_BYTES: usize = 64;
const SHARD_BYTES: usize = 2048;
/// Where each histogram begins, in words.
const HISTOGRAMS: [usize; Operation::ALL.len()] = [128, 192];

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    pub shards: Vec<ShardMetrics>,
    /// The histograms of each shard, in the order of [`Operation::ALL`].
    pub latencies: Vec<[Histogram; Operation::ALL.len()]>,
}

impl Metrics {
    /// The total over the shards: sums, and for shares and maxima the largest.
    pub fn total(&self) -> ShardMetrics {
        let mut total = ShardMetrics::default().to_words();
        for shard in &self.shards {
            for ((sum, word), field) in total.iter_mut().zip(shard.to_words()).zip(FIELDS) {
                *sum = match field.kind {
                    Kind::Counter | Kind::Seconds | Kind::Gauge => *sum + word,
                    Kind::GaugeSeconds | Kind::Share => word.max(*sum),
                };
            }
        }
        ShardMetrics::from_words(&total)
    }

    /// The current values of all shards.
    pub(crate) fn of(accounts: &[SharedCounters]) -> Self {
        let read = accounts.iter().map(|account| account.read());
        let (shards, latencies) = read.unzip();
        Self { shards, latencies }
    }
}

/// Why metrics cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    #[error("cannot read metrics {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is no metrics file of this version of tare db", .path.display())]
    Format { path: PathBuf },
}

/// Reads a metrics file, with one open and one read.
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
        let words: Vec<u64> = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect();
        parts(&words)
    };
    let all = rest.chunks_exact(SHARD_BYTES).take(shards).map_while(shard);
    let (shards, latencies): (Vec<_>, Vec<_>) = all.unzip();
    (shards.len() == usize::try_from(word(12)?).ok()?).then_some(Metrics { shards, latencies })
}

type Parts = (ShardMetrics, [Histogram; Operation::ALL.len()]);

/// The parts of one shard's words.
fn parts(words: &[u64]) -> Option<Parts> {
    let fields = ShardMetrics::from_words(words.first_chunk()?);
    let [writes, reads] = HISTOGRAMS;
    let histogram = |at: usize| Some(Histogram::from_words(words.get(at..)?.first_chunk()?));
    Some((fields, [histogram(writes)?, histogram(reads)?]))
}

/// The words into which one shard publishes its counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedCounters(&'static [AtomicU64]);

impl SharedCounters {
    /// Counters without a file.
    #[cfg(feature = "simulation")]
    pub(crate) fn in_memory() -> Self {
        let words = std::iter::repeat_with(AtomicU64::default).take(SHARD_BYTES / 8);
        Self(Box::leak(words.collect()))
    }

    /// Sets all counters to zero.
    #[cfg(feature = "simulation")]
    pub(crate) fn clear(self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Publishes the fields that change at every iteration.
    #[inline]
    pub(crate) fn store_hot(self, now: &ShardMetrics) {
        self.put(&now.to_words()[..fields::HOT]);
    }

    /// Publishes all fields.
    pub(crate) fn store(self, now: &ShardMetrics) {
        self.put(&now.to_words());
    }

    #[inline]
    fn put(self, words: &[u64]) {
        for (slot, word) in self.0.iter().zip(words) {
            slot.store(word.to_le(), Ordering::Relaxed);
        }
    }

    /// Adds so many operations of one latency. Only the shard's own thread may call this.
    #[inline]
    pub(crate) fn took(self, operation: Operation, ns: u64, count: u64) {
        latency::record(&self.0[HISTOGRAMS[operation as usize]..], ns, count);
    }

    fn read(self) -> Parts {
        let words: Vec<u64> =
            self.0.iter().map(|word| u64::from_le(word.load(Ordering::Relaxed))).collect();
        parts(&words).expect("an account has room for all its parts")
    }
}

/// Creates and maps the file, and returns the words of each shard.
pub(crate) fn create(path: &Path, shards: usize) -> io::Result<Vec<SharedCounters>> {
    let length = (HEAD_BYTES + SHARD_BYTES * shards).next_multiple_of(4096);
    let mut bytes = vec![0; length];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let count = u32::try_from(shards).map_err(io::Error::other)?;
    bytes[12..16].copy_from_slice(&count.to_le_bytes());
    let mut options = File::options();
    let mut file = options.read(true).write(true).create(true).truncate(true).open(path)?;
    // The file is written and synced, not just sized: a store into a hole of a full disk would be
    // fatal.
    file.write_all(&bytes)?;
    file.sync_all()?;
    let words = page::map(&file, length)?;
    let shards = words[HEAD_BYTES / 8..].chunks_exact(SHARD_BYTES / 8).take(shards);
    Ok(shards.map(SharedCounters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(n: u64) -> ShardMetrics {
        let mut words = [0; FIELDS.len()];
        (n..).zip(&mut words).for_each(|(value, word)| *word = value);
        ShardMetrics::from_words(&words)
    }

    #[test]
    fn parts_of_a_shard_do_not_overlap() {
        assert!(FIELDS.len() <= HISTOGRAMS[0]);
        assert!(HISTOGRAMS[0] + latency::WORDS <= HISTOGRAMS[1]);
        assert!(HISTOGRAMS[1] + latency::WORDS <= SHARD_BYTES / 8);
    }

    #[test]
    fn stored_counters_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let accounts = create(&path, 3).unwrap();
        for (n, account) in (0..).zip(&accounts) {
            account.store(&shard(n * 100));
        }
        accounts[1].took(Operation::Read, 2_500, 4);
        let metrics = read(&path).unwrap();
        assert_eq!(metrics.shards, [shard(0), shard(100), shard(200)]);
        assert_eq!(metrics, Metrics::of(&accounts));
        assert_eq!(metrics.total().reads, 312);
        assert_eq!(metrics.total().utilisation_ppm, 208);
        let [writes, reads] = metrics.latencies[1];
        assert_eq!((writes.count(), reads.count(), reads.counts[2]), (0, 4, 4));
        assert_eq!(reads.sum_ns, 10_000);
        accounts[2].store_hot(&shard(300));
        let hot = read(&path).unwrap().shards[2];
        assert_eq!((hot.connections, hot.utilisation_ppm), (307, 208));
        std::fs::write(&path, b"something else").unwrap();
        assert!(matches!(read(&path), Err(MetricsError::Format { .. })));
        assert!(matches!(read(&dir.path().join("none")), Err(MetricsError::Read { .. })));
    }

    #[test]
    fn reference_page_lists_all_metrics() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = reference_page();
        tare_testkit::golden(&root.join("docs/reference/db-metrics.md"), page.as_str());
        let dir = tempfile::tempdir().unwrap();
        let accounts = create(&dir.path().join(FILE), 2).unwrap();
        accounts[0].took(Operation::Write, 1_500_000, 3);
        let served = render(&ServerInfo::default(), &Metrics::of(&accounts));
        let listed = |name: &str| page.contains(&format!("| `{name}` |"));
        for line in served.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            assert!(listed(name) && page.contains(&format!("`{name}` | {kind} |")), "{line}");
        }
        let types = served.lines().filter(|line| line.starts_with("# TYPE")).count();
        assert_eq!(types, page.lines().filter(|line| line.starts_with("| `tare_db_")).count());
        let bucket =
            "tare_db_latency_seconds_bucket{shard=\"0\",operation=\"write\",le=\"0.001536\"}";
        assert!(served.contains(&format!("{bucket} 3\n")), "{served}");
        for line in served.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("tare_db_") && value.parse::<f64>().is_ok(), "{line}");
        }
    }
}
