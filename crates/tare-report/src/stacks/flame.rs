//! Flame graphs of two environments and of their difference, as one page that needs nothing else.
//!
//! The page holds one tree of frames with the µs per operation of both environments; its script
//! draws them from the root at the top. In the graph of the difference a frame is as wide as the
//! larger of both (so that what vanished has a width too), its colour says how much it grew or
//! shrank, and a frame whose difference is within the noise is grey.
//!
//! Names come from binaries and study files: in the data `<` is written as `\u003c`, so that no name
//! ends the script element, and the script sets them as text, never as markup.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::figures::{Profile, Row, difference};
use crate::figures::clean;

/// Frames below this share of the wider environment are left out: they would be thinner than a
/// pixel on any screen, and there are thousands.
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

/// Each string once.
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
        self.all.push(name.to_string());
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

/// Text for the content of an element: without markup, and without the marks of the page's own gaps.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '{' => escaped.push_str("&#123;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The page: three flame graphs over one tree, and the table of subsystems.
pub fn page(title: &str, workload: &str, profile: &Profile) -> String {
    let root = tree(profile);
    let mut names = Names::default();
    let tree = root.data("all", root.width() * SHARE_MIN, &mut names);
    let data = json!({
        "names": names.all,
        "tree": tree,
        "from": profile.from.environment,
        "to": profile.to.environment,
    });
    // The only character that could end the element or open a comment in it.
    let data = data.to_string().replace('<', "\\u003c");
    let (from, to) = (&profile.from.environment, &profile.to.environment);
    let rows: Vec<String> = profile
        .subsystems()
        .iter()
        .chain(std::iter::once(&profile.total()))
        .map(table_row)
        .collect();
    include_str!("flame.html")
        .replace("{{title}}", &escape(title))
        .replace("{{workload}}", &escape(workload))
        .replace("{{from}}", &escape(from))
        .replace("{{to}}", &escape(to))
        .replace("{{rounds}}", &profile.rounds().to_string())
        .replace("{{samples}}", &(profile.from.samples + profile.to.samples).to_string())
        .replace("{{rows}}", &rows.join("\n"))
        .replace("{{style}}", include_str!("flame.css"))
        .replace("{{script}}", include_str!("flame.js"))
        // The last: what it brings is looked at no more.
        .replace("{{data}}", &data)
}

fn table_row(row: &Row) -> String {
    let class = match (row.difference.found(), row.difference.us > 0.0) {
        (false, _) => "noise",
        (true, true) => "more",
        (true, false) => "less",
    };
    let interval = match (row.difference.low, row.difference.high) {
        (Some(low), Some(high)) => format!("[{low:+.3}, {high:+.3}]"),
        _ => String::new(),
    };
    format!(
        "<tr class=\"{class}\"><th scope=\"row\">{}</th><td>{:.3}</td><td>{:.3}</td><td>{:+.3}</td><td>{interval}</td></tr>",
        escape(&row.name),
        row.from.us,
        row.to.us,
        row.difference.us
    )
}
