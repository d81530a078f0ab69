//! What has to be measured to explain a cost: the steps, the environments, the orders.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::layers::{self, Change};
use super::orders::{self, STEPS_MAX, Set};
use crate::environment::EnvironmentSpec;
use crate::layer::Layer;

/// What is added at once: nearly always one layer, several where they cannot be told apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub changes: Vec<Change>,
}

impl Step {
    /// `network`, or `runtime, cpu and security`.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.changes.iter().map(|change| change.layer.name()).collect();
        match names.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} and {last}", others.join(", "))
            }
            _ => names.concat(),
        }
    }

    /// `host → bridge`, for each of its layers.
    pub fn what(&self) -> String {
        let one = |change: &Change| format!("{} → {}", change.from, change.to);
        self.changes.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// The environment that has some of the steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between {
    /// A bit for each step.
    pub steps: u32,
    /// Its name in the study.
    pub environment: String,
}

/// How a cost is explained. It is kept in the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub from: String,
    pub to: String,
    pub steps: Vec<Step>,
    /// Every environment on the way of an order, `from` first and `to` last.
    pub environments: Vec<Between>,
    /// The orders, as indexes of steps.
    pub orders: Vec<Vec<usize>>,
    /// How many orders there are; more than `orders` where they were drawn.
    pub orders_possible: usize,
    /// Pairs of steps (a, b): b needs a, so that it comes after it in every order.
    pub needs: Vec<(usize, usize)>,
    /// The orders were drawn by it.
    pub seed: u64,
}

/// Why a cost cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("{from:?} and {to:?} have the same layers: there is nothing to explain")]
    Same { from: String, to: String },
    #[error(
        "one order from {from:?} to {to:?} takes {needed} environments at once, but {limit} are \
         allowed or fit into the memory"
    )]
    TooMany { from: String, to: String, needed: usize, limit: usize },
    #[error("the record lacks {} of the {needed} environments needed: {}", .missing.len(), .missing.join("; "))]
    Missing { needed: usize, missing: Vec<String> },
}

impl Plan {
    /// Plans the way from one environment to another, over at most `limit` environments, both ends
    /// among them. `valid` says which layers go together. Returns the environments too, in the
    /// order of [`Plan::environments`].
    ///
    /// Where no order leads from one to the other by one layer at a time, the fewest layers are
    /// taken together with which one does.
    ///
    /// # Errors
    /// If nothing differs, or if not even one order fits.
    pub fn new(
        from: &EnvironmentSpec,
        to: &EnvironmentSpec,
        valid: &dyn Fn(&EnvironmentSpec) -> bool,
        limit: usize,
        seed: u64,
    ) -> Result<(Self, Vec<EnvironmentSpec>), PlanError> {
        let ends = || (from.name.clone(), to.name.clone());
        let (steps, possible) = steps(from, to, valid);
        if steps.is_empty() {
            let (from, to) = ends();
            return Err(PlanError::Same { from, to });
        }
        let orders = orders::choose(&possible, limit, seed);
        if orders.is_empty() {
            let ((from, to), needed) = (ends(), steps.len() + 1);
            return Err(PlanError::TooMany { from, to, needed, limit });
        }
        let mut sets: Vec<Set> = orders.iter().flat_map(|order| orders::sets_of(order)).collect();
        sets.sort_by_key(|set| (set.count_ones(), *set));
        sets.dedup();
        let full = (1 << steps.len()) - 1;
        let mut specs = Vec::new();
        for set in &sets {
            let mut spec = spec_of(from, to, &steps, *set);
            spec.name = match *set {
                0 => from.name.clone(),
                set if set == full => to.name.clone(),
                set => name(from, to, &steps, set),
            };
            specs.push(spec);
        }
        let environment = |(set, spec): (&Set, &EnvironmentSpec)| Between {
            steps: *set,
            environment: spec.name.clone(),
        };
        let plan = Self {
            from: from.name.clone(),
            to: to.name.clone(),
            environments: sets.iter().zip(&specs).map(environment).collect(),
            orders_possible: possible.len(),
            needs: orders::needs(&possible),
            orders,
            steps,
            seed,
        };
        Ok((plan, specs))
    }

