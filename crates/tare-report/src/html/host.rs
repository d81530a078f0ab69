//! What the environments and the host were like: layers as read back, settings, facts.

use serde::Serialize;
use tare_lab::record::{EnvironmentRecord, Record};

use crate::figures::{clean, latency};

#[derive(Serialize)]
pub(super) struct EnvironmentView {
    name: String,
    role: Option<&'static str>,
    ready: Option<String>,
    teardown: Option<String>,
    rows: Vec<(String, String, String, bool)>,
}

/// What the system found, one column per environment.
#[derive(Serialize)]
pub(super) struct Settings {
    environments: Vec<String>,
    /// Key, whether the environments differ in it, values.
    rows: Vec<(String, bool, Vec<String>)>,
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

pub(super) fn settings(environments: &[&EnvironmentRecord]) -> Settings {
    let shown: Vec<&EnvironmentRecord> =
        environments.iter().copied().filter(|e| !e.settings.is_empty()).collect();
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in shown.iter().flat_map(|e| &e.settings) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let row = |key: &str| {
        let value = |e: &&EnvironmentRecord| {
            let found = e.settings.iter().find(|(k, _)| k == key);
            found.map_or_else(|| "\u{2013}".to_string(), |(_, value)| clean(value))
        };
        let values: Vec<String> = shown.iter().map(value).collect();
        let differ = values.windows(2).any(|pair| pair[0] != pair[1]);
        (clean(key), differ, values)
    };
    Settings {
        environments: shown.iter().map(|e| clean(&e.spec.name)).collect(),
        rows: keys.into_iter().map(row).collect(),
    }
}

pub(super) fn facts(record: &Record) -> Vec<(String, Vec<(String, String)>)> {
    let mut sections: Vec<(String, Vec<(String, String)>)> = Vec::new();
    // A plan is shown as what it led to.
    for fact in record.host.iter().filter(|fact| fact.section != tare_lab::ablation::FACTS) {
        let section = clean(&fact.section);
        let pair = (clean(&fact.key), clean(&fact.value));
        match sections.iter_mut().find(|(name, _)| *name == section) {
            Some((_, facts)) => facts.push(pair),
            None => sections.push((section, vec![pair])),
        }
    }
    sections
}
