//! `tare check` through the built program, on fake environments, whose costs are known.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;

use common::{run_in, stderr, stdout};

const THIRTY: &str = "30 % CPU, 20 % throughput";

fn check(here: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run_in(here, [&["check"], arguments].concat());
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn a_study_runs_and_its_costs_are_checked() {
    let here = tempfile::tempdir().unwrap();
    let budget = format!("{THIRTY}: cpu <= 50 %, throughput <= 40 %");
    let study = ["fake", "--quick", "--seed", "1", "-o", "good.tare", "--budget", &budget];
    let (code, text, errors) = check(here.path(), &study);
    assert_eq!(code, Some(0), "{text}{errors}");
    assert!(text.contains("0 beyond, 0 undecided, 2 within"), "{text}");
    assert!(text.ends_with("record: good.tare\n"), "{text}");

    let low = format!("{THIRTY}: cpu <= 20 %");
    let files = ["--junit", "junit.xml", "--code-quality", "quality.json", "--annotate", "github"];
    let (code, text, _) =
        check(here.path(), &[&["good.tare", "--budget", low.as_str()], &files[..]].concat());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.starts_with("BEYOND") && text.contains("\n::error title="), "{text}");
    let junit = fs::read_to_string(here.path().join("junit.xml")).unwrap();
    assert!(junit.contains("failures=\"1\""), "{junit}");
    let quality = fs::read_to_string(here.path().join("quality.json")).unwrap();
    let quality: serde_json::Value = serde_json::from_str(&quality).unwrap();
    assert_eq!(quality[0]["location"]["path"], "good.tare");

    let at_the_limit = format!("{THIRTY}: cpu <= 31 %");
    let (code, text, _) = check(here.path(), &["good.tare", "--budget", &at_the_limit]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("the limit is inside the interval"), "{text}");

    // A later run against the first: nothing rose.
    let later = ["fake", "--quick", "--seed", "2", "--against", "good.tare", "--markdown"];
    let (code, text, errors) = check(here.path(), &later);
    assert_eq!(code, Some(0), "{text}{errors}");
    assert!(text.starts_with("### tare check: 0 beyond") && text.contains("cpu rise"), "{text}");
}

#[test]
fn a_study_runs_until_its_budgets_are_decided_or_its_time_is_over() {
    let here = tempfile::tempdir().unwrap();
    let checked = |limit: &str, extra: &[&str]| {
        let budget = format!("{THIRTY}: cpu <= {limit} %");
        let all = [&["fake", "--seed", "5", "--json", "--budget", &budget], extra].concat();
        let (code, text, errors) = check(here.path(), &all);
        let document: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{errors}"));
        (code, document)
    };
    // The study has 40 rounds, the least before a look.
    let (code, document) = checked("80", &["-o", "clear.tare"]);
    assert_eq!((code, &document["blocks"]), (Some(0), &40.into()), "{document:#}");
    // The time is that of the fake host's own clock.
    let (code, document) = checked("30.5", &["-o", "near.tare", "--time", "10m"]);
    assert!(document["blocks"].as_u64().unwrap() > 45, "{document:#}");
    assert!(matches!(code, Some(0 | 2)), "{document:#}");
    let (code, document) = checked("30.05", &["-o", "short.tare", "--rounds", "12"]);
    assert_eq!((code, &document["blocks"]), (Some(2), &12.into()), "{document:#}");
    let (code, document) = checked("30.05", &["-o", "time.tare", "--time", "2m"]);
    assert_eq!(code, Some(2), "{document:#}");
    assert!((2..30).contains(&document["blocks"].as_u64().unwrap()), "{document:#}");
    let text = document["costs"][0]["text"].as_str().unwrap();
    assert!(text.contains("rounds would tell"), "{text}");
}

#[test]
fn wrong_budgets_and_records_are_refused_before_the_study() {
    let here = tempfile::tempdir().unwrap();
    for (arguments, exit, part) in [
        (&["fake"][..], 3, "--budget"),
        (&["fake", "--budget", "all: cpu < 3"], 3, "is no limit"),
        (&["absent.tare", "--budget", "all: cpu <= 3 %"], 3, "no record at absent.tare"),
        (&["fake", "--against", "absent.tare"], 3, "no record at absent.tare"),
        (&["absent", "--budget", "all: cpu <= 3 %"], 3, "cannot read the study absent"),
        (&["fake", "--budget", "nobody: cpu <= 3 %"], 3, "nobody"),
    ] {
        let (code, _, errors) = check(here.path(), arguments);
        assert_eq!(code, Some(exit), "{arguments:?}: {errors}");
        assert!(errors.contains(part), "{arguments:?}: {errors}");
    }
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "no study has started");
}
