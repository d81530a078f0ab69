//! Batches the reads of files on disks that return them in batches.
//!
//! Some virtual disks take reads off their queue one by one and signal only when the queue is
//! empty. A read that is submitted while others are under way delays those, and in the end all of
//! them wait together, first for the disk and then for the shard. On such a disk a new read waits
//! here until the reads under way have come back, and is submitted before the shard looks at their
//! results, so that disk and shard work at the same time. A disk that returns each read when it is
//! ready gets every read at once.

/// Weight of one observation in the running average: one in this many.
const WEIGHT: u32 = 8;
/// The score when all reads came back together at every observation.
const SCORE_MAX: u32 = 1 << 10;
/// From this score on the disk counts as one that returns reads in batches.
const SCORE_BATCHED: u32 = SCORE_MAX / 4 * 3;

/// The reads that are under way or wait, by the number of their operation.
#[derive(Debug, Default)]
pub(super) struct ReadBatcher {
    waiting: Vec<u32>,
    under_way: usize,
    /// Reads under way at the last observation.
    before: usize,
    /// How often, of late, all reads came back together, out of [`SCORE_MAX`].
    score: u32,
}

impl ReadBatcher {
    /// Takes a new read. Returns false if it has to be submitted now.
    #[inline]
    pub(super) fn hold(&mut self, number: u32) -> bool {
        let holds = self.score >= SCORE_BATCHED;
        if holds {
            self.waiting.push(number);
        } else {
            self.under_way += 1;
        }
        holds
    }

    /// Notes that a read has ended.
    #[inline]
    pub(super) fn ended(&mut self) {
        self.under_way -= 1;
    }

    /// Observes how many reads have come back since the last time, and returns the waiting reads
    /// if they can be submitted now.
    #[inline]
    pub(super) fn release(&mut self) -> Vec<u32> {
        // A single read shows nothing.
        if self.under_way < self.before && self.before > 1 {
            let observed = if self.under_way == 0 { SCORE_MAX } else { 0 };
            self.score = self.score - self.score / WEIGHT + observed / WEIGHT;
        }
        self.before = self.under_way;
        if self.under_way > 0 || self.waiting.is_empty() {
            return Vec::new();
        }
        let released = std::mem::take(&mut self.waiting);
        (self.under_way, self.before) = (released.len(), released.len());
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Submits `submitted` reads at a time, of which `come` come back before each observation.
    fn after_rounds(submitted: u32, come: u32) -> ReadBatcher {
        let mut reads = ReadBatcher::default();
        for _ in 0..20 {
            (0..submitted).for_each(|number| assert!(!reads.hold(number)));
            let mut left = submitted;
            while left > 0 {
                assert!(reads.release().is_empty());
                let now = come.min(left);
                (0..now).for_each(|_| reads.ended());
                left -= now;
                assert!(reads.release().is_empty());
                if reads.score >= SCORE_BATCHED {
                    return reads;
                }
            }
        }
        reads
    }

    #[test]
    fn disk_that_returns_single_reads_gets_every_read_at_once() {
        for come in [1, 3, 31] {
            assert!(!after_rounds(32, come).hold(0), "{come} at a time");
        }
        // A single read shows nothing.
        assert!(!after_rounds(1, 1).hold(0));
    }

    #[test]
    fn reads_wait_on_a_disk_that_returns_batches() {
        let mut reads = after_rounds(8, 8);
        assert!(reads.hold(1) && reads.hold(2));
        assert_eq!(reads.release(), [1, 2]);
        assert!(reads.hold(3));
        assert!(reads.release().is_empty());
        reads.ended();
        assert!(reads.release().is_empty());
        reads.ended();
        assert_eq!(reads.release(), [3]);
    }

    #[test]
    fn batching_ends_when_reads_come_back_singly() {
        let mut reads = after_rounds(8, 8);
        let mut rounds = 0;
        while reads.hold(1) {
            rounds += 1;
            assert!(rounds < 20 && reads.hold(2));
            assert_eq!(reads.release(), [1, 2]);
            reads.ended();
            assert!(reads.release().is_empty());
            reads.ended();
            assert!(reads.release().is_empty());
        }
    }
}
