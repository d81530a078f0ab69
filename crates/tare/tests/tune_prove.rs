//! `tare tune prove` through the built program, on a loop device that the test attaches: the proof,
//! the host as it was, also after Ctrl-C and after `kill -9` and `tare clean`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{run_in, stderr, stdout, tare};
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, Reason, skipped, tiny};

const NEEDS: [Need; 5] = [
    Need::Root,
    Need::Program("runc"),
    Need::Program("nft"),
    Need::Program("ip"),
    Need::Program("losetup"),
];

/// Long enough for a loaded machine; a hang fails the test and not the whole run.
const PATIENCE: Duration = Duration::from_secs(240);

/// A loop device with settings that the plan wants to change, as it was once dropped.
struct Loop {
    device: String,
    queue: PathBuf,
    before: [String; 2],
    _folder: tempfile::TempDir,
}

const FILES: [&str; 2] = ["scheduler", "nomerges"];

impl Loop {
    /// On memory where there is a file system in it: no disk of the host lies below it then.
    fn attach() -> Option<Self> {
        let memory = Path::new("/dev/shm");
        let folder = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap();
        let file = folder.path().join("disk");
        fs::File::create(&file).unwrap().set_len(8 << 20).unwrap();
        let output =
            Command::new("losetup").args(["--find", "--show"]).arg(&file).output().unwrap();
        if !output.status.success() {
            return None;
        }
        let device = stdout(&output).trim().to_string();
        let name = device.trim_start_matches("/dev/");
        let queue = PathBuf::from(format!("/sys/block/{name}/queue"));
        let mut disk = Self { device, queue, before: Default::default(), _folder: folder };
        disk.before = disk.values();
        fs::write(disk.queue.join("scheduler"), "mq-deadline").unwrap();
        fs::write(disk.queue.join("nomerges"), "0").unwrap();
        Some(disk)
    }

