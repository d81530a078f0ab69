//! Tests every rule with a record that triggers it and one that does not.

mod cases;
mod claim_filter;
mod world;

use std::collections::BTreeSet;

use tare_lab::analysis::analyse;
use tare_lab::layer::Layer;
use tare_lab::probe::Counter;
use tare_lab::record::HostFact;

use super::*;
use cases::CASES;
use world::World;

fn said(world: &World) -> Vec<Statement> {
    statements(&world.record, &analyse(&world.record), &world.stacks)
}

#[test]
fn every_rule_has_a_case_and_a_unique_id() {
    let rules: Vec<&str> = all().map(|rule| rule.id).collect();
    let unique: BTreeSet<&str> = rules.iter().copied().collect();
    assert_eq!(unique.len(), rules.len(), "each id once");
    let cases: BTreeSet<&str> = CASES.iter().map(|case| case.0).collect();
    assert_eq!(cases, unique, "a rule without a test, or a test without a rule");
}

#[test]
fn every_rule_reports_its_case_only() {
    for (rule, speaks, silent) in CASES {
        let one = said(&speaks());
        let of = |all: &[Statement]| all.iter().filter(|one| one.rule == *rule).count();
        let texts = |all: &[Statement]| -> Vec<String> {
            all.iter().map(|one| format!("{}: {}", one.rule, one.text)).collect()
        };
        assert_eq!(of(&one), 1, "{rule} should apply once: {:#?}", texts(&one));
        let none = said(&silent());
        assert_eq!(of(&none), 0, "{rule} should be silent: {:#?}", texts(&none));
    }
}

#[test]
fn statements_are_complete_and_link_to_the_page() {
    for (rule, speaks, _) in CASES {
        let world = speaks();
        let page = crate::html::page(&world.record, &analyse(&world.record), &world.stacks);
        for one in said(&world) {
            let details = one.details.clone().unwrap_or("none".to_string());
            for text in [&one.text, &one.advice, &one.confidence.text, &details] {
                assert!(!text.is_empty() && !text.contains(['{', '}', '?']), "{rule}: {text:?}");
            }
            assert!(one.text.ends_with('.') && one.advice.ends_with('.'), "{rule}: {one:?}");
            assert!(!one.evidence.is_empty(), "{rule}: {one:?}");
            for anchor in one.evidence.iter().filter_map(|evidence| evidence.anchor.as_ref()) {
                assert!(
                    page.contains(&format!("id=\"{anchor}\"")),
                    "{rule}: no {anchor} on the page"
                );
            }
        }
    }
}

#[test]
fn expected_gain_is_a_measured_figure() {
    for rule in all() {
        assert_eq!(rule.expected.is_empty(), rule.expected_from.is_empty(), "{}", rule.id);
    }
    let bridge = CASES.iter().find(|case| case.0 == "bridge").unwrap();
    let said = said(&(bridge.1)());
    let one = said.iter().find(|one| one.rule == "bridge").unwrap();
    let figure = one.confidence.figure.unwrap();
    assert!((figure.value - 2.0).abs() < 0.2, "2 µs were put in: {figure:?}");
    assert!(figure.low <= 2.0 && 2.0 <= figure.high, "{figure:?}");
    let value = words::us(&figure);
    assert!(
        [&one.details, &one.expected].iter().all(|text| text.as_ref().unwrap().contains(&value)),
        "{one:?}"
    );
    let lead = format!("Bridge network: {} CPU per operation (+", words::us_change(figure.value));
    assert!(one.text.starts_with(&lead) && one.text.ends_with(" Use host networking."), "{one:?}");
    assert!(one.advice.contains("--network host"), "{one:?}");
}

#[test]
fn statements_are_ordered_by_kind_and_size() {
    let world = World::of(&[
        ("native", 10.0, |_| {}),
        ("box", 12.0, |spec| spec.network = "bridge".parse().unwrap()),
        ("small box", 13.0, |spec| {
            spec.network = "bridge".parse().unwrap();
            spec.cpu = "shared".parse().unwrap();
        }),
    ]);
    let said = said(&world);
    let rules: Vec<&str> = said.iter().map(|one| one.rule).collect();
    assert_eq!(rules[..2], ["bridge", "shared_cpus"], "{rules:?}");
    assert!(said.windows(2).all(|pair| pair[0].kind <= pair[1].kind));
}

