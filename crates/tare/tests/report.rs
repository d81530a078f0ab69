//! `tare report` through the built program: each format parses, findings and an explanation are in
//! all of them, hostile names show as text, and bad flags are one line.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;

use common::{run_in, stderr, stdout};
use rusqlite::Connection;
use serde_json::Value;

/// Weighs the fake study for some rounds, with stacks.
fn weighed() -> tempfile::TempDir {
    let here = tempfile::tempdir().unwrap();
    let words = ["weigh", "fake", "--rounds", "12", "--seed", "1", "-o", "f.tare"];
    let extra = ["--stacks", "--stack-rounds", "3", "--stack-kinds", "on-cpu", "--state", "state"];
    let output = run_in(here.path(), words.iter().chain(&extra));
    assert!(output.status.success(), "{}", stderr(&output));
    here
}

fn report(here: &Path, file: &str, extra: &[&str]) -> String {
    let output = run_in(here, ["report", file].iter().chain(extra));
    assert!(output.status.success(), "{extra:?}: {}", stderr(&output));
    stdout(&output)
}

/// Parses CSV as in RFC 4180: commas between fields, CRLF or LF between lines, doubled quotes
/// inside quotes.
fn csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, quoted) {
            ('"', true) if letters.peek() == Some(&'"') => field.extend(letters.next()),
            ('"', _) => quoted = !quoted,
            (',', false) => row.push(std::mem::take(&mut field)),
            ('\r', false) => {}
            ('\n', false) => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            (letter, _) => field.push(letter),
        }
    }
    assert!(!quoted && field.is_empty() && row.is_empty(), "the last line is terminated");
    rows
}

/// Checks the text format of Prometheus line by line and returns the samples.
/// Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>.
fn prometheus(text: &str) -> Vec<(String, f64)> {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c))
    };
    let mut samples = Vec::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let kind = words.next().unwrap();
            assert!(["HELP", "TYPE"].contains(&kind) && is_name(words.next().unwrap()), "{line}");
            let rest = words.next().unwrap();
            assert!(kind == "HELP" || ["gauge", "summary", "counter"].contains(&rest), "{line}");
            continue;
        }
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(is_name(name), "{line}");
        let mut rest = &line[name.len()..];
        if rest.starts_with('{') {
            rest = labels(&rest[1..], &is_name);
        }
        let value: f64 = rest.trim().parse().unwrap_or_else(|_| panic!("no value in {line:?}"));
        samples.push((line[..line.len() - rest.len()].to_string(), value));
    }
    samples
}

/// Checks labels up to the closing brace and returns the text after it.
fn labels<'t>(text: &'t str, is_name: &dyn Fn(&str) -> bool) -> &'t str {
    let mut rest = text;
    loop {
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("labels of {text:?}"));
        assert!(is_name(name), "{name:?} in {text:?}");
        let mut escaped = false;
        let end = value.find(|c: char| {
            let ends = c == '"' && !escaped;
            assert!(!escaped || ['\\', '"', 'n'].contains(&c), "an escape in {text:?}");
            escaped = c == '\\' && !escaped;
            ends
        });
        rest = &value[end.unwrap_or_else(|| panic!("no end in {text:?}")) + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return rest.strip_prefix('}').unwrap_or_else(|| panic!("{text:?}")),
        }
    }
}

#[test]
fn columns_are_the_width_of_tables_in_a_pipe() {
    let here = weighed();
    let widest = |columns: &str| {
        let output = common::tare()
            .args(["report", "f.tare"])
            .current_dir(here.path())
            .env("COLUMNS", columns)
            .output()
            .unwrap();
        let text = stdout(&output);
        let rules = text.lines().filter(|line| line.starts_with('\u{2500}'));
        rules.map(|line| line.chars().count()).max().unwrap()
    };
    assert!(widest("100") <= 100);
    assert!(widest("100") < widest("200"));
    assert_eq!(widest("7"), widest("no number"), "no room, and no width");
}