    /// The values in force: of the scheduler the one in brackets.
    fn values(&self) -> [String; 2] {
        FILES.map(|file| {
            let text = fs::read_to_string(self.queue.join(file)).unwrap();
            let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('['));
            chosen.map_or(text.trim(), |word| word.trim_end_matches(']')).to_string()
        })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        for (file, value) in FILES.iter().zip(&self.before) {
            let _ = fs::write(self.queue.join(file), value);
        }
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

/// A scratch directory with the tiny study and a device; `None` where no device can be attached.
fn place(test: &str, rounds: u32) -> Option<(tempfile::TempDir, Loop)> {
    if skipped(test, &NEEDS) {
        return None;
    }
    let here = tempfile::tempdir().unwrap();
    tiny::write(here.path(), "slices", rounds);
    let Some(disk) = Loop::attach() else {
        tare_testkit::skip(test, Reason::no_loop_device(""));
        return None;
    };
    Some((here, disk))
}

/// `tare tune COMMAND` for the two settings of the device alone.
fn arguments(here: &Path, disk: &Loop, words: &[&str]) -> Vec<String> {
    let state = here.join("state");
    let only = ["--dev", &disk.device, "--only", "disk_scheduler", "--only", "disk_nomerges"];
    let state = ["--state", state.to_str().unwrap()];
    ["tune"].iter().chain(words).chain(&only).chain(&state).map(ToString::to_string).collect()
}

fn start(here: &Path, disk: &Loop) -> Child {
    let mut command = tare();
    command.args(arguments(here, disk, &["prove", "tiny.toml", "-o", "p.tare"]));
    command.current_dir(here).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the built program starts")
}

/// Waits until the proof is under way and the device is tuned for one of its slices.
fn wait_until_tuned(child: &mut Child, here: &Path, disk: &Loop) {
    let started = Instant::now();
    let record = here.join("p.tare");
    loop {
        assert_eq!(child.try_wait().unwrap(), None, "the proof ended before it could be ended");
        assert!(started.elapsed() < PATIENCE, "the device is never tuned");
        if record.exists() && disk.values() == ["none", "2"] {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn unchanged(before: &HostState, disk: &Loop) {
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
    assert_eq!(disk.values(), ["mq-deadline", "0"]);
}

#[test]
fn a_proof_says_what_tuning_gains_and_leaves_the_host_as_found() {
    let test = "a_proof_says_what_tuning_gains_and_leaves_the_host_as_found";
    let Some((here, disk)) = place(test, 3) else { return };
    let _alone = host_state::alone();
    let before = HostState::read();
    let words = ["prove", "tiny.toml", "-o", "p.tare", "--json", "--seed", "3"];
    let output = run_in(here.path(), arguments(here.path(), &disk, &words));
    assert!(output.status.success(), "{}", stderr(&output));
    unchanged(&before, &disk);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let environments = report["environments"].as_array().unwrap();
    let of = |name: &str| {
        let mut all = environments.iter();
        all.find(|one| one["spec"]["name"] == name).unwrap_or_else(|| panic!("no {name}"))
    };
    let tuned = of("with flags + host tuning");
    assert_eq!(tuned["spec"]["host"], "tuned");
    assert_eq!(of("with flags")["spec"]["security"], "default+io_uring");
    // Each environment read the host back: changed here, as found there.
    let host = |environment: &serde_json::Value| {
        let layers = environment["layers"].as_array().unwrap();
        layers.iter().find(|layer| layer["layer"] == "host").unwrap().clone()
    };
    assert_eq!(host(tuned)["found"], "2 of 2 settings changed, the others as found");
    assert_eq!(host(of("native"))["found"], "0 of 2 settings changed, the others as found");
    assert!(environments.iter().all(|one| host(one)["in_force"] == true));
    // One group is weighed as a whole, against the same environment on the host as found.
    let gains = report["host_tuning"]["gains"].as_array().unwrap();
    assert_eq!(gains.len(), 1);
    assert_eq!(gains[0]["against"], "with flags");
    assert_eq!(report["host_tuning"]["remains"][0]["baseline"], "native");
    assert_eq!(report["host_tuning_left"]["put_back"], serde_json::json!(["disk"]));
    // The record alone says it again.
    let again = stdout(&run_in(here.path(), ["report", "p.tare"]));
    assert!(again.contains("Host tuning") && again.contains("with flags"), "{again}");
}

#[test]
fn a_killed_proof_is_put_back_by_clean() {
    let Some((here, disk)) = place("a_killed_proof_is_put_back_by_clean", 2000) else { return };
    let _alone = host_state::alone();
    let before = HostState::read();
    let mut child = start(here.path(), &disk);
    wait_until_tuned(&mut child, here.path(), &disk);
    child.kill().unwrap();
    child.wait().unwrap();
    let state = here.path().join("state");
    let output = run_in(here.path(), ["clean", "--state", state.to_str().unwrap()]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    unchanged(&before, &disk);
}

#[test]
fn a_signal_puts_the_host_back() {
    let Some((here, disk)) = place("a_signal_puts_the_host_back", 2000) else { return };
    let _alone = host_state::alone();
    let before = HostState::read();
    let mut child = start(here.path(), &disk);
    wait_until_tuned(&mut child, here.path(), &disk);
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    unchanged(&before, &disk);
}

#[test]
fn a_host_that_is_tuned_already_is_refused() {
    let Some((here, disk)) = place("a_host_that_is_tuned_already_is_refused", 2) else { return };
    let _alone = host_state::alone();
    let run = |words: &[&str]| run_in(here.path(), arguments(here.path(), &disk, words));
    let output = run(&["apply", "--yes"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(disk.values(), ["none", "2"]);
    let output = run(&["prove", "tiny.toml"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("revert first: tare tune revert"), "{}", stderr(&output));
    let state = here.path().join("state");
    let output = run_in(here.path(), ["tune", "revert", "--state", state.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(disk.values(), ["mq-deadline", "0"]);
}
