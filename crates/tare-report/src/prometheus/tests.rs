//! The text is read back by the grammar of the format's documentation, taken strictly.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::fixture;

type LabelSet = BTreeMap<String, String>;

#[derive(Debug, PartialEq)]
struct Sample {
    name: String,
    labels: LabelSet,
    value: f64,
}

#[derive(Debug, Default)]
struct Families {
    /// Name and type, in the order of the text.
    types: Vec<(String, String)>,
    samples: Vec<Sample>,
}

/// Reads a text or panics with the line that breaks a rule: each family is one uninterrupted group
/// that begins with HELP and TYPE, no series stands twice, the last line ends in LF.
fn parse(text: &str) -> Families {
    assert!(text.is_empty() || text.ends_with('\n'));
    let mut families = Families::default();
    let (mut helped, mut seen) = (None, BTreeSet::new());
    for line in text.split_terminator('\n') {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(name, true) && !help.is_empty() && !help.contains('\\'), "{line}");
            helped = Some(name.to_string());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert_eq!(helped.as_deref(), Some(name), "{line}");
            assert!(["gauge", "summary"].contains(&kind), "{line}");
            assert!(families.types.iter().all(|(known, _)| known != name), "{line}");
            families.types.push((name.to_string(), kind.to_string()));
        } else {
            let sample = sample(line);
            let (family, kind) = families.types.last().unwrap_or_else(|| panic!("{line}"));
            let suffix = sample.name.strip_prefix(family.as_str());
            let suffixes: &[&str] = if kind == "summary" { &["", "_sum", "_count"] } else { &[""] };
            assert!(suffix.is_some_and(|suffix| suffixes.contains(&suffix)), "{line}");
            assert!(seen.insert((sample.name.clone(), sample.labels.clone())), "twice: {line}");
            families.samples.push(sample);
        }
    }
    families
}

fn is_name(name: &str, metric: bool) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || (metric && c == ':');
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// `name{label="value",...} float`, and no timestamp.
fn sample(line: &str) -> Sample {
    let (name, rest) = line.split_once('{').unwrap_or_else(|| panic!("{line}"));
    assert!(is_name(name, true), "{line}");
    let (mut labels, mut chars) = (LabelSet::new(), rest.chars());
    loop {
        let label: String = chars.by_ref().take_while(|c| *c != '=').collect();
        assert!(is_name(&label, false) && !label.starts_with("__"), "{label:?} in {line}");
        assert_eq!(chars.next(), Some('"'), "{line}");
        let mut value = String::new();
        loop {
            match chars.next() {
                Some('"') => break,
                Some('\\') => value.push(match chars.next() {
                    Some('n') => '\n',
                    Some(c @ ('\\' | '"')) => c,
                    other => panic!("escape {other:?} in {line}"),
                }),
                Some(c) => value.push(c),
                None => panic!("no end of {label} in {line}"),
            }
        }
        assert!(labels.insert(label, value).is_none(), "{line}");
        match chars.next() {
            Some(',') => {}
            Some('}') => break,
            other => panic!("{other:?} in {line}"),
        }
    }
    let value = chars.as_str().strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    Sample { name: name.to_string(), labels, value: value.parse().unwrap() }
}

fn of<'a>(families: &'a Families, name: &str, labels: &[(&str, &str)]) -> Vec<&'a Sample> {
    let matches = |sample: &&Sample| {
        sample.name == name
            && labels.iter().all(|(k, v)| sample.labels.get(*k).is_some_and(|found| found == v))
    };
    families.samples.iter().filter(matches).collect()
}

#[test]
fn every_record_is_read_back() {
    for make in [
        fixture::quick,
        fixture::two_workloads,
        fixture::long,
        fixture::running,
        fixture::single_round,
        fixture::empty,
        fixture::hostile,
    ] {
        let (record, analysis) = make();
        let families = parse(&render(&record, &analysis));
        for finding in &analysis.findings {
            let names = [("environment", &*finding.environment), ("workload", &*finding.workload)];
            let found = of(&families, "tare_throughput_operations_per_second", &names);
            let bounded = finding.throughput_per_s.is_some_and(|i| i.is_bounded());
            assert_eq!(found.len(), if bounded { 3 } else { 1 }, "{names:?}");
        }
    }
}

#[test]
fn names_survive_the_escapes() {
    let (record, mut analysis) = fixture::quick();
    let nasty = "a\\b \"c\"\nd{e=\"f\"} 1\r\u{202e}";
    analysis.findings[2].environment = nasty.to_string();
    let families = parse(&render(&record, &analysis));
    assert_eq!(of(&families, "tare_slices", &[("environment", nasty)]).len(), 1);
}

#[test]
fn figures_are_in_base_units() {
    let (record, analysis) = fixture::quick();
    let families = parse(&render(&record, &analysis));
    let finding = analysis.findings.iter().find(|f| f.environment == "docker-default").unwrap();
    let cost = finding.server_cpu_cost.as_ref().unwrap();
    let response = finding.response.as_ref().unwrap();
    let here = ("environment", "docker-default");
    for (name, labels, expected) in [
        (
            "tare_server_cpu_seconds_per_operation",
            vec![("bound", "value")],
            finding.server_cpu_us.unwrap().value / 1e6,
        ),
        (
            "tare_cost_ratio",
            vec![("of", "server_cpu"), ("bound", "upper")],
            cost.percent.high / 100.0,
        ),
        ("tare_cost_blocks", vec![("of", "server_cpu")], 12.0),
        ("tare_cost_found", vec![("of", "throughput")], 1.0),
        ("tare_response_time_seconds", vec![("quantile", "0.99")], response.p99_ns as f64 / 1e9),
        ("tare_response_time_seconds_count", vec![], response.count as f64),
    ] {
        let labels: Vec<_> = labels.into_iter().chain([here]).collect();
        let found = of(&families, name, &labels);
        assert_eq!(found.len(), 1, "{name}");
        assert!((found[0].value / expected - 1.0).abs() < 1e-5, "{name}: {found:?} {expected}");
    }
}

#[test]
fn the_parser_is_strict() {
    for bad in [
        "a{b=\"c\"} 1\n",
        "# HELP a x\n# TYPE a gauge\na{b=\"c\"} 1",
        "# HELP a x\n# TYPE a gauge\na{b=\"c\"} 1 1395066363000\n",
        "# HELP a x\n# TYPE a gauge\na{b=\"c\"} 1\na{b=\"c\"} 2\n",
        "# HELP a x\n# TYPE a gauge\na{b=\"\\t\"} 1\n",
        "# HELP a x\n# TYPE a gauge\na{1b=\"c\"} 1\n",
        "# HELP a x\n# TYPE a gauge\nb{b=\"c\"} 1\n",
    ] {
        assert!(std::panic::catch_unwind(|| parse(bad)).is_err(), "{bad:?}");
    }
}
