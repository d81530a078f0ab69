//! `--quick` and published relations through the built program, with fake environments, whose costs
//! are known.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use common::{run_in, stderr, stdout};
use serde_json::Value;

#[test]
fn the_quick_part_is_labelled_and_published_relations_have_verdicts() {
    let here = tempfile::tempdir().unwrap();
    let words = ["weigh", "fake", "--quick", "--seed", "1", "-o", "q.tare", "--state", "state"];
    let output = run_in(here.path(), words.iter().chain(&["--json"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let record: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let title = record["study"]["title"].as_str().unwrap();
    assert!(title.ends_with("(quick part)"), "{title}");
    assert_eq!(record["study"]["schedule"]["rounds"], 12);
    let names: Vec<&str> = record["study"]["environments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["nothing", "no cost", "30 % CPU, 20 % throughput"]);
    let left = record["study"]["quick"]["environments"].as_array().unwrap();
    assert!(left.iter().any(|name| name == "a proxy"), "{left:?}");
    let verdicts: Vec<&str> = record["published_relations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["verdict"]["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["confirmed", "contradicted"]);

    let message = stdout(&run_in(here.path(), ["report", "q.tare"]));
    for part in [
        "(quick part)",
        "Published relations and ours: 1 confirmed, 1 contradicted",
        "3 environments of the whole study: 3 % CPU, a proxy,",
    ] {
        assert!(message.contains(part), "{part:?} in {message}");
    }
    let page = std::fs::read_to_string(here.path().join("q.html")).unwrap();
    assert!(page.contains("id=\"published\"") && page.contains("of the whole study"));
}

#[test]
fn a_study_without_a_quick_part_refuses_the_flag() {
    let here = tempfile::tempdir().unwrap();
    let output = run_in(here.path(), ["weigh", "quick", "--quick"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(message.contains("the study has no quick part; add a table [quick]"), "{message}");
}
