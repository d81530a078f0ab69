//! Plans network devices: the naming of every driver, the defects of perftune.py that Tare must not
//! have, the threads that report them, and the plan of perftune.py itself.
#![expect(clippy::unwrap_used, reason = "a test says what failed by failing")]

use std::collections::BTreeSet;

use tare_std::cpus::CpuSet;
use tare_tune::fixture::{Host, Nic, Upper, UpperKind};
use tare_tune::machine::{self, Interrupts, nics};
use tare_tune::plan::{self, Action, EthtoolSetting, Item, Key, Mode, Options, Plan, Requirement};
use tare_tune::planner;
use tare_tune::snapshot::{Node, Snapshot};

#[path = "nics/driver.rs"]
mod driver;
#[path = "nics/guard.rs"]
mod guard;
#[path = "nics/property.rs"]
mod property;
#[path = "nics/recorded.rs"]
mod recorded;
#[path = "nics/threads.rs"]
mod threads;

/// Returns a machine with one node, two threads per core and one device.
fn host(cores: u32, driver: &str, queues: u32) -> Host {
    Host { nics: vec![Nic::new("eth0", driver, queues)], ..Host::new(1, cores, 2) }
}

/// Returns options for the knobs of this file.
fn options() -> Options {
    Options { only: vec!["network".into(), "nic_irqs".into()], ..Options::default() }
}

fn like_perftune() -> Options {
    Options { like_perftune: true, ..options() }
}

fn planned(snapshot: &Snapshot, options: &Options) -> Plan {
    planner::plan(snapshot, options).unwrap_or_else(|error| panic!("{error}"))
}

fn items<'a>(plan: &'a Plan, knob: &str) -> Vec<&'a Item> {
    plan.items.iter().filter(|item| item.knob == knob).collect()
}

/// Formats each change of a knob as `subject what = wanted`.
fn changes(plan: &Plan, knob: &str) -> Vec<String> {
    let changes = plan.changes().filter(|(item, _)| item.knob == knob);
    changes
        .map(|(item, change)| format!("{} {} = {}", item.subject, item.what, change.wanted))
        .collect()
}

/// Returns name and CPU of each changed interrupt, in the order of the plan.
fn placed(plan: &Plan) -> Vec<(String, u32)> {
    let changes = plan.changes().filter(|(item, _)| item.knob == "nic_irqs");
    let placed = changes.map(|(_, change)| {
        let cpus = CpuSet::parse_mask(&change.wanted).unwrap();
        assert_eq!(cpus.len(), 1);
        (change.identity.irq_name.clone().unwrap(), cpus.iter().next().unwrap())
    });
    placed.collect()
}

/// Applies a plan like a tuning: stage 0, the driver's reaction, a new plan, the rest.
fn apply(snapshot: &mut Snapshot, options: &Options) {
    let before = planned(snapshot, options);
    let mut channels_changed = false;
    for (_, change) in before.changes().filter(|(_, change)| change.stage == 0) {
        driver::write(snapshot, &change.key, &change.wanted);
        channels_changed = true;
    }
    let after = if channels_changed { planned(snapshot, options) } else { before };
    for (_, change) in after.changes() {
        assert_eq!(change.stage, 1, "channels are as wanted after stage 0");
        change.key.write_to(snapshot, &change.wanted);
    }
}

#[test]
fn plans_every_driver_and_nothing_after_applying() {
    let drivers = [
        "virtio_net",
        "ena",
        "ixgbe",
        "ixgbevf",
        "i40e",
        "iavf",
        "ice",
        "mlx4_en",
        "mlx5_core",
        "gve",
        "mana",
        "hv_netvsc",
        "vmxnet3",
        "bnx2x",
        "xen_netfront",
    ];
    for driver in drivers {
        for (cores, queues, max) in [(2, 4, 4), (4, 8, 8), (16, 8, 8), (16, 1, 16), (32, 12, 64)] {
            for like in [false, true] {
                let mut host = host(cores, driver, queues);
                host.nics[0].channels_max = max;
                let mut snapshot = host.build();
                let options = Options { like_perftune: like, mode: Mode::Auto, ..options() };
                let first = planner::plan(&snapshot, &options);
                if let Err(plan::PlanError::Guard(_)) = first {
                    assert!(matches!(driver, "vmxnet3" | "xen_netfront"), "{driver} has channels");
                    continue;
                }
                apply(&mut snapshot, &options);
                let again = planned(&snapshot, &options);
                let left: Vec<_> = again.changes().map(|(item, _)| &item.what).collect();
                assert!(left.is_empty(), "{driver} {cores} {queues} {like}: {left:?}");
                let has_irqs = driver != "hv_netvsc";
                assert_eq!(!items(&again, "nic_irqs").is_empty(), has_irqs, "{driver}");
                assert!(!items(&again, "rps").is_empty(), "{driver}");
            }
        }
    }
}

