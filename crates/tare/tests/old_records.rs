//! Records that earlier programs wrote (`fixtures/records/schema-N.tare`): every command
//! reads them, with the figures of their own time.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{run_in, stderr, stdout};

/// The cost of "a proxy" in CPU per operation, as the programs that wrote the records printed it.
const SCHEMA_7: &str = "+62.0 % [60.7, 63.2]";
const SCHEMA_9: &str = "+63.7 % [62.3, 65.1]";

/// Copies the records to a folder: a record is brought up to date when it is read.
fn copies(to: &Path) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|ending| ending == "tare"));
    let mut copied: Vec<PathBuf> = files
        .map(|file| {
            let copy = to.join(file.file_name().unwrap());
            fs::copy(file, &copy).unwrap();
            copy
        })
        .collect();
    copied.sort();
    copied
}

fn succeeds(here: &Path, arguments: &[&str]) -> String {
    let output = run_in(here, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn old_records_open_with_their_figures() {
    let here = tempfile::tempdir().unwrap();
    let records = copies(here.path());
    assert!(records.len() >= 2);
    for record in &records {
        let name = record.to_str().unwrap();
        let json = succeeds(here.path(), &["report", name, "--json"]);
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        let text = succeeds(here.path(), &["report", name]);
        // The fake environment "a proxy" takes 12.96 µs instead of 8: 62 % more.
        let line = text.lines().find(|line| line.trim_start().starts_with("a proxy  ")).unwrap();
        let expected = if name.contains("schema-7") { SCHEMA_7 } else { SCHEMA_9 };
        assert!(line.contains(expected), "{name}: {line}");
        assert!(report.is_object(), "{name}");
        let page = format!("{name}.html");
        succeeds(here.path(), &["report", name, "--html", &page]);
        assert!(fs::metadata(&page).unwrap().len() > 50_000);
        let shared = format!("{name}.shared.tare");
        succeeds(here.path(), &["share", name, &shared]);
    }
    let names: Vec<&str> = records.iter().map(|record| record.to_str().unwrap()).collect();
    succeeds(here.path(), &[&["compare"], names.as_slice()].concat());
    let history = succeeds(here.path(), &[&["history"], names.as_slice()].concat());
    assert!(history.contains(&format!("fake: {} records", names.len())), "{history}");
}
