//! Bad input to the built program: one clear line, the documented exit code, and no lost data.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use common::{run_in, stderr, stdout};
use tare_testkit::host_state::HostState;
use tare_testkit::{Need, skipped};

const STUDY: &str = r#"name = "t"
baseline = "native"
[system]
name = "tare-db"
[[environment]]
name = "native"
runtime = "process"
"#;

/// Runs the program and checks its exit code and that stderr holds every one of `wanted`.
fn check(directory: &Path, arguments: &[&str], exit: i32, wanted: &[&str]) -> Output {
    let output = run_in(directory, arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {text}");
    for part in wanted {
        assert!(text.contains(part), "{arguments:?}: {part:?} is not in:\n{text}");
    }
    output
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    let here = scratch();
    check(here.path(), &[], 2, &["Usage"]);
    check(here.path(), &["wiegh"], 2, &["wiegh", "weigh"]);
    check(here.path(), &["weigh", "--budget", "soon"], 2, &["--budget", "400ms or 5m"]);
    check(here.path(), &["weigh", "--rounds", "0"], 2, &["--rounds"]);
    check(here.path(), &["compare", "one.tare"], 2, &["FILE.tare"]);
    check(here.path(), &["db", "--data", "d", "--durability", "never"], 2, &["periodic=TIME"]);
    check(here.path(), &["load", "--cpus", "1,15-17-31"], 2, &["1-15,17-31"]);
}

#[test]
fn an_invalid_study_is_refused_with_its_position() {
    let here = scratch();
    let study = here.path().join("s.toml");
    let with = |text: &str| fs::write(&study, format!("{STUDY}{text}")).unwrap();
    let arguments = ["weigh", "s.toml"];
    with("nettwork = \"host\"\n");
    check(here.path(), &arguments, 3, &["s.toml:8:1", "nettwork", "did you mean \"network\"", "^"]);
    with("[[environment]]\nname = \"x\"\nextends = \"natve\"\n");
    check(here.path(), &arguments, 3, &["natve", "native"]);
    with("runtme = \"process\"\n");
    check(here.path(), &arguments, 3, &["runtme", "runtime"]);
    with("limits = { memory = \"6X\" }\n");
    check(here.path(), &arguments, 3, &["6X"]);
    fs::write(&study, "name = ").unwrap();
    check(here.path(), &arguments, 3, &["s.toml:1"]);
    check(here.path(), &["weigh", "none.toml"], 3, &["none.toml"]);
    check(here.path(), &["weigh", "quik"], 3, &["quik", "quick"]);
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1, "no record is left behind");
}

#[test]
fn cpus_that_cannot_be_used_are_refused() {
    let here = scratch();
    let study = here.path().join("s.toml");
    let text = STUDY.replace("tare-db", "fake").replace("\"process\"", "\"fake\"");
    let text = text.replace("[system]", "driver = \"fake\"\n[system]");
    let refused = |cpus: &str, wanted: &[&str]| {
        let load = "[[workload]]\nname = \"w\"\n";
        fs::write(&study, format!("{text}[cpus]\n{cpus}\n{load}")).unwrap();
        let output = check(here.path(), &["weigh", "s.toml"], 3, wanted);
        assert_eq!(stderr(&output).trim().lines().count(), 1, "{}", stderr(&output));
    };
    let missing = "names CPU 4095, which this host does not have; name some of ";
    refused("system = \"4095\"", &["[cpus] system = \"4095\"", missing]);
    refused("interrupts = \"4095\"", &["[cpus] interrupts = \"4095\"", missing]);
    refused("interrupts = 4095", &["4095 of the CPUs ", "interrupts leave no core"]);
    refused("system = 4095", &["system = 4095 leaves no core for the client"]);
    refused("node = 1023", &["node = 1023: no CPU of that NUMA node", "there are nodes 0"]);
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1, "no record is left behind");
}

#[test]
fn what_a_study_cannot_have_is_one_line() {
    let here = scratch();
    let study = here.path().join("s.toml");
    let refused = |text: &str, more: &[&str], wanted: &[&str]| {
        fs::write(&study, text).unwrap();
        let words = [&["weigh", "s.toml", "--state", "state"], more].concat();
        let output = check(here.path(), &words, 3, wanted);
        assert_eq!(stderr(&output).trim().lines().count(), 1, "{}", stderr(&output));
    };
    let load = "[[workload]]\nname = \"w\"\n";
    let text = format!("{STUDY}[cpus]\ninterrupts = 0\n{load}");
    let wanted = ["--interrupt-cpus 0 contradicts [cpus] interrupts", "keeps none for interrupts"];
    refused(&text, &["--interrupt-cpus", "0"], &wanted);
    let text = STUDY.replace("\"tare-db\"\n", "\"tare-db\"\nmemory = \"lots\"\n") + load;
    refused(&text, &[], &["memory = \"lots\" is not an amount such as \"2G\""]);
    let text =
        STUDY.replace("\"tare-db\"", "\"fio\"").replace("[system]", "driver = \"fio\"\n[system]");
    let load = format!("{load}fio = {{ rw = \"randread\" }}\nload = \"saturate\"\n");
    refused(&(text + &load), &[], &["fio cannot do load = \"saturate\"", "tare disk"]);
}

