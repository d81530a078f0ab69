//! Faults of the instrument that no store can survive. The checks must detect them, or the success
//! of the other seeds means nothing.

use tare_sim::{Canary, Options, Violation, run};

/// Seeds of which at least one must detect the canary.
const SEEDS: u64 = 40;

/// The violations in the runs with a canary.
fn seen(canary: Canary) -> Vec<Violation> {
    let options = Options { canary: Some(canary), ..Options::default() };
    (0..SEEDS).filter_map(|seed| run(seed, &options).err()).map(|f| f.violation).collect()
}

fn check(canary: Canary, expected: fn(&Violation) -> bool) {
    let seen = seen(canary);
    assert!(seen.iter().any(expected), "{canary:?} was not seen, only {seen:?}");
}

#[test]
fn lost_syncs_are_detected() {
    check(Canary::LostSync, |v| matches!(v, Violation::NoSuchHistory { .. }));
}

#[test]
fn forgiven_sync_failures_are_detected() {
    check(Canary::ForgivenSync, |v| matches!(v, Violation::NoSuchHistory { .. }));
}

#[test]
fn forged_values_are_detected() {
    check(Canary::ForgedValue, |v| {
        matches!(v, Violation::NoSuchHistory { .. } | Violation::WrongRead { .. })
    });
}

#[test]
fn invented_writes_are_detected() {
    check(Canary::InventedWrite, |v| {
        matches!(v, Violation::NoSuchHistory { .. } | Violation::WrongRead { .. })
    });
}
