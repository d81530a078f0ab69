//! Stores a plan and installs the unit that applies it at boot.

mod tune_support;

use std::fs;
use std::path::Path;
use std::process::Command;

use tare_tune::plan::Options;
use tare_tune::snapshot::{Node, Snapshot};
use tare_tune::{
    OnDrift, PersistError, SnapshotHost, UNIT, Units, apply_stored, persist, remove, revert_all,
    status, store, stored_plan, unit,
};
use tune_support::Tree;

/// Returns a host with CPUs and a sysctl that every plan changes.
fn host(cpus: u32) -> SnapshotHost {
    let mut snapshot = Snapshot::default();
    let mut put = |path: String, text: String| snapshot.insert(&path, Node::File(text));
    let last = cpus - 1;
    for file in ["online", "possible", "present"] {
        put(format!("/sys/devices/system/cpu/{file}"), format!("0-{last}"));
    }
    put("/sys/devices/system/node/online".into(), "0".into());
    put("/sys/devices/system/node/node0/cpulist".into(), format!("0-{last}"));
    for cpu in 0..cpus {
        let topology = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        for file in ["thread_siblings_list", "core_cpus_list"] {
            put(format!("{topology}/{file}"), cpu.to_string());
        }
        put(format!("{topology}/core_id"), cpu.to_string());
        put(format!("{topology}/physical_package_id"), "0".into());
    }
    put("/proc/sys/vm/swappiness".into(), "60".into());
    put("/proc/sys/net/core/somaxconn".into(), "128".into());
    put("/proc/meminfo".into(), "MemTotal: 16777216 kB".into());
    SnapshotHost::new(snapshot)
}

#[test]
fn stores_applies_and_removes_plan() {
    let tree = Tree::new("persist");
    let (state, folder) = (tree.state(), tree.root.join("systemd"));
    fs::create_dir_all(&folder).unwrap();
    let units = Units::at(&folder);
    let mut store = host(4);
    let tare = Path::new("/usr/local/bin/tare");
    let options = Options { only: vec!["limits".into()], ..Options::default() };
    let text = persist(&store, &state, &options, tare, &units).unwrap();
    assert_eq!(fs::read_to_string(folder.join(UNIT)).unwrap(), text);
    assert!(folder.join("multi-user.target.wants").join(UNIT).is_symlink());
    assert!(!state.join("tune/lock").exists());

    // On the same hardware only the stored plan is applied.
    let before = store.snapshot.clone();
    let stored = apply_stored(&mut store, &state).unwrap();
    assert!(stored.changed.is_empty() && stored.left_out.is_empty(), "{stored:?}");
    assert!(stored.applied.written().count() > 0, "{stored:?}");
    assert_eq!(status(&store, &state).unwrap().len(), 1);
    assert!(status(&store, &state).unwrap()[0].is_in_force());

    // Other hardware gets a new plan, and the outcome names the change.
    let mut other = host(8);
    let stored = apply_stored(&mut other, &state).unwrap();
    assert!(stored.changed[0].contains("CPUs"), "{:?}", stored.changed);

    // Reverting everything removes the unit too.
    let mut reverted = revert_all(&mut store, &state, None, OnDrift::Keep).unwrap();
    assert_eq!(reverted.remove(0).id, "persist");
    assert_eq!(store.snapshot, before);
    assert!(!state.join("tune").exists() && !folder.join(UNIT).exists());
    let Err(PersistError::NotStored { .. }) = apply_stored(&mut store, &state) else { panic!() };

    persist(&store, &state, &options, tare, &units).unwrap();
    assert_eq!(remove(&state).unwrap().len(), 4);
    assert!(remove(&state).unwrap().is_empty() && !state.join("tune").exists());
    // The user's own unit of that name stays.
    fs::write(folder.join(UNIT), "[Unit]\n").unwrap();
    let error = persist(&store, &state, &options, tare, &units).unwrap_err();
    let PersistError::Foreign { .. } = error else { panic!("{error}") };
    assert!(folder.join(UNIT).exists());
}

#[test]
fn systemd_accepts_unit() {
    if tare_testkit::skipped(
        "systemd_accepts_unit",
        &[tare_testkit::Need::Program("systemd-analyze")],
    ) {
        return;
    }
    let tree = Tree::new("analyze");
    let tare = tree.root.join("a 100% $program");
    fs::copy("/bin/true", &tare).unwrap();
    let path = tree.root.join(UNIT);
    fs::write(&path, unit(&tare, Path::new("/var/lib/tare"))).unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let about_ours: Vec<&str> = said.lines().filter(|line| line.contains(UNIT)).collect();
    assert!(output.status.success() && about_ours.is_empty(), "{said}");
}

#[test]
fn a_plan_is_stored_where_none_is_persisted() {
    let tree = Tree::new("store");
    let (state, folder) = (tree.state(), tree.root.join("systemd"));
    fs::create_dir_all(&folder).unwrap();
    let mut host = host(4);
    let options = Options { only: vec!["limits".into()], ..Options::default() };
    let plan = stored_plan(&host, &options).unwrap();
    store(&state, &plan).unwrap();
    let stored = apply_stored(&mut host, &state).unwrap();
    assert!(stored.applied.written().count() > 0, "{stored:?}");
    revert_all(&mut host, &state, None, OnDrift::Keep).unwrap();
    assert!(!state.join("tune").exists());

    persist(&host, &state, &options, Path::new("/usr/local/bin/tare"), &Units::at(&folder))
        .unwrap();
    let error = store(&state, &plan).unwrap_err();
    let PersistError::HasOwn = error else { panic!("{error}") };
    assert_eq!(remove(&state).unwrap().len(), 4);
}
