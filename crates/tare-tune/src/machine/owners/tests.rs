use super::*;
use crate::machine::{Interrupts, Irq, Nic, Topology, topology};

fn host(files: &[(&str, &str)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (path, text) in files {
        snapshot.write(path, text);
    }
    snapshot
}

const TUNED: (&str, &str) = ("/tare/owners/process/tuned", "running");
const ALL: &[&str] = &[
    "irqbalance",
    "nic_channels",
    "nic_irqs",
    "rps",
    "rfs",
    "xps",
    "ntuple",
    "rings",
    "coalescing",
    "disk_irqs",
    "disk_scheduler",
    "disk_nomerges",
    "disk_write_cache",
    "clock_source",
    "cpu_governor",
    "energy_preference",
    "idle_states",
    "wakeup_granularity",
    "numa_balancing",
    "transparent_hugepages",
    "swap",
    "sysctls",
    "tcp_memory",
    "limits",
];

/// Formats each owner as `NAME (EVIDENCE): knobs`.
fn owners(files: &[(&str, &str)]) -> Vec<String> {
    let owners = Owners::read(&host(files));
    let line = |owned: &OwnedSettings| {
        for knob in &owned.knobs {
            assert!(ALL.contains(knob), "unknown knob {knob}");
        }
        let Owner { name, evidence, effect } = &owned.owner;
        assert!(!effect.is_empty() && !effect.ends_with('.'), "{effect}");
        format!("{name} ({evidence}): {}", owned.knobs.join(" "))
    };
    owners.list.iter().map(line).collect()
}

#[test]
fn finds_no_owner_on_empty_host() {
    assert!(owners(&[]).is_empty());
    // tuned that is installed but does not run writes nothing.
    assert!(owners(&[("/etc/tuned/active_profile", "balanced")]).is_empty());
}

#[test]
fn each_owner_is_found_by_its_evidence() {
    let check = |files: &[(&str, &str)], expect: &[&str]| {
        assert_eq!(owners(files), expect, "{files:?}");
    };
    let pid = ("/tare/irqbalance/pid", "512");
    check(&[pid], &["irqbalance (process 512): nic_irqs disk_irqs"]);
    let socket = ("/tare/irqbalance/socket", "/run/irqbalance/irqbalance512.sock");
    let found = "irqbalance (/run/irqbalance/irqbalance512.sock): nic_irqs disk_irqs";
    check(&[pid, socket], &[found]);
    check(&[("/tare/owners/process/crio", "running")], &["cri-o (a process crio): irqbalance"]);
    check(
        &[("/tare/owners/present", "/etc/sysconfig/orig_irq_banned_cpus")],
        &["cri-o (/etc/sysconfig/orig_irq_banned_cpus): irqbalance"],
    );
    check(&[("/tare/owners/process/kubelet", "running")], &["kubelet (a process kubelet): "]);
    check(
        &[("/tare/owners/present", "/usr/bin/google_set_multiqueue")],
        &[
            "Google guest agent (/usr/bin/google_set_multiqueue): nic_channels nic_irqs xps disk_irqs",
        ],
    );
    check(
        &[("/tare/owners/present", "/etc/systemd/system/scylla-cpupower.service")],
        &["scylla-cpupower.service (/etc/systemd/system/scylla-cpupower.service): cpu_governor"],
    );
    check(
        &[("/tare/owners/process/power-profiles-daemon", "running")],
        &["power-profiles-daemon (a process power-profiles-daemon): energy_preference"],
    );
    let operator = "/var/log/pods/scylla-operator-node-tuning_*";
    let found = owners(&[("/tare/owners/present", operator)]);
    assert!(found[0].starts_with("NodeConfig of the Scylla operator (/var/log/pods/"), "{found:?}");
}

#[test]
fn settings_in_files_have_an_owner() {
    let settings = "sysctl\t/usr/lib/sysctl.d/10-map-count.conf\tvm.max_map_count\t1048576\n\
        sysctl\t/etc/sysctl.d/99-scylla.conf\tnet.core.somaxconn\t4096\n\
        sysctl\t/etc/sysctl.d/50-mine.conf\tnet.core.somaxconn\t128\n\
        udev\t/etc/udev/rules.d/60-io.rules\tqueue/scheduler\t\n\
        link\t/etc/systemd/network/10-x.link\tCombinedChannels\t8\n\
        NetworkManager\t/etc/NetworkManager/system-connections\tring-rx\t512\n\
        waagent\t/etc/waagent.conf\tResourceDisk.EnableSwap\ty";
    let owners = Owners::read(&host(&[("/tare/owners/settings", settings)]));
    let check = |knob: &str, what: &str, expect: Option<(&str, &str)>| {
        let owner = owners.of_setting(knob, what).map(|o| (&*o.name, &*o.effect));
        assert_eq!(owner, expect, "{knob} {what}");
    };
    // The file that is read last wins.
    let somaxconn = "sets net.core.somaxconn to 4096 at every boot";
    check("sysctls", "net.core.somaxconn", Some(("systemd-sysctl", somaxconn)));
    check("sysctls", "fs.aio-max-nr", None);
    let map_count = "sets vm.max_map_count to 1048576 at every boot";
    check("sysctls", "vm.max_map_count", Some(("systemd-sysctl", map_count)));
    let scheduler = "sets queue/scheduler whenever the device appears or changes";
    check("disk_scheduler", "scheduler of vda", Some(("udev", scheduler)));
    let channels = "sets CombinedChannels=8 when the network device appears";
    check("nic_channels", "combined", Some(("systemd-udevd", channels)));
    let ring = "sets ring-rx=512 whenever the connection is activated";
    check("rings", "rx", Some(("NetworkManager", ring)));
    let swap = "creates a swap file on the resource disk at every boot";
    check("swap", "vm.swappiness", Some(("Azure Linux agent", swap)));
    check("rps", "rps_cpus of rx-0", None);
}

#[test]
fn known_tuned_profiles_list_their_knobs() {
    let check = |profile: &str, expect: &str| {
        let found = owners(&[TUNED, ("/etc/tuned/active_profile", profile)]);
        assert_eq!(found, [format!("tuned (/etc/tuned/active_profile): {expect}")], "{profile}");
    };
    check("throughput-performance", "cpu_governor energy_preference swap sysctls");
    check("virtual-guest", "cpu_governor energy_preference swap sysctls");
    check("latency-performance", "cpu_governor energy_preference idle_states swap");
    check(
        "network-latency",
        "cpu_governor energy_preference idle_states numa_balancing swap transparent_hugepages",
    );
    check(
        "postgresql",
        "cpu_governor energy_preference idle_states swap sysctls transparent_hugepages",
    );
    check(
        "cpu-partitioning",
        "cpu_governor disk_irqs energy_preference idle_states irqbalance nic_irqs numa_balancing \
         swap transparent_hugepages",
    );
    check(
        "realtime",
        "cpu_governor disk_irqs energy_preference idle_states irqbalance nic_channels nic_irqs \
         numa_balancing swap transparent_hugepages",
    );
    // Two profiles at once.
    check("virtual-guest powersave", "cpu_governor energy_preference swap sysctls");
}

#[test]
fn profile_files_override_the_table() {
    let files = [
        TUNED,
        ("/etc/tuned/active_profile", "mine"),
        (
            "/tare/owners/tuned/mine",
            "[main]\nsummary\ninclude=${f:virt_check:other:throughput-performance}\n[disk]\nelevator\n\
             [sysctl]\nnet.core.somaxconn\nvm.dirty_ratio\n[vm.arm]\ntype=vm\nuname_regex\n\
             transparent_hugepages\n[x]\ntype=net\nring\n[sysfs]\n/sys/block/sda/queue/nomerges",
        ),
        (
            "/tare/owners/tuned/other",
            "[main]\ninclude=mine\n[cpu]\nforce_latency\n[script]\nscript",
        ),
        ("/tare/owners/tuned/throughput-performance", "[cpu]\ngovernor"),
    ];
    let found = owners(&files);
    let expect = "cpu_governor disk_nomerges disk_scheduler idle_states rings sysctls";
    assert_eq!(found, [format!("tuned (/etc/tuned/active_profile): {expect}")]);
    let owners = Owners::read(&host(&files));
    assert!(owners.of_setting("sysctls", "net.core.somaxconn").is_some());
    assert!(owners.of_setting("sysctls", "fs.aio-max-nr").is_none());
    let effect = &owners.list[0].owner.effect;
    assert!(effect.ends_with("and runs the profile's script"), "{effect}");
}

#[test]
fn reports_unknown_tuned_profiles() {
    let owners = Owners::read(&host(&[TUNED, ("/etc/tuned/active_profile", "ours")]));
    let effect = &owners.list[0].owner.effect;
    assert!(effect.contains("the settings of ours are unknown"), "{effect}");
    let owners = Owners::read(&host(&[TUNED]));
    assert!(owners.list[0].owner.effect.contains("cannot be read"));
}

#[test]
fn tuned_decides_on_nodes_and_nowhere_else() {
    let check = |files: &[(&str, &str)], name: &str, decided_in: Option<&str>, knobs: &[&str]| {
        let owners = Owners::read(&host(files));
        let found = owners.list.iter().find(|owned| owned.owner.name == name);
        let found = found.unwrap_or_else(|| panic!("{files:?} {owners:?}"));
        assert_eq!(found.decided_in, decided_in, "{files:?}");
        assert!(knobs.iter().all(|knob| found.knobs.contains(knob)), "{found:?}");
        assert_eq!(owners.deciding(knobs[0], "").is_some(), decided_in.is_some());
    };
    let profile = ("/etc/tuned/active_profile", "throughput-performance");
    check(&[TUNED, profile], "tuned", None, &["swap"]);
    let kubelet = ("/tare/kubelet", r#"{"process":1}"#);
    check(&[TUNED, profile, kubelet], "tuned", Some("its profile"), &["swap"]);
    let in_pod = ("/tare/owners/tuned-in-pod", "profile openshift-node-performance-db");
    let object = Some("the object that its pod reads");
    check(&[in_pod], "TuneD in a pod", object, &["nic_irqs", "nic_channels", "irqbalance"]);
    let logs = ("/tare/owners/present", tuned::NODE_TUNING_OPERATOR);
    let objects = Some("a Tuned or PerformanceProfile object");
    check(&[in_pod, logs], "TuneD of the Node Tuning Operator", objects, &["idle_states"]);
    // The pod's profile counts, not one that the host once had.
    let in_pod = ("/tare/owners/tuned-in-pod", "profile openshift-node");
    let owners = Owners::read(&host(&[in_pod, ("/etc/tuned/active_profile", "postgresql")]));
    assert!(!owners.list[0].knobs.contains(&"transparent_hugepages"));
}

const SERVICE: (&str, &str) =
    ("/tare/owners/present", "/usr/lib/systemd/system/scylla-server.service");
const ASKED: (&str, &str) =
    ("/tare/owners/settings", "scylla\t/etc/default/scylla-server\tSET_NIC_AND_DISKS\tyes");

#[test]
fn perftune_owns_what_it_writes_at_each_start() {
    let disks = "disk_irqs disk_nomerges disk_scheduler irqbalance";
    let nics = "irqbalance nic_channels nic_irqs ntuple rfs rps sysctls tcp_memory xps";
    let check = |files: &[(&str, &str)], expect: &[String]| {
        assert_eq!(owners(files), expect, "{files:?}");
    };
    let of = |knobs: &str| [format!("perftune.py (/etc/scylla.d/perftune.yaml): {knobs}")];
    let yaml = |text| ("/etc/scylla.d/perftune.yaml", text);
    check(&[SERVICE, ASKED, yaml("tune:\n- disks")], &of(disks));
    check(&[SERVICE, ASKED, yaml("tune: [net]")], &of(nics));
    let clock = format!("clock_source {disks}");
    check(&[SERVICE, ASKED, yaml("tune:\n- disks\n- system\ntune_clock: true")], &of(&clock));
    // Nothing runs it, so it is a leftover, not an owner.
    check(&[yaml("tune: [net]")], &[]);
    check(&[SERVICE, yaml("tune: [net]")], &[]);
    let off =
        ("/tare/owners/settings", "scylla\t/etc/default/scylla-server\tSET_NIC_AND_DISKS\tno");
    check(&[SERVICE, off], &[]);
    let found = owners(&[SERVICE, ASKED]);
    assert!(found[0].starts_with("perftune.py (scylla-server.service): disk_irqs"), "{found:?}");
}

/// Returns a machine of four cores with eth0 and the interrupts 38 and 39, its interrupt CPUs and
/// its compute CPUs.
fn machine() -> (Machine, CpuSet, CpuSet) {
    let list = |text: &str| CpuSet::parse_list(text).unwrap();
    let core = |cpu: u32| topology::Core { cpus: list(&cpu.to_string()) };
    let node = topology::Node { id: 0, cores: (0..4).map(core).collect() };
    let irq = |number: u32| Irq {
        number,
        name: format!("eth0-TxRx-{number}"),
        pci: None,
        affinity: None,
        effective: None,
        managed: None,
        count: 0,
    };
    let nic = Nic {
        name: "eth0".into(),
        requested: "eth0".into(),
        driver: "ena".into(),
        pci: None,
        rx_queues: vec![0],
        tx_queues: vec![0],
        irqs: vec![irq(38), irq(39)],
        irqs_of_queues: 2,
        channels: None,
    };
    let machine = Machine {
        topology: Topology { nodes: vec![node], ..Topology::default() },
        interrupts: Interrupts { irqs: [(38, irq(38)), (39, irq(39))].into() },
        nics: vec![nic],
        disks: Vec::new(),
        owners: Owners::default(),
        interrupt_share: Default::default(),
    };
    (machine, list("0"), list("1-3"))
}

#[test]
fn validates_perftune_options() {
    let (machine, irq, compute) = machine();
    let check = |yaml: &str, expect: &[&str]| {
        let eth = [("/sys/class/net/eth0/mtu", "1500"), ("/sys/class/net/eth1/mtu", "1500")];
        let files = [eth[0], eth[1], SERVICE, ASKED, ("/etc/scylla.d/perftune.yaml", yaml)];
        let notes = notes(&host(&files), &machine, &irq, &compute);
        assert_eq!(notes.len(), expect.len(), "{yaml} {notes:#?}");
        for (note, part) in notes.iter().zip(expect) {
            assert!(note.contains(part), "{yaml} {note}");
        }
    };
    check("mode: sq\nnic:\n- eth0\nirq_cpu_mask: '0x00000001'", &[]);
    check("mode: None\nnic:\n- eth0", &["unknown mode \"None\""]);
    check("nic:\n- e\n- t\n- h\n- '0'", &["there is no network device e, t, h, 0"]);
    check("nic: eth0", &["nic is not a list"]);
    check("nic:\n- eth0\nirq_cpu_mask: '0x3,'", &["irq_cpu_mask \"0x3,\""]);
    check("nic:\n- eth0\nirq_cpu_mask: '0x100'", &["interrupt CPUs 8 are not online"]);
    check(
        "nic:\n- eth0\nirq_cpu_mask: '0x2'",
        &["put interrupts on CPUs 1, this plan puts them on 0"],
    );
    check("mode: mq\nnic: [eth0]", &["put interrupts on CPUs 0-3"]);
    check(
        "nic: [eth1]\nirq_cpu_mask: '0x1'",
        &["perftune.py will at the next start of scylla-server tune eth1"],
    );
}

#[test]
fn notes_stale_bans_and_exclusive_cpus() {
    let (machine, irq, compute) = machine();
    let check = |files: &[(&str, &str)], expect: Option<&str>| {
        let notes = notes(&host(files), &machine, &irq, &compute);
        assert_eq!(notes.len(), usize::from(expect.is_some()), "{notes:?}");
        assert!(notes.iter().all(|note| note.contains(expect.unwrap_or_default())), "{notes:?}");
    };
    let args = ("/etc/default/irqbalance", "OPTIONS=--banirq=38 --banirq=90");
    check(&[args], Some("interrupts 90 are banned in irqbalance, but"));
    let orig = ("/tare/owners/present", "/etc/default/irqbalance.scylla.orig");
    check(&[args, orig], Some("by perftune.py, which adds bans"));
    check(&[("/etc/default/irqbalance", "OPTIONS=--banirq=38")], None);
    check(
        &[("/tare/owners/kubelet", "policy static\nexclusive 0-1")],
        Some("CPUs 0 take interrupts in this plan, but kubelet"),
    );
    check(&[("/tare/owners/kubelet", "policy static\nexclusive 2-3")], None);
    check(&[("/tare/owners/kubelet", "policy none\nexclusive ")], None);
}