    /// Finds the plan's environments among those of a record, by their layers.
    ///
    /// # Errors
    /// If some are missing: their names, as the plan has them.
    pub fn found_among(
        mut self,
        specs: &[EnvironmentSpec],
        known: &[&EnvironmentSpec],
    ) -> Result<Self, PlanError> {
        let mut missing = Vec::new();
        let ends = [self.from.clone(), self.to.clone()];
        for (between, spec) in self.environments.iter_mut().zip(specs) {
            let by_name =
                known.iter().find(|one| ends.contains(&spec.name) && one.name == spec.name);
            match by_name.or_else(|| known.iter().find(|one| layers::same(one, spec))) {
                Some(one) => between.environment.clone_from(&one.name),
                None => missing.push(spec.name.clone()),
            }
        }
        let needed = self.environments.len();
        match missing.is_empty() {
            true => Ok(self),
            false => Err(PlanError::Missing { needed, missing }),
        }
    }

    /// Whether every order that there is was taken.
    pub fn is_complete(&self) -> bool {
        self.orders.len() == self.orders_possible
    }
}

fn spec_of(
    from: &EnvironmentSpec,
    to: &EnvironmentSpec,
    steps: &[Step],
    set: Set,
) -> EnvironmentSpec {
    let taken = steps.iter().enumerate().filter(|(index, _)| set & (1 << index) != 0);
    let layers = taken.flat_map(|(_, step)| step.changes.iter().map(|c| c.layer));
    layers::with(from, to, layers)
}

/// `native + network, cpu`.
fn name(from: &EnvironmentSpec, to: &EnvironmentSpec, steps: &[Step], set: Set) -> String {
    let taken = steps.iter().enumerate().filter(|(index, _)| set & (1 << index) != 0);
    let names: Vec<String> = taken.map(|(_, step)| step.name().replace(" and ", ", ")).collect();
    let mut name = format!("{} + {}", from.name, names.join(", "));
    while name == to.name {
        name.push_str(" (between)");
    }
    name
}

/// The steps and all feasible orders of them.
fn steps(
    from: &EnvironmentSpec,
    to: &EnvironmentSpec,
    valid: &dyn Fn(&EnvironmentSpec) -> bool,
) -> (Vec<Step>, Vec<Vec<usize>>) {
    let changes = layers::changes(from, to);
    assert!(changes.len() <= STEPS_MAX, "an environment has {STEPS_MAX} layers");
    let step = |changes: Vec<Change>| Step { changes };
    let full: Set = (1 << changes.len()) - 1;
    let mut known: BTreeMap<Vec<String>, bool> = BTreeMap::new();
    for set in 0..=full {
        let single: Vec<Step> = changes.iter().cloned().map(|change| step(vec![change])).collect();
        let spec = spec_of(from, to, &single, set);
        // Both ends are what was asked for.
        let is_valid = set == 0 || set == full || valid(&spec);
        known.insert(layers_key(&spec), is_valid);
    }
    // Sets of layers that must come together, the smallest first; one layer is no merger.
    let mut mergers: Vec<Set> = (0..=full).filter(|set| set.count_ones() != 1).collect();
    mergers.sort_by_key(|set| (set.count_ones(), *set));
    for together in mergers {
        let (mut merged, mut steps) = (Vec::new(), Vec::new());
        for (index, change) in changes.iter().enumerate() {
            match together & (1 << index) != 0 {
                true => merged.push(change.clone()),
                false => steps.push(step(vec![change.clone()])),
            }
        }
        if !merged.is_empty() {
            steps.insert(0, step(merged));
        }
        let is_valid = |set: Set| {
            known.get(&layers_key(&spec_of(from, to, &steps, set))).copied().unwrap_or(false)
        };
        let orders = orders::feasible(steps.len(), &is_valid);
        if !orders.is_empty() {
            return (steps, orders);
        }
    }
    (Vec::new(), Vec::new())
}

fn layers_key(spec: &EnvironmentSpec) -> Vec<String> {
    Layer::ALL.into_iter().map(|layer| layer.text(spec)).collect()
}
