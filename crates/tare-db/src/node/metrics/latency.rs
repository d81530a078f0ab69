//! Latency histograms: two buckets for each doubling from 1 µs to 17 s, so that a percentile is
//! known to within 50 %. Recording costs one addition to a word that only the shard writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of buckets with an upper bound. One more bucket holds everything above.
pub const BUCKETS: usize = 48;
/// Words of a histogram: the buckets, the one above them, the sum.
pub(super) const WORDS: usize = BUCKETS + 2;

/// The timed operations, on the shard that owns the row: from the start of the iteration in which a
/// request is taken to the end of the iteration in which it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Write,
    Read,
}

impl Operation {
    pub const ALL: [Self; 2] = [Self::Write, Self::Read];

    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// Latencies of one kind of operation on one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Count of each bucket; the last one has no upper bound.
    pub counts: [u64; BUCKETS + 1],
    pub sum_ns: u64,
}

impl Histogram {
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn from_words(words: &[u64; WORDS]) -> Self {
        let mut counts = [0; BUCKETS + 1];
        counts.copy_from_slice(&words[..=BUCKETS]);
        Self { counts, sum_ns: words[BUCKETS + 1] }
    }
}

/// The largest latency in a bucket, in µs: 1, 2, 3, 4, 6, 8, 12, 16 ...
pub fn bound_us(bucket: usize) -> u64 {
    match bucket {
        0 => 1,
        1 => 2,
        _ if bucket.is_multiple_of(2) => 3 << (bucket / 2 - 1),
        _ => 2 << (bucket / 2),
    }
}

/// The bucket of a latency.
#[inline]
fn bucket(ns: u64) -> usize {
    let above = ns.div_ceil(1000).saturating_sub(1);
    match above {
        0 => 0,
        1 => 1,
        _ => {
            let octave = above.ilog2() as usize;
            let half = usize::from(above >> (octave - 1) & 1 == 1);
            (2 * octave + half).min(BUCKETS)
        }
    }
}

/// Adds so many operations of one latency. Only one thread may call this.
#[inline]
pub(super) fn record(words: &[AtomicU64], ns: u64, count: u64) {
    let add = |word: &AtomicU64, more: u64| {
        let sum = u64::from_le(word.load(Ordering::Relaxed)).wrapping_add(more);
        word.store(sum.to_le(), Ordering::Relaxed);
    };
    add(&words[bucket(ns)], count);
    add(&words[BUCKETS + 1], ns.wrapping_mul(count));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_counts_in_the_first_bucket_that_holds_it() {
        let bounds: Vec<u64> = (0..10).map(bound_us).collect();
        assert_eq!(bounds, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]);
        for us in 0..5000u64 {
            let expect = (0..BUCKETS).find(|&bucket| us <= bound_us(bucket)).unwrap();
            assert_eq!(bucket(us * 1000), expect, "{us} µs");
            assert_eq!(bucket((us * 1000).saturating_sub(999)), expect.min(bucket(us * 1000)));
        }
        assert_eq!(bucket(1000), 0);
        assert_eq!(bucket(1001), 1);
        assert_eq!(bound_us(BUCKETS - 1), 1 << 24);
        assert_eq!(bucket((1 << 24) * 1000), BUCKETS - 1);
        assert_eq!(bucket((1 << 24) * 1000 + 1), BUCKETS);
        assert_eq!(bucket(u64::MAX), BUCKETS);
    }
}
