//! Defects of perftune.py, with their numbers in Tare's list, and the threads that report them.

use std::collections::BTreeSet;

use tare_std::cpus::CpuSet;
use tare_tune::fixture::{Host, Nic};
use tare_tune::knobs::Context;
use tare_tune::machine::{Interrupts, nics};
use tare_tune::plan::{self, cpus};
use tare_tune::plan::{Action, Key, Options, Requirement};
use tare_tune::planner;
use tare_tune::snapshot::Snapshot;

use super::{changes, host, items, like_perftune, options, placed, planned};

fn found(snapshot: &Snapshot, names: &[&str]) -> Result<Vec<nics::Nic>, nics::NicError> {
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    nics::find(snapshot, &Interrupts::read(snapshot), &names)
}

#[test]
fn defect_5_virtio1_does_not_match_virtio10() {
    let mut host = Host::new(1, 8, 2);
    host.nics = (0..12).map(|index| Nic::new(&format!("eth{index}"), "virtio_net", 2)).collect();
    let snapshot = host.build();
    let nics = found(&snapshot, &[]).unwrap();
    assert_eq!(nics.len(), 12);
    let mut seen = BTreeSet::new();
    for nic in &nics {
        let path = snapshot.real(&format!("/sys/class/net/{}/device", nic.name)).unwrap();
        let device = path.rsplit('/').next().unwrap();
        let names: Vec<&str> = nic.irqs.iter().map(|irq| irq.name.as_str()).collect();
        let expect = ["input.0", "output.0", "input.1", "output.1", "config"];
        let expect: Vec<String> = expect.iter().map(|part| format!("{device}-{part}")).collect();
        assert_eq!(names, expect, "{}", nic.name);
        assert_eq!(nic.irqs_of_queues, 4);
        assert!(nic.irqs.iter().all(|irq| seen.insert(irq.number)), "{}", nic.name);
        assert!(nic.irqs.iter().all(|irq| irq.pci == nic.pci && nic.pci.is_some()));
    }
}

#[test]
fn defect_6_queues_are_in_numeric_order() {
    let snapshot = host(16, "i40e", 12).build();
    let nic = found(&snapshot, &["eth0"]).unwrap().remove(0);
    let numbers: Vec<u32> = (0..12).collect();
    assert_eq!((&nic.rx_queues, &nic.tx_queues), (&numbers, &numbers));
    let queues: Vec<u32> = nic.irqs.iter().filter_map(|irq| nic.queue_of(irq)).collect();
    assert_eq!(queues, numbers);
    let last = &nic.irqs[12..];
    assert!(last.iter().any(|irq| irq.name.contains("fdir")), "after the queues: {last:?}");
}

#[test]
fn scylladb_5259_driver_is_not_a_device() {
    let snapshot = host(4, "vmxnet3", 4).build();
    let error = |name: &str| found(&snapshot, &[name]).unwrap_err().to_string();
    assert!(error("vmxnet3").contains("is a driver, not a network device"), "{}", error("vmxnet3"));
    assert!(error("vmxnet3").contains("eth0"));
    assert!(error("eth00").contains("did you mean \"eth0\"?"), "{}", error("eth00"));
    assert!(!error("wlan7").contains("did you mean"), "{}", error("wlan7"));
    assert!(error("../../etc").contains("there is no network device"));
    assert!(error("").contains("there is no network device"));
}

#[test]
fn scylladb_4553_refuses_list_split_into_letters() {
    let snapshot = host(4, "ena", 4).build();
    let error = found(&snapshot, &["e", "t", "h", "0"]).unwrap_err().to_string();
    assert!(error.contains("is a single letter") && error.contains("eth0"), "{error}");
}

#[test]
fn rpk_10838_empty_msi_irqs() {
    let mut snapshot = host(16, "ena", 4).build();
    let folder = snapshot.real("/sys/class/net/eth0/device/msi_irqs").unwrap();
    let names: Vec<String> = snapshot.names(&folder).iter().map(|name| name.to_string()).collect();
    names.iter().for_each(|name| snapshot.remove(&format!("{folder}/{name}")));
    // The chip's name in /proc/interrupts shows their device.
    assert_eq!(items(&planned(&snapshot, &options()), "nic_irqs").len(), 2);
    let old = Host { kernel: "5.10.0".into(), ..host(16, "ena", 4) };
    let mut snapshot = old.build();
    names.iter().for_each(|name| snapshot.remove(&format!("{folder}/{name}")));
    // No source shows it: no crash, and the rest is planned.
    let plan = planned(&snapshot, &options());
    assert!(items(&plan, "nic_irqs").is_empty());
    assert!(!changes(&plan, "rps").is_empty());
}

