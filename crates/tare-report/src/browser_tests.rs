//! Checks the pages in headless Chromium by `tests/browser` at the top of the repository, at the
//! width of a desktop and of a phone, light and dark. This module writes the pages.
//!
//! `TARE_SHOTS=DIR cargo test --package tare-report browser` keeps the pages and screenshots.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tare_lab::analysis::{Analysis, analyse};
use tare_lab::record::Record;
use tare_lab::stacks::{StackKind, StackSlice};

use crate::compare::Comparison;
use crate::fixture;
use crate::stacks::{Profile, Side};

/// The time limit; the suite's own limit is lower.
const TIME_MAX: Duration = Duration::from_secs(480);
/// Most bytes of the page of a long record.
const PAGE_BYTES_MAX: usize = 20_000_000;

const NASTY: &str = "</script><script>alert(1)</script>{{data}}<img src=x onerror=alert(2)>";

/// Pages in a folder, and the expectations on each.
struct Pages {
    folder: tempfile::TempDir,
    list: Vec<Value>,
}

impl Pages {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), list: Vec::new() }
    }

    fn add(&mut self, name: &str, html: &str, mut expected: Value) {
        let file = format!("{name}.html");
        std::fs::write(self.folder.path().join(&file), html).unwrap();
        if let Some(kept) = std::env::var_os("TARE_SHOTS") {
            std::fs::create_dir_all(&kept).unwrap();
            std::fs::write(Path::new(&kept).join(&file), html).unwrap();
        }
        expected["file"] = file.into();
        self.list.push(expected);
    }

    fn record(&mut self, name: &str, (record, analysis): (Record, Analysis), expected: Value) {
        self.add(name, &crate::html::page(&record, &analysis, &[]), expected);
    }

    fn flame_graph(&mut self, name: &str, title: &str, slices: &[StackSlice], expected: Value) {
        let side =
            |which: usize| Side::of(slices, StackKind::OnCpu, "write", &slices[which].environment);
        let profile = Profile::new(side(0), side(1)).unwrap();
        self.add(name, &crate::html::flamegraph(title, title, &profile), expected);
    }

    /// Whether the browser had no complaint, and its output.
    fn run_browser(self) -> (bool, String) {
        let list = self.folder.path().join("pages.json");
        std::fs::write(&list, Value::from(self.list).to_string()).unwrap();
        let output = self.folder.path().join("output");
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/browser/run");
        let log = std::fs::File::create(&output).unwrap();
        let mut command = Command::new(run);
        // The browser's profile is removed with the folder, even if its driver is killed.
        command.arg(list).stderr(log).env("TMPDIR", self.folder.path());
        let mut browser = Ended(command.spawn().unwrap());
        let started = Instant::now();
        let status = loop {
            if let Some(status) = browser.0.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < TIME_MAX, "the browser is not done after {TIME_MAX:?}");
            std::thread::sleep(Duration::from_millis(50));
        };
        (status.success(), std::fs::read_to_string(output).unwrap())
    }

    fn are_good(self) {
        let (good, output) = self.run_browser();
        assert!(good, "{output}");
    }
}

/// A process that is killed at the end of its test, and the browser with it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the tools are installed. If not, the test is skipped.
fn has_browser(test: &str) -> bool {
    let chromium = std::env::var("TARE_CHROMIUM").unwrap_or_else(|_| "chromium".into());
    for tool in [chromium.as_str(), "node", "npm"] {
        let there = Command::new("sh").args(["-c", "command -v \"$0\"", tool]).output();
        if !there.is_ok_and(|output| output.status.success()) {
            tare_testkit::skip(test, tare_testkit::Reason::not_installed(tool));
            return false;
        }
    }
    true
}

