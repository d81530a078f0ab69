//! Applies and reverts on directories with the files of a host.

mod tune_support;

use tare_tune::plan::{Action, EthtoolSetting, Item, Key, Requirement, ValueFormat};
use tare_tune::snapshot::{Node, Snapshot};
use tare_tune::{
    OnDrift, Outcome, Purpose, RevertOutcome, SettingError, SettingErrorClass, SnapshotHost,
    TuneError, Tuning, clean, revert_all,
};
use tune_support::{Tree, item, text, with_key};

fn begin(tree: &Tree) -> Tuning {
    Tuning::begin(&tree.state(), tree, Purpose::Keep).expect("begins")
}

fn three(tree: &Tree) -> Vec<Item> {
    tree.put("/sys/a/rps_cpus", "f");
    tree.put("/sys/a/scheduler", "[mq-deadline] none");
    tree.put("/proc/sys/b", "1\t2\t3");
    vec![
        item("/sys/a/rps_cpus", ValueFormat::Mask, "00000000,00000003", Requirement::Wanted),
        item("/sys/a/scheduler", ValueFormat::Text, "none", Requirement::Wanted),
        item("/proc/sys/b", ValueFormat::Words, "4 5 6", Requirement::Required),
    ]
}

#[test]
fn revert_restores_every_byte() {
    let mut tree = Tree::new("identity");
    let items = three(&tree);
    let before = tree.all();
    let mut tuning = begin(&tree);
    assert_eq!(tuning.id(), "t0001");
    let applied = tuning.apply(&mut tree, &items).unwrap();
    assert_eq!((applied.id.as_str(), applied.written().count()), ("t0001", 3));
    assert_eq!(tree.get("/proc/sys/b"), "4 5 6");
    drop(tuning);
    assert!(tree.state().join("tune/t0001.journal").exists());
    assert!(!tree.state().join("tune/lock").exists());

    // The second tuning finds the wanted values and leaves no journal.
    let again = begin(&tree).apply(&mut tree, &items).unwrap();
    assert!(again.id.is_empty() && again.items.iter().all(|i| i.outcome == Outcome::Already));
    assert!(!tree.state().join("tune/t0002.journal").exists());

    let state = tree.state();
    let reverted = revert_all(&mut tree, &state, None, OnDrift::Keep).unwrap();
    assert!(reverted.len() == 1 && reverted[0].is_whole(), "{reverted:?}");
    assert_eq!(tree.all(), before);
    assert!(!tree.state().join("tune").exists());
    assert!(revert_all(&mut tree, &state, None, OnDrift::Keep).unwrap().is_empty());
}

#[test]
fn temporary_tuning_applies_and_reverts_repeatedly() {
    let mut tree = Tree::new("toggle");
    let items = three(&tree);
    let before = tree.all();
    let purpose = Purpose::Temporary { run: "abcd".into() };
    let mut tuning = Tuning::begin(&tree.state(), &tree, purpose.clone()).unwrap();
    for _ in 0..5 {
        assert_eq!(tuning.apply(&mut tree, &items).unwrap().written().count(), 3);
        assert_ne!(tree.all(), before);
        let state = tree.state();
        assert!(clean(&mut tree, &state).unwrap().is_empty(), "it is alive");
        assert!(tuning.revert(&mut tree).is_whole());
        assert_eq!(tree.all(), before);
    }
    // One group alone, then all.
    assert_eq!(tuning.apply(&mut tree, &items[..1]).unwrap().written().count(), 1);
    assert_eq!(tuning.apply(&mut tree, &items).unwrap().written().count(), 2);
    drop(tuning);
    // Its process died: the next tuning and `clean` revert it.
    let state = tree.state();
    assert_ne!(tree.all(), before);
    let reverted = clean(&mut tree, &state).unwrap();
    assert!(reverted.len() == 1 && reverted[0].is_whole());
    assert_eq!(tree.all(), before);
    assert!(!tree.state().join("tune").exists());
}

