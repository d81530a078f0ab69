//! Runs `xtask calibrate` for real: one short campaign on this machine, its lines, its summary, and
//! `--resume`. The accuracy of the figures is not tested, because other tests run at the same time.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tare_testkit::{Need, Reason, skip, skipped};

fn xtask(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).arg("calibrate").args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_campaign_runs_once_and_is_summarized() {
    let test = "a_campaign_runs_once_and_is_summarized";
    let program = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("tare");
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    if !program.exists() {
        return skip(test, Reason::not_installed("tare, built next to xtask,"));
    }
    let here = tempfile::tempdir().unwrap();
    let out = here.path().join("c.jsonl");
    let [out_text, program] = [&out, &program].map(|path| path.to_str().unwrap());
    let run = ["--out", out_text, "--program", program, "--kinds", "busy,explain"];
    let run = [&run[..], &["--campaigns", "1", "--budget-each", "15s"]].concat();
    let output = xtask(&run);
    assert!(output.status.success(), "{}", text(&output.stderr));

    let lines = fs::read_to_string(&out).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let printed = text(&output.stderr);
    let large = lines.iter().find(|line| line["environment"] == "busy 4 us");
    let large = large.unwrap_or_else(|| panic!("no such line; {printed}"));
    assert!(large["value"].as_f64().unwrap() > 0.0, "4 µs more are found: {large}");
    let truth = 4_000.0 / 10.0 / large["baseline"].as_f64().unwrap();
    // The line has four decimals of each: for a baseline of 0.5 µs or more that is 1 in 10,000.
    let printed_truth = large["truth"].as_f64().unwrap();
    assert!((printed_truth / truth - 1.0).abs() < 2e-4, "{large}");
    let control = lines.iter().find(|line| line["environment"] == "native again").unwrap();
    assert_eq!(control["truth"], 0.0);
    let explained = lines.iter().find(|line| line["kind"] == "explain");
    let explained = explained.unwrap_or_else(|| panic!("nothing was explained; {printed}"));
    assert!(explained["named"].is_string(), "{explained}");

    let summary = text(&xtask(&["--summary", "--out", out_text]).stdout);
    assert!(
        summary.contains("| busy | busy 4 us |") && summary.contains("named first"),
        "{summary}"
    );

    let again = xtask(&run);
    assert!(!again.status.success() && text(&again.stderr).contains("--resume"));
    let before = fs::read_to_string(&out).unwrap();
    let resumed = xtask(&[&run[..], &["--resume"]].concat());
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    assert_eq!(fs::read_to_string(&out).unwrap(), before, "all campaigns were there");
}