#[test]
fn every_format_can_be_parsed() {
    let here = weighed();
    let json: Value = serde_json::from_str(&report(here.path(), "f.tare", &["--json"])).unwrap();
    assert_eq!(json["schema"], "tare-record");
    let slices = json["slices"].as_array().unwrap();

    let rows = csv(&report(here.path(), "f.tare", &["--csv"]));
    assert_eq!(rows.len(), slices.len() + 1, "a line for each slice, and the heading");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "the same number of fields in each");
    let at = rows[0].iter().position(|name| name == "operations").unwrap();
    assert_eq!(rows[1][at], slices[0]["operations"].to_string());

    let samples = prometheus(&report(here.path(), "f.tare", &["--prometheus"]));
    let names: std::collections::BTreeSet<&String> = samples.iter().map(|one| &one.0).collect();
    assert_eq!(names.len(), samples.len(), "each series once");
    assert!(names.iter().any(|name| name.starts_with("tare_cost_ratio{")));

    let markdown = report(here.path(), "f.tare", &["--markdown"]);
    assert!(markdown.starts_with("### fake"), "{markdown}");
    // A table is a run of consecutive lines that start with `|`.
    let lines: Vec<&str> = markdown.lines().collect();
    let tables = lines.split(|line| !line.starts_with('|')).filter(|table| !table.is_empty());
    let width = |line: &&str| line.replace("\\|", "").matches('|').count();
    let tables: Vec<Vec<usize>> = tables.map(|table| table.iter().map(width).collect()).collect();
    assert_eq!(tables.len(), 2, "costs, and published relations: {markdown}");
    for table in tables {
        assert!(table.len() > 2 && table.iter().all(|one| *one == table[0]), "{markdown}");
    }

    let fleet = report(here.path(), "f.tare", &["--fleet", "nodes=60,price=4.99USD/h"]);
    assert!(fleet.contains("USD") && fleet.contains("a proxy"), "{fleet}");
}

#[test]
fn findings_are_in_every_format_and_link_to_their_evidence() {
    let here = weighed();
    let json: Value = serde_json::from_str(&report(here.path(), "f.tare", &["--json"])).unwrap();
    let statements = json["statements"].as_array().unwrap();
    let proxy = statements.iter().find(|one| one["rule"] == "published_by_proxy").unwrap();
    let value = proxy["sureness"]["figure"]["value"].as_f64().unwrap();
    assert!((value - 5.0).abs() < 0.3, "5 µs were injected: {proxy:#}");
    let text = proxy["text"].as_str().unwrap();
    let evidence = proxy["evidence"].to_string();
    assert!(evidence.contains("userland proxy"), "the stacks are named as evidence: {evidence}");
    // The formats break lines differently.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let terminal = report(here.path(), "f.tare", &[]);
    assert!(words(&terminal).contains(&words(text)), "{terminal}");
    let markdown = report(here.path(), "f.tare", &["--markdown"]);
    assert!(markdown.contains("Findings:") && markdown.contains("userland"), "{markdown}");
    let page = report(here.path(), "f.tare", &["--html", "-"]);
    assert!(page.contains("id=\"findings\""));
    for anchor in statements
        .iter()
        .flat_map(|one| one["evidence"].as_array().unwrap())
        .filter_map(|evidence| evidence["anchor"].as_str())
    {
        assert!(page.contains(&format!("href=\"#{anchor}\"")), "no link to {anchor}");
        assert!(page.contains(&format!("id=\"{anchor}\"")), "no {anchor}");
    }
}

