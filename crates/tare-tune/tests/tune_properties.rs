//! Properties of applying and reverting on every host and every plan.

mod tune_support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tare_tune::fixture::{Disk, DiskKind, Host, Nic};
use tare_tune::plan::{Item, Key, Options, Requirement, ValueFormat};
use tare_tune::planner::plan;
use tare_tune::snapshot::{Node, Snapshot};
use tare_tune::{
    OnDrift, Outcome, Purpose, SettingErrorClass, SettingStore, SnapshotHost, TuneError, Tuning,
    apply_plan, interrupt_cpus, revert_all,
};
use tune_support::{Tree, item};

/// Files with their values; changes of some files: file, value, requirement; files that refuse
/// writes.
type Changes = (BTreeMap<u8, u32>, Vec<(u8, u32, u8)>, Vec<u8>);

fn changes() -> impl Strategy<Value = Changes> {
    let files = prop::collection::btree_map(0..40_u8, 0..16_u32, 1..30);
    let wanted = prop::collection::vec((0..45_u8, 0..16_u32, 0..8_u8), 0..60);
    let refused = prop::collection::vec(0..40_u8, 0..4);
    (files, wanted, refused)
}

fn path(file: u8) -> String {
    format!("/sys/class/net/eth0/queues/rx-{file}/rps_cpus")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Applying and reverting leaves every host unchanged, whatever failed in between: three times
    /// with one tuning, then with several tunings on top of each other.
    #[test]
    fn apply_then_revert_is_identity((files, wanted, refused) in changes()) {
        let scratch = Tree::new("property");
        let mut snapshot = Snapshot::default();
        for (file, value) in &files {
            snapshot.insert(&path(*file), Node::File(format!("{value:x}")));
        }
        let mut store = SnapshotHost::new(snapshot.clone());
        for file in &refused {
            let class = match file % 3 {
                0 => SettingErrorClass::NotTaken,
                1 => SettingErrorClass::ManagedIrq,
                _ => SettingErrorClass::Failed,
            };
            store = store.failing(&format!("rx-{file}/"), class);
        }
        let needs = [Requirement::Required, Requirement::BestEffort, Requirement::Wanted];
        let items: Vec<Item> = wanted.iter().map(|(file, value, need)| {
            let need = needs[usize::from(*need).min(2)];
            item(&path(*file), ValueFormat::Mask, &format!("{value:08x}"), need)
        }).collect();
        let mut tuning = Tuning::begin(&scratch.state(), &store, Purpose::Keep).unwrap();
        for _ in 0..3 {
            match tuning.apply(&mut store, &items) {
                Ok(applied) => {
                    for done in applied.written() {
                        let change = done.change().unwrap();
                        let last = items.iter().rfind(|item| {
                            item.change().unwrap().key == change.key
                        });
                        if last == Some(done) {
                            let now = store.read(&change.key).unwrap();
                            prop_assert!(change.form.same(&now, &change.wanted), "{}", now);
                        }
                    }
                }
                Err(TuneError::RolledBack { reverted, .. }) => prop_assert!(reverted.is_whole()),
                Err(error) => prop_assert!(false, "{}", error),
            }
            let reverted = tuning.revert(&mut store);
            prop_assert!(reverted.is_whole(), "{:?}", reverted.left());
            prop_assert_eq!(&store.snapshot, &snapshot);
        }
        drop(tuning);
        prop_assert!(!scratch.state().join("tune").exists());
        for part in items.chunks(7) {
            let mut tuning = Tuning::begin(&scratch.state(), &store, Purpose::Keep).unwrap();
            let _ = tuning.apply(&mut store, part);
        }
        let state = scratch.state();
        let reverted = revert_all(&mut store, &state, None, OnDrift::Keep).unwrap();
        prop_assert!(reverted.iter().all(|reverted| reverted.is_whole()), "{:?}", reverted);
        prop_assert_eq!(&store.snapshot, &snapshot);
        prop_assert!(!state.join("tune").exists());
    }
}

/// On hosts from descriptions: an applied plan leaves nothing to change, and a revert leaves the
/// host unchanged.
#[test]
fn applied_plan_is_complete_and_revert_is_identity() {
    let scratch = Tree::new("plan");
    for (nodes, cores, threads) in [(1, 4, 1), (1, 16, 2), (2, 24, 2)] {
        let mut host = Host::new(nodes, cores, threads);
        host.nics.push(Nic::new("eth0", "ena", 8));
        host.disks.push(Disk::new("nvme0n1", DiskKind::Nvme, 8));
        let snapshot = host.build();
        let mut store = SnapshotHost::new(snapshot.clone());
        let options = Options { devices: vec!["nvme0n1".into()], ..Options::default() };
        let state = scratch.state();
        let (_, applied) = apply_plan(&mut store, &state, &options, Purpose::Keep).unwrap();
        let failed: Vec<_> = applied.failed().collect();
        assert!(failed.is_empty(), "{failed:?}");
        let refused = applied.items.iter().filter_map(|item| match &item.outcome {
            Outcome::Refused { error } => Some(error),
            _ => None,
        });
        let left = plan(&store.snapshot(), &options).unwrap();
        let left: Vec<&Item> = left.changes().map(|(item, _)| item).collect();
        assert_eq!(left.len(), refused.count(), "{nodes}x{cores}x{threads}: {left:?}");
        let reverted = revert_all(&mut store, &state, None, OnDrift::Keep).unwrap();
        assert!(reverted.iter().all(|reverted| reverted.is_whole()), "{reverted:?}");
        assert_eq!(store.snapshot, snapshot);
        let (_, again) = apply_plan(&mut store, &state, &options, Purpose::Keep).unwrap();
        assert_eq!(again.written().count(), applied.written().count());
        revert_all(&mut store, &state, None, OnDrift::Keep).unwrap();
    }
}

