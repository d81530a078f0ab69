//! `tare tune`, `tare cpus` and `tare host` as a user runs them: on recorded hosts, and on devices
//! that the test creates on this host.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{run_in, stderr, stdout, tare};
use tare_testkit::host_state::alone;
use tare_testkit::{Machine, Need, skipped};

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/recorded").join(name)
}

fn here<const N: usize>(arguments: [&str; N]) -> Output {
    run_in(Path::new("."), arguments)
}

#[test]
fn a_recorded_host_is_planned_without_root() {
    let i3 = recorded("i3.8xlarge");
    let i3 = i3.to_str().expect("a path in UTF-8");
    let output = here(["tune", "plan", "--snapshot", i3]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(text.starts_with("CPUs 0-31: interrupts on 0,16, compute on 1-15,17-31\n"), "{text}");
    for word in ["To change", "nic_channels", "irqbalance", "at a reboot", "why", "cost"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!text.contains("tare tune apply makes"), "a recorded host cannot be changed: {text}");

    let json = here(["tune", "plan", "--snapshot", i3, "--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(plan["cpus"]["irq"], "0,16");

    let like = here(["tune", "plan", "--snapshot", i3, "--like", "perftune"]);
    let like = stdout(&like);
    assert!(like.contains("perftune.py steers to all 32 CPUs"), "{like}");
    for knob in ["cpu_governor", "swap", "aio-max-nr"] {
        assert!(!like.contains(knob), "perftune.py does not know {knob}: {like}");
    }
}

#[test]
fn too_few_interrupt_cpus_are_refused() {
    let gke = recorded("gke-n2d-32");
    let gke = gke.to_str().expect("a path in UTF-8");
    let output = here(["tune", "plan", "--snapshot", gke, "--irq-cpus", "0"]);
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    assert!(error.contains("31 compute CPUs") && error.contains("--mode mq"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn bad_input_gets_one_line_and_its_exit_code() {
    let check = |arguments: &[&str], code: i32, words: &str| {
        let output = run_in(Path::new("."), arguments);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(words), "{arguments:?}: {error}");
    };
    check(&["tune", "plan", "--only", "nothing"], 2, "no knob or group \"nothing\"");
    check(&["tune", "plan", "--snapshot", "/nowhere"], 3, "/nowhere");
    check(&["tune", "plan", "--nic", "nosuch0"], 1, "no network device \"nosuch0\"");
    check(&["tune", "plan", "--cpus", "1,15-17-31"], 2, "1-15,17-31");
    check(&["tune", "plan", "--ratio", "4"], 2, "5");
    check(&["tune", "apply", "--like", "perftune", "--yes"], 2, "only Tare's own plan");
    check(&["cpus", "1,15-17-31"], 2, "1-15,17-31");
    check(&["cpus", "0-3", "minus"], 2, "no set after");
    check(&["tune", "revert", "--to", "t9999", "--state", "/nowhere"], 2, "no tuning \"t9999\"");
}

#[test]
fn sets_of_cpus_are_converted() {
    let check = |arguments: &[&str], expect: &str| {
        let output = run_in(Path::new("."), arguments);
        assert_eq!(stdout(&output).trim(), expect, "{arguments:?}: {}", stderr(&output));
    };
    check(&["cpus", "0xfffefffe"], "1-15,17-31");
    check(&["cpus", "--mask", "00000000,000e3862"], "1,5-6,11-13,17-19");
    check(&["cpus", "0x00000001,,0x1"], "0,64");
    check(&["cpus", "0-31", "minus", "0,16", "--to", "mask"], "0xfffefffe");
    check(&["cpus", "32", "--to", "kernel"], "00000001,00000000");
    check(&["cpus", "0-4095", "--to", "count"], "4096");
}

#[test]
fn this_host_can_be_recorded_and_planned_elsewhere() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = scratch.path().join("host");
    let folder = folder.to_str().expect("a path in UTF-8");
    let output = here(["host", "record", folder]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = here(["tune", "plan", "--snapshot", folder]);
    assert!(stdout(&output).starts_with("CPUs "), "{}{}", stdout(&output), stderr(&output));
    // An existing recording is not overwritten.
    assert!(!here(["host", "record", folder]).status.success());
}

/// Copies a recorded host and adds a kubelet to it.
fn recorded_node(folder: &Path, kubelet: &serde_json::Value) {
    for file in fs::read_dir(recorded("i3.8xlarge")).expect("a recorded host").flatten() {
        let copied = Command::new("cp").arg("-r").arg(file.path()).arg(folder).status();
        assert!(copied.expect("cp starts").success());
    }
    let values = folder.join("values.txt");
    let text = fs::read_to_string(&values).expect("values");
    fs::write(&values, format!("{text}/tare/kubelet = {kubelet}\n")).expect("values");
}

#[test]
fn the_plan_of_a_node_advises_the_kubelet_and_changes_nothing_of_it() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = scratch.path().to_str().expect("a path in UTF-8");
    let kubelet = serde_json::json!({
        "process": 812, "version": "v1.34.1", "config": "/var/lib/kubelet/config.yaml",
        "root_dir": "/var/lib/kubelet", "flags": ["--cpu-manager-policy"],
        "settings": { "cpuManagerPolicy": "none", "reservedSystemCPUs": "0" },
    });
    recorded_node(scratch.path(), &kubelet);
    let text = stdout(&here(["tune", "plan", "--snapshot", folder]));
    let advice = text.split("Advice: kubelet").nth(1).unwrap_or_else(|| panic!("{text}"));
    let words = [
        "cpuManagerPolicy",
        "    cpuManagerPolicy: static\n    reservedSystemCPUs: \"0,16\"\n",
        "      full-pcpus-only: \"true\"",
        "1. drain the node",
        "remove /var/lib/kubelet/cpu_manager_state",
        "remove --cpu-manager-policy from the kubelet's command line",
        "never changes them",
    ];
    for word in words {
        assert!(advice.contains(word), "{word}: {advice}");
    }
    let plan = |folder: &str| -> serde_json::Value {
        let json = here(["tune", "plan", "--snapshot", folder, "--json"]);
        serde_json::from_slice(&json.stdout).expect("JSON")
    };
    let node = plan(folder);
    let finding = &node["kubelet"]["findings"][1];
    assert_eq!((&finding["now"], &finding["wanted"]), (&"0".into(), &"0,16".into()));
    assert_eq!(finding["fragment"], "reservedSystemCPUs: \"0,16\"\n");
    // It is no change: the items are those of the host without a kubelet.
    let plain = plan(recorded("i3.8xlarge").to_str().expect("a path in UTF-8"));
    assert_eq!(node["items"], plain["items"]);
    assert!(plain.get("kubelet").is_none());
}

#[test]
fn the_plan_of_a_node_leaves_out_what_an_operator_sets() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = scratch.path().to_str().expect("a path in UTF-8");
    recorded_node(scratch.path(), &serde_json::json!({ "process": 812 }));
    let values = scratch.path().join("values.txt");
    let text = fs::read_to_string(&values).expect("values");
    let pods = "/var/log/pods/scylla-operator-node-tuning_*";
    fs::write(&values, format!("{text}/tare/owners/present = {pods}\n")).expect("values");
    let text = stdout(&here(["tune", "plan", "--snapshot", folder]));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "NodeConfig of the Scylla operator sets it: change it in its NodeConfig object",
        "note: NodeConfig of the Scylla operator (/var/log/pods/scylla-operator-node-tuning_*) runs",
        "so Tare leaves",
    ] {
        assert!(words.contains(line), "{line}: {text}");
    }
    let plan = |more: &[&str]| {
        let arguments = [&["tune", "plan", "--json", "--snapshot", folder][..], more].concat();
        let json = run_in(Path::new("."), &arguments);
        let plan: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
        let items = plan["items"].as_array().expect("items").clone();
        items.iter().any(|item| item["knob"] == "rps" && item["action"]["action"] == "change")
    };
    assert!(!plan(&[]));
    assert!(plan(&["--only", "rps"]), "a knob that is named is planned");
}

/// A process called kubelet, which ends when its input is closed.
struct FakeKubelet(std::process::Child);

impl FakeKubelet {
    fn start(folder: &Path, arguments: &[String]) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let program = folder.join("kubelet");
        fs::write(&program, "#!/bin/sh\nread _\n").expect("a script");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("permissions");
        let mut command = Command::new(&program);
        let child = command.args(arguments).stdin(std::process::Stdio::piped()).spawn();
        let child = child.expect("the script starts");
        let named = || fs::read_to_string(format!("/proc/{}/comm", child.id()));
        while named().is_ok_and(|name| name.trim() != "kubelet") {
            std::thread::yield_now();
        }
        Self(child)
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn verify_says_whether_the_advice_is_in_force() {
    let _alone = alone();
    if tare_tune::machine::kubelet::runs_kubelet(Path::new("/")) {
        let reason = Machine::DaemonOfHost("kubelet");
        tare_testkit::skip("verify_says_whether_the_advice_is_in_force", reason);
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let config = scratch.path().join("kubelet.yaml");
    let state = scratch.path().to_str().expect("a path in UTF-8");
    fs::write(&config, "kind: KubeletConfiguration\ncpuManagerPolicy: none\n").expect("a file");
    let arguments =
        ["--config".into(), config.display().to_string(), format!("--root-dir={state}")];
    let kubelet = FakeKubelet::start(scratch.path(), &arguments);
    let json = here(["tune", "plan", "--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(plan["kubelet"]["process"], kubelet.0.id());
    let finding = |plan: &serde_json::Value| {
        let found = plan["kubelet"]["findings"].as_array().expect("findings").first().cloned();
        found.map(|finding| finding["now"].clone())
    };
    let verified = here(["tune", "verify", "--state", state]);
    if let Some(now) = finding(&plan) {
        assert_eq!(now, "none");
        assert!(stdout(&verified).contains("cpuManagerPolicy is none, not static"), "{plan}");
    }
    // The advice is no setting that Tare wrote, so it does not count.
    assert!(verified.status.success(), "{}", stderr(&verified));
    fs::write(&config, "kind: [").expect("a file");
    let broken = stdout(&here(["tune", "verify", "--state", state]));
    assert!(broken.contains("kubelet.yaml as YAML"), "{broken}");
    drop(kubelet);
    let gone = stdout(&here(["tune", "verify", "--state", state]));
    assert!(!gone.contains("kubelet"), "{gone}");
}

/// A loop device on a file; detached when dropped.
struct Loop {
    name: String,
    _file: tempfile::NamedTempFile,
}

impl Loop {
    fn attach() -> Self {
        // In memory, because a disk of the host below the device would be tuned as well.
        let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a scratch file");
        file.as_file().set_len(16 << 20).expect("a file of 16 MiB");
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
        let output = output.expect("losetup starts");
        assert!(output.status.success(), "{}", stderr(&output));
        let name = stdout(&output).trim().trim_start_matches("/dev/").to_string();
        Self { name, _file: file }
    }

    /// The settings of its queue that a plan may change.
    fn queue(&self) -> Vec<String> {
        let read = |name: &str| {
            let path = format!("/sys/block/{}/queue/{name}", self.name);
            format!("{name} {}", fs::read_to_string(path).unwrap_or_default())
        };
        ["scheduler", "nomerges", "rq_affinity", "write_cache"].map(read).to_vec()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let device = format!("/dev/{}", self.name);
        let _ended = Command::new("losetup").args(["--detach", &device]).status();
    }
}

#[test]
fn disk_settings_are_applied_and_reverted() {
    const TEST: &str = "disk_settings_are_applied_and_reverted";
    if skipped(TEST, &[Need::Root, Need::Program("losetup")]) {
        return;
    }
    let _alone = alone();
    let disk = Loop::attach();
    let nomerges = format!("/sys/block/{}/queue/nomerges", disk.name);
    fs::write(&nomerges, "0").expect("nomerges can be written");
    let before = disk.queue();
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().to_str().expect("a path in UTF-8");
    let tune = |words: &[&str]| {
        tare().arg("--state").arg(state).arg("tune").args(words).output().expect("it starts")
    };
    let only = ["--dev", &disk.name, "--only", "disk_nomerges", "--only", "disk_scheduler"];
    let only = &only[..];
    assert!(
        !tune(&[&["apply"], only].concat()).status.success(),
        "apply needs --yes without a terminal"
    );
    let applied = tune(&[&["apply"], only, &["--yes"]].concat());
    assert!(applied.status.success(), "{}{}", stdout(&applied), stderr(&applied));
    assert!(stdout(&applied).contains("as tuning t0001"), "{}", stdout(&applied));
    let nomerges = format!("/sys/block/{}/queue/nomerges", disk.name);
    assert_eq!(fs::read_to_string(&nomerges).expect("it can be read").trim(), "2");
    let again = tune(&[&["plan"], only].concat());
    assert!(stdout(&again).contains("nothing to change"), "{}", stdout(&again));
    assert!(stdout(&tune(&["status"])).contains("in force"));
    assert!(tune(&["verify", "--after", "100ms"]).status.success());

    // A foreign change is reported and not reverted until the tuned value is back.
    fs::write(&nomerges, "1").expect("nomerges can be written");
    let verify = tune(&["verify"]);
    assert_eq!(verify.status.code(), Some(1), "{}", stdout(&verify));
    assert!(stdout(&verify).contains("changed by another process"), "{}", stdout(&verify));
    let reverted = tune(&["revert"]);
    assert_eq!(reverted.status.code(), Some(1), "{}", stdout(&reverted));
    assert_eq!(fs::read_to_string(&nomerges).expect("it can be read").trim(), "1");
    fs::write(&nomerges, "0").expect("nomerges can be written");
    assert!(tune(&["revert"]).status.success());
    assert_eq!(disk.queue(), before);
    assert!(!scratch.path().join("tune").exists(), "nothing is left in the state directory");
    assert!(stdout(&tune(&["status"])).contains("no tuning is applied"));
}

/// A network namespace with a veth pair in it; deleted on drop.
struct Net(String);

impl Net {
    fn create() -> Self {
        let net = Self(format!("tare-test-tune-{}", std::process::id()));
        let ip = |words: &[&str]| {
            let output = Command::new("ip").args(words).output().expect("ip starts");
            assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        };
        ip(&["netns", "add", &net.0]);
        let pair = ["link", "add", "va", "numrxqueues", "2", "numtxqueues", "2", "type", "veth"];
        ip(&[&["-n", &net.0], &pair[..], &["peer", "name", "vb"]].concat());
        for device in ["va", "vb", "lo"] {
            ip(&["-n", &net.0, "link", "set", device, "up"]);
        }
        net
    }

    /// Runs a command in the namespace, which has its own /sys.
    fn run(&self, words: &[&str]) -> Output {
        let output = Command::new("ip").args(["netns", "exec", &self.0]).args(words).output();
        output.expect("ip starts")
    }

    fn queues(&self) -> String {
        let list = "for f in /sys/class/net/va/queues/*/[rx]ps_* /sys/class/net/va/queues/*/rps_flow_cnt; do \
                    echo $f $(cat $f 2>/dev/null); done; cat /proc/sys/net/core/rps_sock_flow_entries";
        stdout(&self.run(&["sh", "-c", list]))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ended = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

#[test]
fn network_queue_settings_are_applied_and_reverted() {
    const TEST: &str = "network_queue_settings_are_applied_and_reverted";
    if skipped(TEST, &[Need::Root, Need::Program("ip")]) {
        return;
    }
    let _alone = alone();
    let net = Net::create();
    let before = net.queues();
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().to_str().expect("a path in UTF-8");
    let tune = |words: &[&str]| {
        let tare = env!("CARGO_BIN_EXE_tare");
        net.run(&[&[tare, "--state", state, "tune"], words].concat())
    };
    // One interrupt CPU, so that queues and steering differ; steering is per device.
    let plan = ["--nic", "va", "--only", "rps", "--only", "xps", "--only", "rfs"];
    let applied = tune(&[&["apply", "--yes"], &plan[..]].concat());
    assert!(applied.status.success(), "{}{}", stdout(&applied), stderr(&applied));
    if stdout(&applied).contains("nothing to change") {
        // With one CPU there is nothing to steer.
        return;
    }
    assert_ne!(net.queues(), before);
    assert!(tune(&["verify"]).status.success());
    let reverted = tune(&["revert"]);
    assert!(reverted.status.success(), "{}{}", stdout(&reverted), stderr(&reverted));
    assert_eq!(net.queues(), before);
}
