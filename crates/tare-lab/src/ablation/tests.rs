//! Tests of shares on games with known values, of dependencies between layers, and of the coverage
//! of the interval.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tare_std::rng::Rng;

use super::orders::{self, Set};
use super::*;
use crate::environment::EnvironmentSpec;
use crate::fake;
use crate::layer::{Cgroup, Cpu, Layer, Network, Security};

fn shares_of(orders: &[Vec<usize>], steps: usize, game: &dyn Fn(Set) -> f64) -> Vec<f64> {
    let value = |step| shares::share(orders, step).iter().map(|(set, w)| w * game(*set)).sum();
    (0..steps).map(value).collect()
}

fn near(found: &[f64], truth: &[f64]) {
    let close =
        found.len() == truth.len() && found.iter().zip(truth).all(|(a, b)| (a - b).abs() < 1e-9);
    assert!(close, "{found:?} is not {truth:?}");
}

/// Step 1 needs step 0.
fn chain(set: Set) -> bool {
    set & 0b10 == 0 || set & 0b01 != 0
}

#[test]
fn additive_game_shares_equal_parts() {
    let game =
        |set: Set| 10.0 + (0..4).map(|i| f64::from(set >> i & 1) * f64::from(i + 1)).sum::<f64>();
    let orders = orders::feasible(4, &|_| true);
    near(&shares_of(&orders, 4, &game), &[1.0, 2.0, 3.0, 4.0]);
    // Also under a constraint, and for a single order.
    near(&shares_of(&orders::feasible(4, &chain), 4, &game), &[1.0, 2.0, 3.0, 4.0]);
    near(&shares_of(&[vec![2, 0, 3, 1]], 4, &game), &[1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn interaction_is_split_between_its_steps() {
    // Steps 0 and 1 add 1 each, and 3 more together. Step 2 adds nothing.
    let game = |set: Set| f64::from((set & 3).count_ones()) + if set & 3 == 3 { 3.0 } else { 0.0 };
    let orders = orders::feasible(3, &|_| true);
    near(&shares_of(&orders, 3, &game), &[2.5, 2.5, 0.0]);
    let index = |pair| {
        let weights = shares::interaction(&orders, &|_| true, pair).unwrap();
        weights.iter().map(|(set, w)| w * game(*set)).sum::<f64>()
    };
    near(&[index((0, 1)), index((0, 2)), index((1, 2))], &[3.0, 0.0, 0.0]);
}

#[test]
fn majority_game_matches_textbook() {
    // Votes 4, 3, 2, 1 with a quota of 6: Shapley's values are 5/12, 3/12, 3/12, 1/12.
    let votes = [4, 3, 2, 1];
    let game = |set: Set| {
        let sum: u32 = (0..4).map(|i| (set >> i & 1) * votes[i]).sum();
        f64::from(u8::from(sum >= 6))
    };
    let found = shares_of(&orders::feasible(4, &|_| true), 4, &game);
    near(&found, &[5.0 / 12.0, 3.0 / 12.0, 3.0 / 12.0, 1.0 / 12.0]);
}

#[test]
fn dependent_step_comes_later() {
    // Steps 1 and 2 together give the whole, so each gets half without constraints. Step 1 needs
    // step 0, so it follows step 2 in 2 of the 3 orders.
    let game = |set: Set| f64::from(u8::from(set & 0b110 == 0b110));
    near(&shares_of(&orders::feasible(3, &|_| true), 3, &game), &[0.0, 0.5, 0.5]);
    let orders = orders::feasible(3, &chain);
    near(&shares_of(&orders, 3, &game), &[0.0, 2.0 / 3.0, 1.0 / 3.0]);
    assert_eq!(shares::interaction(&orders, &|set| chain(set), (0, 1)), None);
}

proptest! {
    #[test]
    fn shares_add_up_for_any_game(
        figures in prop::collection::vec(-100.0f64..100.0, 64),
        limit in 7usize..64,
        seed in any::<u64>(),
        constrained in any::<bool>(),
    ) {
        let valid = |set: Set| !constrained || chain(set);
        let orders = orders::choose(&orders::feasible(6, &valid), limit, seed);
        let game = |set: Set| figures[set as usize];
        let sum: f64 = shares_of(&orders, 6, &game).iter().sum();
        prop_assert!((sum - (game(63) - game(0))).abs() < 1e-9);
    }
}

/// Checks how often, in 1,000 campaigns, the interval of a contrast contains the truth.
fn coverage(rounds: usize, environments: usize, tails: bool) -> f64 {
    let mut rng = Rng::new(11);
    let mut held = 0u32;
    let columns: BTreeMap<Set, usize> = (0..).zip(0..environments).collect();
    let weights = BTreeMap::from([(0, -0.5), (1, -0.5), (2, 0.5), (3, 0.5)]);
    for _ in 0..1000 {
        let round = |rng: &mut Rng| {
            let level = (0.1 * rng.normal()).exp();
            // A tenth of the slices has ten times the noise.
            let mut spread = || if tails && rng.next_f64() < 0.1 { 0.2 } else { 0.02 };
            let spreads: Vec<f64> = (0..environments).map(|_| spread()).collect();
            spreads.iter().map(|s| 10.0 * level * (s * rng.normal()).exp()).collect::<Vec<f64>>()
        };
        let all: Vec<Vec<f64>> = (0..rounds).map(|_| round(&mut rng)).collect();
        let (table, pulled) = tare_stats::robust::cleaned(&all);
        let (estimate, _) = tare_stats::robust::mean_with_probability(
            &shares::values(&table, &columns, &weights),
            pulled,
        )
        .unwrap();
        held += u32::from(!estimate.excludes(0.0));
    }
    f64::from(held) / 1000.0
}

#[test]
fn interval_coverage_is_nominal() {
    for rounds in [5, 12, 40] {
        for environments in [4, 16] {
            for tails in [false, true] {
                let held = coverage(rounds, environments, tails);
                let place = format!("{rounds} rounds, {environments} environments, {tails}");
                assert!((0.93..=0.99).contains(&held), "{held} with {place}");
            }
        }
    }
}

fn native() -> EnvironmentSpec {
    fake::spec("native", "process")
}

fn container() -> EnvironmentSpec {
    EnvironmentSpec {
        network: Network::Bridge { proxy: false },
        cpu: Cpu::Shared,
        security: Security::Default,
        cgroup: Cgroup::Own,
        ..fake::spec("container", "oci:runc")
    }
}

/// Allows a filter only in a container.
fn no_filter(spec: &EnvironmentSpec) -> bool {
    spec.runtime != "process" || spec.security == Security::None
}

#[test]
fn splits_container_into_steps() {
    let (plan, specs) = Plan::new(&native(), &container(), &no_filter, 32, 1).unwrap();
    let names: Vec<String> = plan.steps.iter().map(Step::name).collect();
    assert_eq!(names, ["runtime", "network", "cpu", "security", "cgroup"]);
    assert_eq!((plan.orders.len(), plan.orders_possible), (60, 60));
    assert_eq!(plan.needs, [(0, 3)]);
    assert_eq!(specs.len(), 24);
    assert!(specs.iter().all(no_filter));
    assert_eq!((specs[0].clone(), specs[23].clone()), (native(), container()));
    let names: std::collections::BTreeSet<&str> = specs.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names.len(), 24);
    assert!(names.contains("native + runtime, network, security"));
    // A lower limit draws some of the orders.
    let (few, specs) = Plan::new(&native(), &container(), &no_filter, 14, 1).unwrap();
    assert!(!few.is_complete() && specs.len() <= 14 && few.orders.len() >= 2);
    let error = Plan::new(&native(), &container(), &no_filter, 5, 1).unwrap_err();
    assert!(error.to_string().contains("needs 6 environments"), "{error}");
}

#[test]
fn merges_inseparable_layers() {
    // An engine always creates a cgroup, and a plain process has no filter.
    let valid = |spec: &EnvironmentSpec| {
        (spec.runtime == "process") == (spec.cgroup == Cgroup::None) && no_filter(spec)
    };
    let (plan, _) = Plan::new(&native(), &container(), &valid, 32, 1).unwrap();
    let names: Vec<String> = plan.steps.iter().map(Step::name).collect();
    assert_eq!(names, ["runtime and cgroup", "network", "cpu", "security"]);
    assert_eq!(plan.steps[0].what(), "process → oci:runc, none → own");
    let nothing = |_: &EnvironmentSpec| false;
    let (plan, specs) = Plan::new(&native(), &container(), &nothing, 32, 1).unwrap();
    assert_eq!((plan.steps.len(), specs.len()), (1, 2));
    let same = Plan::new(&native(), &native(), &no_filter, 32, 1);
    assert!(same.is_err_and(|error| error.to_string().contains("nothing to explain")));
}

#[test]
fn refuses_more_layers_than_it_can_order() {
    let option = vec![("option".to_string(), "value".to_string())];
    let mut far = EnvironmentSpec { vm: option.clone(), sandbox: option, ..container() };
    assert!(Plan::new(&native(), &far, &no_filter, 8, 1).is_ok());
    far.limits.memory_bytes = Some(1 << 30);
    let error = Plan::new(&native(), &far, &no_filter, 9, 1).unwrap_err();
    let PlanError::TooManyLayers { layers, .. } = error else { panic!("{error}") };
    assert_eq!(layers.len(), 8);
}

#[test]
fn plan_round_trips_through_record() {
    let (plan, specs) = Plan::new(&native(), &container(), &no_filter, 32, 1).unwrap();
    let again: Plan = serde_json::from_str(&plan.fact().value).unwrap();
    assert_eq!(again, plan);
    assert!(again.is_sound());
    assert!(!Plan { orders: vec![vec![0, 1]], ..again }.is_sound());
    let mut known = specs.clone();
    known[5].name = "another name".into();
    let known: Vec<&EnvironmentSpec> = known.iter().collect();
    let found = plan.clone().resolve_environments(&specs, &known).unwrap();
    assert_eq!(found.environments[5].environment, "another name");
    let error = plan.resolve_environments(&specs, &known[2..]).unwrap_err().to_string();
    assert!(error.starts_with("the record lacks 2 of the 24 environments"), "{error}");
}

/// Fails for a layer that explanations leave out.
#[test]
fn plans_step_for_every_layer() {
    for layer in Layer::ALL {
        let mut to = fake::changed(layer, &native());
        to.name = "other".into();
        let (plan, specs) = Plan::new(&native(), &to, &|_| true, 32, 1).unwrap();
        let steps: Vec<Layer> =
            plan.steps.iter().flat_map(|step| step.changes.iter().map(|c| c.layer)).collect();
        assert_eq!((steps, specs.len()), (vec![layer], 2));
    }
    // Steps are in the order of the list.
    let mut to = native();
    to.name = "other".into();
    for layer in [Layer::Limits, Layer::Storage, Layer::Network] {
        layer.copy(&fake::changed(layer, &native()), &mut to);
    }
    let (plan, _) = Plan::new(&native(), &to, &|_| true, 32, 1).unwrap();
    let names: Vec<String> = plan.steps.iter().map(Step::name).collect();
    assert_eq!(names, ["network", "storage", "limits"]);
}

/// Dependencies can involve any layer, not only those of a container.
#[test]
fn orders_storage_after_network() {
    let mut to = fake::changed(Layer::Storage, &fake::changed(Layer::Network, &native()));
    to.name = "other".into();
    let valid = |spec: &EnvironmentSpec| {
        !Layer::Storage.differs(spec, &to) <= !Layer::Network.differs(spec, &to)
    };
    let (plan, _) = Plan::new(&native(), &to, &valid, 32, 1).unwrap();
    assert_eq!((plan.needs, plan.orders), (vec![(0, 1)], vec![vec![0, 1]]));
}
