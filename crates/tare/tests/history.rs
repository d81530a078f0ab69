//! `tare history` through the built program, on records of fake environments with known costs.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;

use common::{run_in, stderr, stdout};
use rusqlite::Connection;

const DAY_MS: i64 = 86_400_000;
/// Records before and after the upgrade that costs "no cost" 5 %.
const BEFORE: i64 = 9;
const AFTER: i64 = 3;

fn weigh(here: &Path, seed: i64) -> Connection {
    let (seed, file) = (seed.to_string(), format!("{seed:02}.tare"));
    let output = run_in(
        here,
        ["weigh", "fake", "--quick", "--rounds", "10", "--seed", &seed, "-o", file.as_str()],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    Connection::open(here.join(file)).unwrap()
}

/// A folder with a record of each day. The last ones have another kernel, and "no cost" uses 5 %
/// more CPU in them.
fn months(here: &Path) {
    for day in 0..BEFORE + AFTER {
        let record = weigh(here, day);
        let kernel = if day < BEFORE { "6.1.0" } else { "6.6.0" };
        record
            .execute("UPDATE record SET started_unix_ms = started_unix_ms + ?", [day * DAY_MS])
            .unwrap();
        record.execute("INSERT INTO host_facts VALUES ('kernel', 'release', ?)", [kernel]).unwrap();
        if day >= BEFORE {
            let sql = "UPDATE slices SET system_cpu_ns = CAST(system_cpu_ns * 1.05 AS INTEGER), \
                       busy_ns = CAST(busy_ns * 1.05 AS INTEGER) WHERE environment = \
                       (SELECT id FROM environments WHERE name = 'no cost')";
            record.execute(sql, []).unwrap();
        }
    }
}

fn history(here: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run_in(here, [&["history"], arguments].concat());
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn an_upgrade_that_costs_is_found_with_its_facts() {
    let here = tempfile::tempdir().unwrap();
    months(here.path());
    let (code, text, _) = history(here.path(), &[".", "--html", "all.html"]);
    assert_eq!(code, Some(0), "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "fake: 12 records",
        "\"no cost\" (write): cost in server CPU per operation changed by +",
        "(9 records before, 3 since)",
        "kernel release 6.1.0 → 6.6.0",
        "page: all.html",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let page = fs::read_to_string(here.path().join("all.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("6.6.0"));
    let (code, _, _) = history(here.path(), &[".", "--fail-on", "rise"]);
    assert_eq!(code, Some(6));
    let old: Vec<String> = (0..BEFORE).map(|day| format!("{day:02}.tare")).collect();
    let mut arguments: Vec<&str> = old.iter().map(String::as_str).collect();
    arguments.extend(["--fail-on", "change", "--json"]);
    let (code, text, _) = history(here.path(), &arguments);
    assert_eq!(code, Some(0), "no change without the upgrade: {text}");
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["schema"], "tare-history");
    assert_eq!(document["groups"][0]["records"].as_array().unwrap().len(), 9);
}

#[test]
fn formats_have_every_record() {
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("more")).unwrap();
    for seed in 0..2 {
        drop(weigh(here.path(), seed));
    }
    fs::rename(here.path().join("01.tare"), here.path().join("more/01.tare")).unwrap();
    fs::copy(here.path().join("00.tare"), here.path().join("copy.tare")).unwrap();
    let (code, text, _) = history(here.path(), &[".", "--csv"]);
    assert_eq!(code, Some(0));
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    assert!(head.starts_with("time,record,study,host,tare,kernel,versions,tuning,"), "{head}");
    for figure in ["server_cpu", "throughput", "p99", "p50", "p95"] {
        assert!(head.contains(&format!("write/no cost/{figure}_ratio")), "{head}");
    }
    assert!(!text.contains("nan"), "every record has every figure: {text}");
    assert_eq!(lines.clone().count(), 2, "a copy counts once: {text}");
    assert!(lines.all(|line| line.starts_with("2027.01.15 08:00:00 +0000,")), "{text}");
    let (_, text, _) = history(here.path(), &[".", "--prometheus"]);
    assert!(text.contains("tare_history_records{study=\"fake\""), "{text}");
    let (_, text, _) = history(here.path(), &["."]);
    assert!(text.contains("copy.tare is a copy of ./00.tare"), "{text}");
}

#[test]
fn a_damaged_record_is_named_and_the_rest_shown() {
    let here = tempfile::tempdir().unwrap();
    drop(weigh(here.path(), 0));
    fs::write(here.path().join("damaged.tare"), "no database").unwrap();
    let (code, text, errors) = history(here.path(), &["."]);
    assert_eq!(code, Some(3));
    assert!(errors.contains("./damaged.tare is not a record"), "{errors}");
    assert!(text.contains("fake: 1 record") && text.contains("Could not be read"), "{text}");
    let (code, _, errors) = history(here.path(), &["absent.tare"]);
    assert_eq!(code, Some(3));
    assert!(errors.contains("no record at absent.tare"), "{errors}");
    fs::create_dir(here.path().join("empty")).unwrap();
    let (code, _, errors) = history(here.path(), &["empty"]);
    assert_eq!(code, Some(3));
    assert!(errors.contains("no record (*.tare) in empty"), "{errors}");
}