/// The interrupt CPUs of a plan are known while its interrupts are where it moved them, and only
/// where the plan keeps CPUs for them.
#[test]
fn interrupt_cpus_are_those_of_the_applied_plan() {
    let scratch = Tree::new("interrupt-cpus");
    let state = scratch.state();
    let host = |cores: u32, threads: u32| {
        let mut host = Host::new(1, cores, threads);
        host.nics.push(Nic::new("eth0", "ena", 2));
        SnapshotHost::new(host.build())
    };
    let known =
        |store: &SnapshotHost| interrupt_cpus(store, &state).unwrap().map(|cpus| cpus.to_string());
    let apply = |store: &mut SnapshotHost, options: &Options| {
        apply_plan(store, &state, options, Purpose::Keep).unwrap();
    };
    let mut store = host(16, 2);
    assert_eq!(known(&store), None);
    apply(&mut store, &Options { only: vec!["limits".into()], ..Options::default() });
    assert_eq!(known(&store), None, "no interrupt was moved");
    apply(&mut store, &Options::default());
    assert_eq!(known(&store).as_deref(), Some("0,16"));
    revert_all(&mut store, &state, None, OnDrift::Keep).unwrap();
    assert_eq!(known(&store), None);
    // Two interrupts on two of four CPUs: the plan keeps none of them free of computing.
    let mut small = host(4, 1);
    apply(&mut small, &Options::default());
    assert_eq!(known(&small), None);
}

/// An interrupt with a new number is found by its name; an absent one is not written.
#[test]
fn finds_renumbered_interrupt_by_name() {
    let scratch = Tree::new("renumbered");
    let host = |first: u32, second: u32| {
        let mut snapshot = Snapshot::default();
        let text = format!(
            "      CPU0 CPU1\n{first}: 5 6 PCI-MSIX-0000:00:03.0 1-edge virtio2-input.0\n\
             {second}: 5 6 PCI-MSIX-0000:00:04.0 1-edge virtio3-req.0\n"
        );
        snapshot.insert("/proc/interrupts", Node::File(text));
        for number in [first, second] {
            let path = format!("/proc/irq/{number}/smp_affinity");
            snapshot.insert(&path, Node::File("3".into()));
        }
        snapshot
    };
    let mut store = SnapshotHost::new(host(38, 39));
    let mut one = item("/proc/irq/38/smp_affinity", ValueFormat::Mask, "1", Requirement::Required);
    if let tare_tune::plan::Action::Change(change) = &mut one.action {
        change.identity.pci = Some("0000:00:03.0".into());
        change.identity.irq_name = Some("virtio2-input.0".into());
    }
    let state = scratch.state();
    let apply = |store: &mut SnapshotHost| {
        let mut tuning = Tuning::begin(&state, store, Purpose::Keep).unwrap();
        tuning.apply(store, std::slice::from_ref(&one)).unwrap();
    };
    apply(&mut store);
    // The driver recreated its queues: 38 now belongs to another device; ours is 57 and kept its
    // CPUs.
    store.snapshot = host(57, 38);
    store.snapshot.write("/proc/irq/57/smp_affinity", "1");
    store.snapshot.write("/proc/irq/38/smp_affinity", "1");
    assert!(revert_all(&mut store, &state, None, OnDrift::Keep).unwrap()[0].is_whole());
    let read = |store: &SnapshotHost, number: u32| {
        store.read(&Key::file(format!("/proc/irq/{number}/smp_affinity"))).unwrap()
    };
    assert_eq!((read(&store, 57), read(&store, 38)), ("3".into(), "1".into()));

    store.snapshot = host(38, 39);
    apply(&mut store);
    store.snapshot = host(40, 38);
    store.snapshot.remove("/proc/irq/40");
    let text = store.snapshot.read("/proc/interrupts").unwrap().replace("virtio2", "virtio9");
    store.snapshot.write("/proc/interrupts", &text);
    store.snapshot.write("/proc/irq/38/smp_affinity", "1");
    assert!(revert_all(&mut store, &state, None, OnDrift::Keep).unwrap()[0].is_whole());
    assert_eq!(read(&store, 38), "1", "it belongs to another device now");
}
