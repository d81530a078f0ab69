//! A map from byte strings to numbers, in the order of the bytes: a B+ tree whose nodes lie in a
//! slab and whose keys lie in an arena. It only grows; leaves are linked both ways.

use super::arena::{Arena, Handle, Slab};

/// Entries that a node may have.
const FANOUT: usize = 16;
/// Height that a tree may have: nodes are at least half full, except at the right edge.
const HEIGHT_MAX: usize = 16;
const NONE: u32 = u32::MAX;
/// The slot before the first slot of the first leaf, which is 0 minus 1 with wrapping.
const BEFORE: u8 = u8::MAX;

/// A leaf or an inner node. An entry of an inner node is a child node and its least key (for the
/// first entry: any bytes that are not greater).
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    keys: [Handle; FANOUT],
    values: [u32; FANOUT],
    length: u8,
    previous: u32,
    next: u32,
}

/// One map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    root: u32,
    /// Number of levels of inner nodes.
    height: u8,
}

/// The position of an entry in a tree, or a position past either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreePosition {
    node: u32,
    slot: u8,
}

/// The nodes of all trees.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    slab: Slab<Node>,
}

impl Nodes {
    pub(super) fn bytes(&self) -> usize {
        self.slab.bytes()
    }

    fn add(&mut self) -> u32 {
        let (keys, values) = ([Handle(0); FANOUT], [0; FANOUT]);
        self.slab.push(Node { keys, values, length: 0, previous: NONE, next: NONE })
    }
}

impl Node {
    fn keys(&self) -> &[Handle] {
        &self.keys[..usize::from(self.length)]
    }

    fn insert(&mut self, slot: usize, key: Handle, value: u32) {
        let length = usize::from(self.length);
        self.keys.copy_within(slot..length, slot + 1);
        self.values.copy_within(slot..length, slot + 1);
        (self.keys[slot], self.values[slot]) = (key, value);
        self.length += 1;
    }

    /// Moves the entries from `slot` on into an empty node.
    fn split_into(&mut self, slot: usize, upper: &mut Node) {
        let moved = usize::from(self.length) - slot;
        upper.keys[..moved].copy_from_slice(&self.keys[slot..slot + moved]);
        upper.values[..moved].copy_from_slice(&self.values[slot..slot + moved]);
        upper.length = narrow(moved);
        self.length = narrow(slot);
    }
}

/// Converts a slot number to the type that a node uses.
fn narrow(slot: usize) -> u8 {
    u8::try_from(slot).expect("a node has 16 slots")
}

impl Tree {
    /// An empty map.
    pub(super) fn new(nodes: &mut Nodes) -> Self {
        Self { root: nodes.add(), height: 0 }
    }

    /// The first entry whose key is not less, or the end if there is none.
    #[inline]
    pub(super) fn seek(&self, nodes: &Nodes, arena: &Arena, key: &[u8]) -> TreePosition {
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = nodes.slab.get(node);
            node = inner.values[child_slot(inner, arena, key)];
        }
        let leaf = nodes.slab.get(node);
        let slot = leaf.keys().partition_point(|handle| arena.get(*handle) < key);
        let position = TreePosition { node, slot: narrow(slot) };
        if slot == usize::from(leaf.length) && leaf.next != NONE {
            return TreePosition { node: leaf.next, slot: 0 };
        }
        position
    }

    /// The last entry.
    pub(super) fn last(&self, nodes: &Nodes) -> TreePosition {
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = nodes.slab.get(node);
            node = inner.values[usize::from(inner.length) - 1];
        }
        last_slot(node, nodes.slab.get(node).length)
    }

    /// The value at a key.
    #[inline]
    pub(super) fn get(&self, nodes: &Nodes, arena: &Arena, key: &[u8]) -> Option<u32> {
        let (found, value) = self.seek(nodes, arena, key).entry(nodes)?;
        (arena.get(found) == key).then_some(value)
    }

    /// Adds an entry whose key does not exist yet.
    pub(super) fn insert(&mut self, nodes: &mut Nodes, arena: &Arena, key: Handle, value: u32) {
        let bytes = arena.get(key);
        let mut path = [(0, 0); HEIGHT_MAX];
        let mut node = self.root;
        for step in &mut path[..usize::from(self.height)] {
            let inner = nodes.slab.get(node);
            let slot = child_slot(inner, arena, bytes);
            *step = (node, slot);
            node = inner.values[slot];
        }
        let leaf = nodes.slab.get(node);
        let slot = leaf.keys().partition_point(|handle| arena.get(*handle) < bytes);
        let mut split = insert_into(nodes, node, slot, (key, value));
        if let Some((_, upper)) = split {
            let next = nodes.slab.get(node).next;
            let (below, above) = (node, next);
            nodes.slab.get_mut(node).next = upper;
            let upper_node = nodes.slab.get_mut(upper);
            (upper_node.previous, upper_node.next) = (below, above);
            if above != NONE {
                nodes.slab.get_mut(above).previous = upper;
            }
        }
        for &(node, slot) in path[..usize::from(self.height)].iter().rev() {
            let Some(entry) = split else { return };
            split = insert_into(nodes, node, slot + 1, entry);
        }
        if let Some((key, upper)) = split {
            let least = nodes.slab.get(self.root).keys[0];
            let root = nodes.add();
            let node = nodes.slab.get_mut(root);
            node.insert(0, least, self.root);
            node.insert(1, key, upper);
            self.root = root;
            self.height += 1;
            assert!(usize::from(self.height) < HEIGHT_MAX, "memory holds no such tree");
        }
    }
}