#[test]
fn an_explanation_is_in_every_format_of_its_record() {
    let here = tempfile::tempdir().unwrap();
    let words = ["explain", "fake", "--to", "a proxy and 10 % CPU, pinned", "--seed", "2"];
    let output = run_in(here.path(), words.iter().chain(&["-o", "x.tare", "--state", "state"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let first = stdout(&output);
    assert!(
        first.contains("Findings") && first.contains("Port published by a userland proxy: +"),
        "{first}"
    );
    let sum = first.lines().find(|line| line.starts_with("The shares add up")).unwrap();
    let terminal = report(here.path(), "x.tare", &[]);
    assert!(terminal.contains(sum), "{terminal}");
    let markdown = report(here.path(), "x.tare", &["--markdown"]);
    assert!(
        markdown.contains("The shares add up") && markdown.contains("| network |"),
        "{markdown}"
    );
    let json: Value = serde_json::from_str(&report(here.path(), "x.tare", &["--json"])).unwrap();
    let found = &json["explanation"]["workloads"][0]["explanation"];
    assert_eq!(found["shares"].as_array().unwrap().len(), 3, "{found:#}");
    assert!(json["explanation"]["plan"]["orders"].is_array());
    let statements = json["statements"].to_string();
    assert!(statements.contains("share of network"), "{statements}");
    let output = run_in(here.path(), ["explain", "x.tare", "--csv"]);
    let rows = csv(&stdout(&output));
    let at = |name: &str| rows[0].iter().position(|one| one == name).unwrap();
    let us = |row: &Vec<String>| row[at("us_per_operation")].parse::<f64>().unwrap();
    let of = |kind: &str| rows.iter().filter(|row| row[1] == kind).map(us).sum::<f64>();
    assert!((of("share") - of("whole")).abs() < 0.001, "{rows:?}");
}

/// Hostile names: markup, a line break, a very long name, an emoji, right-to-left text.
const NASTY: [(&str, &str); 3] = [
    ("a proxy", "<script>alert('x')</script> | `x` @you #1"),
    ("3 % CPU", "\u{1f9a9} \u{202e}drowssap\u{202c} \u{1b}[31mred\nnew line \\ \"quoted\""),
    ("no cost", "\u{5e9}\u{5dc}\u{5d5}\u{5dd} {{ 7*7 }} {% raw %}"),
];

fn rename_to_hostile(here: &Path) {
    let record = Connection::open(here.join("f.tare")).unwrap();
    let long = "x".repeat(300);
    let names = NASTY
        .iter()
        .map(|(old, new)| (*old, *new))
        .chain([("30 % CPU, 20 % throughput", long.as_str())]);
    for (old, new) in names {
        let sql = "UPDATE environments SET name = ? WHERE name = ?";
        assert_eq!(record.execute(sql, [new, old]).unwrap(), 1, "{old}");
        // The study is stored as one JSON value.
        let quoted = |name: &str| serde_json::to_string(name).unwrap();
        let sql = "UPDATE record SET study = replace(study, ?, ?)";
        record.execute(sql, [quoted(old), quoted(new)]).unwrap();
    }
}

#[test]
fn hostile_names_show_as_text_in_every_format() {
    let here = weighed();
    rename_to_hostile(here.path());
    let form = |extra: &[&str]| report(here.path(), "f.tare", extra);
    for extra in [&[][..], &["--counters"], &["--stacks"], &["--fleet", "nodes=60"]] {
        let text = form(extra);
        let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(steers), "{extra:?}: {text}");
        assert!(text.contains("<script>"), "{extra:?}: a terminal has no markup to escape\n{text}");
    }
    let page = form(&["--html", "-"]);
    assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert"));
    if let Some(at) = page.find(['\u{1b}', '\u{202e}']) {
        panic!(
            "{:?}",
            &page[page.floor_char_boundary(at - 100)..page.ceil_char_boundary(at + 100)]
        );
    }
    let markdown = form(&["--markdown"]);
    assert!(
        !markdown.contains("<script") && !markdown.contains(['\u{1b}', '\u{202e}']),
        "{markdown}"
    );
    assert!(!markdown.contains(" @you") && !markdown.contains(" #1"), "{markdown}");
    let samples = prometheus(&form(&["--prometheus"]));
    assert!(samples.iter().any(|one| one.0.contains("\\\"quoted\\\"")), "escaped, not lost");
    let rows = csv(&form(&["--csv"]));
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    assert!(rows.iter().flatten().any(|cell| cell.contains("new line")), "one field, two lines");
    let json: Value = serde_json::from_str(&form(&["--json"])).unwrap();
    let names = json["environments"].to_string();
    assert!(names.contains("drowssap") && json["environments"].as_array().unwrap().len() > 4);
}

#[test]
fn bad_flags_are_one_line_and_keep_the_record() {
    let here = weighed();
    let before = fs::read(here.path().join("f.tare")).unwrap();
    for (extra, exit, part) in [
        (&["--markdown", "--json"][..], 2, "--json"),
        (&["--prometheus", "--csv"], 2, "--csv"),
        (&["--fleet", "nodes=0"], 2, "nodes"),
        (&["--fleet", "nodes=6,price=cheap"], 2, "price"),
        (&["--yaml"], 2, "--yaml"),
        (&["--from", "native"], 2, "--stacks"),
        (&["--html", "missing/p.html"], 1, "missing/p.html"),
    ] {
        let output = run_in(here.path(), ["report", "f.tare"].iter().chain(extra));
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(exit), "{extra:?}: {text}");
        assert!(text.contains(part) && stdout(&output).is_empty(), "{extra:?}: {text}");
        let ours =
            text.lines().filter(|line| line.starts_with("error") || line.starts_with("tare:"));
        assert_eq!(ours.count(), 1, "{extra:?}: {text}");
    }
    assert_eq!(fs::read(here.path().join("f.tare")).unwrap(), before);
}
