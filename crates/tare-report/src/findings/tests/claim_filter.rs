//! Claims that a doubt or the control forbids.

use tare_lab::doubt::Doubt;

use super::super::facts::Facts;
use super::cases::{RATE, STRANGERS, bridged, quiet, slow, stalling, stalls};
use super::said;
use super::world::{World, ns};

const ALL: usize = 12;

fn speaks(world: &World, rule: &str) -> bool {
    said(world).iter().any(|one| one.rule == rule)
}

fn errors(count: u64, operations: u64) -> Doubt {
    Doubt::OperationErrors { error: "timeout".into(), count, operations }
}

#[test]
fn drops_gain_on_busy_machine() {
    assert!(speaks(&bridged(-1.0), "layer_gives_back"));
    for doubt in [
        STRANGERS,
        Doubt::Steal { share: 0.2 },
        Doubt::ClientSaturated { share: 0.9, busiest_thread_share: None },
    ] {
        for environment in ["box", "native"] {
            let world = bridged(-1.0).doubt(environment, &doubt, ALL);
            assert!(!speaks(&world, "layer_gives_back"), "{doubt:?} about {environment}");
            // A short disturbance forbids nothing.
            assert!(speaks(&bridged(-1.0).doubt(environment, &doubt, 1), "layer_gives_back"));
            // Other load takes from both, so losses are still found.
            assert!(speaks(&bridged(2.0).doubt(environment, &doubt, ALL), "bridge"));
        }
    }
}

#[test]
fn drops_gain_within_noise() {
    // The control is 3 % off and varies; the box gains 5.5 % and varies too.
    let wandering = |us: f64| {
        let world = bridged(us).slices("native again", |round, slice| {
            slice.system_cpu_ns += ns(0.15 * f64::from(round % 5));
            slice.window_ns = slice.system_cpu_ns;
        });
        world.slices("box", |round, slice| {
            slice.system_cpu_ns += ns(0.35 * f64::from(round % 5));
            slice.window_ns = slice.system_cpu_ns;
        })
    };
    assert!(!speaks(&wandering(-1.25), "layer_gives_back"));
    assert!(speaks(&wandering(-3.0), "layer_gives_back"));
}

#[test]
fn drops_claims_after_errors_or_emulation() {
    for (doubt, forbids) in [
        (errors(3, 1_000), true),
        (errors(3, 100_000), false),
        (Doubt::Emulated { accelerator: "tcg".into() }, true),
    ] {
        let world = bridged(2.0).doubt("box", &doubt, 1);
        assert_eq!(speaks(&world, "bridge"), !forbids, "{doubt:?}");
        let world = stalling().doubt("box", &doubt, 1);
        assert_eq!(speaks(&world, "latency_tail"), !forbids, "{doubt:?}");
    }
}

#[test]
fn drops_cpu_of_polling_without_an_account() {
    let unknown = Doubt::NoPollingAccount { reason: "its port is closed".into() };
    for environment in ["box", "native"] {
        let world = bridged(2.0).doubt(environment, &unknown, 1);
        assert!(!speaks(&world, "bridge"), "{environment}");
        assert!(speaks(&stalling().doubt(environment, &unknown, ALL), "latency_tail"));
    }
}

#[test]
fn drops_latencies_of_overloaded_system() {
    for environment in ["box", "native"] {
        let world = stalling().doubt(environment, &RATE, ALL);
        assert!(!speaks(&world, "latency_tail"), "{environment}");
    }
}

#[test]
fn drops_tail_that_the_control_shares() {
    let world = quiet().latencies("native", 1_000, stalls(0.0, 1.0));
    let world = world.latencies("native again", 1_000, stalls(0.03, 20.0));
    let world = world.latencies("box", 1_000, stalls(0.03, 20.0));
    assert!(!speaks(&world, "latency_tail"));
    assert!(!speaks(&slow(quiet(), stalls(0.0, 1.0)), "latency_tail"));
    assert!(speaks(&stalling(), "latency_tail"));
}

#[test]
fn drops_claims_without_control_interval() {
    let mut world = bridged(2.0);
    world.record.slices.retain(|one| one.environment != "native again" || one.round == 0);
    assert!(!speaks(&world, "bridge"));
}

#[test]
fn drops_claim_whose_difference_in_us_may_be_zero() {
    // Two of three rounds take 20 times as long, and in half of these the box wins.
    let level = |round: u32| if round.is_multiple_of(3) { 10.0 } else { 200.0 };
    let ratio = |round: u32| [1.14, 1.12, 0.94][(round % 3) as usize];
    let mut world = bridged(1.0);
    for name in ["native", "native again", "box"] {
        let factor = |round| if name == "box" { ratio(round) } else { 1.0 };
        world = world.slices(name, |round, slice| {
            slice.system_cpu_ns = ns(level(round) * factor(round));
            slice.window_ns = slice.system_cpu_ns;
        });
    }
    let analysis = tare_lab::analysis::analyse(&world.record);
    let facts = Facts::new(&world.record, &analysis, &[], None);
    let bridge = facts.effects.iter().find(|effect| effect.kind.rule == "bridge").unwrap();
    let (us, percent) = (bridge.us.unwrap(), bridge.percent.unwrap());
    assert!(percent.low > 0.0 && us.low < 0.0, "{us:?} {percent:?}");
    assert!(!bridge.cpu_claimed && !bridge.found, "{bridge:?}");
    assert!(speaks(&bridged(3.0), "bridge"));
}