impl TreePosition {
    /// Key and value; `None` past either end.
    #[inline]
    pub(super) fn entry(self, nodes: &Nodes) -> Option<(Handle, u32)> {
        let node = nodes.slab.get(self.node);
        let slot = usize::from(self.slot);
        (self.slot < node.length).then(|| (node.keys[slot], node.values[slot]))
    }

    /// Changes the value of an entry.
    pub(super) fn set(self, nodes: &mut Nodes, value: u32) {
        nodes.slab.get_mut(self.node).values[usize::from(self.slot)] = value;
    }

    /// The next entry; past the end after the last. A position past an end stays there.
    #[inline]
    pub(super) fn next(self, nodes: &Nodes) -> Self {
        let node = nodes.slab.get(self.node);
        if self.slot == BEFORE {
            return self;
        }
        let slot = self.slot + 1;
        if slot >= node.length && node.next != NONE {
            return Self { node: node.next, slot: 0 };
        }
        Self { node: self.node, slot: slot.min(node.length) }
    }

    /// The previous entry, also from past the end; before the first entry, the position past that
    /// end.
    #[inline]
    pub(super) fn previous(self, nodes: &Nodes) -> Self {
        match self.slot {
            BEFORE => return self,
            0 => {}
            slot => return Self { node: self.node, slot: slot - 1 },
        }
        match nodes.slab.get(self.node).previous {
            NONE => Self { node: self.node, slot: BEFORE },
            previous => last_slot(previous, nodes.slab.get(previous).length),
        }
    }
}

/// The last slot of a node; the slot before the first if the node is empty.
fn last_slot(node: u32, length: u8) -> TreePosition {
    TreePosition { node, slot: length.wrapping_sub(1) }
}

/// The slot of the child that may have a key.
#[inline]
fn child_slot(inner: &Node, arena: &Arena, key: &[u8]) -> usize {
    inner.keys()[1..].partition_point(|handle| arena.get(*handle) <= key)
}

/// Adds an entry to a node. If the node had to be split, returns the entry that its parent has to
/// add.
fn insert_into(
    nodes: &mut Nodes,
    node: u32,
    slot: usize,
    (key, value): (Handle, u32),
) -> Option<(Handle, u32)> {
    let lower = nodes.slab.get_mut(node);
    if usize::from(lower.length) < FANOUT {
        lower.insert(slot, key, value);
        return None;
    }
    // Nodes stay full if keys come in order.
    let middle = if slot == FANOUT && lower.next == NONE { FANOUT } else { FANOUT / 2 };
    let mut copy = *lower;
    let upper = nodes.add();
    copy.split_into(middle, nodes.slab.get_mut(upper));
    *nodes.slab.get_mut(node) = copy;
    if slot <= middle && middle < FANOUT {
        nodes.slab.get_mut(node).insert(slot, key, value);
    } else {
        nodes.slab.get_mut(upper).insert(slot - middle, key, value);
    }
    Some((nodes.slab.get(upper).keys[0], upper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(number: u32) -> Vec<u8> {
        number.to_be_bytes()[(number % 3) as usize..].to_vec()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn tree_agrees_with_an_ordered_map(
            numbers in proptest::collection::vec(0u32..3000, 0..900),
            order in 0u8..3,
            probes in proptest::collection::vec(0u32..3000, 0..20),
        ) {
            let mut numbers = numbers;
            match order {
                0 => numbers.sort_unstable(),
                1 => numbers.sort_unstable_by(|a, b| b.cmp(a)),
                _ => {}
            }
            let (mut nodes, mut arena) = (Nodes::default(), Arena::default());
            let mut tree = Tree::new(&mut nodes);
            let mut model = BTreeMap::new();
            for (value, number) in (0..).zip(numbers) {
                let key = key(number);
                if model.insert(key.clone(), value).is_some() {
                    tree.seek(&nodes, &arena, &key).set(&mut nodes, value);
                } else {
                    let handle = arena.put(&key);
                    tree.insert(&mut nodes, &arena, handle, value);
                }
            }
            let walk = |from: TreePosition, step: fn(TreePosition, &Nodes) -> TreePosition| {
                let mut found = Vec::new();
                let mut position = from;
                while let Some((handle, value)) = position.entry(&nodes) {
                    found.push((arena.get(handle).to_vec(), value));
                    position = step(position, &nodes);
                }
                found
            };
            let all: Vec<_> = model.clone().into_iter().collect();
            prop_assert_eq!(walk(tree.seek(&nodes, &arena, &[]), TreePosition::next), all.clone());
            let reversed: Vec<_> = all.iter().rev().cloned().collect();
            prop_assert_eq!(walk(tree.last(&nodes), TreePosition::previous), reversed.clone());
            for probe in probes.into_iter().map(key) {
                prop_assert_eq!(tree.get(&nodes, &arena, &probe), model.get(&probe).copied());
                let position = tree.seek(&nodes, &arena, &probe);
                let from: Vec<_> = all.iter().filter(|(k, _)| *k >= probe).cloned().collect();
                prop_assert_eq!(walk(position, TreePosition::next), from);
                let before: Vec<_> = reversed.iter().filter(|(k, _)| *k < probe).cloned().collect();
                prop_assert_eq!(walk(position.previous(&nodes), TreePosition::previous), before);
            }
        }
    }
}
