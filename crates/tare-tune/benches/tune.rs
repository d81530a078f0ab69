//! Measures the time to plan a large host, and to apply and revert 2,000 settings in a directory.
//! Prints raw figures; asserts only that the measured work was done.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and fails loudly")]

use std::fs;
use std::time::Instant;

use tare_tune::fixture::{Disk, DiskKind, Host, Nic};
use tare_tune::plan::{
    Action, Change, Group, Identity, Item, Key, Options, Requirement, ValueFormat,
};
use tare_tune::planner::plan;
use tare_tune::{LiveHost, Purpose, Tuning};

fn main() {
    // Without the flag of `cargo bench` this is a test, with tiny inputs.
    let tiny = !std::env::args().any(|argument| argument == "--bench");
    let (nics, disks, settings, times) = if tiny { (1, 1, 20, 1) } else { (8, 32, 2000, 10) };
    let mut host = if tiny { Host::new(1, 2, 1) } else { Host::new(2, 64, 2) };
    for number in 0..nics {
        host.nics.push(Nic::new(&format!("eth{number}"), "mlx5_core", 64));
    }
    for number in 0..disks {
        host.disks.push(Disk::new(&format!("nvme{number}n1"), DiskKind::Nvme, 64));
    }
    let devices = host.disks.iter().map(|disk| disk.name.clone()).collect();
    let options = Options { devices, ..Options::default() };
    let snapshot = host.build();
    let mut millis: Vec<f64> = Vec::new();
    let mut changes = 0;
    for _ in 0..2 * times {
        let begin = Instant::now();
        match plan(&snapshot, &options) {
            Ok(plan) => changes = plan.changes().count(),
            Err(error) => println!("plan: {error}"),
        }
        millis.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    show(&format!("plan of {nics} NICs of 64 queues, {disks} disks (ms)"), &mut millis);
    println!("  changes in it: {changes}");

    // The directory replaces kernel files, so it is in memory; the journal is on a disk.
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let state = tempfile::tempdir().unwrap();
    let files: Vec<String> = (0..settings)
        .map(|number| format!("/sys/class/net/eth{}/queues/rx-{number}/rps_cpus", number % 8))
        .collect();
    for file in &files {
        let path = root.path().join("host").join(&file[1..]);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "0\n").unwrap();
    }
    let items: Vec<Item> = files.iter().map(|file| item(file)).collect();
    let mut store = LiveHost::new(root.path().join("host"));
    let purpose = Purpose::Temporary { run: "bench".into() };
    let mut tuning = Tuning::begin(state.path(), &store, purpose).unwrap();
    let (mut applied, mut reverted) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let begin = Instant::now();
        let done = tuning.apply(&mut store, &items).unwrap();
        applied.push(begin.elapsed().as_secs_f64() * 1e3);
        assert_eq!(done.written().count(), settings);
        let begin = Instant::now();
        assert!(tuning.revert(&mut store).is_whole());
        reverted.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    println!("  first apply (journal written): {:.1} ms", applied[0]);
    show(&format!("apply of {settings} settings on a directory (ms)"), &mut applied);
    show("revert of them (ms)", &mut reverted);
}

fn show(what: &str, figures: &mut [f64]) {
    figures.sort_by(f64::total_cmp);
    let (first, middle) = (figures[0], figures[figures.len() / 2]);
    let last = figures[figures.len() - 1];
    println!("{what}: min {first:.1}, median {middle:.1}, max {last:.1}, n {}", figures.len());
}

fn item(path: &str) -> Item {
    Item {
        knob: "bench".into(),
        group: Group::Network,
        subject: "host".into(),
        what: path.into(),
        action: Action::Change(Change {
            key: Key::file(path),
            form: ValueFormat::Mask,
            now: "0".into(),
            wanted: "ffffffff,ffffffff".into(),
            requirement: Requirement::Required,
            identity: Identity::default(),
            stage: 1,
        }),
        why: String::new(),
        risk: String::new(),
        owner: None,
        survives_reboot: false,
    }
}
