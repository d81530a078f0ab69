//! An explained record as text in Unicode and ASCII, and on the page.

use tare_lab::ablation::explain;
use tare_lab::analysis::analyse;

use super::*;
use crate::fixture;

#[test]
fn text_names_shares_sum_noise_and_joint_steps() {
    let (record, plan) = fixture::explained();
    let analysis = analyse(&record);
    let text = render(&record, &analysis, &plan, &[], Style::new(false, 160));
    for part in [
        "Where does the cost of \"docker-default\" against \"native\" come from?",
        "cannot be separated here and are one step",
        "The shares add up: ",
        "A/A control: ",
        "µs per operation",
        "costs the most",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let ascii = Style { ascii: true, ..Style::new(false, 80) };
    let text = render(&record, &analysis, &plan, &[], ascii);
    assert!(text.is_ascii(), "{text}");
    let again: Value = serde_json::from_str(&json(&record, &analysis, &plan, &[])).unwrap();
    let found = explain(&record, &plan, &record.study.workloads[0].name).unwrap();
    assert_eq!(again["workloads"][0]["explanation"]["blocks"], found.rounds);
}

#[test]
fn page_has_waterfall_without_plan() {
    let (record, _) = fixture::explained();
    let page = crate::html::page(&record, &analyse(&record), &[]);
    assert!(page.contains("id=\"explanation\"") && page.contains("id=\"waterfall-0-t\""));
    assert!(!page.contains("orders_possible"));
    let (plain, analysis) = fixture::quick();
    assert!(!crate::html::page(&plain, &analysis, &[]).contains("id=\"explanation\""));
}

#[test]
fn hostile_names_are_escaped() {
    let (mut record, mut plan) = fixture::explained();
    record.host.pop();
    plan.from = "<script>alert(1)</script>\u{1b}[31m".into();
    record.host.push(plan.fact());
    let page = crate::html::page(&record, &analyse(&record), &[]);
    assert!(!page.contains("<script>alert"));
    let text = render(&record, &analyse(&record), &plan, &[], Style::new(false, 100));
    assert!(!text.contains('\u{1b}'));
    assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
}
