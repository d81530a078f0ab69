//! Reads of files on a disk that hands them back in bunches: some virtual disks take reads off their queue one by
//! one and signal only when it is empty. A read that is submitted while others are under way holds those up there, and in
//! the end all wait together for the disk and then together for the shard. So on such a disk reads wait
//! here until those under way have come back, and are then submitted before these are looked at: disk and
//! shard work at the same time, each on its part. A disk that hands back what is ready gets every read at once.

/// What a look weighs among those before it: one in so many.
const LOOKS: u32 = 8;
/// Full marks.
const SCORE_MAX: u32 = 1 << 10;
/// From here on the disk is taken for one that hands back bunches.
const SCORE_HOLD: u32 = SCORE_MAX / 4 * 3;

/// The reads that are under way or wait to be, by the numbers of their flights.
#[derive(Debug, Default)]
pub(super) struct Bunches {
    waiting: Vec<u32>,
    under_way: usize,
    /// Under way at the last look.
    before: usize,
    /// How often lately all came back at once, of [`SCORE_MAX`].
    score: u32,
}

impl Bunches {
    /// Takes a new read in: false if it is to be submitted now.
    #[inline]
    pub(super) fn hold(&mut self, number: u32) -> bool {
        let holds = self.score >= SCORE_HOLD;
        if holds {
            self.waiting.push(number);
        } else {
            self.under_way += 1;
        }
        holds
    }

    /// A read has ended.
    #[inline]
    pub(super) fn ended(&mut self) {
        self.under_way -= 1;
    }

    /// Looks at what has come back since the last look, and hands out those that may be submitted now.
    #[inline]
    pub(super) fn look(&mut self) -> Vec<u32> {
        // One alone says nothing.
        if self.under_way < self.before && self.before > 1 {
            let mark = if self.under_way == 0 { SCORE_MAX } else { 0 };
            self.score = self.score - self.score / LOOKS + mark / LOOKS;
        }
        self.before = self.under_way;
        if self.under_way > 0 || self.waiting.is_empty() {
            return Vec::new();
        }
        let freed = std::mem::take(&mut self.waiting);
        (self.under_way, self.before) = (freed.len(), freed.len());
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Submits so many at a time, and has so many of them come back before each look.
    fn learnt(submitted: u32, come: u32) -> Bunches {
        let mut bunches = Bunches::default();
        for _ in 0..20 {
            (0..submitted).for_each(|number| assert!(!bunches.hold(number)));
            let mut left = submitted;
            while left > 0 {
                assert!(bunches.look().is_empty());
                let now = come.min(left);
                (0..now).for_each(|_| bunches.ended());
                left -= now;
                assert!(bunches.look().is_empty());
                if bunches.score >= SCORE_HOLD {
                    return bunches;
                }
            }
        }
        bunches
    }

    #[test]
    fn a_disk_that_hands_back_what_is_ready_gets_every_read_at_once() {
        for come in [1, 3, 31] {
            assert!(!learnt(32, come).hold(0), "{come} at a time");
        }
        // One alone says nothing.
        assert!(!learnt(1, 1).hold(0));
    }

    #[test]
    fn reads_wait_for_those_under_way_where_all_come_back_at_once() {
        let mut bunches = learnt(8, 8);
        assert!(bunches.hold(1) && bunches.hold(2));
        assert_eq!(bunches.look(), [1, 2]);
        assert!(bunches.hold(3));
        assert!(bunches.look().is_empty());
        bunches.ended();
        assert!(bunches.look().is_empty());
        bunches.ended();
        assert_eq!(bunches.look(), [3]);
    }

    #[test]
    fn it_is_unlearnt_when_reads_come_back_in_part() {
        let mut bunches = learnt(8, 8);
        let mut rounds = 0;
        while bunches.hold(1) {
            rounds += 1;
            assert!(rounds < 20 && bunches.hold(2));
            assert_eq!(bunches.look(), [1, 2]);
            bunches.ended();
            assert!(bunches.look().is_empty());
            bunches.ended();
            assert!(bunches.look().is_empty());
        }
    }
}
