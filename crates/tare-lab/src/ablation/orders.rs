//! The orders in which steps can be added one at a time, and a random choice of them.
//!
//! A set of steps is a bit mask. An order is feasible if each set of its first steps is valid, so
//! that every step follows the steps that it needs. With at most [`STEPS_MAX`] steps all orders can
//! be listed.

use std::collections::BTreeSet;

use tare_std::rng::Rng;

/// A set of steps, one bit each.
pub(super) type Set = u32;

/// Maximum number of steps, which have at most 5,040 orders.
pub(super) const STEPS_MAX: usize = 7;

/// Stream of the seed with which orders are drawn.
const STREAM_ORDERS: u64 = 5 << 32;

/// Returns the sets of the first 0, 1, 2 ... steps of an order.
pub(super) fn sets_of(order: &[usize]) -> impl Iterator<Item = Set> {
    let grown = order.iter().scan(0, |set: &mut Set, step| {
        *set |= 1 << step;
        Some(*set)
    });
    std::iter::once(0).chain(grown)
}

/// Returns every order of `steps` steps whose sets are all valid.
pub(super) fn feasible(steps: usize, valid: &dyn Fn(Set) -> bool) -> Vec<Vec<usize>> {
    fn walk(
        steps: usize,
        valid: &dyn Fn(Set) -> bool,
        set: Set,
        order: &mut Vec<usize>,
        found: &mut Vec<Vec<usize>>,
    ) {
        if order.len() == steps {
            found.push(order.clone());
            return;
        }
        for step in (0..steps).filter(|step| set & (1 << step) == 0) {
            let next = set | 1 << step;
            if valid(next) {
                order.push(step);
                walk(steps, valid, next, order, found);
                order.pop();
            }
        }
    }
    let mut found = Vec::new();
    if valid(0) {
        walk(steps, valid, 0, &mut Vec::new(), &mut found);
    }
    found
}

/// Returns the pairs (a, b) in which a precedes b in every order, so that b needs a.
pub(super) fn needs(orders: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let steps = orders.first().map_or(0, Vec::len);
    let before = |order: &[usize], a, b| {
        order.iter().position(|step| *step == a) < order.iter().position(|step| *step == b)
    };
    let pairs = (0..steps).flat_map(|a| (0..steps).map(move |b| (a, b))).filter(|(a, b)| a != b);
    pairs.filter(|(a, b)| orders.iter().all(|order| before(order, *a, *b))).collect()
}

/// Returns all orders if they have at most `limit` sets. Otherwise draws as many as fit, by the
/// seed, each with its reverse: the errors of the two have opposite signs, so that their mean is
/// nearer to that of all orders. (A step and one that it needs change places in the reverse.) Empty
/// if `limit` is too small for one order.
pub(super) fn choose(orders: &[Vec<usize>], limit: usize, seed: u64) -> Vec<Vec<usize>> {
    let all: BTreeSet<Set> = orders.iter().flat_map(|order| sets_of(order)).collect();
    if all.len() <= limit {
        return orders.to_vec();
    }
    let needs = needs(orders);
    let mut drawn: Vec<&Vec<usize>> = orders.iter().collect();
    Rng::stream(seed, STREAM_ORDERS).shuffle(&mut drawn);
    let mut chosen: Vec<Vec<usize>> = Vec::new();
    let mut sets: BTreeSet<Set> = BTreeSet::new();
    for order in drawn {
        if chosen.contains(order) {
            continue;
        }
        let mirrored = mirror(order, &needs);
        let opposite = orders.contains(&mirrored) && !chosen.contains(&mirrored);
        let mut pair = vec![order.clone()];
        pair.extend((opposite && mirrored != *order).then_some(mirrored));
        let fits = |orders: &[Vec<usize>]| {
            let with: BTreeSet<Set> =
                sets.iter().copied().chain(orders.iter().flat_map(|o| sets_of(o))).collect();
            (with.len() <= limit).then_some(with)
        };
        // The first order that does not fit ends the draw. Searching for one that fits would favour
        // similar orders.
        match fits(&pair) {
            Some(with) => sets = with,
            None if chosen.is_empty() && fits(&pair[..1]).is_some() => pair.truncate(1),
            None => break,
        }
        let alone = pair.len() == 1 && opposite;
        chosen.extend(pair);
        if alone {
            break;
        }
    }
    chosen
}

/// Returns the reverse of an order. A step that would precede one that it needs changes places with
/// it.
fn mirror(order: &[usize], needs: &[(usize, usize)]) -> Vec<usize> {
    let mut mirrored: Vec<usize> = order.iter().rev().copied().collect();
    // Each swap corrects at least one pair, and there are fewer pairs than this.
    for _ in 0..STEPS_MAX * STEPS_MAX {
        let place = |step: usize| mirrored.iter().position(|other| *other == step);
        let wrong = needs.iter().find_map(|(first, second)| {
            let (a, b) = (place(*first)?, place(*second)?);
            (b < a).then_some((a, b))
        });
        match wrong {
            Some((a, b)) => mirrored.swap(a, b),
            None => break,
        }
    }
    mirrored
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Step 1 needs step 0.
    fn chain(set: Set) -> bool {
        set & 0b10 == 0 || set & 0b01 != 0
    }

    #[test]
    fn orders_respect_dependencies() {
        assert_eq!(feasible(3, &|_| true).len(), 6);
        assert_eq!(feasible(0, &|_| true), vec![Vec::<usize>::new()]);
        let orders = feasible(4, &chain);
        assert_eq!(orders.len(), 12);
        assert_eq!(needs(&orders), [(0, 1)]);
        assert!(
            feasible(2, &|set| set == 0 || set == 3).is_empty(),
            "only both together are valid"
        );
    }

    #[test]
    fn mirror_is_feasible_involution() {
        let orders = feasible(5, &chain);
        let mirrors: BTreeSet<Vec<usize>> =
            orders.iter().map(|order| mirror(order, &[(0, 1)])).collect();
        assert_eq!(mirrors.len(), orders.len(), "all orders are equally likely");
        assert!(mirrors.iter().all(|order| orders.contains(order)));
        for order in &orders {
            assert_eq!(mirror(&mirror(order, &[(0, 1)]), &[(0, 1)]), *order);
        }
    }

    #[test]
    fn draws_orders_in_antithetic_pairs() {
        let orders = feasible(6, &|_| true);
        assert_eq!(choose(&orders, 64, 1).len(), 720);
        for seed in 0..50 {
            let chosen = choose(&orders, 24, seed);
            assert_eq!(chosen, choose(&orders, 24, seed), "the seed alone decides");
            let sets: BTreeSet<Set> = chosen.iter().flat_map(|order| sets_of(order)).collect();
            assert!(sets.len() <= 24 && chosen.len() >= 4, "{chosen:?}");
            for pair in chosen.chunks(2) {
                assert_eq!(
                    pair[0].iter().rev().collect::<Vec<_>>(),
                    pair[1].iter().collect::<Vec<_>>()
                );
            }
        }
        assert_eq!(choose(&orders, 7, 1).len(), 1);
        assert!(choose(&orders, 6, 1).is_empty());
    }
}
