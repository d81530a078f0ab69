//! `tare disk` through the built program, on a loop device with ext4 that the test creates.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use common::{run_in, stderr, stdout, tare};
use tare_disk::{Options, Steady, Target};
use tare_testkit::host_state;
use tare_testkit::{Need, skipped};

const NEEDS: [Need; 4] =
    [Need::Root, Need::Program("losetup"), Need::Program("mkfs.ext4"), Need::Program("mount")];

/// A loop device on a sparse file; detached on drop.
struct Loop {
    folder: tempfile::TempDir,
    device: PathBuf,
}

impl Loop {
    fn new() -> Self {
        Self::of(1 << 30)
    }

    fn of(bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let device = succeed(Command::new("losetup").args(["--find", "--show"]).arg(&image));
        Self { folder, device: device.trim().into() }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _detached = Command::new("losetup").arg("--detach").arg(&self.device).output();
    }
}

/// A mounted ext4 on a loop device; unmounted on drop, before the loop device is detached.
struct Disk {
    device: PathBuf,
    point: PathBuf,
    state: PathBuf,
    _loop: Loop,
}

impl Disk {
    fn new() -> Self {
        let under = Loop::new();
        let (point, state) =
            (under.folder.path().join("mounted"), under.folder.path().join("state"));
        let disk = Self { device: under.device.clone(), point, state, _loop: under };
        succeed(Command::new("mkfs.ext4").arg("-q").arg(&disk.device));
        fs::create_dir(&disk.point).unwrap();
        succeed(Command::new("mount").arg(&disk.device).arg(&disk.point));
        disk
    }

    fn run(&self, path: &Path, arguments: &[&str]) -> Output {
        let fixed = ["--budget", "5s", "--state", self.state.to_str().unwrap()];
        let mut all = vec!["disk", path.to_str().unwrap()];
        all.extend(fixed);
        all.extend(arguments);
        run_in(self.state.parent().unwrap(), all)
    }

    /// Runs `tare disk`; expects this exit code and one line on stderr that contains these words.
    fn refuses(&self, path: &Path, arguments: &[&str], exit: i32, words: &str) {
        let output = self.run(path, arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(exit), "{said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{words:?} in {said}");
        assert!(self.is_clean());
    }

