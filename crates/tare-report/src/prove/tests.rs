//! Tests on the quick fixture, with a tuned host in two of its environments.

use super::*;
use crate::fixture;
use tare_lab::record::HostFact;

/// The quick record with `name` as the twin of `of` on a tuned host.
fn tune(record: &mut Record, name: &str, of: &str, host: &str) {
    let spec = |record: &Record, name: &str| {
        let mut all = record.environments.iter();
        all.find(|one| one.spec.name == name && !one.control).unwrap().spec.clone()
    };
    let twin =
        EnvironmentSpec { name: name.into(), host: host.parse().unwrap(), ..spec(record, of) };
    let environments = record.environments.iter_mut().map(|one| &mut one.spec);
    let of_study = record.study.environments.iter_mut();
    environments.chain(of_study).filter(|one| one.name == name).for_each(|one| *one = twin.clone());
}

fn fact(record: &mut Record, key: &str, value: &str) {
    let fact = HostFact { section: FACTS.into(), key: key.into(), value: value.into() };
    record.host.push(fact);
}

fn proof() -> (Record, Analysis) {
    let (mut record, analysis) = fixture::quick();
    // 4.5 % over native without, 1.2 % and 0 % with.
    tune(&mut record, "+ no seccomp", "+ host network", "tuned");
    tune(&mut record, "+ no cgroup", "+ host network", "tuned=disk");
    fact(&mut record, FACT_OF, "docker-default");
    fact(&mut record, "not weighed: sysctls: net.core.somaxconn", "read at listen");
    (record, analysis)
}

#[test]
fn gains_compare_twins_beyond_the_noise() {
    let (record, analysis) = proof();
    let proof = Proof::of(&record, &analysis).unwrap();
    let of = |groups: &str| proof.gains.iter().find(|gain| gain.groups == groups).unwrap();
    let (all, disk) = (of("all"), of("disk"));
    assert_eq!((all.against.as_str(), all.verdict), ("+ host network", TuningVerdict::Helps));
    let cpu = all.cpu.as_ref().unwrap();
    let truth = 100.0 * (1.012 / 1.045 - 1.0);
    assert!(cpu.percent.low <= truth && truth <= cpu.percent.high, "{cpu:?} {truth}");
    assert!(disk.cpu.as_ref().unwrap().percent.value < cpu.percent.value);
    assert_eq!(proof.proven, ["all", "disk"]);
    assert_eq!(proof.not_weighed.len(), 1);
    let [remains] = &proof.remains[..] else { panic!("{:?}", proof.remains) };
    assert_eq!(remains.environment, "+ no seccomp");
    assert_eq!(
        remains.layers,
        ["the runtime docker", "the seccomp filter (default)", "a cgroup (own)"]
    );
    assert!(remains.text.contains("against native"), "{}", remains.text);
}

#[test]
fn prints_missing_gain() {
    let (mut record, analysis) = fixture::quick();
    // Equally fast with tuning, and slower with tuning.
    tune(&mut record, "+ no cgroup", "native", "tuned=disk");
    tune(&mut record, "+ cpuset", "+ host network", "tuned=cpu");
    let proof = Proof::of(&record, &analysis).unwrap();
    let verdicts: Vec<(&str, TuningVerdict)> =
        proof.gains.iter().map(|gain| (gain.groups.as_str(), gain.verdict)).collect();
    assert_eq!(verdicts, [("cpu", TuningVerdict::Hurts), ("disk", TuningVerdict::NotProven)]);
    assert!(proof.proven.is_empty() && proof.remains.is_empty());
    let text = lines(&proof, Style::new(false, 100)).join("\n");
    assert!(text.contains("no help beyond the noise"), "{text}");
    assert!(text.contains("hurts"), "{text}");
    // The one without an effect is named beside the other.
    let found = crate::findings::statements(&record, &analysis, &[]);
    let none = found.iter().find(|one| one.rule == "tuning_not_proven").unwrap();
    assert!(none.text.starts_with("Host tuning (disk): no effect"), "{}", none.text);
}

#[test]
fn record_without_tuning_has_no_proof() {
    let (record, analysis) = fixture::quick();
    assert!(Proof::of(&record, &analysis).is_none());
    let (mut record, analysis) = (record, analysis);
    fact(&mut record, FACT_OF, "docker-default");
    let proof = Proof::of(&record, &analysis).unwrap();
    assert!(proof.gains.is_empty());
    let text = lines(&proof, Style::new(false, 100)).join("\n");
    assert!(text.starts_with("No host tuning was weighed"), "{text}");
    // The last environment that ran is the best.
    assert_eq!(proof.remains[0].environment, "+ no cgroup");
    assert!(proof.remains[0].nothing && text.contains("none found"), "{text}");
}

#[test]
fn every_format_has_the_proof() {
    let (record, analysis) = proof();
    let terminal = crate::terminal::render(&record, &analysis, &[], Style::new(false, 100));
    assert!(terminal.contains("Host tuning") && terminal.contains("somaxconn"), "{terminal}");
    let ascii = Style { ascii: true, ..Style::new(false, 80) };
    assert!(crate::terminal::render(&record, &analysis, &[], ascii).is_ascii());
    let json: serde_json::Value =
        serde_json::from_str(&crate::json::render(&record, &analysis, &[])).unwrap();
    assert_eq!(json["host_tuning"]["proven"], serde_json::json!(["all", "disk"]));
    let page = crate::html::page(&record, &analysis, &[]);
    assert!(page.contains("id=\"tuning\"") && page.contains("somaxconn"));
    let markdown = crate::markdown::render(&record, &analysis, &[]);
    assert!(markdown.contains("\n\nHost tuning:\n\nAgainst "), "{markdown}");
    assert!(markdown.contains("\n| groups or knobs | "), "{markdown}");
    assert!(markdown.contains("somaxconn"), "{markdown}");
}

#[test]
fn gains_without_valid_rounds_are_not_known() {
    let (mut record, _) = proof();
    let tuned = ["+ no seccomp", "+ no cgroup"];
    let of_tuned = |slice: &&mut tare_lab::record::Slice| tuned.contains(&&*slice.environment);
    record.slices.iter_mut().filter(of_tuned).for_each(|slice| slice.void = Some("late".into()));
    let analysis = tare_lab::analysis::analyse(&record);
    let proof = Proof::of(&record, &analysis).unwrap();
    assert!(proof.gains.is_empty());
    assert!(caption(&proof).starts_with("No gain is known"), "{}", caption(&proof));
    for remains in &proof.remains {
        assert!(remains.text.contains("not known, too few rounds"), "{}", remains.text);
    }
}

#[test]
fn knobs_on_top_of_others_are_a_step() {
    let (mut record, analysis) = fixture::quick();
    tune(&mut record, "+ cpuset", "+ host network", "tuned=interrupts");
    tune(&mut record, "+ no seccomp", "+ host network", "tuned=interrupts+rps+rfs");
    tune(&mut record, "+ no cgroup", "+ host network", "tuned=rps");
    let proof = Proof::of(&record, &analysis).unwrap();
    let labels: Vec<String> = proof.gains.iter().map(label).collect();
    let expect = ["interrupts", "interrupts+rps+rfs", "rps+rfs on top of interrupts", "rps"];
    assert_eq!(labels, expect);
    assert_eq!(proof.gains[2].against, "+ cpuset");
    let text = lines(&proof, Style::new(false, 100)).join("\n").replace('\n', " ");
    assert!(text.contains("\"On top of\": against the environment"), "{text}");
}
