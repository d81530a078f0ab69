//! `tare share` through the built program.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;

use common::{run_in, stderr, stdout};
use rusqlite::Connection;

#[test]
fn a_shared_record_reports_the_same_figures() {
    let here = tempfile::tempdir().unwrap();
    let weigh = ["weigh", "fake", "--quick", "--seed", "3", "-o", "mine.tare"];
    let output = run_in(here.path(), weigh);
    assert!(output.status.success(), "{}", stderr(&output));
    let record = Connection::open(here.path().join("mine.tare")).unwrap();
    record
        .execute("INSERT INTO host_facts VALUES ('kernel', 'host name', 'zorgcorp-db7')", [])
        .unwrap();
    drop(record);
    let output = run_in(here.path(), ["share", "mine.tare"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "mine-shared.tare\n");
    let bytes = fs::read(here.path().join("mine-shared.tare")).unwrap();
    assert!(!bytes.windows(8).any(|window| window == b"zorgcorp"));
    for format in ["--figures-csv", "--csv", "--markdown", "--prometheus"] {
        let of = |file: &str| stdout(&run_in(here.path(), ["report", file, format]));
        let (mine, shared) = (of("mine.tare"), of("mine-shared.tare"));
        if format == "--markdown" {
            // It quotes the command, whose file name is gone.
            let figures = |text: &str| text.lines().filter(|l| l.starts_with('|')).count();
            assert_eq!(figures(&mine), figures(&shared));
        } else {
            assert_eq!(mine, shared, "{format}");
        }
    }
    let history = |file: &str| stdout(&run_in(here.path(), ["history", file, "--json"]));
    let series = |text: &str| {
        let document: serde_json::Value = serde_json::from_str(text).unwrap();
        let group = &document["groups"][0];
        (group["series"].to_string(), group["percentiles"].to_string())
    };
    let (mine, shared) = (series(&history("mine.tare")), series(&history("mine-shared.tare")));
    assert!(mine.0.contains("\"p99\"") && mine == shared, "{shared:?}");
    let output = run_in(here.path(), ["share", "mine.tare", "mine-shared.tare"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("exists already"), "{}", stderr(&output));
    let output = run_in(here.path(), ["share", "absent.tare"]);
    assert_eq!(output.status.code(), Some(3));
}
