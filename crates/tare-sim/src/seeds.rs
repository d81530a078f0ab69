//! Runs many seeds at once. Each seed runs on one thread, and each thread takes the next seed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Runs `life` for every seed below `seeds` on all CPUs, and returns the results in the order of
/// the seeds. A panic of `life` propagates to the caller.
pub fn each_seed<T: Send>(seeds: u64, life: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(0);
    let work = || {
        let taken = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let taken = taken.take_while(|seed| *seed < seeds);
        taken.map(|seed| (seed, life(seed))).collect::<Vec<_>>()
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut lives: Vec<(u64, T)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .flat_map(|lives| lives.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    lives.sort_by_key(|(seed, _)| *seed);
    lives.into_iter().map(|(_, life)| life).collect()
}
