//! Studies in a guest.

use std::path::Path;
use std::process::Output;

use tare_env::inside::{self, InsideError};
use tare_lab::record::Record;
use tare_testkit::{Need, Reason, skip, skipped};

use super::{run_in, stderr, stdout};

/// Returns whether such a guest cannot be started here; if so, reports the test as skipped.
pub(crate) fn cannot_start(test: &str, guest: &str) -> bool {
    let state = tempfile::tempdir().expect("a directory is created");
    // Only a boot shows that a user-mode kernel runs on this CPU.
    match inside::check(&guest.parse().expect("options of --inside"), state.path()) {
        Ok(()) => false,
        Err(InsideError::NoRoot) => skipped(test, &[Need::Root]),
        Err(InsideError::Needs(missing)) => {
            skip(test, Reason::unavailable(&missing.what, &missing.why));
            true
        }
        Err(error) => panic!("{test}: {error}"),
    }
}

/// Runs a study in a guest in a directory, to its end. Returns the output and the record. A guest
/// whose emulated CPUs got stuck is started once more.
pub(crate) fn weigh(here: &Path, guest: &str, study: &str) -> (Output, Record) {
    std::fs::write(here.join("study.toml"), study).expect("the study is written");
    let words = ["weigh", "--state", "state", "--inside", guest, "study.toml", "-o", "out.tare"];
    let mut output = run_in(here, words);
    if !output.status.success() && stderr(&output).contains("softlockup") {
        let _ = std::fs::remove_file(here.join("out.tare"));
        output = run_in(here, words);
    }
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    let record = Record::read(&here.join("out.tare")).expect("the record is whole");
    (output, record)
}
