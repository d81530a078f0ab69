//! Simulations of a whole server: many seeds, some of them twice, and canaries.

use tare_sim::{Canary, Coverage, Options, Violation, each_seed, run_node};

/// Seeds of a run in CI, which builds with optimisation; an unoptimised build runs fewer.
const SEEDS: u64 = if cfg!(debug_assertions) { 30 } else { 300 };
/// Seeds that run twice.
const TWICE: u64 = SEEDS / 20;
/// Seeds of which at least one must detect a canary.
const CANARY_SEEDS: u64 = 20;

#[test]
fn seeds_show_no_violation_and_meet_every_situation() {
    let lives = each_seed(SEEDS, |seed| run_node(seed, &Options::for_server()));
    let (mut coverage, mut failures) = (Coverage::default(), Vec::new());
    for life in lives {
        match life {
            Ok(outcome) => coverage.add(&outcome.coverage),
            Err(failure) => failures.push(failure),
        }
    }
    let lines: Vec<String> = failures.iter().take(5).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{} of {SEEDS} seeds\n{}", failures.len(), lines.join("\n"));
    if !cfg!(debug_assertions) {
        assert!(coverage.numbers().iter().all(|(_, number)| *number > 0), "{coverage}");
        assert_eq!(coverage.pairs(), Coverage::PAIRS, "{coverage}");
    }
}

#[test]
fn seed_determines_the_run() {
    for seed in 0..TWICE {
        let options = Options::for_server();
        let (first, second) = (run_node(seed, &options), run_node(seed, &options));
        assert_eq!(first.unwrap(), second.unwrap(), "seed {seed}");
    }
}

fn check(canary: Canary, expected: fn(&Violation) -> bool) {
    let options = Options { canary: Some(canary), ..Options::for_server() };
    let seen: Vec<Violation> = (0..CANARY_SEEDS)
        .filter_map(|seed| run_node(seed, &options).err())
        .map(|failure| failure.violation)
        .collect();
    assert!(seen.iter().any(expected), "{canary:?} was not seen, only {seen:?}");
}

#[test]
fn lost_syncs_are_detected() {
    check(Canary::LostSync, |v| matches!(v, Violation::WrongRow { .. }));
}

#[test]
fn forgiven_sync_failures_are_detected() {
    check(Canary::ForgivenSync, |v| {
        matches!(v, Violation::WrongRow { .. } | Violation::NotOpened { .. })
    });
}

#[test]
fn forged_values_are_detected() {
    check(Canary::ForgedValue, |v| matches!(v, Violation::WrongRow { .. }));
}

#[test]
fn lost_rests_of_sends_are_detected() {
    check(Canary::LostRest, |v| {
        matches!(v, Violation::WrongAnswer { .. } | Violation::NoAnswer { .. })
    });
}

#[test]
fn answers_on_the_wrong_stream_are_detected() {
    check(Canary::SwappedStreams, |v| {
        matches!(v, Violation::WrongAnswer { .. } | Violation::WrongRow { .. })
    });
}

#[test]
fn connections_that_are_never_read_are_detected() {
    check(Canary::SilentSocket, |v| {
        matches!(v, Violation::NoAnswer { .. } | Violation::LeftOver { .. })
    });
}
