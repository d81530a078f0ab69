//! Lives through many seeds. Each seed is one thread's; the test divides them.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::sync::atomic::{AtomicU64, Ordering};

use tare_sim::{Failure, Options, run};

/// Seeds of a run in CI, which builds with optimisation; a build without lives through fewer.
const SEEDS: u64 = if cfg!(debug_assertions) { 150 } else { 1000 };
/// Seeds that are lived through twice.
const TWICE: u64 = SEEDS / 20;

/// Runs `life` for every seed below `seeds` on all CPUs, and returns what went wrong.
fn each_seed(seeds: u64, life: impl Fn(u64) -> Result<(), Box<Failure>> + Sync) -> Vec<Failure> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut failures = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return failures;
            }
            failures.extend(life(seed).err().map(|failure| *failure));
        }
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn no_seed_shows_a_violation() {
    let failures = each_seed(SEEDS, |seed| run(seed, &Options::default()).map(|_| ()));
    let told: Vec<String> = failures.iter().take(5).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{} of {SEEDS} seeds\n{}", failures.len(), told.join("\n"));
}

#[test]
fn a_seed_gives_one_life() {
    for seed in 0..TWICE {
        let options = Options::default();
        let (first, second) = (run(seed, &options).unwrap(), run(seed, &options).unwrap());
        assert_eq!(first, second, "seed {seed}");
    }
}