#[test]
fn failed_required_setting_rolls_everything_back() {
    let mut tree = Tree::new("rollback");
    let items = three(&tree);
    let before = tree.all();
    tree.refused = vec![("/proc/sys/b".into(), SettingErrorClass::Failed)];
    let error = begin(&tree).apply(&mut tree, &items).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("required setting failed") && text.contains("rolled back"), "{text}");
    let TuneError::RolledBack { reverted, .. } = error else { panic!("{text}") };
    assert!(reverted.is_whole() && reverted.settings.len() == 2);
    assert_eq!(tree.all(), before);
    assert!(!tree.state().join("tune").exists());
}

#[test]
fn classifies_failures_and_applies_the_rest() {
    let mut tree = Tree::new("classes");
    for name in ["good", "ignored", "refused", "tried", "odd"] {
        tree.put(&format!("/sys/{name}"), "1");
    }
    tree.ignored = vec!["ignored".into()];
    tree.refused = vec![
        ("refused".into(), SettingErrorClass::NoVector),
        ("tried".into(), SettingErrorClass::ManagedIrq),
    ];
    tree.resets = vec![("/sys/odd".into(), "/sys/odd".into(), "7".into())];
    let before = tree.all();
    let items = vec![
        text("/sys/good", "2"),
        text("/sys/ignored", "2"),
        text("/sys/refused", "2"),
        item("/sys/tried", ValueFormat::Text, "2", Requirement::BestEffort),
        text("/sys/none", "2"),
    ];
    let applied = begin(&tree).apply(&mut tree, &items).unwrap();
    let classes: Vec<SettingErrorClass> = applied.failed().map(|(_, error)| error.class).collect();
    assert_eq!(
        classes,
        [SettingErrorClass::NotTaken, SettingErrorClass::NoVector, SettingErrorClass::Absent]
    );
    let Outcome::Refused { error: SettingError { class, .. } } = &applied.items[3].outcome else {
        panic!("{applied:?}")
    };
    assert_eq!(*class, SettingErrorClass::ManagedIrq);
    let state = tree.state();
    let reverted = revert_all(&mut tree, &state, None, OnDrift::Keep).unwrap();
    assert_eq!(reverted[0].settings.len(), 1, "a refused setting needs no revert");
    assert_eq!(tree.all(), before);
}

#[test]
fn drift_stays_and_is_reported() {
    let mut tree = Tree::new("drift");
    let items = three(&tree);
    begin(&tree).apply(&mut tree, &items).unwrap();
    tree.put("/sys/a/rps_cpus", "1");
    tree.put("/sys/a/scheduler", "[mq-deadline] none");
    let state = tree.state();
    let reverted = revert_all(&mut tree, &state, None, OnDrift::Keep).unwrap();
    let outcomes: Vec<&RevertOutcome> = reverted[0].settings.iter().map(|s| &s.outcome).collect();
    let RevertOutcome::Restored { .. } = outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(outcomes[1], &RevertOutcome::Already);
    let drift = RevertOutcome::Drift {
        now: "00000001".into(),
        written: "00000000,00000003".into(),
        old: "f".into(),
    };
    assert_eq!(outcomes[2], &drift);
    assert_eq!(
        (tree.get("/sys/a/rps_cpus"), tree.get("/proc/sys/b")),
        ("1".into(), "1\t2\t3".into())
    );
    // It stays in the journal until the value is restored.
    tree.put("/sys/a/rps_cpus", "0000000f");
    let reverted = revert_all(&mut tree, &state, None, OnDrift::Keep).unwrap();
    assert_eq!(reverted[0].settings.len(), 1);
    assert!(reverted[0].is_whole() && !tree.state().join("tune").exists());
}