#[test]
fn i3_8xlarge_with_ena_like_perftune() {
    let mut snapshot = host(16, "ena", 8).build();
    let before = planned(&snapshot, &like_perftune());
    assert_eq!(before.cpus.irq.to_string(), "0,16");
    assert_eq!(before.cpus.compute.to_string(), "1-15,17-31");
    let (item, change) = before.changes().next().unwrap();
    assert_eq!(
        (item.knob.as_str(), change.stage, change.requirement),
        ("nic_channels", 0, Requirement::Wanted)
    );
    let setting = EthtoolSetting::ChannelsCombined;
    assert_eq!(change.key, Key::Ethtool { nic: "eth0".into(), setting });
    assert_eq!((change.now.as_str(), change.wanted.as_str()), ("8", "2"));
    assert!(change.identity.pci.is_some());
    // Planned before the change for the queues that stay ...
    let queues = [("eth0-Tx-Rx-0".to_string(), 0), ("eth0-Tx-Rx-1".to_string(), 16)];
    assert_eq!(placed(&before), queues);
    assert_eq!(items(&before, "rps").len(), 2);
    // ... and the same after it.
    driver::write(&mut snapshot, &change.key, "2");
    let after = planned(&snapshot, &like_perftune());
    assert_eq!(placed(&after), queues);
    let rps = ["eth0 rps_cpus of rx-0 = ffffffff", "eth0 rps_cpus of rx-1 = ffffffff"];
    assert_eq!(changes(&after, "rps"), rps);
    let rfs = [
        "host net.core.rps_sock_flow_entries = 32768",
        "eth0 rps_flow_cnt of rx-0 = 16384",
        "eth0 rps_flow_cnt of rx-1 = 16384",
    ];
    assert_eq!(changes(&after, "rfs"), rfs);
    let xps = ["eth0 xps_cpus of tx-0 = 00ff00ff", "eth0 xps_cpus of tx-1 = ff00ff00"];
    assert_eq!(changes(&after, "xps"), xps);
    assert!(changes(&after, "ntuple").is_empty(), "off already");
    assert!(after.items.iter().all(|item| item.knob != "rings" && item.knob != "coalescing"));
}

#[test]
fn own_plan_differs_from_perftune_as_documented() {
    let mut snapshot = host(16, "ena", 2).build();
    let own = planned(&snapshot, &options());
    // RPS goes to the compute CPUs.
    let rps = ["eth0 rps_cpus of rx-0 = fffefffe", "eth0 rps_cpus of rx-1 = fffefffe"];
    assert_eq!(changes(&own, "rps"), rps);
    assert_eq!(placed(&own), placed(&planned(&snapshot, &like_perftune())));
    // XPS divides only the universe.
    let cpus = Some("0-7,16-23".parse().unwrap());
    let part = Options { cpus: cpus.clone(), ..options() };
    let xps = ["eth0 xps_cpus of tx-0 = 000f000f", "eth0 xps_cpus of tx-1 = 00f000f0"];
    assert_eq!(changes(&planned(&snapshot, &part), "xps"), xps);
    let like = planned(&snapshot, &Options { cpus, ..like_perftune() });
    assert_eq!(changes(&like, "xps")[0], "eth0 xps_cpus of tx-0 = 00ff00ff");
    // Rings and coalescing are reported.
    for knob in ["rings", "coalescing"] {
        let lines = items(&own, knob);
        assert!(!lines.is_empty());
        for item in lines {
            assert!(matches!(item.action, Action::Leave { .. }), "{item:?}");
        }
    }
    // A queue for every CPU: RPS is redundant and is switched off where it was on.
    let four = host(2, "ena", 4);
    snapshot = four.build();
    snapshot.write("/sys/class/net/eth0/queues/rx-1/rps_cpus", "f");
    let own = planned(&snapshot, &options());
    assert_eq!(own.cpus.irq, own.cpus.compute);
    assert_eq!(changes(&own, "rps"), ["eth0 rps_cpus of rx-1 = 00000000"]);
    assert!(items(&own, "rps")[0].why.contains("queue for each of the 4 CPUs"));
    assert_eq!(changes(&planned(&snapshot, &like_perftune()), "rps").len(), 3);
}

