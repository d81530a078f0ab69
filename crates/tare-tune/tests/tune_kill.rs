//! Kills a tuning with SIGKILL at random points while it applies or reverts, then reverts it: every
//! value is as before. On a directory, and on veth and loop devices of the kernel.
//!
//! Method: this test binary runs itself as the child that is killed; environment variables select
//! its task.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tare_tune::plan::{EthtoolSetting, Item, Key, Requirement, ValueFormat};
use tare_tune::snapshot::Snapshot;
use tare_tune::{LiveHost, OnDrift, Purpose, SettingError, SettingStore, Tuning, revert_all};

mod tune_support;
use tare_testkit::Need as Needed;
use tune_support::{item, with_key};

/// The number of kills that must hit midway, both while it applies and while it reverts.
const HITS_MIN: u32 = 5;

/// The maximum of kills.
const KILLS_MAX: u32 = 400;

/// A host with slow writes.
struct Slow(LiveHost, Duration);

impl SettingStore for Slow {
    fn read(&self, key: &Key) -> Result<String, SettingError> {
        self.0.read(key)
    }
    fn write(&mut self, key: &Key, value: &str) -> Result<(), SettingError> {
        sleep(self.1);
        self.0.write(key, value)
    }
    fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }
    fn boot_id(&self) -> String {
        self.0.boot_id()
    }
}

/// The arguments of a child.
struct Work {
    folder: PathBuf,
    root: PathBuf,
    /// The network namespace of the child.
    namespace: Option<String>,
    pause_us: u64,
}

impl Work {
    fn items(&self, items: &[Item]) {
        fs::write(self.folder.join("items"), serde_json::to_string(items).unwrap()).unwrap();
    }

    fn start(&self, what: &str, pause_us: u64) -> Child {
        let program = std::env::current_exe().unwrap();
        let mut command = match &self.namespace {
            None => Command::new(program),
            // `ip netns exec` executes the program in place, so the kill hits it.
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(program);
                command
            }
        };
        command.args(["--exact", "killed_child"]);
        command.env("TARE_TEST_DO", what).env("TARE_TEST_FOLDER", &self.folder);
        command.env("TARE_TEST_ROOT", &self.root);
        command.env("TARE_TEST_PAUSE_US", pause_us.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command.spawn().unwrap()
    }

    fn run(&self, what: &str) {
        assert!(self.start(what, 0).wait().unwrap().success(), "{what}");
    }

    /// Returns the value of every item.
    fn values(&self) -> BTreeMap<String, String> {
        self.run("values");
        serde_json::from_slice(&fs::read(self.folder.join("values")).unwrap()).unwrap()
    }

    /// Kills a child at random points between its start and its end, half of the time while it
    /// applies, half while it reverts. Continues until enough of both kills hit midway, or fails
    /// after too many. Returns the number of kills, and how many of each kind hit midway.
    fn kill_often(&self, kills: u32) -> (u32, [u32; 2]) {
        let before = self.values();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        // How long a child takes that is not killed.
        let begin = std::time::Instant::now();
        assert!(self.start("apply", self.pause_us).wait().unwrap().success());
        let micros = u64::try_from(begin.elapsed().as_micros()).unwrap();
        let after = self.values();
        self.run("revert");
        assert_eq!(self.values(), before);
        let (mut midway, mut kill) = ([0, 0], 0);
        while kill < kills || midway.iter().any(|hits| *hits < HITS_MIN) {
            assert!(kill < KILLS_MAX, "{midway:?} of {kill} kills hit midway");
            let what = if kill % 2 == 0 { "apply" } else { "revert" };
            if what == "revert" {
                self.run("apply");
            }
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut child = self.start(what, self.pause_us);
            sleep(Duration::from_micros(random % micros));
            child.kill().unwrap();
            child.wait().unwrap();
            let now = self.values();
            midway[kill as usize % 2] += u32::from(now != before && now != after);
            self.run("revert");
            assert_eq!(self.values(), before, "after kill {kill} during {what}");
            assert!(!self.folder.join("state/tune").exists(), "after kill {kill}");
            kill += 1;
        }
        (kill, midway)
    }
}

