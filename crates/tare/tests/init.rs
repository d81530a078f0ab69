//! `tare init study`: what it writes can be planned for each database that is installed here, and
//! one of them is run.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::path::Path;
use std::process::Output;

use common::{stderr, stdout, tare};
use tare_testkit::{Need, skipped};

const PROGRAMS: [(&str, &str); 5] = [
    ("redis", "redis-server"),
    ("postgres", "pgbench"),
    ("mariadb", "mariadbd"),
    ("memcached", "memcached"),
    ("tare-db", "ip"),
];

fn run(folder: &Path, words: &[&str]) -> Output {
    let mut command = tare();
    command.args(["--state", "state"]).args(words).current_dir(folder);
    command.output().unwrap()
}

#[test]
fn written_studies_can_be_planned() {
    for (system, program) in PROGRAMS {
        let test = format!("written_studies_can_be_planned: {system}");
        let needs = [Need::Root, Need::Program("runc"), Need::Program(program)];
        if skipped(&test, &needs)
            || (system == "mariadb" && skipped(&test, &[Need::Program("sysbench")]))
        {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let written = run(folder.path(), &["init", "study", system, "-o", "mine.toml"]);
        assert!(written.status.success(), "{}", stderr(&written));
        let text = stdout(&written);
        assert!(text.contains("tare weigh mine.toml --quick"), "{text}");
        let plan = run(folder.path(), &["weigh", "mine.toml", "--dry-run"]);
        assert!(plan.status.success(), "{system}: {}{}", stdout(&plan), stderr(&plan));
        assert!(stdout(&plan).contains("container default"), "{}", stdout(&plan));
    }
}

#[test]
fn written_study_runs_unchanged() {
    let needs = [Need::Root, Need::Program("runc"), Need::Program("redis-server")];
    if skipped("written_study_runs_unchanged", &needs) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(run(folder.path(), &["init", "study", "redis"]).status.success());
    let words = ["weigh", "study.toml", "--quick", "--rounds", "2", "--json"];
    let weighed = run(folder.path(), &words);
    assert!(weighed.status.success(), "{}", stderr(&weighed));
    let record: serde_json::Value = serde_json::from_str(&stdout(&weighed)).unwrap();
    let slices = record["slices"].as_array().unwrap();
    let measured = slices.iter().filter(|slice| slice["void"].is_null()).count();
    assert!(measured > 0, "{}", stderr(&weighed));
}

#[test]
fn bad_words_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let said = |words: &[&str]| {
        let output = run(folder.path(), words);
        let text = stderr(&output);
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        (output.status.code(), text)
    };
    let (code, text) = said(&["init", "study", "rediss"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("no study can be written for the system \"rediss\""), "{text}");
    assert!(text.contains("redis, valkey, postgres"), "{text}");
    std::fs::write(folder.path().join("study.toml"), "mine").unwrap();
    let (_, text) = said(&["init", "study", "tare-db"]);
    assert!(text.contains("study.toml exists; name another file with --output"), "{text}");
    let kept = std::fs::read_to_string(folder.path().join("study.toml")).unwrap();
    assert_eq!(kept, "mine");
    let (_, text) = said(&["init", "study", "tare-db", "-o", "no/such/folder.toml"]);
    assert!(text.contains("cannot write no/such/folder.toml: No such file"), "{text}");
    let printed = run(folder.path(), &["init", "study", "tare-db", "-o", "-"]);
    assert!(stdout(&printed).contains("[[environment]]"), "{}", stdout(&printed));
}