#[test]
fn plans_added_queues_after_the_change() {
    let mut host = host(2, "ena", 1);
    host.nics[0].channels_max = 8;
    let mut snapshot = host.build();
    let before = planned(&snapshot, &options());
    assert_eq!(changes(&before, "nic_channels"), ["eth0 combined channels = 4"]);
    assert_eq!(items(&before, "nic_irqs").len(), 1);
    assert!(before.notes.iter().any(|note| note.contains("eth0 gets 3 more queues")), "{before:?}");
    apply(&mut snapshot, &options());
    let after = planned(&snapshot, &options());
    assert_eq!(after.changes().count(), 0);
    assert_eq!(items(&after, "nic_irqs").len(), 4);
    // Tare requests no more than the device has. perftune.py is refused and leaves them.
    host.nics[0].channels_max = 2;
    let snapshot = host.build();
    assert_eq!(
        changes(&planned(&snapshot, &options()), "nic_channels"),
        ["eth0 combined channels = 2"]
    );
    assert!(changes(&planned(&snapshot, &like_perftune()), "nic_channels").is_empty());
}

#[test]
fn plans_requested_values() {
    let snapshot = host(16, "ixgbe", 16).build();
    let requested = Options {
        ring: Some(16_384),
        coalesce_us: Some(8),
        rx_queues: Some(4),
        arfs: Some(true),
        ..options()
    };
    let plan = planned(&snapshot, &requested);
    assert_eq!(changes(&plan, "nic_channels"), ["eth0 combined channels = 4"]);
    assert_eq!(changes(&plan, "rings"), ["eth0 rx ring = 8192", "eth0 tx ring = 8192"]);
    assert_eq!(changes(&plan, "ntuple"), ["eth0 ntuple filters = on"]);
    let Action::Advise { wanted, how, .. } = &items(&plan, "coalescing")[0].action else {
        panic!()
    };
    assert!(wanted == "8" && how.contains("ethtool -C eth0 adaptive-rx off"), "{how}");
    // The two alternatives are planned only by name.
    let alternatives = ["coalescing_off", "coalescing_adaptive"];
    assert!(alternatives.iter().all(|knob| items(&plan, knob).is_empty()));
    let only = Options { only: vec!["network".into()], ..requested.clone() };
    assert!(items(&planned(&snapshot, &only), "coalescing_off").is_empty());
    let off = Options { request: vec!["coalescing_off".into()], ..options() };
    let off = planned(&snapshot, &off);
    let settings =
        ["eth0 adaptive receive interrupt delay = off", "eth0 receive interrupt delay, µs = 0"];
    assert_eq!(changes(&off, "coalescing_off"), settings);
    assert!(!changes(&off, "nic_irqs").is_empty(), "the rest of the plan is there");
    let adaptive = Options { only: vec!["coalescing_adaptive".into()], ..options() };
    let adaptive = planned(&snapshot, &adaptive);
    assert!(adaptive.items.iter().all(|item| item.knob == "coalescing_adaptive"));
    let now = &items(&adaptive, "coalescing_adaptive")[0].action;
    assert!(matches!(now, Action::AlreadySet { .. }), "{now:?}");
    let stages: Vec<u8> = plan.changes().map(|(_, change)| change.stage).collect();
    assert!(stages.is_sorted(), "{stages:?}");
}

/// Drivers of Intel's cards have no switch for an adapted delay, but values of the delay.
#[test]
fn adaptive_delay_is_a_value_for_some_drivers() {
    let mut snapshot = host(16, "ixgbe", 16).build();
    let mut planned_for = |lines: &str, knob: &str| {
        snapshot.write("/tare/ethtool/eth0/coalesce", lines);
        planned(&snapshot, &Options { only: vec![knob.into()], ..options() })
    };
    let adaptive = "coalescing_adaptive";
    let what = "receive interrupt delay, µs, or a kind of adaptive delay";
    let plan = planned_for("rx-usecs 20", adaptive);
    assert_eq!(changes(&plan, adaptive), [format!("eth0 {what} = 1")]);
    let plan = planned_for("rx-usecs 1", adaptive);
    assert!(matches!(items(&plan, adaptive)[0].action, Action::AlreadySet { .. }));
    let Action::Leave { now, .. } =
        &items(&planned_for("rx-usecs 1", "coalescing"), "coalescing")[0].action.clone()
    else {
        panic!()
    };
    assert_eq!(now, "1, adaptive");
    let off = planned_for("rx-usecs 1", "coalescing_off");
    assert_eq!(changes(&off, "coalescing_off"), ["eth0 receive interrupt delay, µs = 0"]);
    let switch = planned_for("rx-usecs 1\nadaptive-rx off", adaptive);
    assert_eq!(changes(&switch, adaptive), ["eth0 adaptive receive interrupt delay = on"]);
}