/// The child process; without its variables it does nothing.
#[test]
fn killed_child() {
    let Ok(what) = std::env::var("TARE_TEST_DO") else { return };
    let variable = |name: &str| std::env::var(name).unwrap();
    let folder = PathBuf::from(variable("TARE_TEST_FOLDER"));
    let state = folder.join("state");
    let pause = Duration::from_micros(variable("TARE_TEST_PAUSE_US").parse().unwrap());
    let mut store = Slow(LiveHost::new(variable("TARE_TEST_ROOT")), pause);
    let items: Vec<Item> =
        serde_json::from_slice(&fs::read(folder.join("items")).unwrap()).unwrap();
    match what.as_str() {
        "apply" => {
            let mut tuning = Tuning::begin(&state, &store, Purpose::Keep).unwrap();
            let applied = tuning.apply(&mut store, &items).unwrap();
            let failed: Vec<_> = applied.failed().map(|(_, error)| error).collect();
            assert!(failed.is_empty(), "{failed:?}");
        }
        "revert" => {
            for reverted in revert_all(&mut store, &state, None, OnDrift::Keep).unwrap() {
                assert!(reverted.is_whole(), "{:?}", reverted.left());
            }
        }
        "values" => {
            let read = |item: &Item| {
                let change = item.change().unwrap();
                let value = store.read(&change.key).unwrap_or_else(|error| error.text);
                (item.what.clone(), change.form.normalize(&value))
            };
            let values: BTreeMap<String, String> = items.iter().map(read).collect();
            fs::write(folder.join("values"), serde_json::to_string(&values).unwrap()).unwrap();
        }
        other => panic!("{other}"),
    }
}

/// A folder that is removed at the end of the test, with everything else that was created.
struct Scratch(PathBuf, Vec<Vec<String>>);

