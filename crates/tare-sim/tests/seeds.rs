//! Lives through many seeds. Each seed is one thread's; the test divides them.

use tare_sim::{Options, each_seed, run};

/// Seeds of a run in CI, which builds with optimisation; a build without lives through fewer.
const SEEDS: u64 = if cfg!(debug_assertions) { 150 } else { 1000 };
/// Seeds that are lived through twice.
const TWICE: u64 = SEEDS / 20;

#[test]
fn no_seed_shows_a_violation() {
    let lives = each_seed(SEEDS, |seed| run(seed, &Options::default()).err());
    let failures: Vec<_> = lives.into_iter().flatten().collect();
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
