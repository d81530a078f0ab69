//! Merges the counts of all threads.

use crate::report::stats::Stats;
use crate::run::worker::StretchCounts;

/// Merges the stretches of all threads.
#[derive(Default)]
pub(crate) struct StatsMerger {
    threads: usize,
    /// Stretches that some threads have not handed over yet, and how many threads have.
    pending: Vec<(Stats, usize)>,
    /// How many stretches have been reported.
    reported: usize,
    total: Option<Stats>,
    tail: Option<Stats>,
}

impl StatsMerger {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads, ..Self::default() }
    }

    /// Takes the counts of one thread. Calls `report` with each complete stretch.
    pub(crate) fn take(&mut self, chunk: StretchCounts, report: &mut dyn FnMut(&Stats)) {
        match chunk {
            StretchCounts::Tail(stats) => add(&mut self.tail, &stats),
            StretchCounts::Stretch(number, stats) => {
                while self.reported + self.pending.len() <= number {
                    self.pending.push((Stats::new(), 0));
                }
                let (sum, threads) = &mut self.pending[number - self.reported];
                sum.merge(&stats);
                *threads += 1;
                // The newest stretch is kept back, because the tail may belong to it.
                while self.pending.len() > 1 && self.pending[0].1 == self.threads {
                    self.report_first(report);
                }
            }
        }
    }

    fn report_first(&mut self, report: &mut dyn FnMut(&Stats)) {
        let (stats, _) = self.pending.remove(0);
        report(&stats);
        self.reported += 1;
        add(&mut self.total, &stats);
        // These gaps have been reported; keeping them would take memory with time.
        self.total.iter_mut().for_each(|total| total.gaps.clear());
    }

    /// Reports the rest and returns the sum.
    pub(crate) fn finish(mut self, report: &mut dyn FnMut(&Stats)) -> Stats {
        while self.pending.len() > 1 {
            self.report_first(report);
        }
        let tail = self.tail.take().unwrap_or_default();
        if let Some((last, _)) = self.pending.first_mut() {
            let (begin_ns, end_ns) = (last.begin_ns, last.end_ns);
            last.merge(&tail);
            (last.begin_ns, last.end_ns) = (begin_ns, end_ns);
            self.report_first(report);
        }
        self.total.unwrap_or(Stats { begin_ns: 0, end_ns: 0, ..tail })
    }
}

fn add(sum: &mut Option<Stats>, stats: &Stats) {
    sum.get_or_insert_with(Stats::new).merge(stats);
}