#[test]
fn with_mode_none_interrupts_stay() {
    let snapshot = host(16, "i40e", 16).build();
    let own = planned(&snapshot, &Options { mode: Mode::None, ..options() });
    for knob in ["nic_channels", "nic_irqs", "ntuple"] {
        assert!(changes(&own, knob).is_empty(), "{knob}");
    }
    // perftune.py spreads them over all CPUs.
    let like = planned(&snapshot, &Options { mode: Mode::None, ..like_perftune() });
    let cpus: BTreeSet<u32> = placed(&like).into_iter().map(|(_, cpu)| cpu).collect();
    assert_eq!(cpus.len(), 17, "16 queues, and the flow director");
}

#[test]
fn bonds_and_vlans_lead_to_physical_devices() {
    let mut host = Host::new(1, 16, 2);
    host.nics = vec![Nic::new("eth1", "i40e", 4), Nic::new("eth0", "i40e", 4)];
    let on = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    host.uppers = vec![
        Upper { name: "bond0".into(), kind: UpperKind::Bond, on: on(&["eth0", "eth1"]) },
        Upper { name: "bond0.7".into(), kind: UpperKind::Vlan, on: on(&["bond0"]) },
    ];
    let snapshot = host.build();
    let find = |names: &[&str]| {
        let names: Vec<String> = on(names);
        let found = nics::find(&snapshot, &Interrupts::read(&snapshot), &names).unwrap();
        found.into_iter().map(|nic| (nic.name, nic.requested)).collect::<Vec<_>>()
    };
    let pair = |name: &str, requested: &str| (name.to_string(), requested.to_string());
    for upper in ["bond0", "bond0.7"] {
        assert_eq!(find(&[upper]), [pair("eth0", upper), pair("eth1", upper)]);
    }
    assert_eq!(find(&["bond0.7", "eth1"]).len(), 2, "each once");
    assert_eq!(find(&[]).len(), 2);
    // Only the physical devices are steered.
    let plan = planned(&snapshot, &Options { nics: on(&["bond0.7"]), ..options() });
    let subjects: BTreeSet<&str> = plan
        .items
        .iter()
        .filter(|item| item.subject != "host")
        .map(|item| item.subject.as_str())
        .collect();
    assert_eq!(subjects, BTreeSet::from(["eth0", "eth1"]));
}

#[test]
fn tunes_virtual_device_only_if_named() {
    let mut snapshot = host(4, "ena", 4).build();
    let folder = "/sys/devices/virtual/net/veth0";
    let file = |text: &str| Node::File(text.into());
    snapshot.insert("/sys/class/net/veth0", Node::Link(folder.into()));
    snapshot.insert(&format!("{folder}/operstate"), file("up"));
    snapshot.insert(&format!("{folder}/queues/rx-0/rps_cpus"), file("00"));
    snapshot.insert(&format!("{folder}/queues/rx-0/rps_flow_cnt"), file("0"));
    let requested = Options { nics: vec!["veth0".into()], ..options() };
    let plan = planned(&snapshot, &requested);
    assert_eq!(changes(&plan, "rps"), ["veth0 rps_cpus of rx-0 = 000000fe"]);
    assert_eq!(items(&plan, "nic_irqs").len() + items(&plan, "nic_channels").len(), 0);
    let machine = planner::read_machine(&snapshot, &options()).unwrap();
    assert_eq!(machine.nics.len(), 1, "not without its name");
    let like = planner::plan(&snapshot, &Options { like_perftune: true, ..requested });
    assert!(like.unwrap_err().to_string().contains("has no hardware"), "perftune.py refuses it");
    snapshot.remove(&format!("{folder}/queues"));
    let requested = Options { nics: vec!["veth0".into()], ..options() };
    assert!(
        planner::plan(&snapshot, &requested).unwrap_err().to_string().contains("neither hardware")
    );
    assert!(machine::interrupt_share(&snapshot).is_empty());
}