impl Scratch {
    fn new(name: &str) -> Self {
        // In memory if there is such a folder: files are replaced by renaming, which a file system
        // on a disk may sync.
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = folder.join(format!("tare-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path, Vec::new())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for command in self.1.iter().rev() {
            let _ = Command::new(&command[0]).args(&command[1..]).status();
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run_command(command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {error}");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

#[test]
#[expect(clippy::print_stderr, reason = "prints how many kills hit midway")]
fn survives_fifty_kills_on_directory() {
    let scratch = Scratch::new("kill");
    let root = scratch.0.join("host");
    let mut items = Vec::new();
    for number in 0..300 {
        let path = format!("/sys/class/net/eth{}/queues/rx-{number}/rps_cpus", number % 7);
        let file = root.join(&path[1..]);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{number:x}\n")).unwrap();
        items.push(item(&path, ValueFormat::Mask, "ff,00000001", Requirement::Required));
    }
    let work = Work { folder: scratch.0.clone(), root, namespace: None, pause_us: 100 };
    work.items(&items);
    let bytes = |path: &str| fs::read(scratch.0.join("host").join(&path[1..])).unwrap();
    let path = "/sys/class/net/eth3/queues/rx-255/rps_cpus";
    let (kills, [applying, reverting]) = work.kill_often(50);
    assert_eq!(bytes(&path.replace("eth3", &format!("eth{}", 255 % 7))), b"ff\n");
    eprintln!("killed midway: {applying} applying, {reverting} reverting, of {kills}");
}

#[test]
#[expect(clippy::print_stderr, reason = "prints how many kills hit midway")]
fn survives_fifty_kills_on_veth_and_loop() {
    let name = "survives_fifty_kills_on_veth_and_loop";
    if tare_testkit::skipped(
        name,
        &[Needed::Root, Needed::Program("ip"), Needed::Program("losetup")],
    ) {
        return;
    }
    let mut scratch = Scratch::new("kill-real");
    let namespace = format!("tare-test{}", std::process::id());
    run_command(&format!("ip netns add {namespace}"));
    let words = |text: String| text.split(' ').map(str::to_string).collect::<Vec<_>>();
    scratch.1.push(words(format!("ip netns delete {namespace}")));
    run_command(&format!(
        "ip -netns {namespace} link add tare-tv0 numtxqueues 4 numrxqueues 4 type veth \
         peer name tare-tv1 numtxqueues 4 numrxqueues 4"
    ));
    let mut items = Vec::new();
    let mut add = |path: String, form: ValueFormat, wanted: &str| {
        items.push(item(&path, form, wanted, Requirement::Required));
    };
    for device in ["tare-tv0", "tare-tv1"] {
        let folder = format!("/sys/class/net/{device}");
        for queue in 0..4 {
            add(format!("{folder}/queues/rx-{queue}/rps_cpus"), ValueFormat::Mask, "3");
            add(format!("{folder}/queues/rx-{queue}/rps_flow_cnt"), ValueFormat::Text, "64");
            add(format!("{folder}/queues/tx-{queue}/xps_cpus"), ValueFormat::Mask, "1");
        }
        add(format!("{folder}/gro_flush_timeout"), ValueFormat::Text, "20000");
        add(format!("{folder}/napi_defer_hard_irqs"), ValueFormat::Text, "2");
    }
    let image = scratch.0.join("image");
    fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let attached = Command::new("losetup").args(["--find", "--show"]).arg(&image).output().unwrap();
    if attached.status.success() {
        let device = String::from_utf8_lossy(&attached.stdout).trim().to_string();
        scratch.1.push(vec!["losetup".into(), "--detach".into(), device.clone()]);
        let queue = format!("/sys/block/{}/queue", device.trim_start_matches("/dev/"));
        let now = fs::read_to_string(format!("{queue}/scheduler")).unwrap();
        let other = if now.contains("[none]") { "mq-deadline" } else { "none" };
        if now.contains(other) {
            add(format!("{queue}/scheduler"), ValueFormat::Choice, other);
        }
        add(format!("{queue}/nomerges"), ValueFormat::Text, "2");
        add(format!("{queue}/rq_affinity"), ValueFormat::Text, "2");
        add(format!("{queue}/read_ahead_kb"), ValueFormat::Text, "64");
    } else {
        let said = String::from_utf8_lossy(&attached.stderr).into_owned();
        tare_testkit::skip(name, tare_testkit::Reason::no_loop_device(&said));
    }
    let work = Work {
        folder: scratch.0.clone(),
        root: "/".into(),
        namespace: Some(namespace),
        pause_us: 1000,
    };
    work.items(&items);
    let (kills, [applying, reverting]) = work.kill_often(50);
    eprintln!("killed midway: {applying} applying, {reverting} reverting, of {kills}");
}

#[test]
fn revert_restores_channels_and_queues_of_veth() {
    let name = "revert_restores_channels_and_queues_of_veth";
    if tare_testkit::skipped(name, &[Needed::Root, Needed::Program("ip")]) {
        return;
    }
    let mut scratch = Scratch::new("channels-real");
    let namespace = format!("tare-testc{}", std::process::id());
    run_command(&format!("ip netns add {namespace}"));
    let delete = ["ip", "netns", "delete", &namespace];
    scratch.1.push(delete.map(str::to_string).to_vec());
    run_command(&format!(
        "ip -netns {namespace} link add tare-tv0 numtxqueues 4 numrxqueues 4 type veth \
         peer name tare-tv1 numtxqueues 4 numrxqueues 4"
    ));
    let work = Work {
        folder: scratch.0.clone(),
        root: "/".into(),
        namespace: Some(namespace),
        pause_us: 0,
    };
    let rps = |queue: u32, wanted: &str| {
        let path = format!("/sys/class/net/tare-tv0/queues/rx-{queue}/rps_cpus");
        item(&path, ValueFormat::Mask, wanted, Requirement::Required)
    };
    // The user set CPUs for every queue.
    work.items(&[rps(0, "2"), rps(1, "1"), rps(2, "2"), rps(3, "3")]);
    work.run("apply");
    fs::remove_dir_all(scratch.0.join("state")).unwrap();
    let key = Key::Ethtool { nic: "tare-tv0".into(), setting: EthtoolSetting::ChannelsRx };
    let channels = |wanted| with_key(key.clone(), ValueFormat::Text, wanted, Requirement::Required);
    work.items(&[channels("4"), rps(0, ""), rps(1, ""), rps(2, ""), rps(3, "")]);
    let before = work.values();
    work.items(&[channels("2"), rps(0, "3")]);
    work.run("apply");
    assert!(!work.values()[&channels("2").what].contains('4'));
    work.run("revert");
    work.items(&[channels("4"), rps(0, ""), rps(1, ""), rps(2, ""), rps(3, "")]);
    assert_eq!(work.values(), before);
    assert!(Path::new(&scratch.0).exists());
}
