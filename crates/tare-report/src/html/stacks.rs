//! CPU time by code: flame graphs of every environment against the baseline, and tables of
//! subsystems and functions.

use std::collections::BTreeMap;

use minijinja::Value;
use serde::Serialize;
use serde_json::json;
use tare_lab::record::Record;
use tare_lab::stacks::{KERNEL_SUFFIX, StackKind, StackSlice};

use super::charts::as_data;
use super::document::{self, Asset, Document};
use crate::figures::{clean, in_order};
use crate::stacks::{Figure, Profile, Row, Side, change, flame_data, method, sampled};
use tare_std::units::significant;

/// Functions that the table of one pair lists.
const FUNCTIONS_MAX: usize = 25;
/// Smaller functions are left out: the timer sampled them a few times only.
const FUNCTION_US_MIN: f64 = 0.005;

#[derive(Debug, Serialize)]
pub(super) struct StacksView {
    graph: Option<Graph>,
    tables: Vec<Table>,
}

/// A flame graph of several pairs, of which the script shows one.
#[derive(Debug, Serialize)]
struct Graph {
    from: String,
    to: String,
    /// The label of each pair.
    labels: Vec<String>,
    data: Value,
}

/// Subsystems by environment, the baseline first.
#[derive(Debug, Serialize)]
struct Table {
    title: String,
    method: String,
    environments: Vec<String>,
    rows: Vec<Subsystem>,
    functions: Vec<Functions>,
}

#[derive(Debug, Serialize)]
struct Subsystem {
    name: String,
    cells: Vec<Cell>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Cell {
    value: String,
    below: String,
    class: &'static str,
}

#[derive(Debug, Serialize)]
struct Functions {
    to: String,
    rows: Vec<Function>,
}

#[derive(Debug, Serialize)]
struct Function {
    name: String,
    subsystem: String,
    from: String,
    to: String,
    difference: String,
    class: &'static str,
}

impl StacksView {
    /// `None` for a record without stacks.
    pub(super) fn new(record: &Record, slices: &[StackSlice]) -> Option<Self> {
        let several = record.study.workloads.len() > 1;
        let (mut pairs, mut labels, mut tables) = (Vec::new(), Vec::new(), Vec::new());
        for workload in &record.study.workloads {
            for kind in StackKind::ALL {
                let Some(set) = Set::new(record, slices, kind, &workload.name) else { continue };
                let of = if several { format!(" ({})", workload.name) } else { String::new() };
                let what = match kind {
                    StackKind::OnCpu => "",
                    StackKind::OffCpu => ", waiting",
                    StackKind::InterruptCpus => ", interrupt CPUs",
                };
                // The costliest comes first, the control last.
                let control = |profile: &Profile| {
                    let name = &profile.to.environment;
                    record.environments.iter().any(|e| e.control && e.spec.name == *name)
                };
                let mut ordered: Vec<&Profile> = set.profiles.iter().collect();
                ordered.sort_by(|a, b| {
                    let by_cost = b.total().difference.us.total_cmp(&a.total().difference.us);
                    control(a).cmp(&control(b)).then(by_cost)
                });
                for profile in ordered {
                    let (from, to) = (&profile.from.environment, &profile.to.environment);
                    labels.push(clean(&format!("{to} against {from}{what}{of}")));
                    pairs.push(flame_data(profile));
                }
                let title = match kind {
                    StackKind::OnCpu => format!("CPU time{of}"),
                    StackKind::OffCpu => format!("Waiting{of}"),
                    StackKind::InterruptCpus => format!("CPU time of the interrupt CPUs{of}"),
                };
                tables.push(
                    set.table(clean(&title), method(slices, kind, &workload.name, set.rounds())),
                );
            }
        }
        let graph = Graph::new(labels, &pairs);
        (!tables.is_empty()).then_some(Self { graph, tables })
    }
}

impl Graph {
    fn new(labels: Vec<String>, pairs: &[serde_json::Value]) -> Option<Self> {
        let first = pairs.first()?;
        let name = |which: &str| clean(first[which].as_str().unwrap_or_default());
        let data = as_data(&json!({ "pairs": pairs }));
        Some(Self { from: name("from"), to: name("to"), labels, data })
    }
}

/// The stacks of one kind under one workload.
struct Set {
    baseline: Side,
    /// Every other environment against the baseline, in the order of the study.
    profiles: Vec<Profile>,
}

impl Set {
    fn new(
        record: &Record,
        slices: &[StackSlice],
        kind: StackKind,
        workload: &str,
    ) -> Option<Self> {
        let known = sampled(slices, workload);
        let side = |name: &str| {
            let side = Side::of(slices, kind, workload, name);
            (side.rounds() > 0).then_some(side)
        };
        let order = in_order(record);
        let names = || {
            let names = order.iter().map(|e| e.spec.name.as_str());
            names.filter(|name| known.iter().any(|k| k == name))
        };
        // If the baseline has no stacks, the first environment replaces it.
        let base = &record.study.baseline;
        let baseline = side(base).or_else(|| names().find_map(side))?;
        let others = names().filter(|name| *name != baseline.environment).filter_map(side);
        let profiles = others.filter_map(|one| Profile::new(baseline.clone(), one)).collect();
        Some(Self { baseline, profiles })
    }