#[test]
fn pages_pass_in_the_browser() {
    if !has_browser("pages_pass_in_the_browser") {
        return;
    }
    let some = json!(["desk-light", "phone-dark"]);
    let mut pages = Pages::new();
    let (record, analysis) = fixture::quick();
    let mut stacks = fixture::stacks("docker-default", "");
    let another = fixture::stacks("+ cpuset", "").into_iter();
    stacks.extend(another.filter(|slice| slice.environment != "native"));
    pages.add("quick", &crate::html::page(&record, &analysis, &stacks), json!({}));
    let light = json!({ "views": ["desk-light"] });
    let dark = json!({ "views": ["phone-dark"] });
    pages.record("two-workloads", fixture::two_workloads(), light.clone());
    pages.record("sweep", fixture::sweep(), json!({ "views": some }));
    pages.record("instances", fixture::instances(), json!({ "views": some }));
    pages.record("by-second", fixture::by_second(), json!({ "views": some }));
    pages.record("running", fixture::running(), dark.clone());
    pages.record("empty", fixture::empty(), dark);
    let (explained, _) = fixture::explained_by_layer();
    let analysis = analyse(&explained);
    pages.record("explained", (explained, analysis), json!({ "views": some }));
    pages.flame_graph("flame", "quick", &stacks, json!({}));
    let prices = ["small=2.5USD/h", "large=3.2USD/h"].map(|price| price.parse().unwrap());
    let hosts = fixture::hosts();
    let comparison = Comparison::new(&hosts, &prices).unwrap();
    pages.add("hosts", &crate::html::comparison(&comparison), json!({ "views": some }));
    let entries = fixture::hosts().map(|(name, mut record, analysis)| {
        // One host, whose kernel changed.
        record.host.retain(|fact| fact.key != "host name");
        record.header.started_unix_ms += 1000 * u64::from(name.starts_with("large"));
        crate::history::Entry::new(&name, &record, &analysis)
    });
    let history = crate::history::History::new(entries.into(), Vec::new());
    pages.add("history", &crate::html::history(&history), json!({ "views": some }));
    pages.record("ten-hours", fixture::ten_hours(), light);
    pages.are_good();
}

#[test]
fn browser_shows_hostile_names_as_text() {
    if !has_browser("browser_shows_hostile_names_as_text") {
        return;
    }
    let never = json!(["img", "h1 ~ h1", "u", "i", "b", "[onload]", "[onerror]", "[src]"]);
    let mut pages = Pages::new();
    let texts = json!([
        "<script>alert('x')</script>",
        "\"onload=\"x long long",
        "\u{1f9a9}",
        "\u{5e9}\u{5dc}\u{5d5}\u{5dd} {{ 7*7 }} {% raw %} ]]> -->",
        "</td><b>",
        "<img src=x onerror=alert(1)>",
        "</title><script>alert(1)</script>",
        "$(rm -rf /) <b>",
        "<svg onload=alert(1)>",
        "<i>1 / 0</i>",
        "<u>",
    ]);
    let title = "quick: </title><script>alert(1)</script>";
    let views = json!(["desk-dark", "phone-light"]);
    let expected = json!({ "title": title, "texts": texts, "never": never, "views": &views });
    let (record, analysis) = fixture::hostile();
    let stacks = fixture::stacks("<script>alert('x')</script>", NASTY);
    pages.add("hostile", &crate::html::page(&record, &analysis, &stacks), expected);
    let expected = json!({ "title": NASTY, "texts": [NASTY], "never": never, "views": views });
    pages.flame_graph("hostile-flame", NASTY, &fixture::stacks(NASTY, NASTY), expected);
    pages.are_good();
}

/// Tests that the browser finds each kind of fault.
#[test]
fn browser_finds_every_fault() {
    if !has_browser("browser_finds_every_fault") {
        return;
    }
    let page = "<!doctype html><html lang=en><meta name=viewport content='width=device-width'>\
        <title>all wrong</title><body style='background: #fff'><h1>all wrong</h1>\
        <div style='width: 2000px'>too wide</div><p style='color: #ccc'>too pale</p>\
        <svg role=img aria-label=empty width=100 height=50><text y=20 fill=#ccc>pale</text></svg>\
        <canvas width=50 height=50></canvas><p><a id=x href='#y'>y</a> <i id=x>x</i><img src='http://127.0.0.1:9/gone.png'></p>\
        <script>console.warn('a warning'); alert('hello'); nobody();</script></html>";
    let mut pages = Pages::new();
    let expected = json!({ "views": ["desk-light"], "never": ["canvas"], "texts": ["not there"] });
    pages.add("wrong", page, expected);
    let (good, output) = pages.run_browser();
    assert!(!good, "{output}");
    for complaint in [
        "the page is 20",
        "chart \"empty\" has 0 visible shapes",
        "\" is blank",
        "in a drawing: pale",
        "axe color-contrast (serious",
        "axe image-alt (critical",
        "asks for http://127.0.0.1:9/gone.png",
        "console warning: a warning",
        "opens a dialog: hello",
        "uncaught: ReferenceError: nobody",
        "a link to #y leads nowhere",
        "two elements are called x",
        "has canvas: ",
        "does not say: not there",
    ] {
        assert!(output.contains(complaint), "no {complaint:?} in\n{output}");
    }
}

#[test]
fn a_long_record_gives_a_page_that_a_browser_can_hold() {
    let (record, analysis) = fixture::ten_hours();
    assert_eq!((record.environments.len(), record.slices.len()), (50, 1000));
    let page = crate::html::page(&record, &analysis, &[]);
    assert!(page.len() < PAGE_BYTES_MAX, "{} bytes", page.len());
    for environment in &record.environments {
        let name = &environment.spec.name;
        assert!(page.contains(name.as_str()), "{name}");
    }
}
