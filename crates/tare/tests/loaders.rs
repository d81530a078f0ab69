//! Studies whose load comes from other machines, through the built program: network namespaces with
//! an sshd of their own stand for the machines.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{slices, stderr, stdout, tare};
use serde_json::Value;
use tare_testkit::ssh_bed::SshBed;

/// A study of two environments with these loaders.
fn study(directory: &Path, loaders: &[String], rounds: u32) {
    let loaders: String =
        loaders.iter().map(|host| format!("[[loader]]\nhost = \"{host}\"\n")).collect();
    let text = format!(
        "name = \"l\"\nbaseline = \"native\"\n\
         [schedule]\nwindow = \"1s\"\nlead_in = \"100ms\"\nrounds = {rounds}\nrounds_min = {rounds}\n\
         stop_width_percent = 0\nbudget = \"4m\"\nseed = 1\n{loaders}\
         [[environment]]\nname = \"native\"\nruntime = \"process\"\n\
         [[workload]]\nname = \"w\"\nwrite_share = 0.5\nrows = 2000\nconnections = 4\n\
         in_flight = 16\nlatency_share = 0\n"
    );
    std::fs::write(directory.join("l.toml"), text).unwrap();
}

fn weigh(bed: &SshBed, directory: &Path, words: &[&str]) -> Command {
    let mut command = tare();
    command
        .args(["weigh", "l.toml", "-o", "l.tare", "--state", "state", "--json"])
        .args(words)
        .current_dir(directory)
        .env("TARE_SSH_CONFIG", bed.config());
    command
}

fn record(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_str(&stdout(output)).unwrap()
}

fn agents(bed: &SshBed, name: &str) -> usize {
    let text = bed.run(name, "sh", &["-c", "ps -e -o args= | grep -c '[l]oad-agent' || true"]);
    text.trim().parse().unwrap()
}

#[test]
fn two_loaders_load_a_system_together() {
    let Some(bed) = SshBed::start("two_loaders_load_a_system_together", &["load1", "load2"]) else {
        return;
    };
    let here = tempfile::tempdir().unwrap();
    study(here.path(), &[bed.address("load1"), bed.address("load2")], 3);
    let output = weigh(&bed, here.path(), &[]).output().unwrap();
    let record = record(&output);
    let loaders = record["loaders"].as_array().unwrap();
    let hosts: Vec<&str> = loaders.iter().map(|one| one["host"].as_str().unwrap()).collect();
    assert_eq!(hosts, ["ssh:load1", "ssh:load2"]);
    for loader in loaders {
        assert!(loader["operations"].as_u64().unwrap() > 0, "{loader}");
        assert!(loader["cpu_share"].as_f64().unwrap() > 0.0, "{loader}");
        assert!(loader["edge_distance_us"]["median"].as_f64().is_some(), "{loader}");
    }
    assert!(slices::summed(&record).len() >= 4, "{}", stderr(&output));
    for name in ["load1", "load2"] {
        assert_eq!(agents(&bed, name), 0, "{name}");
    }
    let left = Command::new(env!("CARGO_BIN_EXE_tare"))
        .args(["clean", "--state", "state"])
        .current_dir(here.path())
        .output()
        .unwrap();
    assert!(left.status.success(), "{}", stderr(&left));
    let page = std::fs::read_to_string(here.path().join("l.html")).unwrap();
    assert!(page.contains("ssh:load2"));
}

#[test]
fn dry_run_names_the_loaders() {
    let Some(bed) = SshBed::start("dry_run_names_the_loaders", &["load1"]) else { return };
    let here = tempfile::tempdir().unwrap();
    study(here.path(), &[bed.address("load1"), "local".into()], 3);
    let output =
        tare().args(["weigh", "l.toml", "--dry-run"]).current_dir(here.path()).output().unwrap();
    let text = stdout(&output);
    assert!(text.contains("ssh:load1, local"), "{text}{}", stderr(&output));
}

#[test]
fn killed_loader_costs_one_slice_and_cut_line_ends_the_run() {
    let test = "killed_loader_costs_one_slice_and_cut_line_ends_the_run";
    let Some(bed) = SshBed::start(test, &["load1", "load2"]) else { return };
    let here = tempfile::tempdir().unwrap();
    study(here.path(), &[bed.address("load1"), bed.address("load2")], 1000);
    let errors = std::fs::File::create(here.path().join("stderr")).unwrap();
    let mut command = weigh(&bed, here.path(), &[]);
    let mut run = command.stdout(Stdio::null()).stderr(errors).spawn().unwrap();
    let slices = |least: i64| {
        let began = Instant::now();
        loop {
            let output = tare()
                .args(["report", "l.tare", "--json"])
                .current_dir(here.path())
                .output()
                .unwrap();
            let record: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let count = record["slices"].as_array().map_or(0, Vec::len);
            if i64::try_from(count).unwrap() >= least {
                return i64::try_from(count).unwrap();
            }
            assert!(began.elapsed() < Duration::from_secs(90), "{count} slices");
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let before = slices(4);
    let kill = "kill -9 $(ps -e -o pid=,args= | awk '/[l]oad-agent/ { print $1 }')";
    bed.run("load2", "sh", &["-c", kill]);
    let before = slices(before + 6);
    // ssh notices in 15 s, and three attempts to connect fail.
    bed.cut("load2");
    let began = Instant::now();
    let status = loop {
        if let Some(status) = run.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > Duration::from_secs(240) {
            run.kill().unwrap();
            run.wait().unwrap();
            panic!("{}", std::fs::read_to_string(here.path().join("stderr")).unwrap());
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    let said = std::fs::read_to_string(here.path().join("stderr")).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    let line = said.lines().find(|line| line.contains("the load cannot go on")).unwrap();
    assert!(line.contains("ssh:load2") && line.contains("--resume"), "{line}");
    bed.mend("load2");
    // Nothing that was measured is lost, and the record goes on.
    let rounds = (before / 2 + 4).to_string();
    let output = tare()
        .args(["weigh", "--resume", "l.tare", "--rounds", &rounds, "--state", "state", "--json"])
        .current_dir(here.path())
        .env("TARE_SSH_CONFIG", bed.config())
        .output()
        .unwrap();
    let record = record(&output);
    let count = record["slices"].as_array().unwrap().len();
    assert!(i64::try_from(count).unwrap() >= before - 4, "{count} {before}");
}

#[test]
fn killed_harness_leaves_no_agent() {
    let Some(bed) = SshBed::start("killed_harness_leaves_no_agent", &["load1"]) else { return };
    let here = tempfile::tempdir().unwrap();
    study(here.path(), &[bed.address("load1")], 1000);
    let mut command = weigh(&bed, here.path(), &[]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while agents(&bed, "load1") == 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let began = Instant::now();
    while agents(&bed, "load1") > 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    let cleaned =
        tare().args(["clean", "--state", "state"]).current_dir(here.path()).output().unwrap();
    assert!(cleaned.status.success(), "{}", stderr(&cleaned));
}