#[test]
fn hostile_names_are_plain_text() {
    let world = World::of(&[
        ("native", 10.0, |_| {}),
        ("{cost} <b>\u{1b}[31m\u{202e}", 12.0, |spec| spec.network = "bridge".parse().unwrap()),
    ]);
    let said = said(&world);
    let one = said.iter().find(|one| one.rule == "bridge").unwrap();
    let details = one.details.as_ref().unwrap();
    assert!(details.contains("\"{cost} <b>"), "{details}");
    assert!(!details.contains(['\u{1b}', '\u{202e}']), "{details}");
    let analysis = analyse(&world.record);
    let page = crate::html::page(&world.record, &analysis, &world.stacks);
    assert!(!page.contains("<b>"), "escaped on the page");
    let text = crate::markdown::render(&world.record, &analysis, &[]);
    assert!(!text.contains("<b>"), "{text}");
}

#[test]
fn neighbours_name_what_got_through_and_its_channel() {
    let case = CASES.iter().find(|case| case.0 == "neighbours").unwrap();
    let all = said(&(case.1)());
    let one = all.iter().find(|one| one.rule == "neighbours").unwrap();
    let lead = "Neighbour \"burner\" (cpu, same CPUs) of \"box\": +";
    assert!(one.text.starts_with(lead), "{}", one.text);
    assert!(one.text.ends_with(" It waits for a CPU."), "{}", one.text);
    let details = one.details.as_ref().unwrap();
    assert!(details.contains("Counters: system_run_queue_wait_ns +"), "{details}");
    // Without a counter that rose, CPU time that rose is all that is known.
    let silent = (case.1)().slices("box", |_, slice| slice.counters.clear());
    let all = said(&silent);
    let one = all.iter().find(|one| one.rule == "neighbours").unwrap();
    let core = " Its instructions take longer: caches, memory or a core are shared.";
    assert!(!one.text.ends_with(core), "the wait for a CPU is not known: {}", one.text);
    let same = (case.1)().slices("box", |_, slice| {
        for counter in &mut slice.counters {
            counter.value = 100.0 * slice.operations as f64;
        }
    });
    let all = said(&same);
    let one = all.iter().find(|one| one.rule == "neighbours").unwrap();
    assert!(one.text.ends_with(core), "{}", one.text);
}

/// A layer without a rule is listed here with the reason.
#[test]
fn every_layer_has_a_rule_or_a_reason() {
    for layer in Layer::ALL {
        let reason = match layer {
            Layer::Host => Some("the rules of tuning compare an environment with its tuned copy"),
            Layer::Vm | Layer::Sandbox => {
                Some("options of one runtime, which the runtime's rules name")
            }
            Layer::Rootfs => {
                Some("it holds the programs, which are the same bytes in every environment")
            }
            Layer::Neighbours => {
                Some("the rules of neighbours compare each environment with its copy without them")
            }
            Layer::System => Some("what an option does depends on the system"),
            Layer::Instances => Some("the rules of instances compare all numbers of them"),
            _ => None,
        };
        let has_rule = super::layer_changes::LAYERS.iter().any(|rule| rule.layer == layer);
        assert_eq!(has_rule, reason.is_none(), "{layer}");
    }
}

/// The advice of a rule in a world whose load leaves all of its bytes on this device.
fn advice_over(rule: &str, world: World, device: &str) -> String {
    let (section, key) = tare_lab::analysis::CARDS_FACT;
    let mut world = world.slices("native", |_, slice| {
        let name = format!("system_net_{device}_in_bytes");
        slice.counters.push(Counter { name, value: 1e6 });
    });
    let fact = HostFact { section: section.into(), key: key.into(), value: "eth0".into() };
    world.record.host.push(fact);
    for one in world.record.environments.iter_mut().filter(|one| one.spec.name == "native") {
        one.spec.network = "host".parse().unwrap();
    }
    let said = said(&world);
    said.iter().find(|one| one.rule == rule).unwrap().advice.clone()
}

#[test]
fn network_cards_are_named_only_if_the_load_crosses_one() {
    for rule in ["retransmits", "device_interrupts", "interrupt_cpus"] {
        let world = || CASES.iter().find(|case| case.0 == rule).unwrap().1();
        let veth = advice_over(rule, world(), "tare_h");
        assert!(veth.contains("he load crosses no network card"), "{rule}: {veth}");
        assert!(!veth.contains("--only network"), "{rule}: {veth}");
        let card = advice_over(rule, world(), "eth0");
        assert!(!card.contains("crosses no network card"), "{rule}: {card}");
    }
}
