//! Compares every format with its golden file in `tests/golden`. After an intended change run
//! `SNAPSHOTS=overwrite cargo test --package tare-report` and read the difference.

use std::path::Path;

use tare_lab::analysis::Analysis;
use tare_lab::record::Record;

use crate::fixture;
use crate::terminal::Style;

fn check(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    tare_testkit::golden(&folder.join(name), text);
}

type Fixture = fn() -> (Record, Analysis);
const FIXTURES: [(&str, Fixture); 6] = [
    ("quick", fixture::quick),
    ("two-workloads", fixture::two_workloads),
    ("running", fixture::running),
    ("single-round", fixture::single_round),
    ("empty", fixture::empty),
    ("hostile", fixture::hostile),
];

#[test]
fn terminal() {
    for (name, make) in FIXTURES {
        let (record, analysis) = make();
        check(
            &format!("{name}.txt"),
            &crate::terminal::render(&record, &analysis, &[], Style::new(false, 120)),
        );
    }
    let (record, analysis) = fixture::quick();
    for (name, width, ascii) in [("wide", 220, false), ("narrow", 100, false), ("ascii", 100, true)]
    {
        let style = Style { colour: false, width, ascii };
        check(
            &format!("quick-{name}.txt"),
            &crate::terminal::render(&record, &analysis, &[], style),
        );
    }
    let lines = crate::terminal::costs_so_far(&analysis, Style::new(false, 120));
    check("quick-so-far.txt", &(lines.join("\n") + "\n"));
}

#[test]
fn counters() {
    for (name, make) in FIXTURES {
        let (record, _) = make();
        let text = crate::counters::terminal(&record, Style::new(false, 120));
        check(&format!("{name}-counters.txt"), &text);
    }
}

#[test]
fn html() {
    for (name, make) in FIXTURES {
        let (record, analysis) = make();
        let page = crate::html::page(&record, &analysis, &[]);
        check(&format!("{name}.html"), &without_code(&page));
    }
}

/// A page without its style and scripts, which have their own files, but with its data.
fn without_code(page: &str) -> String {
    let mut short = String::new();
    let mut rest = page;
    while let Some(at) = ["<style>", "<script>"].iter().filter_map(|tag| rest.find(tag)).min() {
        let (before, code) = rest.split_at(at);
        let end = code.find("</").unwrap();
        short.push_str(before);
        short.push_str(&code[..code.find('>').unwrap() + 1]);
        rest = &code[end..];
        let closes = rest.find('>').unwrap() + 1;
        short.push_str(&rest[..closes]);
        rest = &rest[closes..];
    }
    short.push_str(rest);
    // The policy names the scripts by their hashes.
    let (before, hashes) = short.split_once("script-src ").unwrap();
    let (_, after) = hashes.split_once(';').unwrap();
    format!("{before}script-src ...;{after}")
}

#[test]
fn json_and_csv() {
    // One round is enough to guard the schema.
    for (name, make) in
        [("single-round", fixture::single_round as Fixture), ("empty", fixture::empty)]
    {
        let (record, analysis) = make();
        check(&format!("{name}.json"), &(crate::json::render(&record, &analysis, &[]) + "\n"));
        check(&format!("{name}.csv"), &crate::csv::render(&record));
    }
}

#[test]
fn by_second() {
    let (record, analysis) = fixture::by_second();
    let style = Style::new(false, 120);
    check("by-second.txt", &crate::terminal::render(&record, &analysis, &[], style));
    check("by-second.md", &crate::markdown::render(&record, &analysis, &[]));
    let page = crate::html::page(&record, &analysis, &[]);
    let from = page.find("<h3>Every second at the fixed").unwrap();
    let end = from + page[from..].find("<h3>Every second at c").unwrap();
    check("by-second.html", &page[from..end]);
    let json = crate::json::render(&record, &analysis, &[]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    check("by-second.json", &format!("{:#}\n", json["by_second"][0]));
}

#[test]
fn instances() {
    let (record, analysis) = fixture::instances();
    let style = Style::new(false, 120);
    check("instances.txt", &crate::terminal::render(&record, &analysis, &[], style));
    check("instances.md", &crate::markdown::render(&record, &analysis, &[]));
    let page = crate::html::page(&record, &analysis, &[]);
    let from = page.find("<section id=\"instances\"").unwrap();
    let end = from + page[from..].find("</section>").unwrap();
    check("instances.html", &format!("{}</section>\n", &page[from..end]));
    let json = crate::json::render(&record, &analysis, &[]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    check("instances.json", &format!("{:#}\n", json["instances"]));
}

#[test]
fn interrupts_by_cpu() {
    let (record, analysis) = fixture::interrupts();
    let page = crate::html::page(&record, &analysis, &[]);
    let from = page.find("<details><summary>Interrupts by CPU").unwrap();
    let end = from + page[from..].find("</details>").unwrap();
    check("interrupts.html", &format!("{}</details>\n", &page[from..end]));
    let json = crate::json::render(&record, &analysis, &[]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    check("interrupts.json", &format!("{:#}\n", json["interrupts_by_cpu"]));
}

#[test]
fn markdown_and_prometheus() {
    for (name, make) in FIXTURES {
        let (record, analysis) = make();
        check(&format!("{name}.md"), &crate::markdown::render(&record, &analysis, &[]));
        check(&format!("{name}.prom"), &crate::prometheus::render(&record, &analysis));
    }
}

#[test]
fn fleet() {
    let style = Style::new(false, 120);
    let priced = "nodes=60,price=4.99USD/h".parse().unwrap();
    for (name, make) in FIXTURES {
        let (record, analysis) = make();
        let text = crate::fleet::render(&priced, &record, &analysis, style);
        check(&format!("{name}-fleet.txt"), &text);
    }
    let (record, analysis) = fixture::quick();
    let text = crate::fleet::render(
        &"nodes=5".parse().unwrap(),
        &record,
        &analysis,
        Style::new(false, 80),
    );
    check("quick-fleet-narrow.txt", &text);
}

#[test]
fn comparison() {
    let (before, analysis) = fixture::quick();
    let (mut after, mut slower) = fixture::two_workloads();
    after.host[3].value = "6.19.2".to_string();
    after.header.seed += 1;
    after.study.workloads[0].in_flight = 128;
    slower.findings.retain(|finding| finding.environment != "+ no cgroup");
    let records =
        [("before.tare".to_string(), before, analysis), ("after.tare".to_string(), after, slower)];
    check_comparison("compare", &records, &[]);
}

#[test]
fn comparison_of_hosts() {
    check_comparison("hosts", &fixture::hosts(), &["small=2.5USD/h", "B=3.2USD/h"]);
}

fn check_comparison(name: &str, records: &[crate::compare::Named], prices: &[&str]) {
    let prices: Vec<_> = prices.iter().map(|price| price.parse().unwrap()).collect();
    let comparison = crate::compare::Comparison::new(records, &prices).unwrap();
    let style = Style::new(false, 120);
    check(&format!("{name}.txt"), &crate::compare::terminal(&comparison, style));
    check(&format!("{name}.json"), &(crate::compare::json(&comparison) + "\n"));
    check(&format!("{name}.md"), &crate::compare::markdown(&comparison));
    check(&format!("{name}.csv"), &crate::compare::csv(&comparison));
    check(&format!("{name}.html"), &without_code(&crate::html::comparison(&comparison)));
}