#[test]
fn seastar_502_571_identifies_interrupts_by_device_and_name() {
    let snapshot = host(16, "ixgbe", 2).build();
    let plan = planned(&snapshot, &options());
    for (item, change) in plan.changes().filter(|(item, _)| item.knob == "nic_irqs") {
        let Key::File { path } = &change.key else { panic!("{:?}", change.key) };
        let number: u32 = path.split('/').nth(3).unwrap().parse().unwrap();
        let irq = &Interrupts::read(&snapshot).irqs[&number];
        assert_eq!(change.identity.irq_name.as_deref(), Some(irq.name.as_str()));
        assert_eq!(change.identity.pci, irq.pci);
        assert!(change.identity.pci.is_some() && item.what.contains(&irq.name));
        assert_eq!(change.requirement, Requirement::Required);
    }
}

#[test]
fn seastar_703_each_interrupt_has_its_own_line() {
    let mut host = Host::new(2, 40, 1);
    host.nics = vec![Nic::new("eth0", "mlx5_core", 64), Nic::new("eth1", "mlx5_core", 64)];
    let snapshot = host.build();
    let mq = Options { mode: plan::Mode::Mq, ..options() };
    let plan = planned(&snapshot, &mq);
    assert!(plan.notes.iter().all(|note| !note.contains("vectors")));
    // Few CPUs may run out of vectors, which a note predicts.
    let few = Options { irq_cpus: Some("0-7".parse().unwrap()), rx_queues: Some(64), ..options() };
    host.nics.extend((2..24).map(|i| Nic::new(&format!("eth{i}"), "mlx5_core", 64)));
    let crowded = planned(&host.build(), &Options { like_perftune: true, ..few });
    assert!(
        crowded.notes.iter().any(|note| note.contains("192 interrupts")),
        "{:?}",
        crowded.notes
    );
    let placed = placed(&plan);
    assert_eq!(placed.len(), 128);
    let cpus: BTreeSet<u32> = placed.iter().map(|(_, cpu)| *cpu).collect();
    assert_eq!(cpus.len(), 64, "each device uses as many CPUs as it has queues");
}

#[test]
fn seastar_3003_leaves_managed_interrupts_alone() {
    let mut snapshot = host(16, "virtio_net", 4).build();
    let nic = found(&snapshot, &["eth0"]).unwrap().remove(0);
    for irq in &nic.irqs[..nic.irqs_of_queues] {
        let path = format!("/sys/kernel/debug/irq/irqs/{}", irq.number);
        let text = "dstate: 0x1\n   IRQD_AFFINITY_MANAGED".into();
        snapshot.insert(&path, tare_tune::snapshot::Node::File(text));
    }
    snapshot.remove("/tare/ethtool/eth0/channels");
    let plan = planned(&snapshot, &options());
    let lines = items(&plan, "nic_irqs");
    assert_eq!(lines.len(), 8);
    for item in lines {
        assert!(matches!(&item.action, Action::Leave { .. }), "{item:?}");
        assert_eq!(item.owner.as_ref().unwrap().name, "the kernel");
    }
}

#[test]
fn seastar_2534_synthetic_device_leads_to_its_function() {
    let mut host = Host::new(1, 16, 2);
    host.nics = vec![Nic::new("eth0", "hv_netvsc", 8)];
    host.nics.push(Nic { master: "eth0".into(), ..Nic::new("enP1s1", "mlx5_core", 8) });
    let snapshot = host.build();
    for names in [&["eth0"][..], &[]] {
        let nics = found(&snapshot, names).unwrap();
        assert_eq!(nics.len(), 1, "{names:?}");
        assert_eq!((nics[0].name.as_str(), nics[0].requested.as_str()), ("enP1s1", "eth0"));
        assert_eq!(nics[0].irqs_of_queues, 8);
    }
    // Without a function below it, only its own queue files are tuned.
    host.nics.truncate(1);
    let nics = found(&host.build(), &["eth0"]).unwrap();
    assert_eq!((nics[0].driver.as_str(), nics[0].irqs.len()), ("hv_netvsc", 0));
}

#[test]
fn seastar_3189_mana_queues_and_its_control_interrupt() {
    let snapshot = host(16, "mana", 4).build();
    let placed = placed(&planned(&snapshot, &options()));
    let names: Vec<&str> = placed.iter().map(|(name, _)| name.split('@').next().unwrap()).collect();
    assert_eq!(names, ["mana_q0", "mana_q1"]);
}

