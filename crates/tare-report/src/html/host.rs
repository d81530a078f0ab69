//! The environments and the host: layers as read back, settings, and facts.

use serde::Serialize;
use tare_lab::record::{EnvironmentRecord, Record};

use crate::figures::{clean, latency, shorten};

#[derive(Serialize)]
pub(super) struct EnvironmentView {
    name: String,
    role: Option<&'static str>,
    ready: Option<String>,
    teardown: Option<String>,
    rows: Vec<(String, String, String, bool)>,
}

/// Settings that the system found or chose: those that differ between environments, and the rest.
#[derive(Serialize)]
pub(super) struct Settings {
    environments: Vec<String>,
    differing: Vec<Differing>,
    equal: Vec<(String, String)>,
}

/// One setting, one cell per environment.
#[derive(Serialize)]
struct Differing {
    key: String,
    cells: Vec<Cell>,
}

#[derive(Serialize)]
struct Cell {
    value: String,
    /// Whether it differs from the baseline's.
    differs: bool,
}

/// Facts of one section.
#[derive(Serialize)]
pub(super) struct Section {
    name: String,
    /// The first facts on one line.
    gist: String,
    facts: Vec<(String, String)>,
}

impl EnvironmentView {
    pub(super) fn new(environment: &EnvironmentRecord, baseline: &str) -> EnvironmentView {
        let role = if environment.control {
            Some("A/A control")
        } else {
            (environment.spec.name == baseline).then_some("baseline")
        };
        EnvironmentView {
            name: clean(&environment.spec.name),
            role,
            ready: environment.ready_ns.map(latency),
            teardown: environment.teardown_ns.map(latency),
            rows: environment
                .layers
                .iter()
                .map(|l| (clean(&l.layer), clean(&l.wanted), clean(&l.found), l.in_force))
                .collect(),
        }
    }
}

pub(super) fn settings(environments: &[&EnvironmentRecord], baseline: &str) -> Settings {
    let shown: Vec<&EnvironmentRecord> =
        environments.iter().copied().filter(|e| !e.settings.is_empty()).collect();
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in shown.iter().flat_map(|e| &e.settings) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let mut settings = Settings {
        environments: shown.iter().map(|e| clean(&e.spec.name)).collect(),
        differing: Vec::new(),
        equal: Vec::new(),
    };
    for key in keys {
        let value = |e: &&EnvironmentRecord| {
            let found = e.settings.iter().find(|(k, _)| k == key);
            found.map_or_else(|| "\u{2013}".to_string(), |(_, value)| clean(value))
        };
        let values: Vec<String> = shown.iter().map(value).collect();
        let base = shown.iter().position(|e| e.spec.name == baseline).unwrap_or(0);
        if values.windows(2).all(|pair| pair[0] == pair[1]) {
            settings.equal.push((clean(key), values[base].clone()));
            continue;
        }
        let cells = values
            .iter()
            .map(|value| Cell { value: value.clone(), differs: *value != values[base] });
        settings.differing.push(Differing { key: clean(key), cells: cells.collect() });
    }
    settings
}

/// The number of layers that were not in force.
pub(super) fn not_in_force(environments: &[&EnvironmentRecord]) -> usize {
    environments.iter().flat_map(|e| &e.layers).filter(|layer| !layer.in_force).count()
}

pub(super) fn facts(record: &Record) -> Vec<Section> {
    /// About the width of a phone.
    const GIST: usize = 90;
    let mut sections: Vec<Section> = Vec::new();
    // A plan is not shown; its results are.
    for fact in record.host.iter().filter(|fact| fact.section != tare_lab::ablation::FACTS) {
        let name = clean(&fact.section);
        let at = sections.iter().position(|section| section.name == name).unwrap_or_else(|| {
            sections.push(Section { name, gist: String::new(), facts: Vec::new() });
            sections.len() - 1
        });
        sections[at].facts.push((clean(&fact.key), clean(&fact.value)));
    }
    for section in &mut sections {
        let values: Vec<&str> = section.facts.iter().map(|(_, value)| value.as_str()).collect();
        section.gist = shorten(&values.join("; "), GIST);
    }
    sections
}