#[test]
fn reverts_tunings_newer_than_one() {
    let mut tree = Tree::new("stack");
    tree.put("/sys/x", "0");
    tree.put("/sys/y", "0");
    begin(&tree).apply(&mut tree, &[text("/sys/x", "1")]).unwrap();
    begin(&tree).apply(&mut tree, &[text("/sys/x", "2"), text("/sys/y", "2")]).unwrap();
    begin(&tree).apply(&mut tree, &[text("/sys/x", "3")]).unwrap();
    let state = tree.state();
    let error =
        revert_all(&mut tree, &state, Some("t0009"), OnDrift::Keep).unwrap_err().to_string();
    assert!(error.contains("t0001, t0002, t0003"), "{error}");
    let reverted = revert_all(&mut tree, &state, Some("t0001"), OnDrift::Keep).unwrap();
    let ids: Vec<&str> = reverted.iter().map(|reverted| reverted.id.as_str()).collect();
    assert_eq!(ids, ["t0003", "t0002"]);
    assert_eq!((tree.get("/sys/x"), tree.get("/sys/y")), ("1".into(), "0".into()));
    revert_all(&mut tree, &state, None, OnDrift::Keep).unwrap();
    assert_eq!(tree.get("/sys/x"), "0");
}

#[test]
fn second_tuning_is_refused_with_owner() {
    let tree = Tree::new("lock");
    let first = begin(&tree);
    let error = Tuning::begin(&tree.state(), &tree, Purpose::Keep).unwrap_err();
    let TuneError::Busy { pid, .. } = error else { panic!("{error}") };
    assert_eq!(pid, std::process::id());
    drop(first);
    begin(&tree);
    assert!(!tree.state().join("tune").exists());
}

#[test]
fn writes_nothing_after_reboot() {
    let mut tree = Tree::new("reboot");
    let items = three(&tree);
    begin(&tree).apply(&mut tree, &items).unwrap();
    tree.boot = "boot-2".into();
    let before = tree.all();
    let state = tree.state();
    let reverted = revert_all(&mut tree, &state, None, OnDrift::Keep).unwrap();
    assert!(reverted[0].settings.iter().all(|s| s.outcome == RevertOutcome::Rebooted));
    assert_eq!(tree.all(), before);
    assert!(!tree.state().join("tune").exists());
}

#[test]
fn missing_rights_are_found_before_first_write() {
    let mut tree = Tree::new("readonly");
    let items = three(&tree);
    tree.read_only = true;
    let error = begin(&tree).apply(&mut tree, &items).unwrap_err().to_string();
    assert!(error.contains("nothing was changed") && error.contains("read-only"), "{error}");
    assert!(error.contains("3 of 3"), "{error}");
    assert_eq!(tree.writes, 0);
    assert!(!tree.state().join("tune").exists());
}

#[test]
fn reads_torn_journal_up_to_the_tear() {
    let mut tree = Tree::new("torn");
    let items = three(&tree);
    let before = tree.all();
    begin(&tree).apply(&mut tree, &items).unwrap();
    let journal = tree.state().join("tune/t0001.journal");
    let whole = std::fs::read(&journal).unwrap();
    let mut torn = whole.clone();
    torn.extend_from_slice(b"{\"write\":{\"number\":3,\"kn");
    std::fs::write(&journal, &torn).unwrap();
    let state = tree.state();
    assert!(revert_all(&mut tree, &state, None, OnDrift::Keep).unwrap()[0].is_whole());
    assert_eq!(tree.all(), before);
    // A truncated header: no setting was written.
    std::fs::create_dir_all(tree.state().join("tune")).unwrap();
    std::fs::write(&journal, &whole[..20]).unwrap();
    assert!(revert_all(&mut tree, &state, None, OnDrift::Keep).unwrap().is_empty());
    assert!(!tree.state().join("tune").exists());
}

