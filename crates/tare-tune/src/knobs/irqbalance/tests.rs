use super::*;
use crate::machine::{Interrupts, Irq, Machine, Nic, Owners, Topology};
use crate::plan::{CpuSets, Options};
use crate::snapshot::Snapshot;

/// Returns a host with the interrupts 30 to 999. Those in `irqs` belong to eth0; 40 is managed.
fn host(irqs: std::ops::Range<u32>) -> Machine {
    let irq = |number: u32| Irq {
        number,
        name: format!("eth0-TxRx-{number}"),
        pci: None,
        affinity: None,
        effective: None,
        managed: Some(number == 40),
        count: 0,
    };
    let nic = Nic {
        name: "eth0".into(),
        requested: "eth0".into(),
        driver: "ixgbe".into(),
        pci: None,
        rx_queues: vec![0, 1],
        tx_queues: vec![0, 1],
        irqs: irqs.clone().map(irq).collect(),
        irqs_of_queues: irqs.len(),
        channels: None,
    };
    Machine {
        topology: Topology::default(),
        interrupts: Interrupts { irqs: (30..1000).map(|n| (n, irq(n))).collect() },
        nics: vec![nic],
        disks: Vec::new(),
        owners: Owners::default(),
        interrupt_share: Default::default(),
    }
}

fn action(files: &[(&str, &str)], options: &Options, irqs: std::ops::Range<u32>) -> Option<Action> {
    let mut snapshot = Snapshot::default();
    for (path, text) in files {
        snapshot.write(path, text);
    }
    let machine = host(irqs);
    let cpus = CpuSets::default();
    let context = Context { snapshot: &snapshot, options, machine: &machine, cpus: &cpus };
    let mut items = Irqbalance.plan(&context);
    assert!(items.len() <= 1);
    items.pop().map(|item| item.action)
}

const RUNS: (&str, &str) = (PID, "512");

fn change(banned: &str, irqs: std::ops::Range<u32>) -> Option<(String, String)> {
    let files = [RUNS, ("/tare/irqbalance/banned-irqs", banned)];
    match action(&files, &Options::default(), irqs) {
        Some(Action::Change(change)) => Some((change.now, change.wanted)),
        Some(Action::AlreadySet { .. }) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bans_missing_interrupts_over_socket() {
    let check = |banned: &str, expect: Option<(&str, &str)>| {
        let expect = expect.map(|(now, wanted)| (now.to_string(), wanted.to_string()));
        assert_eq!(change(banned, 38..41), expect, "{banned}");
    };
    check("", Some(("", "38 39")));
    // Bans set by other programs stay.
    check("31", Some(("31", "31 38 39")));
    check("31 38", Some(("31 38", "31 38 39")));
    check("31 38 39", None);
    // Defect 2: bans of interrupts that no longer exist do not pile up.
    check("31 1007 1008", Some(("31 1007 1008", "31 38 39")));
}

#[test]
fn applying_twice_changes_nothing() {
    let (_, wanted) = change("31 1007", 38..40).unwrap();
    assert_eq!(change(&wanted, 38..40), None);
}

#[test]
fn plans_nothing_without_irqbalance_or_placed_interrupts() {
    let banned = ("/tare/irqbalance/banned-irqs", "");
    let none = |options: &Options| action(&[RUNS, banned], options, 38..40).is_none();
    assert!(action(&[], &Options::default(), 38..40).is_none());
    assert!(action(&[RUNS, banned], &Options::default(), 40..41).is_none());
    assert!(none(&Options { mode: Mode::None, ..Options::default() }));
    assert!(none(&Options { except: vec!["nic_irqs".into()], ..Options::default() }));
    assert!(!none(&Options { except: vec!["disk_irqs".into()], ..Options::default() }));
}

const UNIT: (&str, &str) = (
    "/usr/lib/systemd/system/irqbalance.service",
    "EnvironmentFile=-/etc/default/irqbalance\nExecStart=/usr/sbin/irqbalance $IRQBALANCE_ARGS",
);
const ARGS: (&str, &str) = ("/etc/default/irqbalance", "IRQBALANCE_ARGS=--banirq=1007 -t 5");
const SYSTEMD: (&str, &str) = ("/run/systemd/system/x", "");

#[test]
fn advises_options_line_without_socket() {
    let options = Options::default();
    let advice = |files: &[(&str, &str)], irqs| match action(files, &options, irqs) {
        Some(Action::Advise { how, .. }) => how,
        other => panic!("{other:?}"),
    };
    let how = advice(&[RUNS, UNIT, ARGS, SYSTEMD], 38..40);
    let line = "IRQBALANCE_ARGS=\"-t 5 --banirq=38 --banirq=39\"";
    assert!(how.ends_with(line), "{how}");
    assert!(how.contains("systemctl try-restart irqbalance.service"), "{how}");
    let how = advice(&[RUNS], 38..40);
    assert!(how.contains("--banirq=38 --banirq=39"), "{how}");
    let trouble = ("/tare/irqbalance/trouble", "Permission denied (os error 13)");
    let how = advice(&[RUNS, UNIT, ARGS, trouble], 38..40);
    assert!(how.starts_with("run as root"), "{how}");
    // 200 numbers of three digits do not fit in one message to the socket.
    let live = ("/tare/irqbalance/banned-irqs", "");
    let how = advice(&[RUNS, UNIT, ARGS, live], 100..300);
    assert!(how.contains("do not fit in one message"), "{how}");
}

#[test]
fn perftune_mode_appends_to_options_file() {
    let options = Options { like_perftune: true, ..Options::default() };
    let live = ("/tare/irqbalance/banned-irqs", "");
    match action(&[RUNS, UNIT, ARGS, SYSTEMD, live], &options, 38..40) {
        Some(Action::Advise { how, .. }) => assert_eq!(
            how,
            "cp /etc/default/irqbalance /etc/default/irqbalance.scylla.orig; in \
             /etc/default/irqbalance: IRQBALANCE_ARGS=\"--banirq=1007 -t 5 --banirq=38 \
             --banirq=39\"; systemctl try-restart irqbalance.service"
        ),
        other => panic!("{other:?}"),
    }
}
