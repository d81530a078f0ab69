//! The live screen of the built program on a pseudo-terminal: it is entered and left, keys and
//! signals end the study, and the terminal is restored. All environments are fake.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::path::Path;

use common::terminal::{ENDLESS, ENTER, NEEDS, OnTerminal, endless, parts, render, size};
use common::{run_in, stderr, stdout};
use rustix::process::Signal;
use tare_testkit::skipped;

fn assert_readable(here: &Path) {
    let report = run_in(here, ["report", "out.tare"]);
    assert!(report.status.success(), "{}", stderr(&report));
    assert!(stdout(&report).contains("nothing again"), "{}", stdout(&report));
}

#[test]
fn the_summary_is_printed_after_the_screen_is_left() {
    if skipped("the_summary_is_printed_after_the_screen_is_left", &NEEDS) {
        return;
    }
    let here = tempfile::tempdir().unwrap();
    let run = OnTerminal::start(here.path(), &["weigh", "fake", "-o", "out.tare"], &[]);
    let (status, shown) = run.end();
    assert!(status.success(), "{shown}");
    let (screen, normal) = parts(&shown);
    assert!(render(screen).contains("Server CPU per operation, cost in %"), "{screen}");
    // First the lines of the run, then the report.
    let lines = normal.find("a proxy: ready").expect("lines are kept");
    let report = normal.find("How to read this").expect("the report is printed");
    assert!(lines < report && normal.contains("record: out.tare"), "{normal}");
}

#[test]
fn q_stops_the_study_and_keeps_the_record() {
    if skipped("q_stops_the_study_and_keeps_the_record", &NEEDS) {
        return;
    }
    let here = tempfile::tempdir().unwrap();
    endless(here.path());
    let mut run = OnTerminal::start(here.path(), &ENDLESS, &[]);
    run.wait_for("Last slices");
    // Keys without a meaning, then the views, then a terminal that is too small, then `q`.
    run.press("x\x1b[15~d");
    run.wait_for("Doubts: ");
    run.press("?");
    run.wait_for("redraw the screen");
    size(&run.slave, 30, 5);
    run.press("\x1b\x0c");
    run.wait_for("fake: measuring");
    run.press("q");
    let (status, shown) = run.end();
    assert_eq!(status.code(), Some(130), "{shown}");
    parts(&shown);
    assert_readable(here.path());
}

#[test]
fn signals_restore_the_terminal() {
    if skipped("signals_restore_the_terminal", &NEEDS) {
        return;
    }
    type Stop<'w> = (&'w str, &'w dyn Fn(&OnTerminal));
    let stops: [Stop<'_>; 3] = [
        ("Ctrl-C", &|run| run.press("\x03")),
        ("SIGTERM", &|run| run.signal(Signal::TERM)),
        ("two signals", &|run| {
            run.signal(Signal::INT);
            run.signal(Signal::TERM);
        }),
    ];
    for (name, end) in stops {
        let here = tempfile::tempdir().unwrap();
        endless(here.path());
        let mut run = OnTerminal::start(here.path(), &ENDLESS, &[]);
        run.wait_for("Last slices");
        end(&run);
        let (status, shown) = run.end();
        assert_eq!(status.code(), Some(130), "{name}: {shown}");
        parts(&shown);
        assert_readable(here.path());
    }
}

#[test]
fn the_screen_needs_a_capable_terminal() {
    if skipped("the_screen_needs_a_capable_terminal", &NEEDS) {
        return;
    }
    type Case<'c> = (&'c [&'c str], &'c [(&'c str, &'c str)], bool);
    let cases: [Case<'_>; 5] = [
        (&[], &[("NO_COLOR", "1")], true),
        (&["--progress", "screen"], &[], true),
        (&["--progress", "bar"], &[], false),
        (&["--progress", "lines"], &[], false),
        (&[], &[("TERM", "dumb")], false),
    ];
    for (arguments, environment, screen) in cases {
        let here = tempfile::tempdir().unwrap();
        let arguments = [&["weigh", "fake", "-o", "out.tare"], arguments].concat();
        let run = OnTerminal::start(here.path(), &arguments, environment);
        let (status, shown) = run.end();
        let case = format!("{arguments:?} {environment:?}:\n{shown}");
        assert!(status.success(), "{case}");
        assert_eq!(shown.contains(ENTER), screen, "{case}");
        assert!(shown.contains("record: out.tare"), "{case}");
        if environment.iter().any(|(name, _)| *name == "NO_COLOR") {
            let coloured = |code: &str| shown.contains(&format!("\x1b[{code}"));
            assert!(!["31m", "32m", "36m", "38;"].iter().any(|code| coloured(code)), "{case}");
        }
    }
    // A screen that was requested but cannot be shown gives the reason.
    let here = tempfile::tempdir().unwrap();
    let output = run_in(here.path(), ["weigh", "fake", "--progress", "screen"]);
    assert!(output.status.success());
    assert!(stderr(&output).contains("cannot open the screen: standard"), "{}", stderr(&output));
}
