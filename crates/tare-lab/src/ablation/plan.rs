//! Plans the measurements that explain a cost: steps, environments and orders.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::layers::{self, Change};
use super::orders::{self, STEPS_MAX, Set};
use crate::environment::EnvironmentSpec;
use crate::layer::Layer;

/// The layers that are added together. Nearly always one; several if they cannot be separated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub changes: Vec<Change>,
}

impl Step {
    /// Returns the names of the layers: `network`, or `runtime, cpu and security`.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.changes.iter().map(|change| change.layer.name()).collect();
        match names.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} and {last}", others.join(", "))
            }
            _ => names.concat(),
        }
    }

    /// Returns the changes of the layers: `host → bridge`.
    pub fn what(&self) -> String {
        let one = |change: &Change| format!("{} → {}", change.from, change.to);
        self.changes.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// An environment with some of the steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanEnvironment {
    /// The steps, one bit each.
    pub steps: u32,
    /// Name of the environment in the study.
    pub environment: String,
}

/// A plan to explain a cost. The record stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub from: String,
    pub to: String,
    pub steps: Vec<Step>,
    /// Every environment of the orders, `from` first and `to` last.
    pub environments: Vec<PlanEnvironment>,
    /// The measured orders, as indexes of steps.
    pub orders: Vec<Vec<usize>>,
    /// Number of feasible orders. It exceeds that of `orders` if these were drawn.
    pub orders_possible: usize,
    /// Pairs of steps (a, b) of which b needs a, and follows it in every order.
    pub needs: Vec<(usize, usize)>,
    /// Seed with which the orders were drawn.
    pub seed: u64,
}

/// Why a cost cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("{from:?} and {to:?} have the same layers: there is nothing to explain")]
    Same { from: String, to: String },
    #[error(
        "{from:?} and {to:?} differ in {} layers ({}), and a cost is split among at most {STEPS_MAX}; \
         explain in two parts, by an environment between them", .layers.len(), .layers.join(", ")
    )]
    TooManyLayers { from: String, to: String, layers: Vec<String> },
    #[error(
        "one order from {from:?} to {to:?} needs {needed} environments at once, and the limit (memory \
         or option) is {limit}"
    )]
    TooMany { from: String, to: String, needed: usize, limit: usize },
    #[error("the record lacks {} of the {needed} environments needed: {}", .missing.len(), .missing.join("; "))]
    Missing { needed: usize, missing: Vec<String> },
}

impl Plan {
    /// Plans the orders from one environment to another, with at most `limit` environments
    /// including the two. `valid` decides which layers can be combined. Also returns the
    /// environments, in the order of [`Plan::environments`].
    ///
    /// If no order adds the layers one at a time, the smallest feasible set of layers becomes one
    /// step.
    ///
    /// # Errors
    /// If the environments have the same layers or differ in too many, or if `limit` is too small
    /// for one order.
    pub fn new(
        from: &EnvironmentSpec,
        to: &EnvironmentSpec,
        valid: &dyn Fn(&EnvironmentSpec) -> bool,
        limit: usize,
        seed: u64,
    ) -> Result<(Self, Vec<EnvironmentSpec>), PlanError> {
        let ends = || (from.name.clone(), to.name.clone());
        let changes = layers::changes(from, to);
        if changes.len() > STEPS_MAX {
            let layers = changes.iter().map(|change| change.layer.name().to_string()).collect();
            let (from, to) = ends();
            return Err(PlanError::TooManyLayers { from, to, layers });
        }
        let (steps, possible) = steps(&changes, from, to, valid);
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
        let environment = |(set, spec): (&Set, &EnvironmentSpec)| PlanEnvironment {
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
    /// If some are missing, with their names in the plan.
    pub fn resolve_environments(
        mut self,
        specs: &[EnvironmentSpec],
        known: &[&EnvironmentSpec],
    ) -> Result<Self, PlanError> {
        let mut missing = Vec::new();
        let ends = [self.from.clone(), self.to.clone()];
        for (between, spec) in self.environments.iter_mut().zip(specs) {
            let by_name =
                known.iter().find(|one| ends.contains(&spec.name) && one.name == spec.name);
            match by_name.or_else(|| known.iter().find(|one| layers::same_layers(one, spec))) {
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

    /// Returns whether the plan has every feasible order.
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

/// Returns the name of an environment between the two: `native + network, cpu`.
fn name(from: &EnvironmentSpec, to: &EnvironmentSpec, steps: &[Step], set: Set) -> String {
    let taken = steps.iter().enumerate().filter(|(index, _)| set & (1 << index) != 0);
    let names: Vec<String> = taken.map(|(_, step)| step.name().replace(" and ", ", ")).collect();
    let mut name = format!("{} + {}", from.name, names.join(", "));
    while name == to.name {
        name.push_str(" (between)");
    }
    name
}

/// Returns the steps that make these changes, and all feasible orders of them.
fn steps(
    changes: &[Change],
    from: &EnvironmentSpec,
    to: &EnvironmentSpec,
    valid: &dyn Fn(&EnvironmentSpec) -> bool,
) -> (Vec<Step>, Vec<Vec<usize>>) {
    let step = |changes: Vec<Change>| Step { changes };
    let full: Set = (1 << changes.len()) - 1;
    let mut known: BTreeMap<Vec<String>, bool> = BTreeMap::new();
    for set in 0..=full {
        let single: Vec<Step> = changes.iter().cloned().map(|change| step(vec![change])).collect();
        let spec = spec_of(from, to, &single, set);
        // The caller chose both ends.
        let is_valid = set == 0 || set == full || valid(&spec);
        known.insert(layers_key(&spec), is_valid);
    }
    // Sets of layers that become one step, smallest first. A single layer needs no merging.
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