    fn is_clean(&self) -> bool {
        let names = fs::read_dir(&self.point).into_iter().flatten().flatten();
        !names.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("tare-"))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A program that was just killed may keep the mount busy a little longer.
        for _ in 0..50 {
            let unmounted = Command::new("umount").arg(&self.point).output();
            if unmounted.is_ok_and(|output| output.status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    stdout(&output)
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_str(&stdout(output)).unwrap()
}

fn kinds(report: &serde_json::Value) -> Vec<&str> {
    let doubts = report["doubts"].as_array().unwrap();
    doubts.iter().filter_map(|doubt| doubt["kind"].as_str()).collect()
}

#[test]
fn a_loop_device_with_ext4_is_measured_end_to_end() {
    if skipped("a_loop_device_with_ext4_is_measured_end_to_end", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let disk = Disk::new();
    let name = disk.device.file_name().unwrap().to_str().unwrap().to_string();

    // A directory: all four loads, the map, Seastar's file; nothing is left behind.
    let (map, yaml) = (disk.state.with_file_name("m.svg"), disk.state.with_file_name("p.yaml"));
    let size = ["--size", "128M", "--json"];
    let chart = disk.state.with_file_name("c.html");
    let path = |path: &Path| path.to_str().unwrap().to_string();
    let (map_path, yaml_path, chart_path) = (path(&map), path(&yaml), path(&chart));
    let pictures = ["--map", &map_path, "--io-properties", &yaml_path, "--chart", &chart_path];
    let report = json(&disk.run(&disk.point, &[size.as_slice(), &pictures].concat()));
    assert_eq!(report["loads"].as_array().unwrap().len(), 4);
    assert_eq!(report["mount"]["file_system"], "ext4");
    assert_eq!(report["device"]["name"], name.as_str());
    assert_eq!(report["size_bytes"], 128 << 20);
    assert_eq!(report["map"]["cells"].as_array().unwrap().len(), 441);
    for load in report["loads"].as_array().unwrap() {
        assert!(load["operations_per_s"]["value"].as_f64().unwrap() > 0.0, "{load}");
        assert_eq!(load["points"].as_array().unwrap().len(), 2);
    }
    let doubts = kinds(&report);
    assert!(doubts.contains(&"layered") && !doubts.contains(&"unseen"), "{doubts:?}");
    assert!(!doubts.contains(&"cached"), "{doubts:?}");
    assert!(fs::read_to_string(&map).unwrap().ends_with("</svg>\n"));
    let curves = fs::read_to_string(&chart).unwrap().matches("class=\"curve ").count();
    assert_eq!(curves, 4 + 8, "the rate, p50 and p99 of each load");
    let text = fs::read_to_string(&yaml).unwrap();
    let point = format!("disks:\n  - mountpoint: {}\n    read_iops: ", disk.point.display());
    assert!(text.starts_with(&point), "{text}");
    assert!(disk.is_clean());

    // A file is only read.
    let file = disk.point.join("mine");
    fs::write(&file, vec![7; 128 << 20]).unwrap();
    let report = json(&disk.run(&file, &["--json"]));
    let writes: Vec<_> =
        report["loads"].as_array().unwrap().iter().map(|load| load["write"].clone()).collect();
    assert_eq!(writes, [false, false]);
    assert!(fs::read(&file).unwrap().iter().all(|byte| *byte == 7));
    disk.refuses(&file, &["--map", "x.svg"], 2, "is only read");
    fs::write(&file, "small").unwrap();
    disk.refuses(&file, &[], 4, "128 MiB");

    // Too little space, and a device that is in use.
    disk.refuses(&disk.point, &["--size", "10G"], 1, "no room for 10240 MiB");
    let device = disk.device.to_str().unwrap().to_string();
    disk.refuses(&disk.device, &["--destroy-data-on", &device], 4, "is mounted on");
    disk.refuses(&disk.device, &["--destroy-data-on", "/dev/null"], 4, "would be destroyed");

    // An unused device is only read without the flag and overwritten with it. This one is never
    // mounted, because a mount may persist in another mount namespace.
    let raw = Loop::new();
    let report = json(&disk.run(&raw.device, &["--json"]));
    assert_eq!(report["loads"].as_array().unwrap().len(), 2);
    let start = || {
        let mut bytes = [0; 4096];
        fs::File::open(&raw.device).unwrap().read_exact(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(start(), [0; 4096]);
    let named = ["--json", "--size", "128M", "--destroy-data-on", raw.device.to_str().unwrap()];
    let report = json(&disk.run(&raw.device, &named));
    assert_eq!(report["loads"].as_array().unwrap().len(), 4);
    assert_ne!(start(), [0; 4096]);
    let journals = fs::read_dir(disk.state.join("runs")).unwrap().count();
    assert_eq!(journals, 0, "a journal is left");
}

#[test]
fn disk_is_made_steady_before_it_is_measured() {
    if skipped("disk_is_made_steady_before_it_is_measured", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let disk = Disk::new();
    // A round of a second may differ by more than the rule allows, and then has the doubt.
    let output = disk.run(&disk.point, &["--size", "128M", "--steady=1s", "--json"]);
    let said = stderr(&output);
    let cost = "making the disk steady: 2 x 128 MiB in sequence, then 4 KiB at random for 5 to 25 s, \
                beside the budget; at most 100 GB are written";
    assert!(said.contains(cost), "{said}");
    let report = json(&output);
    let steady = &report["steady"];
    let rounds = steady["rounds_per_s"].as_array().unwrap();
    assert!((5..=25).contains(&rounds.len()), "{steady}");
    assert!(rounds.iter().all(|rate| rate.as_f64().unwrap() > 0.0), "{steady}");
    assert_eq!(steady["passes"], 2);
    assert!(steady["written_bytes"].as_u64().unwrap() > 256 << 20, "{steady}");
    let within = |name: &str, most: f64| steady["last_rounds"][name].as_f64().unwrap() <= most;
    assert_eq!(
        steady["is_steady"].as_bool().unwrap(),
        within("range_share", 0.2) && within("slope_share", 0.1),
        "{steady}"
    );
    assert_eq!(kinds(&report).contains(&"not_steady"), !steady["is_steady"].as_bool().unwrap());
    assert!(!kinds(&report).contains(&"not_made_steady"), "{report}");
    let output = disk.run(&disk.point, &["--size", "128M", "--steady=1s"]);
    let text = stdout(&output);
    assert!(text.contains("made steady before: 2 passes, and "), "{text}");
    disk.refuses(&disk.device, &["--steady"], 2, "is only read");
    // What would write more than 100 GB needs consent. Nothing is written to this device.
    let large = Loop::of(60 << 30);
    let device = large.device.to_str().unwrap();
    let words = ["--size", "60G", "--steady", "--destroy-data-on", device];
    disk.refuses(&large.device, &words, 2, "--steady would write 128 GB in sequence");
}

#[test]
fn no_more_is_written_than_is_allowed() {
    if skipped("no_more_is_written_than_is_allowed", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let disk = Disk::new();
    let target = Target::find(&disk.point, Path::new("/")).unwrap();
    // A round of a minute writes more than a MiB.
    let steady = Steady { round: Duration::from_secs(60), writes_max: 257 << 20 };
    let options = Options {
        file: Some(disk.point.join("file")),
        destroy: false,
        size_bytes: Some(128 << 20),
        budget: Duration::from_secs(5),
        map: false,
        steady: Some(steady),
        seed: 1,
    };
    let report = tare_disk::measure(&target, &options, &AtomicBool::new(false), &mut |_| {});
    let report = report.unwrap();
    let made = report.steady.unwrap();
    assert_eq!((made.passes, made.rounds_per_s.len(), made.is_steady), (2, 0, false));
    assert!(made.written_bytes <= 257 << 20, "{made:?}");
    let said: Vec<String> = report.doubts.iter().map(ToString::to_string).collect();
    let expect = "more than 269 MB would have been written; --yes allows that";
    assert!(said.iter().any(|line| line.contains(expect)), "{said:?}");
}

#[test]
fn clean_removes_the_file_of_a_killed_run() {
    if skipped("clean_removes_the_file_of_a_killed_run", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let disk = Disk::new();
    let state = disk.state.to_str().unwrap();
    for wait in [0, 40, 1500] {
        let mut child = tare()
            .args(["disk", disk.point.to_str().unwrap(), "--size", "128M", "--state", state])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while disk.is_clean() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!disk.is_clean(), "the file was there when it was killed");
        let clean = run_in(&disk.point, ["clean", "--state", state]);
        assert!(clean.status.success(), "{}", stderr(&clean));
        assert!(disk.is_clean(), "{}", stdout(&clean));
    }
}

#[test]
fn paths_without_a_block_device_are_refused() {
    let here = tempfile::tempdir().unwrap();
    let check = |path: &str, words: &str| {
        let output = run_in(here.path(), ["disk", path]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    };
    check("/dev/shm", "tmpfs, which is memory");
    check("/proc", "has no block device in /sys");
    check("/dev/null", "not a directory, regular file or block device");
    check("nowhere", "cannot read nowhere");
}