#[test]
fn seastar_621_742_renamed_interface_keeps_its_interrupts() {
    // The driver named them after eth0; after a stop and start the device is called ens5.
    let mut host = host(16, "ena", 2);
    host.nics[0].name = "ens5".into();
    let mut snapshot = host.build();
    let table = snapshot.read("/proc/interrupts").unwrap().replace("ens5-", "eth0-");
    snapshot.write("/proc/interrupts", &table);
    let placed = placed(&planned(&snapshot, &options()));
    assert_eq!(placed, [("eth0-Tx-Rx-0".to_string(), 0), ("eth0-Tx-Rx-1".to_string(), 16)]);
}

#[test]
fn queues_beyond_the_hash_come_last() {
    // ixgbe hashes to 16 queues; of 20 queues the first 16 are spread separately.
    let snapshot = host(16, "ixgbe", 20).build();
    let mq = Options { mode: plan::Mode::Mq, rx_queues: Some(20), ..options() };
    for options in [mq.clone(), Options { like_perftune: true, ..mq }] {
        let plan = planned(&snapshot, &options);
        let changes: Vec<_> =
            plan.changes().filter(|(item, _)| item.knob == "nic_irqs").map(|(_, c)| c).collect();
        let musts =
            changes.iter().filter(|change| change.requirement == Requirement::Required).count();
        assert_eq!((musts, changes.len()), (16, 20));
        let cpus: Vec<u32> = placed(&plan).into_iter().map(|(_, cpu)| cpu).collect();
        assert_eq!(cpus[..16].iter().collect::<BTreeSet<_>>().len(), 16);
        assert_eq!(cpus[16], cpus[0], "spread separately");
    }
}

#[test]
fn mlx5_of_linux_5_3_to_6_0_shows_twice_its_receive_queues() {
    let mut host = host(16, "mlx5_core", 4);
    host.nics[0].rx_queues = 8;
    let mut snapshot = host.build();
    snapshot.write("/tare/ethtool/eth0/channels", "rx 0\nrx-max 0\ncombined 4\ncombined-max 4");
    let four = Options { rx_queues: Some(4), ..options() };
    let changes = planned(&snapshot, &four);
    let of_queues =
        changes.changes().filter(|(_, change)| change.requirement == Requirement::Required).count();
    assert_eq!(of_queues, 4, "half of the eight");
    let two = planned(&snapshot, &options());
    assert_eq!(items(&two, "rps").len(), 4, "two for each channel that stays");
}

#[test]
fn isolated_cpus_are_not_steered_to() {
    let mut host = host(8, "ena", 2);
    host.cpus.isolated = "6-7,14-15".parse().unwrap();
    let snapshot = host.build();
    let steered = |options: &Options| -> BTreeSet<u32> {
        let plan = planned(&snapshot, options);
        let rps = plan.changes().filter(|(item, _)| item.knob == "rps");
        rps.flat_map(|(_, c)| CpuSet::parse_mask(&c.wanted).unwrap().iter().collect::<Vec<_>>())
            .collect()
    };
    let isolated = BTreeSet::from([6, 7, 14, 15]);
    assert!(steered(&options()).is_disjoint(&isolated));
    assert!(steered(&like_perftune()).is_disjoint(&isolated), "the kernel would take them out");
    // On request: a line with the reason against it.
    let only = Options { cpus: Some("6-7,14-15".parse().unwrap()), ..options() };
    let plan = planned(&snapshot, &only);
    for item in items(&plan, "rps") {
        let right = matches!(&item.action, Action::AlreadySet { .. } | Action::Leave { .. });
        assert!(right, "{item:?}");
    }
}

#[test]
fn plans_queues_of_all_devices_of_large_host() {
    let mut host = Host::new(2, 64, 2);
    host.nics = (0..8).map(|i| Nic::new(&format!("eth{i}"), "mlx5_core", 64)).collect();
    let snapshot = host.build();
    let machine = planner::read_machine(&snapshot, &options()).unwrap();
    let options = options();
    let cpus = cpus::choose(&machine, &options).unwrap();
    assert_eq!(cpus.irq.len(), 16);
    let context =
        Context { snapshot: &snapshot, options: &options, machine: &machine, cpus: &cpus };
    assert_eq!(context.nics().len(), 8);
    let plan = planned(&snapshot, &options);
    assert_eq!(placed(&plan).len(), 8 * 16);
}