    fn rounds(&self) -> usize {
        self.baseline.rounds()
    }

    fn table(&self, title: String, method: String) -> Table {
        let mut environments = vec![clean(&self.baseline.environment)];
        environments.extend(self.profiles.iter().map(|p| clean(&p.to.environment)));
        // Each subsystem's row in every profile, the largest difference first.
        let mut names: BTreeMap<String, (f64, Vec<Option<Row>>)> = BTreeMap::new();
        for (at, profile) in self.profiles.iter().enumerate() {
            for row in profile.subsystems() {
                let none = || (0.0, vec![None; self.profiles.len()]);
                let entry = names.entry(row.name.clone()).or_insert_with(none);
                entry.0 = entry.0.max(row.difference.us.abs());
                entry.1[at] = Some(row);
            }
        }
        let mut ordered: Vec<_> = names.into_iter().collect();
        ordered.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
        let mut rows: Vec<Subsystem> = ordered
            .into_iter()
            .map(|(name, (_, found))| {
                let figure = self.baseline.subsystem(&name);
                subsystem(clean(&name), &figure, found.iter().map(Option::as_ref))
            })
            .collect();
        let totals: Vec<Row> = self.profiles.iter().map(Profile::total).collect();
        rows.push(subsystem("sum".into(), &self.baseline.total(), totals.iter().map(Some)));
        let functions = self.profiles.iter().map(Functions::new).collect();
        Table { title, method, environments, rows, functions }
    }
}

fn subsystem<'r>(
    name: String,
    baseline: &Figure,
    rows: impl Iterator<Item = Option<&'r Row>>,
) -> Subsystem {
    let first = Cell { value: us(baseline.us), ..Cell::default() };
    let none = || Cell { value: "\u{2013}".into(), class: "none", ..Cell::default() };
    let cells = rows.map(|row| row.map_or_else(none, Cell::new));
    Subsystem { name, cells: std::iter::once(first).chain(cells).collect() }
}

impl Cell {
    fn new(row: &Row) -> Self {
        Self { value: us(row.to.us), below: difference_text(row), class: class(&row.difference) }
    }
}

/// Three digits, and none below a nanosecond.
fn us(value: f64) -> String {
    let text = match value.abs() {
        x if x < 0.000_5 => return "0".to_string(),
        x if x < 0.1 => format!("{x:.3}"),
        x => significant(x, 3),
    };
    if value < 0.0 { format!("\u{2212}{text}") } else { text }
}

/// `+2.62 [1.26, 3.98], new`, or that none was found. Never a bare 0.
fn difference_text(row: &Row) -> String {
    let Figure { us: value, low, high } = row.difference;
    let sign = if value > 0.0 { "+" } else { "" };
    let (Some(low), Some(high)) = (low, high) else {
        return format!("{sign}{}, one round: no interval", us(value));
    };
    if !row.difference.found() {
        return format!("none found (\u{b1}{})", us(low.abs().max(high.abs())));
    }
    let change = match change(row) {
        "" => String::new(),
        word => format!(", {word}"),
    };
    format!("{sign}{} [{}, {}]{change}", us(value), us(low), us(high))
}

fn class(difference: &Figure) -> &'static str {
    match (difference.found(), difference.us > 0.0) {
        (true, true) => "loss",
        (true, false) => "gain",
        _ => "none",
    }
}

impl Functions {
    fn new(profile: &Profile) -> Self {
        let rows = profile
            .functions()
            .into_iter()
            .filter(|row| row.difference.us.abs() >= FUNCTION_US_MIN)
            .take(FUNCTIONS_MAX)
            .map(|row| Function {
                name: clean(row.name.strip_suffix(KERNEL_SUFFIX).unwrap_or(&row.name)),
                subsystem: clean(row.subsystem.as_deref().unwrap_or_default()),
                from: us(row.from.us),
                to: us(row.to.us),
                difference: difference_text(&row),
                class: class(&row.difference),
            });
        Self { to: clean(&profile.to.environment), rows: rows.collect() }
    }
}

/// A page with one pair.
#[derive(Serialize)]
struct FlamePage {
    document: Document,
    title: String,
    workload: String,
    samples: u64,
    rounds: usize,
    graph: Option<Graph>,
    table: Table,
}

/// The flame graphs of two environments and of their difference as one self-contained page.
pub fn flamegraph(title: &str, workload: &str, profile: &Profile) -> String {
    let title = clean(title);
    let set = Set { baseline: profile.from.clone(), profiles: vec![profile.clone()] };
    let version = env!("CARGO_PKG_VERSION").to_string();
    let view = FlamePage {
        document: Document::new(title.clone(), version, &[Asset::FlameGraph]),
        title,
        workload: clean(workload),
        samples: profile.from.samples + profile.to.samples,
        rounds: profile.rounds(),
        graph: Graph::new(vec![String::new()], &[flame_data(profile)]),
        table: set.table(String::new(), String::new()),
    };
    document::render("flame_page.html", view)
}
