//! Storage weighed with fio, through the built program: a tiny study of a process, a container and,
//! where QEMU is installed, a guest; errors of fio; the host is unchanged afterwards.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{run_in, stderr};
use tare_testkit::{Need, skipped};

const NEEDS: [Need; 5] = [
    Need::Root,
    Need::Program("fio"),
    Need::Program("runc"),
    Need::Program("nft"),
    Need::Program("ip"),
];

const HEAD: &str = r#"name = "tiny"
baseline = "native"
driver = "fio"
[system]
name = "fio"
[schedule]
window = "200ms"
lead_in = "50ms"
rounds = 3
rounds_min = 2
stop_width_percent = 0
budget = "5m"
seed = 7
[[environment]]
name = "native"
runtime = "process"
"#;

const WORKLOAD: &str = r#"[[workload]]
name = "RW"
fio = { rw = "randrw", bs = "4k", iodepth = 4, numjobs = 2, size = "4M" }
latency_share = 0.3
"#;

/// Runs a study in a folder that also holds its state.
fn weigh(folder: &Path, study: &str) -> Output {
    fs::write(folder.join("study.toml"), study).unwrap();
    let state = folder.join("state");
    let words = ["weigh", "study.toml", "--output", "out.tare", "--json", "--state"];
    run_in(folder, words.into_iter().chain([state.to_str().unwrap()]))
}

/// Checks that no process, mount or state is left of a run with its state in this folder.
fn assert_clean(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let name = folder.to_string_lossy();
    let left: Vec<&str> = mounts.lines().filter(|line| line.contains(&*name)).collect();
    assert!(left.is_empty(), "mounts are left: {left:?}");
    let left: Vec<u32> = tare_host::process::all()
        .into_iter()
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&*name)
        })
        .collect();
    assert!(left.is_empty(), "processes are left: {left:?}");
    let state = fs::read_dir(folder.join("state")).into_iter().flatten().flatten();
    let state: Vec<String> =
        state.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(!state.iter().any(|name| name.starts_with("tare-")), "state is left: {state:?}");
}

#[test]
fn fio_weighs_a_process_a_container_and_a_guest() {
    let test = "fio_weighs_a_process_a_container_and_a_guest";
    if skipped(test, &NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let others = "[[environment]]\nname = \"box\"\nruntime = \"oci:runc\"\n\
                  [[environment]]\nname = \"device\"\nextends = \"box\"\n\
                  storage = { kind = \"raw\", size = \"32M\" }\n\
                  [[environment]]\nname = \"guest\"\nruntime = \"vm:qemu\"\noptional = true\n\
                  vm = { memory = \"768M\", disk = \"128M\" }\n";
    let output = weigh(folder.path(), &format!("{HEAD}{others}{WORKLOAD}"));
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = serde_json::to_string(&json).unwrap();
    assert!(text.contains("fio-"), "fio's version is among the settings");
    let database = rusqlite::Connection::open(folder.path().join("out.tare")).unwrap();
    let count = |environment: &str, phase: &str| -> u32 {
        database
            .query_row(
                "SELECT count(*) FROM slice_figures WHERE environment = ?1 AND phase = ?2 \
                 AND void IS NULL AND operations_per_s > 0 AND server_cpu_us_per_operation > 0",
                [environment, phase],
                |row| row.get(0),
            )
            .unwrap()
    };
    for environment in ["native", "native again", "box", "device"] {
        for phase in ["capacity", "latency"] {
            assert!(count(environment, phase) >= 1, "{environment} in {phase}\n{said}");
        }
    }
    // A guest without QEMU is left out, with a message.
    let has_guest = tare_host::exec::find("qemu-system-x86_64").is_some();
    assert_eq!(
        has_guest && !said.contains("guest: left out"),
        count("guest", "capacity") > 0,
        "{said}"
    );
    assert_clean(folder.path());
}

#[test]
fn errors_of_fio_are_passed_on() {
    if skipped("errors_of_fio_are_passed_on", &NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let check = |study: &str, expect: &str| {
        let output = weigh(folder.path(), study);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(expect), "{expect}: {said}");
        assert_clean(folder.path());
    };
    let workload = |words: &str| format!("{HEAD}[[workload]]\nname = \"w\"\nfio = {{ {words} }}\n");
    // A file system that is too small for the files.
    let full = HEAD.replace(
        "runtime = \"process\"",
        "runtime = \"process\"\nstorage = { kind = \"tmpfs\", size = \"16M\" }",
    );
    let workload_of_64m = "[[workload]]\nname = \"w\"\nfio = { size = \"64M\", direct = false }\n";
    check(&format!("{full}{workload_of_64m}"), "No space left on device");
    check(&workload("iodept = 4"), "iodepth");
    check(&workload("bs = \"4 apples\""), "bs");
    let other =
        workload("bs = \"4k\"").replace("[system]\nname = \"fio\"", "[system]\nname = \"tare-db\"");
    check(&other, "it speaks fio, not cql; write driver = \"tare-load\"");
    let other = format!("{HEAD}[[workload]]\nname = \"w\"\n").replace("driver = \"fio\"\n", "");
    check(&other, "write driver = \"fio\"");
}
