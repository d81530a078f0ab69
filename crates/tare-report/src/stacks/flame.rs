//! The tree of frames behind the flame graphs of two environments and of their difference.
//!
//! A frame has the µs per operation of both environments; the script of the page (`html/script`)
//! draws them from the root at the top. In the graph of the difference a frame is as wide as the
//! larger of both, so that one that vanished has a width. Its colour is the change; a frame whose
//! difference is within the noise is grey.
//!
//! Names come from binaries and study files; the script sets them as text, never as markup.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::figures::{Profile, difference};
use crate::figures::clean;

/// Frames below this share of the wider environment are left out: thousands would be thinner than a
/// pixel.
const SHARE_MIN: f64 = 0.0003;
/// Frames deeper than this are left out; the kernel's own stacks end at 127.
const DEPTH_MAX: usize = 200;

struct Node {
    children: BTreeMap<String, Node>,
    /// µs per operation by round, of both environments.
    us: [Vec<f64>; 2],
    subsystems: BTreeMap<String, f64>,
}

impl Node {
    fn new(rounds: usize) -> Self {
        let us = [vec![0.0; rounds], vec![0.0; rounds]];
        Self { children: BTreeMap::new(), us, subsystems: BTreeMap::new() }
    }

    fn add(&mut self, which: usize, round: usize, subsystem: &str, us: f64) {
        self.us[which][round] += us;
        *self.subsystems.entry(subsystem.to_string()).or_default() += us;
    }

    fn mean(&self, which: usize) -> f64 {
        let values = &self.us[which];
        values.iter().sum::<f64>() / values.len().max(1) as f64
    }

    fn width(&self) -> f64 {
        self.mean(0).max(self.mean(1))
    }

    /// `[name, subsystem, from, to, found, children]`; `names` are the strings so far.
    fn data(&self, name: &str, min: f64, names: &mut Names) -> Value {
        let largest = self.subsystems.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let subsystem = names.number(largest.map_or("", |(name, _)| name));
        let found = difference(&self.us[0], &self.us[1]).found();
        let children: Vec<Value> = self
            .children
            .iter()
            .filter(|(_, child)| child.width() >= min)
            .map(|(name, child)| child.data(name, min, names))
            .collect();
        let short = |us: f64| (us * 1e4).round() / 1e4;
        let name = names.number(name);
        json!([
            name,
            subsystem,
            short(self.mean(0)),
            short(self.mean(1)),
            i32::from(found),
            children
        ])
    }
}

/// Strings without duplicates.
#[derive(Default)]
struct Names {
    numbers: BTreeMap<String, usize>,
    all: Vec<String>,
}

impl Names {
    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.all.len();
        self.all.push(clean(name));
        self.numbers.insert(name.to_string(), number);
        number
    }
}

fn tree(profile: &Profile) -> Node {
    let rounds = profile.rounds();
    let mut root = Node::new(rounds);
    for (which, round, (part, folded, subsystem), us) in profile.stacks() {
        root.add(which, round, subsystem, us);
        let frames = std::iter::once(part.as_str()).chain(folded.split(';'));
        let mut node = &mut root;
        for frame in frames.take(DEPTH_MAX) {
            node = node.children.entry(frame.to_string()).or_insert_with(|| Node::new(rounds));
            node.add(which, round, subsystem, us);
        }
    }
    root
}

/// The data of a pair for the script: the tree, and the strings in it.
pub(crate) fn data(profile: &Profile) -> Value {
    let root = tree(profile);
    let mut names = Names::default();
    let tree = root.data("all", root.width() * SHARE_MIN, &mut names);
    let (from, to) = (&profile.from.environment, &profile.to.environment);
    json!({ "names": names.all, "tree": tree, "from": clean(from), "to": clean(to) })
}
