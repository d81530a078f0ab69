//! Loaders that cannot load: the record has a doubt, and no figure is claimed as the system's.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{stderr, tare};
use serde_json::Value;
use tare_testkit::skip;
use tare_testkit::ssh_bed::SshBed;

/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the last CPU, on which the load threads run; the system has the others.
fn last_cpu() -> u32 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let last = list.trim().rsplit([',', '-']).next().unwrap();
    last.parse().unwrap()
}

/// A study whose second environment needs 20 µs more per operation, so that its throughput is lower
/// by much if the system is the limit.
fn study(directory: &Path, loaders: &[String], rounds: u32) {
    let cpu = last_cpu();
    let loaders: String = loaders
        .iter()
        .map(|host| format!("[[loader]]\nhost = \"{host}\"\ncpus = \"{cpu}\"\n"))
        .collect();
    let text = format!(
        "name = \"l\"\nbaseline = \"native\"\n\
         [schedule]\nwindow = \"400ms\"\nlead_in = \"50ms\"\nrounds = {rounds}\n\
         rounds_min = {rounds}\nstop_width_percent = 0\nbudget = \"4m\"\nseed = 1\n{loaders}\
         [[environment]]\nname = \"native\"\nruntime = \"process\"\n\
         [[environment]]\nname = \"busy\"\nextends = \"native\"\ninject = \"busy=20us\"\n\
         [[workload]]\nname = \"w\"\nwrite_share = 0.5\nrows = 2000\nconnections = 9\n\
         in_flight = 18\nlatency_share = 0\n"
    );
    std::fs::write(directory.join("l.toml"), text).unwrap();
}

/// A study that runs. It ends with this, also when the test fails.
struct Running(Child);

impl Running {
    fn start(bed: &SshBed, directory: &Path) -> Self {
        let errors = std::fs::File::create(directory.join("stderr")).unwrap();
        let output = std::fs::File::create(directory.join("stdout")).unwrap();
        let mut command = tare();
        command.args(["weigh", "l.toml", "-o", "l.tare", "--state", "state", "--json"]);
        command.current_dir(directory).env("TARE_SSH_CONFIG", bed.config());
        Self(command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().unwrap())
    }

    /// Waits for the end and returns the record.
    fn record(mut self, directory: &Path) -> Value {
        let status = self.0.wait().unwrap();
        let said = std::fs::read_to_string(directory.join("stderr")).unwrap();
        assert!(status.success(), "{said}");
        let text = std::fs::read(directory.join("stdout")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for_agent(bed: &SshBed, name: &str) {
    let began = Instant::now();
    while bed.processes(name, "load-agent").is_empty() {
        assert!(began.elapsed() < PATIENCE, "no agent on {name}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Checks that most slices doubt the loader, and that no difference in throughput is claimed.
fn assert_not_claimed(record: &Value, loader: &str) {
    let saturated = record["doubts"].as_array().unwrap().iter().filter(|one| {
        one["doubt"]["kind"] == "loader_saturated" && one["doubt"]["loader"] == loader
    });
    let slices = record["slices"].as_array().unwrap().len();
    assert!(saturated.count() * 2 > slices, "{}", record["doubts"]);
    let findings = record["analysis"]["findings"].as_array().unwrap();
    let busy = findings.iter().find(|one| one["environment"] == "busy").unwrap();
    let verdict = busy["throughput_cost"]["verdict"].as_str().unwrap_or("none");
    assert!(!["loss", "gain"].contains(&verdict), "{busy}");
}

#[test]
fn loader_slowed_to_a_tenth_is_a_doubt() {
    let test = "loader_slowed_to_a_tenth_is_a_doubt";
    let Some(mut bed) = SshBed::start(test, &["load1"]) else { return };
    let here = tempfile::tempdir().unwrap();
    study(here.path(), &[bed.address("load1")], 6);
    let run = Running::start(&bed, here.path());
    wait_for_agent(&bed, "load1");
    if let Err(reason) = bed.slow_down("load1", "load-agent", 10) {
        return skip(test, reason);
    }
    assert_not_claimed(&run.record(here.path()), "ssh:load1");
}

#[test]
fn loader_full_of_other_work_is_a_doubt() {
    let Some(bed) = SshBed::start("loader_full_of_other_work_is_a_doubt", &["load1"]) else {
        return;
    };
    let here = tempfile::tempdir().unwrap();
    study(here.path(), &[bed.address("load1")], 6);
    // They end with the machine.
    let cpu = last_cpu().to_string();
    let burn = || {
        let mut command = bed.command("load1", "taskset");
        command.args(["--cpu-list", &cpu, "sh", "-c", "while :; do :; done"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    };
    let mut burners: Vec<Child> = (0..3).map(|_| burn()).collect();
    let record = Running::start(&bed, here.path()).record(here.path());
    drop(bed);
    for burner in &mut burners {
        burner.wait().unwrap();
    }
    assert_not_claimed(&record, "ssh:load1");
}

#[test]
fn nine_loaders_load_a_system_at_once() {
    let names: Vec<String> = (1..=9).map(|number| format!("load{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(bed) = SshBed::start("nine_loaders_load_a_system_at_once", &names) else { return };
    let here = tempfile::tempdir().unwrap();
    let loaders: Vec<String> = names.iter().map(|name| bed.address(name)).collect();
    study(here.path(), &loaders, 2);
    let record = Running::start(&bed, here.path()).record(here.path());
    let found = record["loaders"].as_array().unwrap();
    assert_eq!(found.len(), 9, "{found:?}");
    assert!(found.iter().all(|one| one["operations"].as_u64().unwrap() > 0), "{found:?}");
    for name in names {
        assert!(bed.processes(name, "load-agent").is_empty(), "{name}");
    }
    let cleaned = Command::new(env!("CARGO_BIN_EXE_tare"))
        .args(["clean", "--state", "state"])
        .current_dir(here.path())
        .output()
        .unwrap();
    assert!(cleaned.status.success(), "{}", stderr(&cleaned));
}
