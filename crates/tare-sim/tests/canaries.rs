//! Faults of the instrument: what no store can survive must be seen by the checker, or the silence
//! of the other seeds means nothing.

use tare_sim::{Canary, Options, Violation, run};

/// Seeds in which a canary must be seen at least once.
const SEEDS: u64 = 40;

/// The violations that a canary's lives end with.
fn seen(canary: Canary) -> Vec<Violation> {
    let options = Options { canary: Some(canary), ..Options::default() };
    (0..SEEDS).filter_map(|seed| run(seed, &options).err()).map(|f| f.violation).collect()
}

fn check(canary: Canary, expected: fn(&Violation) -> bool) {
    let seen = seen(canary);
    assert!(seen.iter().any(expected), "{canary:?} was not seen, only {seen:?}");
}

#[test]
fn syncs_that_never_happened_are_seen() {
    check(Canary::LostSync, |v| matches!(v, Violation::NoSuchHistory { .. }));
}

#[test]
fn a_failed_sync_that_is_told_as_a_success_is_seen() {
    check(Canary::ForgivenSync, |v| matches!(v, Violation::NoSuchHistory { .. }));
}

#[test]
fn a_value_that_was_changed_with_its_checksum_is_seen() {
    check(Canary::ForgedValue, |v| {
        matches!(v, Violation::NoSuchHistory { .. } | Violation::WrongRead { .. })
    });
}

#[test]
fn a_write_that_nobody_sent_is_seen() {
    check(Canary::InventedWrite, |v| {
        matches!(v, Violation::NoSuchHistory { .. } | Violation::WrongRead { .. })
    });
}