#[test]
fn files_that_are_no_database_are_refused() {
    let here = scratch();
    fs::write(here.path().join("00000001.table"), [7; 8192]).unwrap();
    check(here.path(), &["db", "check", "."], 3, &["no data directory"]);
    check(here.path(), &["db", "dump", "none.table"], 3, &["none.table", "00000001.table"]);
    check(here.path(), &["db", "dump", "00000002.table"], 3, &["00000002.table"]);
    let wanted = ["00000001.table is damaged at offset 4096", "checksum"];
    check(here.path(), &["db", "dump", "00000001.table"], 1, &wanted);
}

#[test]
fn a_file_that_is_no_record_is_refused() {
    let here = scratch();
    fs::write(here.path().join("text.tare"), "not a record").unwrap();
    fs::write(here.path().join("empty.tare"), "").unwrap();
    for arguments in [["report", "text.tare"], ["report", "empty.tare"]] {
        check(here.path(), &arguments, 3, &[arguments[1]]);
    }
    check(here.path(), &["report", "missing.tare"], 3, &["missing.tare"]);
    check(here.path(), &["weigh", "--resume", "text.tare"], 3, &["text.tare"]);
    check(here.path(), &["compare", "text.tare", "missing.tare"], 3, &["text.tare"]);
    assert_eq!(fs::read(here.path().join("text.tare")).unwrap(), b"not a record", "nothing lost");
}

#[test]
fn a_busy_port_is_one_line() {
    let here = scratch();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let arguments = ["db", "--data", "data", "--port", &port];
    let output = check(here.path(), &arguments, 4, &[&port, "use"]);
    assert_eq!(stderr(&output).lines().filter(|line| line.starts_with("tare:")).count(), 1);
}

#[test]
fn a_missing_runtime_is_one_line() {
    if skipped("a_missing_runtime_is_one_line", &[Need::Root]) {
        return;
    }
    let here = scratch();
    let text =
        "[[environment]]\nname = \"x\"\nextends = \"native\"\nruntime = \"oci:nosuchruntime\"\n";
    fs::write(here.path().join("s.toml"), format!("{STUDY}{text}[[workload]]\nname = \"w\"\n"))
        .unwrap();
    let state = here.path().join("state");
    let before = HostState::read();
    let arguments = ["weigh", "s.toml", "--state", state.to_str().unwrap()];
    check(here.path(), &arguments, 4, &["nosuchruntime"]);
    assert_eq!(before.difference(&HostState::read()), Vec::<String>::new());
}

#[test]
fn weigh_without_root_is_refused() {
    if skipped("weigh_without_root_is_refused", &[Need::Root, Need::Program("setpriv")]) {
        return;
    }
    let here = scratch();
    let program = env!("CARGO_BIN_EXE_tare");
    let copy = here.path().join("tare");
    fs::copy(program, &copy).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(here.path(), mode).unwrap();
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .arg("weigh")
        .current_dir(here.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("root"), "{}", stderr(&output));
}

/// An engine that is gone for ever would leave a journal that no clean can end.
#[test]
fn run_whose_engine_is_gone_is_forgotten_by_name() {
    let here = scratch();
    let runs = here.path().join("state/runs");
    fs::create_dir_all(&runs).unwrap();
    let journal = runs.join("0a1b.journal");
    let lines = "{\"version\":1,\"run\":\"0a1b\",\"pid\":0,\"started_unix_s\":0}\n{\"id\":0,\"entry\":{\"kind\":\
                 \"container\",\"engine\":\"docker\",\"socket\":\"/nonexistent/gone.sock\",\"name\":\"tare-0a1b-e0\"}}\n";
    fs::write(&journal, lines).unwrap();
    let clean = |arguments: &[&str], exit: i32| {
        let all = [&["clean", "--state", "state"], arguments].concat();
        let output = run_in(here.path(), &all);
        assert_eq!(output.status.code(), Some(exit), "{}", stderr(&output));
        format!("{}{}", stdout(&output), stderr(&output))
    };
    let failed = clean(&[], 1);
    assert!(failed.contains("not clean") && failed.contains("gone.sock"), "{failed}");
    assert!(clean(&["--forget", "ffff"], 3).contains("no journal of a run ffff"));
    let forgotten = clean(&["--forget", "0a1b"], 0);
    assert!(forgotten.contains("forgotten; this may be left"), "{forgotten}");
    assert!(forgotten.contains("tare-0a1b-e0") && !journal.exists(), "{forgotten}");
    assert!(clean(&[], 0).contains("nothing to clean"));
}
