//! `tare tune prove` through the built program, on a loop device that the test attaches: the proof,
//! and an unchanged host, also after Ctrl-C and after `kill -9` with `tare clean`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{run_in, stderr, stdout, tare};
use tare_testkit::host_state::{self, HostState};
use tare_testkit::ssh_bed::SshBed;
use tare_testkit::{Need, Reason, skipped, tiny};

const NEEDS: [Need; 5] = [
    Need::Root,
    Need::Program("runc"),
    Need::Program("nft"),
    Need::Program("ip"),
    Need::Program("losetup"),
];

/// Long enough for a loaded machine; a hang fails this test instead of blocking the run.
const PATIENCE: Duration = Duration::from_secs(240);

/// A loop device with settings that the plan changes; restored and detached on drop.
struct Loop {
    device: String,
    queue: PathBuf,
    before: [String; 2],
    _folder: tempfile::TempDir,
}

const FILES: [&str; 2] = ["scheduler", "nomerges"];

impl Loop {
    /// Backed by memory where `/dev/shm` exists, so that no disk of the host is below it.
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

    /// The values in force; for the scheduler, the one in brackets.
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
fn prepare(test: &str, rounds: u32) -> Option<(tempfile::TempDir, Loop)> {
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

/// The arguments of `tare tune COMMAND`, limited to the two settings of the device.
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
        assert_eq!(
            child.try_wait().unwrap(),
            None,
            "the proof ended before it could be interrupted"
        );
        assert!(started.elapsed() < PATIENCE, "the device is never tuned");
        if record.exists() && disk.values() == ["none", "2"] {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn assert_host_unchanged(before: &HostState, disk: &Loop) {
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
    assert_eq!(disk.values(), ["mq-deadline", "0"]);
}

#[test]
fn prove_reports_gains_and_leaves_the_host_unchanged() {
    let test = "prove_reports_gains_and_leaves_the_host_unchanged";
    let Some((here, disk)) = prepare(test, 3) else { return };
    let _alone = host_state::alone();
    let before = HostState::read();
    let words = ["prove", "tiny.toml", "-o", "p.tare", "--json", "--seed", "3"];
    let output = run_in(here.path(), arguments(here.path(), &disk, &words));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_host_unchanged(&before, &disk);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let environments = report["environments"].as_array().unwrap();
    let of = |name: &str| {
        let mut all = environments.iter();
        all.find(|one| one["spec"]["name"] == name).unwrap_or_else(|| panic!("no {name}"))
    };
    let tuned = of("with flags + host tuning");
    assert_eq!(tuned["spec"]["host"], "tuned");
    assert_eq!(of("with flags")["spec"]["security"], "default+io_uring");
    // Each environment read the host's settings back: changed in one, as found in the others.
    let host = |environment: &serde_json::Value| {
        let layers = environment["layers"].as_array().unwrap();
        layers.iter().find(|layer| layer["layer"] == "host").unwrap().clone()
    };
    assert_eq!(host(tuned)["found"], "2 of 2 settings changed, the others as found");
    assert_eq!(host(of("native"))["found"], "0 of 2 settings changed, the others as found");
    assert!(environments.iter().all(|one| host(one)["in_force"] == true));
    // One group is weighed as a whole, against the same environment on the untuned host.
    let gains = report["host_tuning"]["gains"].as_array().unwrap();
    assert_eq!(gains.len(), 1);
    assert_eq!(gains[0]["against"], "with flags");
    assert_eq!(report["host_tuning"]["remains"][0]["baseline"], "native");
    assert_eq!(report["host_tuning_left"]["put_back"], serde_json::json!(["disk"]));
    // The report needs the record alone.
    let again = stdout(&run_in(here.path(), ["report", "p.tare"]));
    assert!(again.contains("Host tuning") && again.contains("with flags"), "{again}");
}

#[test]
fn clean_reverts_the_tuning_of_a_killed_proof() {
    let Some((here, disk)) = prepare("clean_reverts_the_tuning_of_a_killed_proof", 2000) else {
        return;
    };
    let _alone = host_state::alone();
    let before = HostState::read();
    let mut child = start(here.path(), &disk);
    wait_until_tuned(&mut child, here.path(), &disk);
    child.kill().unwrap();
    child.wait().unwrap();
    let state = here.path().join("state");
    let output = run_in(here.path(), ["clean", "--state", state.to_str().unwrap()]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    assert_host_unchanged(&before, &disk);
}

#[test]
fn a_signal_reverts_the_tuning() {
    let Some((here, disk)) = prepare("a_signal_reverts_the_tuning", 2000) else { return };
    let _alone = host_state::alone();
    let before = HostState::read();
    let mut child = start(here.path(), &disk);
    wait_until_tuned(&mut child, here.path(), &disk);
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_host_unchanged(&before, &disk);
}

#[test]
fn prove_refuses_a_tuned_host() {
    let Some((here, disk)) = prepare("prove_refuses_a_tuned_host", 2) else { return };
    let _alone = host_state::alone();
    let run = |words: &[&str]| run_in(here.path(), arguments(here.path(), &disk, words));
    let output = run(&["apply", "--yes"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(disk.values(), ["none", "2"]);
    let output = run(&["prove", "tiny.toml"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("revert first (tare tune revert)"), "{}", stderr(&output));
    let state = here.path().join("state");
    let output = run_in(here.path(), ["tune", "revert", "--state", state.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(disk.values(), ["mq-deadline", "0"]);
}

/// A loader behind a veth pair crosses no card, so nothing is said about the knobs of one.
#[test]
fn knobs_of_cards_are_not_claimed_without_card_in_path() {
    let test = "knobs_of_cards_are_not_claimed_without_card_in_path";
    if skipped(test, &NEEDS) {
        return;
    }
    // Before the machine starts, because other tests compare the host's links.
    let _lock = host_state::beside_others();
    let Some(bed) = SshBed::start(test, &["load1"]) else { return };
    let here = tempfile::tempdir().unwrap();
    tiny::write(here.path(), "slices", 2);
    let knobs = ["nic_irqs,rings,rps,rfs,xps,coalescing_off,coalescing_adaptive", "--ring", "128"];
    let output = tare()
        .args(["tune", "prove", "tiny.toml", "-o", "p.tare", "--json", "--each-knob", "--only"])
        .args(knobs)
        .args(["--loader", &bed.address("load1"), "--state", "state"])
        .current_dir(here.path())
        .env("TARE_SSH_CONFIG", bed.config())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let connecting = stderr(&output).matches("connecting to ssh:load1").count();
    assert_eq!(connecting, 1, "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let tuning = &report["host_tuning"];
    assert_eq!(tuning["gains"], serde_json::json!([]));
    // A machine without a card has no such knobs.
    for pair in tuning["not_weighed"].as_array().unwrap() {
        let why = pair[1].as_str().unwrap();
        let expect = "the load crosses no network card: ssh:load1 reaches this host through tb";
        assert!(why.starts_with(expect), "{pair}");
    }
    let statements = report["statements"].as_array().unwrap();
    let rules: Vec<&str> = statements.iter().filter_map(|one| one["rule"].as_str()).collect();
    assert!(rules.iter().all(|rule| !rule.starts_with("tuning_")), "{rules:?}");
    let path = &report["paths"][0];
    assert_eq!(path["here"]["kind"], "veth", "{path}");
}
