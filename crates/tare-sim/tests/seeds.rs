//! Runs many seeds. Each seed runs on one thread; the test divides them.

use tare_sim::{Options, each_seed, run};

/// Seeds of a run in CI, which builds with optimisation; an unoptimised build runs fewer.
const SEEDS: u64 = if cfg!(debug_assertions) { 150 } else { 1000 };
/// Seeds that run twice.
const TWICE: u64 = SEEDS / 20;

#[test]
fn seeds_show_no_violation() {
    let lives = each_seed(SEEDS, |seed| run(seed, &Options::default()).err());
    let failures: Vec<_> = lives.into_iter().flatten().collect();
    let lines: Vec<String> = failures.iter().take(5).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{} of {SEEDS} seeds\n{}", failures.len(), lines.join("\n"));
}

#[test]
fn seed_determines_the_run() {
    for seed in 0..TWICE {
        let options = Options::default();
        let (first, second) = (run(seed, &options).unwrap(), run(seed, &options).unwrap());
        assert_eq!(first, second, "seed {seed}");
    }
}
