//! `tare compare` through the built program, on records of fake environments, whose costs are
//! known.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;

use common::{run_in, stderr, stdout};

fn weigh(here: &Path, study: &str, seed: &str, file: &str) {
    let arguments = ["weigh", study, "--rounds", "12", "--seed", seed, "-o", file];
    let output = run_in(here, arguments);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn equal_costs_do_not_differ_but_prices_do() {
    let here = tempfile::tempdir().unwrap();
    weigh(here.path(), "fake", "1", "metal.tare");
    weigh(here.path(), "fake", "2", "cloud.tare");
    let compare = |extra: &[&str]| {
        let mut arguments = vec!["compare", "metal.tare", "cloud.tare"];
        arguments.extend(extra);
        run_in(here.path(), arguments)
    };
    let prices = ["--price", "metal=2USD/h", "--price", "B=4USD/h"];
    let output = compare(&[&prices[..], &["--json"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(document["schema"], "tare-comparison");
    let claimed = document["costs"].as_array().unwrap().iter().filter(|row| {
        let difference = &row["differences_to_first"][1];
        difference["found"] == true && difference["beyond_noise"] == true
    });
    assert_eq!(claimed.count(), 0, "{document:#}");
    let baseline =
        document["figures"].as_array().unwrap().iter().find(|row| row["baseline"] == true);
    let money = &baseline.unwrap()["records"][1]["operations_per_money_vs_first"];
    let (low, high) = (money["low"].as_f64().unwrap(), money["high"].as_f64().unwrap());
    assert!(low < 0.53 && high > 0.47 && high < 0.6, "{money}");
    assert_eq!(document["records"][1]["price_per_hour"], 4.0);

    let text = stdout(&compare(&prices));
    for part in
        ["no difference found (within", "op per USD", "A. metal.tare", "Hosts and studies differ"]
    {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert!(stdout(&compare(&["--markdown"])).contains("| --: |"));
    assert!(stdout(&compare(&["--csv"])).starts_with("record,name,workload"));
    for (extra, part) in [
        (&["--price", "C=1/h"][..], "none of the records"),
        (&["--price", "A=1"], "no price"),
        (&["--price", "A=1/h", "--price", "metal.tare=1/h"], "two prices"),
    ] {
        let output = compare(extra);
        assert_eq!(output.status.code(), Some(2), "{extra:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}

#[test]
fn environments_with_other_names_are_paired() {
    let here = tempfile::tempdir().unwrap();
    let study = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/fake.toml");
    let text = fs::read_to_string(study).unwrap();
    let slower = text.replace("\"30 % CPU, 20 % throughput\"", "\"new = 50 %\"");
    let slower = slower.replace("fake:cpu=1.3,throughput=0.8", "fake:cpu=1.5,throughput=0.8");
    fs::write(here.path().join("slower.toml"), slower).unwrap();
    weigh(here.path(), "fake", "1", "old.tare");
    weigh(here.path(), "slower.toml", "2", "new.tare");
    let compare = |pair: &str, extra: &[&str]| {
        let all = [&["compare", "old.tare", "new.tare", "--pair", pair], extra].concat();
        run_in(here.path(), all)
    };
    let pair = "30 % CPU, 20 % throughput = new = 50 %";
    let output = compare(pair, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let row = document["costs"].as_array().unwrap().iter().find(|row| row["environment"] == pair);
    let difference = &row.unwrap()["differences_to_first"][1];
    let (low, high) =
        (difference["percent"]["low"].as_f64(), difference["percent"]["high"].as_f64());
    // 1.5 over 1.3.
    assert!(low.unwrap() < 15.4 && high.unwrap() > 15.4, "{difference}");
    assert_eq!(difference["verdict"], "loss");
    assert_eq!(document["pairs"][0]["names"][1], "new = 50 %");
    assert_eq!(compare(pair, &["--fail-on", "rise"]).status.code(), Some(6));
    let wrong = compare("30 % CPU, 20 % throughput=nobody", &[]);
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
    assert!(stderr(&wrong).contains("B has \"nothing\""), "{}", stderr(&wrong));
}

#[test]
fn a_changed_study_is_reported_and_a_page_written() {
    let here = tempfile::tempdir().unwrap();
    let study = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/fake.toml");
    let text = fs::read_to_string(study).unwrap();
    assert!(text.contains("[[workload]]"));
    let changed = text.replacen("[[workload]]", "[[workload]]\nin_flight = 7", 1);
    fs::write(here.path().join("changed.toml"), changed).unwrap();
    weigh(here.path(), "fake", "1", "a.tare");
    weigh(here.path(), "changed.toml", "2", "b.tare");
    let output = run_in(here.path(), ["compare", "a.tare", "b.tare", "--html", "both.html"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("differs in in_flight"), "{}", stdout(&output));
    let page = fs::read_to_string(here.path().join("both.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("differs in in_flight"));
    assert!(page.contains("<svg"));
}