#[test]
fn revert_of_channels_restores_their_queues() {
    let mut tree = Tree::new("channels");
    let queues = "/sys/class/net/eth0/queues";
    tree.put("/tare/ethtool/eth0/channels", "combined 4\ncombined-max 8");
    for queue in 0..4 {
        tree.put(&format!("{queues}/rx-{queue}/rps_cpus"), "f");
        tree.put(&format!("{queues}/tx-{queue}/xps_cpus"), &format!("{}", 1 << queue));
    }
    let before = tree.all();
    let setting = EthtoolSetting::ChannelsCombined;
    let key = Key::Ethtool { nic: "eth0".into(), setting };
    let mut channels = with_key(key, ValueFormat::Text, "2", Requirement::Required);
    let Action::Change(change) = &mut channels.action else { panic!() };
    change.stage = 0;
    let rps = item(&format!("{queues}/rx-0/rps_cpus"), ValueFormat::Mask, "3", Requirement::Wanted);
    // The driver has changed its value with the channels, so that its own old value is not the
    // host's.
    let xps = item(&format!("{queues}/tx-0/xps_cpus"), ValueFormat::Mask, "3", Requirement::Wanted);
    let mut tuning = begin(&tree);
    for _ in 0..2 {
        tuning.apply(&mut tree, std::slice::from_ref(&channels)).unwrap();
        assert_eq!(tree.get(&format!("{queues}/tx-0/xps_cpus")), "0");
        tuning.apply(&mut tree, &[rps.clone(), xps.clone()]).unwrap();
        assert_eq!(tree.get(&format!("{queues}/rx-3/rps_cpus")), "");
        let reverted = tuning.revert(&mut tree);
        assert!(reverted.is_whole(), "{reverted:?}");
        assert_eq!(tree.all(), before);
    }
}

#[test]
fn revert_of_scheduler_restores_its_companions() {
    let mut tree = Tree::new("scheduler");
    tree.put("/sys/block/vda/queue/scheduler", "none");
    tree.put("/sys/block/vda/queue/nr_requests", "777");
    let reset = "/sys/block/vda/queue/nr_requests".to_string();
    tree.resets = vec![("queue/scheduler".into(), reset, "256".into())];
    let before = tree.all();
    let items = [
        text("/sys/block/vda/queue/scheduler", "mq-deadline"),
        text("/sys/block/vda/queue/nr_requests", "1024"),
    ];
    let mut tuning = begin(&tree);
    for items in [&items[..1], &items[..]] {
        assert_eq!(tuning.apply(&mut tree, items).unwrap().failed().count(), 0);
        let reverted = tuning.revert(&mut tree);
        assert!(reverted.is_whole(), "{reverted:?}");
        assert_eq!(tree.all(), before);
    }
}

#[test]
fn forgets_drift_on_request() {
    let mut tree = Tree::new("forget");
    let items = three(&tree);
    let state = tree.state();
    begin(&tree).apply(&mut tree, &items).unwrap();
    tree.put("/sys/a/rps_cpus", "1");
    let reverted = revert_all(&mut tree, &state, None, OnDrift::Forget).unwrap();
    assert!(!reverted[0].is_whole());
    assert_eq!(tree.get("/sys/a/rps_cpus"), "1");
    assert!(!state.join("tune").exists(), "nothing is left to revert");
}

/// Reverting does not write a setting that a plan changed and then set back to its old value.
#[test]
fn refused_setting_with_old_value_is_whole() {
    let tree = Tree::new("as-it-was");
    let path = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
    let mut snapshot = Snapshot::default();
    snapshot.insert(path, Node::File("f".into()));
    let mut store = SnapshotHost::new(snapshot.clone()).failing("rx-0/", SettingErrorClass::Failed);
    let there_and_back = [
        item(path, ValueFormat::Mask, "0", Requirement::Required),
        item(path, ValueFormat::Mask, "f", Requirement::Required),
    ];
    let mut tuning = Tuning::begin(&tree.state(), &store, Purpose::Keep).unwrap();
    match tuning.apply(&mut store, &there_and_back) {
        Err(TuneError::RolledBack { reverted, .. }) => {
            assert!(reverted.is_whole(), "{:?}", reverted.left());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.snapshot, snapshot);
}
