//! Tests the order of changes around thaw and freeze, with a host in memory and an environment that
//! only records its calls.

use std::sync::{Arc, Mutex};

use tare_tune::plan::{Action, Group, Identity, Requirement, ValueFormat};
use tare_tune::snapshot::Snapshot;

use super::*;
use tare_testkit::EnvironmentBuilder;

/// The calls in order, and the host that they changed.
#[derive(Debug, Default)]
struct FakeHost {
    log: Vec<String>,
    host: Snapshot,
    /// Settings whose change fails.
    refused: Vec<String>,
    revert_fails: bool,
    thaw_fails: bool,
    freeze_fails: bool,
}

type Shared = Arc<Mutex<FakeHost>>;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct FakeError(&'static str);

#[derive(Debug)]
struct MemoryTuner {
    host_state: Shared,
    written: Vec<(Key, String)>,
}

impl Tuner for MemoryTuner {
    fn apply(&mut self, items: &[Item]) -> Result<(), PartError> {
        let mut host_state = self.host_state.lock().unwrap();
        for item in items {
            let change = item.change().unwrap();
            if host_state.refused.contains(&item.what) {
                return Err(FakeError("refused").into());
            }
            self.written.push((change.key.clone(), change.now.clone()));
            change.key.write_to(&mut host_state.host, &change.wanted);
            host_state.log.push(format!("apply {}", item.what));
        }
        Ok(())
    }

    fn revert(&mut self) -> Result<(), PartError> {
        let mut host_state = self.host_state.lock().unwrap();
        if host_state.revert_fails {
            return Err(FakeError("cannot put back").into());
        }
        while let Some((key, old)) = self.written.pop() {
            key.write_to(&mut host_state.host, &old);
        }
        host_state.log.push("revert".into());
        Ok(())
    }

    fn read(&self, key: &Key) -> Result<String, PartError> {
        let host_state = self.host_state.lock().unwrap();
        key.read_from(&host_state.host).ok_or_else(|| FakeError("absent").into())
    }
}

struct Inner {
    spec: EnvironmentSpec,
    host_state: Shared,
}

impl Inner {
    fn record(&self, what: &str) {
        let line = format!("{what} {}", self.spec.name);
        self.host_state.lock().unwrap().log.push(line);
    }
}

impl Environment for Inner {
    fn spec(&self) -> &EnvironmentSpec {
        &self.spec
    }

    fn start(&mut self, _launch: &Launch) -> Result<Endpoint, PartError> {
        self.record("start");
        Ok(Endpoint { address: ([127, 0, 0, 1], 1).into(), data: None, inside: None })
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        Ok(Vec::new())
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.record("freeze");
        let fails = self.host_state.lock().unwrap().freeze_fails;
        if fails { Err(FakeError("stays thawed").into()) } else { Ok(()) }
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.record("thaw");
        let fails = self.host_state.lock().unwrap().thaw_fails;
        if fails { Err(FakeError("stays frozen").into()) } else { Ok(()) }
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        Ok(Usage::default())
    }

    fn config(&self) -> Option<String> {
        None
    }

    fn log_tail(&self) -> String {
        String::new()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.record("stop");
        Ok(())
    }
}

fn item(group: Group, path: &str, now: &str, wanted: &str) -> Item {
    let change = Change {
        key: Key::file(path),
        form: ValueFormat::Choice,
        now: now.into(),
        wanted: wanted.into(),
        requirement: Requirement::Wanted,
        identity: Identity::default(),
        stage: 1,
    };
    Item {
        knob: group.name().into(),
        group,
        subject: "host".into(),
        what: path.trim_start_matches('/').into(),
        action: Action::Change(change),
        why: String::new(),
        risk: String::new(),
        owner: None,
        survives_reboot: false,
    }
}

fn items() -> Vec<Item> {
    let mut items = vec![
        item(Group::Disk, "/scheduler", "mq-deadline", "none"),
        item(Group::Disk, "/nomerges", "0", "2"),
        item(Group::Network, "/rps", "0", "3"),
    ];
    // This setting is right already and must not be changed.
    let mut right = item(Group::Cpu, "/governor", "", "");
    right.action = Action::AlreadySet { now: "performance".into() };
    items.push(right);
    items
}

fn host_state() -> (Shared, TunedHost) {
    let host_state = Shared::default();
    let mut host = Snapshot::default();
    for (path, text) in [("/scheduler", "none [mq-deadline]"), ("/nomerges", "0"), ("/rps", "0")] {
        host.write(path, text);
    }
    host_state.lock().unwrap().host = host;
    let tuner = MemoryTuner { host_state: Arc::clone(&host_state), written: Vec::new() };
    let host = TunedHost::new(&items(), Box::new(tuner));
    (host_state, host)
}

fn environment(host_state: &Shared, host: &TunedHost, name: &str, value: &str) -> TunedEnvironment {
    let spec = EnvironmentBuilder::new("process")
        .name(name)
        .cpu("pinned")
        .cgroup("none")
        .host(value)
        .build();
    let layer: Host = value.parse().unwrap();
    let inner = Box::new(Inner { spec, host_state: Arc::clone(host_state) });
    TunedEnvironment::new(inner, layer, host.clone())
}

fn log(host_state: &Shared) -> Vec<String> {
    std::mem::take(&mut host_state.lock().unwrap().log)
}

fn values(host_state: &Shared) -> [String; 3] {
    let host_state = host_state.lock().unwrap();
    ["/scheduler", "/nomerges", "/rps"].map(|path| host_state.host.read(path).unwrap().to_string())
}

const TUNED: [&str; 3] = ["none", "2", "3"];

#[test]
fn value_selects_changes_by_group() {
    let names = |groups: &[Group]| groups.iter().map(|group| group.name().to_string()).collect();
    for item in items() {
        assert!(!wants(&Host::AsIs, &item) && wants(&Host::Tuned, &item));
        let is_disk = item.group == Group::Disk;
        assert_eq!(wants(&Host::TunedGroups(names(&[Group::Disk])), &item), is_disk);
    }
}

#[test]
fn tunes_host_from_thaw_to_freeze() {
    let (host_state, host) = host_state();
    let mut tuned = environment(&host_state, &host, "tuned", "tuned");
    let mut plain = environment(&host_state, &host, "plain", "as-is");
    let launch = Launch::default();
    tuned.start(&launch).unwrap();
    assert_eq!(values(&host_state), TUNED);
    tuned.freeze().unwrap();
    plain.start(&launch).unwrap();
    plain.freeze().unwrap();
    let starts = "apply scheduler,apply nomerges,apply rps,start tuned,freeze tuned,revert,start plain,freeze plain";
    assert_eq!(log(&host_state).join(","), starts);
    for _ in 0..3 {
        tuned.thaw().unwrap();
        assert_eq!(values(&host_state), TUNED);
        tuned.freeze().unwrap();
        plain.thaw().unwrap();
        // The original values, written as in the plan.
        assert_eq!(values(&host_state), ["mq-deadline", "0", "0"]);
        plain.freeze().unwrap();
        let round = "apply scheduler,apply nomerges,apply rps,thaw tuned,freeze tuned,revert,thaw plain,freeze plain";
        assert_eq!(log(&host_state).join(","), round);
    }
    tuned.stop().unwrap();
    tuned.stop().unwrap();
    assert_eq!(values(&host_state), ["mq-deadline", "0", "0"]);
}

#[test]
fn group_changes_its_settings_only() {
    let (host_state, host) = host_state();
    let mut disk = environment(&host_state, &host, "disk", "tuned=disk");
    disk.thaw().unwrap();
    assert_eq!(values(&host_state), ["none", "2", "0"]);
    let state = disk.read_back().unwrap().pop().unwrap();
    assert_eq!((state.layer.as_str(), state.wanted.as_str()), ("host", "tuned=disk"));
    assert_eq!(state.found, "2 of 3 settings changed, the others as found");
    assert!(state.in_force);
    // Another process writes a setting of the group and one outside it.
    host_state.lock().unwrap().host.write("/nomerges", "1");
    host_state.lock().unwrap().host.write("/rps", "1");
    let state = disk.read_back().unwrap().pop().unwrap();
    assert_eq!(state.found, "nomerges is 1, not 2; rps is 1, not 0");
    assert!(!state.in_force);
}

#[test]
fn failed_change_restores_host() {
    let (host_state, host) = host_state();
    let mut tuned = environment(&host_state, &host, "tuned", "tuned");
    host_state.lock().unwrap().refused = vec!["rps".into()];
    assert_eq!(tuned.thaw().unwrap_err().to_string(), "refused");
    assert_eq!(values(&host_state), ["mq-deadline", "0", "0"]);
    let happened = log(&host_state);
    assert!(!happened.contains(&"thaw tuned".into()), "{happened:?}");
    // The next thaw works when the host accepts the change.
    host_state.lock().unwrap().refused.clear();
    tuned.thaw().unwrap();
    assert_eq!(values(&host_state), TUNED);
    tuned.freeze().unwrap();

    host_state.lock().unwrap().thaw_fails = true;
    assert_eq!(tuned.thaw().unwrap_err().to_string(), "stays frozen");
    assert_eq!(values(&host_state), ["mq-deadline", "0", "0"]);
}

#[test]
fn failed_revert_blocks_other_environments() {
    let (host_state, host) = host_state();
    let mut tuned = environment(&host_state, &host, "tuned", "tuned");
    let mut plain = environment(&host_state, &host, "plain", "as-is");
    tuned.thaw().unwrap();
    host_state.lock().unwrap().revert_fails = true;
    assert_eq!(tuned.freeze().unwrap_err().to_string(), "cannot put back");
    assert!(plain.thaw().unwrap_err().to_string().contains("still tuned"));
    // The next thaw puts the host back.
    host_state.lock().unwrap().revert_fails = false;
    plain.thaw().unwrap();
    assert_eq!(values(&host_state), ["mq-deadline", "0", "0"]);

    // A failed freeze still puts the host back.
    tuned.thaw().unwrap();
    host_state.lock().unwrap().freeze_fails = true;
    assert_eq!(tuned.freeze().unwrap_err().to_string(), "stays thawed");
    assert_eq!(values(&host_state), ["mq-deadline", "0", "0"]);
}

#[test]
fn drop_restores_host() {
    let (host_state, host) = host_state();
    let mut tuned = environment(&host_state, &host, "tuned", "tuned");
    tuned.thaw().unwrap();
    drop(host);
    assert_eq!(values(&host_state), TUNED);
    drop(tuned);
    assert_eq!(values(&host_state), ["mq-deadline", "0", "0"]);
}

#[test]
fn rehearsal_returns_refused_items() {
    use tare_tune::{SettingErrorClass, SnapshotHost, folder};
    let state = tempfile::tempdir().unwrap();
    let host = host_state().0.lock().unwrap().host.clone();
    let store = SnapshotHost::new(host).failing("/nomerges", SettingErrorClass::NotTaken);
    let mut tuner = Journalled::begin(state.path(), store, "abcd").unwrap();
    let value = |tuner: &dyn Tuner, path: &str| tuner.read(&Key::file(path)).unwrap();

    let refused = tuner.rehearse(&items()).unwrap();
    let refused: Vec<&str> = refused.iter().map(|(item, _)| item.what.as_str()).collect();
    assert_eq!(refused, ["nomerges"]);
    assert_eq!(value(&tuner, "/rps"), "0");

    // The caller puts back the changes before the failed one.
    assert!(tuner.apply(&items()).unwrap_err().to_string().contains("nomerges"));
    tuner.revert().unwrap();
    assert_eq!(value(&tuner, "/rps"), "0");

    let accepted: Vec<Item> = items().into_iter().filter(|item| item.what != "nomerges").collect();
    for _ in 0..50 {
        tuner.apply(&accepted).unwrap();
        assert_eq!(value(&tuner, "/rps"), "3");
        tuner.revert().unwrap();
        assert_eq!(value(&tuner, "/rps"), "0");
    }
    drop(tuner);
    let left = std::fs::read_dir(folder(state.path())).map_or(0, Iterator::count);
    assert_eq!(left, 0, "a journal is left after the tuning was put back");
}

#[test]
fn groups_without_changes_change_nothing() {
    let state: Shared = Arc::default();
    let tuner = MemoryTuner { host_state: Arc::clone(&state), written: Vec::new() };
    let host = TunedHost::new(&items(), Box::new(tuner));
    let why = |host: &TunedHost, layer: &str| {
        host.without_effect(&layer.parse().unwrap()).map(|error| error.to_string())
    };
    let nothing = |layer: &str, why: &str| {
        let rest = "optional = true leaves the environment out";
        Some(format!("host = \"{layer}\" would change nothing: {why}; {rest}"))
    };
    assert_eq!(why(&host, "tuned"), None);
    assert_eq!(why(&host, "tuned=disk"), None);
    for layer in ["tuned=irqbalance", "tuned=interrupts"] {
        assert_eq!(why(&host, layer), nothing(layer, NO_CHANGE));
    }
    let host = host.leaving_out(vec![("xps".into(), "no card".into())]);
    assert_eq!(why(&host, "tuned=xps"), nothing("tuned=xps", "no card"));
    assert_eq!(why(&host, "tuned=network"), None, "rps changes");
    assert_eq!(why(&host, "tuned=interrupts"), nothing("tuned=interrupts", NO_CHANGE));
    // A step to an alternative that changes nothing is no step.
    let layer = "tuned=disk+coalescing_off";
    let step = why(&host, layer).unwrap();
    assert!(step.starts_with(&format!("coalescing_off of host = {layer:?} would")), "{step}");
    assert_eq!(why(&host, "tuned=disk+xps"), None, "the group has its other changes");
    let tuner = MemoryTuner { host_state: state, written: Vec::new() };
    assert!(TunedHost::new(&[], Box::new(tuner)).without_effect(&Host::Tuned).is_some());
}

#[test]
fn knob_names_select_and_alternatives_do_not_void_each_other() {
    let nic = |setting| Key::Ethtool { nic: "eth0".into(), setting };
    let delay = || nic(EthtoolSetting::CoalesceRxUs);
    let adaptive = || nic(EthtoolSetting::CoalesceAdaptiveRx);
    let knob = |name: &str, key: Key, now: &str, wanted: &str| {
        let mut item = item(Group::Network, name, now, wanted);
        item.knob = name.into();
        let Action::Change(change) = &mut item.action else { panic!("{item:?}") };
        (change.key, change.form) = (key, ValueFormat::Text);
        item
    };
    let items = [
        knob("rps", Key::file("/rps"), "0", "3"),
        knob("coalescing_off", delay(), "3", "0"),
        knob("coalescing_adaptive", adaptive(), "off", "on"),
    ];
    let host_state = Shared::default();
    let mut snapshot = Snapshot::default();
    snapshot.write("/rps", "0");
    snapshot.write("/tare/ethtool/eth0/coalesce", "rx-usecs 3\nadaptive-rx off");
    host_state.lock().unwrap().host = snapshot;
    let tuner = MemoryTuner { host_state: Arc::clone(&host_state), written: Vec::new() };
    let host = TunedHost::new(&items, Box::new(tuner));
    let found = |layer: &str, adapted: Option<&str>| {
        let mut one = environment(&host_state, &host, "one", layer);
        one.thaw().unwrap();
        if let Some(value) = adapted {
            // The driver changes the delay while it adapts it.
            delay().write_to(&mut host_state.lock().unwrap().host, value);
        }
        let state = one.read_back().unwrap().pop().unwrap();
        delay().write_to(&mut host_state.lock().unwrap().host, "3");
        one.freeze().unwrap();
        (state.in_force, state.found)
    };
    let one = (true, "1 of 3 settings changed, the others as found".to_string());
    assert_eq!(found("tuned=rps", None), one);
    assert_eq!(found("tuned=coalescing_adaptive", Some("30")), one);
    assert!(!found("tuned=rps", Some("30")).0, "nobody adapts it");
    // Neither the whole plan nor the group has the alternatives.
    assert_eq!(found("tuned", None), one);
    assert_eq!(found("tuned=network", None), one);
    assert_eq!(found("tuned=rps+coalescing_off", None).1.split(' ').next(), Some("2"));
}
