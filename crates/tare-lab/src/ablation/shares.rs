//! Shares and interactions of steps, from a table with one row per round and one column per
//! environment.
//!
//! A share or an interaction is a linear combination of the figures of one round. So each round
//! gives one value, and the values of all rounds give a mean with Student's interval. The mean is
//! used instead of the signed-rank estimate of the costs, because means of parts add up to the mean
//! of the whole.

use std::collections::BTreeMap;

use super::orders::{Set, sets_of};

/// The weight of the figure of each set of steps.
pub(super) type Weights = BTreeMap<Set, f64>;

/// Returns the weights of a share, which is the mean over the orders of what the step adds at its
/// position.
///
/// Over all orders this is Shapley's value ("A value for n-person games", 1953). If a step needs
/// another, over all orders that respect this, it is the value of Faigle and Kern ("The Shapley
/// value for cooperative games under precedence constraints", Int. J. of Game Theory 21, 1992). In
/// each order the additions sum up to the whole, so the shares do for any choice of orders.
pub(super) fn share(orders: &[Vec<usize>], step: usize) -> Weights {
    let each = 1.0 / orders.len() as f64;
    let mut weights = Weights::new();
    for order in orders {
        let mut sets = sets_of(order).zip(order);
        if let Some((before, _)) = sets.find(|(_, taken)| **taken == step) {
            *weights.entry(before | 1 << step).or_default() += each;
            *weights.entry(before).or_default() -= each;
        }
    }
    weights
}

/// Returns the weights of an interaction, which is how much more two adjacent steps add together
/// than separately: `v(S+a+b) - v(S+a) - v(S+b) + v(S)`. It is the mean over the orders in which
/// the two are adjacent and all four sets were measured. Over all orders this is Shapley's
/// interaction index (Grabisch and Roubens, "An axiomatic approach to the concept of interaction
/// among players in cooperative games", Int. J. of Game Theory 28, 1999). `None` without a suitable
/// order.
pub(super) fn interaction(
    orders: &[Vec<usize>],
    measured: &dyn Fn(Set) -> bool,
    pair: (usize, usize),
) -> Option<Weights> {
    let (a, b) = (1 << pair.0, 1 << pair.1);
    let mut places = Vec::new();
    for order in orders {
        for (before, two) in sets_of(order).zip(order.windows(2)) {
            let here = [pair.0, pair.1] == *two || [pair.1, pair.0] == *two;
            if here && measured(before | a) && measured(before | b) {
                places.push(before);
            }
        }
    }
    let each = 1.0 / places.len() as f64;
    let mut weights = Weights::new();
    for before in &places {
        for (set, sign) in [(a | b, 1.0), (a, -1.0), (b, -1.0), (0, 1.0)] {
            *weights.entry(before | set).or_default() += sign * each;
        }
    }
    (!places.is_empty()).then_some(weights)
}

/// Returns the weighted sum of each round's figures.
pub(super) fn values(
    rounds: &[Vec<f64>],
    columns: &BTreeMap<Set, usize>,
    weights: &Weights,
) -> Vec<f64> {
    let value = |round: &Vec<f64>| {
        let part = |(set, weight): (&Set, &f64)| Some(weight * round.get(*columns.get(set)?)?);
        weights.iter().filter_map(part).sum()
    };
    rounds.iter().map(value).collect()
}
