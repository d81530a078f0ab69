//! Knobs of disks, CPUs, memory and limits, on described hosts.

#![expect(clippy::unwrap_used, reason = "tests")]

use tare_tune::fixture::{Disk, DiskKind, Host, Nic, Virtualization};
use tare_tune::knobs;
use tare_tune::plan::{Action, Item, Mode, Options, Requirement};
use tare_tune::planner::plan;
use tare_tune::snapshot::{Node, Snapshot};

fn items(snapshot: &Snapshot, options: &Options, knob: &str) -> Vec<Item> {
    let options = Options { only: vec![knob.into()], ..options.clone() };
    plan(snapshot, &options).unwrap().items
}

/// Formats an item as `WHAT: NOW > WANTED`, or `WHAT: NOW` without a change, with `(leave)` or
/// `(advise)`.
fn text(item: &Item) -> String {
    let what = &item.what;
    match &item.action {
        Action::Change(change) => format!("{what}: {} > {}", change.now, change.wanted),
        Action::AlreadySet { now } => format!("{what}: {now}"),
        Action::Leave { now, .. } => format!("{what}: {now} (leave)"),
        Action::Advise { now, wanted, .. } => format!("{what}: {now} > {wanted} (advise)"),
    }
}

/// Returns the sorted texts of a knob's items, because a plan lists changes first.
fn texts(snapshot: &Snapshot, options: &Options, knob: &str) -> Vec<String> {
    items(snapshot, options, knob).iter().map(text).collect()
}

fn own() -> Options {
    Options::default()
}

fn perftune() -> Options {
    Options { like_perftune: true, ..Options::default() }
}

fn bare_metal() -> Host {
    let mut host = Host::new(2, 8, 2);
    host.disks = vec![
        Disk::new("nvme0n1", DiskKind::Nvme, 32),
        Disk::new("nvme1n1", DiskKind::Nvme, 32),
        Disk::new("sda", DiskKind::Scsi, 4),
    ];
    host.nics = vec![Nic::new("eth0", "ice", 8)];
    host
}

fn devices(names: &[&str], options: Options) -> Options {
    Options { devices: names.iter().map(|name| name.to_string()).collect(), ..options }
}

#[test]
fn every_knob_has_texts() {
    let mut names = std::collections::BTreeSet::new();
    for knob in knobs::ALL {
        assert!(names.insert(knob.name()), "{}", knob.name());
        assert!(!knob.help().is_empty() && !knob.why().is_empty(), "{}", knob.name());
        assert!(!knob.source().is_empty(), "{}", knob.name());
    }
    // While the governor is `performance`, drivers refuse any other preference, also on revert.
    let at = |name: &str| knobs::ALL.iter().position(|knob| knob.name() == name).unwrap();
    assert!(at("energy_preference") < at("cpu_governor"));
}

#[test]
fn sets_disk_schedulers() {
    let mut snapshot = bare_metal().build();
    let options = devices(&["nvme0n1", "sda"], own());
    let found = texts(&snapshot, &options, "disk_scheduler");
    assert_eq!(found, ["I/O scheduler: mq-deadline > none", "I/O scheduler: none"]);
    let sda = snapshot.real("/sys/class/block/sda").unwrap();
    // Before blk-mq, the scheduler that does nothing was `noop`.
    snapshot.write(&format!("{sda}/queue/scheduler"), "noop [deadline] cfq");
    assert_eq!(texts(&snapshot, &options, "disk_scheduler")[0], "I/O scheduler: deadline > noop");
    snapshot.write(&format!("{sda}/queue/scheduler"), "[mq-deadline]");
    assert_eq!(texts(&snapshot, &options, "disk_scheduler").len(), 1);
    // A rotational disk keeps its scheduler; perftune.py does not check.
    snapshot.write(&format!("{sda}/queue/scheduler"), "none [mq-deadline]");
    snapshot.write(&format!("{sda}/queue/rotational"), "1");
    let found = texts(&snapshot, &options, "disk_scheduler");
    assert_eq!(found[1], "I/O scheduler: mq-deadline (leave)");
    assert_eq!(texts(&snapshot, &options, "disk_nomerges")[1], "nomerges: 0 (leave)");
    let like = devices(&["sda"], perftune());
    assert_eq!(texts(&snapshot, &like, "disk_scheduler"), ["I/O scheduler: mq-deadline > none"]);
    assert_eq!(texts(&snapshot, &like, "disk_nomerges"), ["nomerges: 0 > 2"]);
    let change = items(&snapshot, &like, "disk_nomerges")[0].change().unwrap().clone();
    assert_eq!(change.identity.device.as_deref(), Some("8:0"));
    assert!(change.identity.pci.is_some());
}

#[test]
fn write_cache_changes_only_on_request() {
    let snapshot = bare_metal().build();
    let options = devices(&["sda"], own());
    let knob = "disk_write_cache";
    assert_eq!(texts(&snapshot, &options, knob), ["write cache: write through (leave)"]);
    let options = Options { write_back_cache: Some(true), ..options };
    assert_eq!(texts(&snapshot, &options, knob), ["write cache: write through > write back"]);
    let options = Options { write_back_cache: Some(false), ..options };
    assert_eq!(texts(&snapshot, &options, knob), ["write cache: write through"]);
    assert!(texts(&snapshot, &devices(&["sda"], perftune()), knob).is_empty());
}

#[test]
fn spreads_disk_interrupts_of_hardware() {
    let snapshot = bare_metal().build();
    let options = devices(&["nvme0n1", "nvme1n1", "sda"], own());
    let plan_of = |options: &Options| {
        let only = Options { only: vec!["disk_irqs".into()], ..options.clone() };
        plan(&snapshot, &only).unwrap()
    };
    let plan = plan_of(&options);
    let left: Vec<String> = plan
        .items
        .iter()
        .filter(|item| matches!(item.action, Action::Leave { .. }))
        .map(|item| item.what.clone())
        .collect();
    let expected = ["nvme0q1 to nvme0q32", "nvme1q1 to nvme1q32"]
        .map(|names| format!("CPUs of 32 interrupts ({names})"));
    assert_eq!(left, expected);
    for (item, change) in plan.changes() {
        assert_eq!(item.subject, "sda");
        assert_eq!(change.requirement, Requirement::BestEffort);
        assert!(change.identity.irq_name.as_deref().unwrap().starts_with("mpt3sas0-msix"));
        let cpu = tare_std::cpus::CpuSet::parse_mask(&change.wanted).unwrap();
        assert!(plan.cpus.irq.iter().any(|irq| cpu.contains(irq)), "{}", change.wanted);
    }
    // perftune.py spreads all NVMe queues over all CPUs; the kernel may refuse.
    let like = plan_of(&devices(&["nvme0n1", "nvme1n1"], perftune()));
    let all = like.items.len();
    assert_eq!(all, 66);
    let cpus: std::collections::BTreeSet<String> =
        like.changes().map(|(_, change)| change.wanted.clone()).collect();
    assert!(cpus.len() > 20, "{cpus:?}");
    // On request interrupts stay where they are.
    let none = Options { mode: Mode::None, ..devices(&["sda"], own()) };
    assert!(plan_of(&none).items.is_empty());
}

/// seastar #3003: request queues of virtio-blk on OCI are managed and cannot be moved.
#[test]
fn leaves_managed_virtio_queues_alone() {
    let mut host = Host::new(1, 16, 2);
    host.virtualization = Virtualization::Kvm;
    host.disks = vec![Disk::new("vda", DiskKind::VirtioBlk, 4)];
    let blind = host.build();
    host.irq_debugfs = true;
    let seeing = host.build();
    let options = devices(&["vda"], own());
    // Without debugfs, the driver's name shows it.
    for snapshot in [&blind, &seeing] {
        let found = items(snapshot, &options, "disk_irqs");
        let left: Vec<&Item> =
            found.iter().filter(|item| matches!(item.action, Action::Leave { .. })).collect();
        assert_eq!(left.len(), 1, "{found:?}");
        assert!(left[0].what.starts_with("CPUs of 4 interrupts"), "{left:?}");
        assert_eq!(left[0].owner.as_ref().unwrap().name, "the kernel");
        // The configuration interrupt is moved if possible.
        let rest = found.iter().filter_map(|item| item.change());
        assert!(
            rest.clone().count() <= 1
                && rest.clone().all(|c| c.requirement == Requirement::BestEffort)
        );
    }
    // perftune.py tries all.
    let like = items(&blind, &devices(&["vda"], perftune()), "disk_irqs");
    assert_eq!(like.len(), 5, "{like:?}");
}

/// AWS i3 (not metal) is a Xen guest, whose NVMe interrupts the kernel does not manage.
#[test]
fn spreads_nvme_in_xen_over_all_cpus() {
    let mut host = Host::new(1, 16, 2);
    host.virtualization = Virtualization::Xen;
    host.disks = vec![Disk::new("nvme0n1", DiskKind::Nvme, 32)];
    let snapshot = host.build();
    for options in [own(), perftune()] {
        let found = items(&snapshot, &devices(&["nvme0n1"], options), "disk_irqs");
        // The admin queue 0 is not included.
        assert_eq!(found.len(), 32);
        assert!(!found.iter().any(|item| item.what.ends_with("(nvme0q0)")));
    }
}

/// redpanda #10838: `msi_irqs` was empty after an update, and spreading none over the CPUs failed.
#[test]
fn accepts_controller_without_interrupts() {
    let snapshot = bare_metal().build();
    let mut bare = snapshot.clone();
    for (path, _) in snapshot.nodes().filter(|(path, _)| path.contains("/msi_irqs/")) {
        bare.remove(path);
    }
    bare.write("/proc/interrupts", "           CPU0       CPU1");
    for options in [own(), perftune()] {
        let options = devices(&["sda", "nvme0n1"], options);
        assert!(texts(&bare, &options, "disk_irqs").is_empty());
        assert_eq!(texts(&bare, &options, "disk_nomerges").len(), 2);
    }
}

#[test]
fn plans_clock_source() {
    let knob = "clock_source";
    let with_clock = |options: Options| Options { clock: true, ..options };
    let of = |virtualization| {
        let mut host = Host::new(1, 8, 2);
        host.virtualization = virtualization;
        host.nics = vec![Nic::new("eth0", "virtio_net", 4)];
        host.build()
    };
    let cases = [
        (Virtualization::None, "clock source: tsc", "clock source: tsc"),
        (Virtualization::Kvm, "clock source: kvm-clock", "clock source: kvm-clock"),
        (Virtualization::Amazon, "clock source: kvm-clock", "clock source: kvm-clock"),
        (Virtualization::Google, "clock source: kvm-clock", "clock source: kvm-clock"),
        (Virtualization::Xen, "clock source: xen > tsc", "clock source: xen > tsc"),
        (Virtualization::Vmware, "clock source: tsc", "clock source: tsc"),
    ];
    for (virtualization, expected, like) in cases {
        let snapshot = of(virtualization);
        assert_eq!(texts(&snapshot, &with_clock(own()), knob), [expected], "{virtualization:?}");
        assert_eq!(texts(&snapshot, &with_clock(perftune()), knob), [like], "{virtualization:?}");
        assert!(texts(&snapshot, &perftune(), knob).is_empty());
    }
    // Without a request, or if it is not offered, there is only advice.
    let mut snapshot = of(Virtualization::Xen);
    assert_eq!(texts(&snapshot, &own(), knob), ["clock source: xen > tsc (advise)"]);
    let folder = "/sys/devices/system/clocksource/clocksource0";
    snapshot.write(&format!("{folder}/available_clocksource"), "xen hpet acpi_pm");
    let found = items(&snapshot, &with_clock(own()), knob);
    assert_eq!(text(&found[0]), "clock source: xen > tsc (advise)");
    // arm64 has only one clock source.
    snapshot.write(&format!("{folder}/available_clocksource"), "arch_sys_counter");
    snapshot.write(&format!("{folder}/current_clocksource"), "arch_sys_counter");
    assert_eq!(texts(&snapshot, &own(), knob), ["clock source: arch_sys_counter"]);
    assert!(texts(&snapshot, &with_clock(perftune()), knob).is_empty());
}

#[test]
fn plans_frequencies_and_idle_states() {
    let mut snapshot = bare_metal().build();
    assert_eq!(texts(&snapshot, &own(), "cpu_governor").len(), 32);
    assert_eq!(
        texts(&snapshot, &own(), "energy_preference")[0],
        "energy_performance_preference: balance_performance > performance"
    );
    // CPUs of one policy share a file.
    snapshot.remove("/sys/devices/system/cpu/cpufreq");
    for cpu in 0..32 {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq");
        snapshot.remove(&folder);
        let policy = format!("../cpufreq/policy{}", cpu / 16 * 16);
        snapshot.insert(&folder, Node::Link(policy));
    }
    for policy in [0, 16] {
        let folder = format!("/sys/devices/system/cpu/cpufreq/policy{policy}");
        snapshot.write(&format!("{folder}/scaling_governor"), "schedutil");
        snapshot.write(&format!("{folder}/scaling_available_governors"), "schedutil performance");
    }
    let found = texts(&snapshot, &own(), "cpu_governor");
    assert_eq!(found, ["scaling_governor: schedutil > performance"; 2]);
    assert!(texts(&snapshot, &own(), "energy_preference").is_empty());
    assert!(texts(&snapshot, &own(), "idle_states").is_empty());
    for (state, name, latency) in [(0, "POLL", "0"), (1, "C1", "2"), (2, "C6", "133")] {
        let folder = format!("/sys/devices/system/cpu/cpu3/cpuidle/state{state}");
        snapshot.write(&format!("{folder}/name"), name);
        snapshot.write(&format!("{folder}/latency"), latency);
        snapshot.write(&format!("{folder}/disable"), "0");
    }
    let found = texts(&snapshot, &own(), "idle_states");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("idle states: down to C6, 133 µs to wake"), "{found:?}");
    snapshot.write("/sys/devices/system/cpu/cpu3/cpuidle/state2/disable", "1");
    let found = texts(&snapshot, &own(), "idle_states");
    assert_eq!(found, ["idle states: down to C1, 2 µs to wake"]);
    // A guest has none of these files.
    let mut host = Host::new(1, 4, 2);
    host.virtualization = Virtualization::Kvm;
    for knob in ["cpu_governor", "energy_preference", "idle_states"] {
        assert!(texts(&host.build(), &own(), knob).is_empty(), "{knob}");
    }
}

/// seastar #2696: 91 writes a second instead of more than 10,000.
#[test]
fn lowers_wakeup_granularity_of_old_kernels() {
    let knob = "wakeup_granularity";
    let mut snapshot = bare_metal().build();
    assert!(texts(&snapshot, &own(), knob).is_empty());
    let what = "scheduler's wakeup granularity, ns";
    for path in [
        "/proc/sys/kernel/sched_wakeup_granularity_ns",
        "/sys/kernel/debug/sched/wakeup_granularity_ns",
    ] {
        snapshot.write(path, "15000000");
        assert_eq!(texts(&snapshot, &own(), knob), [format!("{what}: 15000000 > 4000000")]);
        snapshot.write(path, "3000000");
        assert_eq!(texts(&snapshot, &own(), knob), [format!("{what}: 3000000")]);
    }
    assert!(texts(&snapshot, &perftune(), knob).is_empty());
}

#[test]
fn plans_memory_settings() {
    let mut snapshot = bare_metal().build();
    let numa = "kernel.numa_balancing";
    assert_eq!(texts(&snapshot, &own(), "numa_balancing"), [format!("{numa}: 1 > 0")]);
    snapshot.write("/proc/sys/kernel/numa_balancing", "2");
    assert_eq!(texts(&snapshot, &own(), "numa_balancing"), [format!("{numa}: 2 (leave)")]);
    assert!(texts(&Host::new(1, 8, 2).build(), &own(), "numa_balancing").is_empty());

    let pages = "/sys/kernel/mm/transparent_hugepage";
    let knob = "transparent_hugepages";
    let what = "transparent huge pages,";
    let right = [format!("{what} enabled: madvise"), format!("{what} defrag: madvise")];
    assert_eq!(texts(&snapshot, &own(), knob), right);
    snapshot.write(&format!("{pages}/enabled"), "[always] madvise never");
    snapshot.write(&format!("{pages}/defrag"), "[always] defer defer+madvise madvise never");
    let found = texts(&snapshot, &own(), knob);
    assert_eq!(found[0], format!("{what} enabled: always > madvise"));
    assert_eq!(found[1], format!("{what} defrag: always > madvise"));
    snapshot.write(&format!("{pages}/enabled"), "always madvise [never]");
    assert_eq!(texts(&snapshot, &own(), knob)[1], format!("{what} enabled: never (leave)"));

    assert_eq!(texts(&snapshot, &own(), "swap"), ["vm.swappiness: 60 (leave)"]);
    let heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority";
    let swaps = format!("{heading}\n/dev/nvme9n1p3\tpartition\t8388604\t\t2048\t\t-2");
    snapshot.write("/proc/swaps", &swaps);
    let area = "swap area: active, 8191 MiB, 2 MiB of it used > none for the database (advise)";
    assert_eq!(texts(&snapshot, &own(), "swap"), ["vm.swappiness: 60 > 1", area]);
    snapshot.write("/proc/sys/vm/swappiness", "0");
    assert_eq!(texts(&snapshot, &own(), "swap")[0], "vm.swappiness: 0");
}

#[test]
fn limits_tcp_memory() {
    let snapshot = bare_metal().build();
    let wanted = |options: &Options| {
        let items = items(&snapshot, options, "tcp_memory");
        items[0].change().unwrap().wanted.clone()
    };
    // seastar #2348.
    assert_eq!(wanted(&own()), "251659 335545 503317");
    assert_eq!(wanted(&perftune()), "251659 335545 503317");
    let twice = Options { tcp_memory_share: Some(0.06), ..own() };
    assert_eq!(wanted(&twice), "503317 671089 1006633");
    // Tabs and spaces are equal for the kernel.
    let mut snapshot = snapshot.clone();
    snapshot.write("/proc/sys/net/ipv4/tcp_mem", "251659\t335545\t503317");
    let found = texts(&snapshot, &own(), "tcp_memory");
    assert_eq!(found, ["net.ipv4.tcp_mem: 251659 335545 503317"]);
}

#[test]
fn only_raises_sysctls() {
    let cases: &[(&str, &str, &str)] = &[
        ("net.core.somaxconn", "128", "128 > 4096"),
        ("net.core.somaxconn", "4096", "4096"),
        ("net.core.somaxconn", "65535", "65535"),
        ("net.ipv4.tcp_max_syn_backlog", "512", "512 > 4096"),
        ("fs.aio-max-nr", "65536", "65536 > 1632832"),
        ("fs.aio-max-nr", "30000000", "30000000"),
        ("fs.file-max", "9223372036854775807", "9223372036854775807"),
        ("fs.file-max", "200000", "200000 > 1048576"),
        ("fs.nr_open", "1073741816", "1073741816"),
        ("fs.inotify.max_user_instances", "128", "128 > 1200"),
        ("vm.max_map_count", "65530", "65530 > 1048575"),
        ("vm.max_map_count", "1048576", "1048576"),
        ("vm.zone_reclaim_mode", "1", "1 > 0"),
        ("vm.zone_reclaim_mode", "0", "0"),
    ];
    let base = bare_metal();
    for (name, now, expected) in cases {
        let mut host = base.clone();
        host.sysctls.insert(name.to_string(), now.to_string());
        let found = texts(&host.build(), &own(), "sysctls");
        assert!(found.contains(&format!("{name}: {expected}")), "{name} {now}: {found:?}");
    }
    // perftune.py writes only two of them, also over a higher value.
    let mut host = base.clone();
    host.sysctls.insert("net.core.somaxconn".into(), "65535".into());
    let found = texts(&host.build(), &perftune(), "sysctls");
    assert_eq!(found, ["net.core.somaxconn: 65535 > 4096", "net.ipv4.tcp_max_syn_backlog: 4096"]);
    host.nics.clear();
    assert!(texts(&host.build(), &perftune(), "sysctls").is_empty());
    // A security decision only gets advice.
    let mut host = base;
    host.sysctls.insert("kernel.io_uring_disabled".into(), "2".into());
    let found = items(&host.build(), &own(), "sysctls");
    let item = found.iter().find(|item| item.what == "kernel.io_uring_disabled").unwrap();
    assert!(matches!(item.action, Action::Advise { .. }));
}

/// After a plan is applied, a second plan changes nothing.
#[test]
fn applied_plan_leaves_nothing_to_change() {
    let mut host = bare_metal();
    host.sysctls.insert("net.core.somaxconn".into(), "128".into());
    host.files.insert("/proc/sys/kernel/sched_wakeup_granularity_ns".into(), "15000000".into());
    let mut snapshot = host.build();
    let options = Options {
        except: vec!["network".into(), "interrupts".into()],
        clock: true,
        write_back_cache: Some(true),
        ..devices(&["nvme0n1", "nvme1n1", "sda"], own())
    };
    let first = plan(&snapshot, &options).unwrap();
    assert!(first.changes().count() > 20);
    for (_, change) in first.changes() {
        change.key.write_to(&mut snapshot, &change.wanted);
    }
    let second = plan(&snapshot, &options).unwrap();
    let rest: Vec<String> = second.changes().map(|(item, _)| text(item)).collect();
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn settings_of_an_operator_are_left_out_with_the_reason() {
    let mut host =
        Host { sysctls: [("vm.swappiness".into(), "60".into())].into(), ..Host::default() };
    let heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority";
    let swaps = format!("{heading}\n/dev/nvme9n1p3\tpartition\t8388604\t\t2048\t\t-2");
    host.files.insert("/proc/swaps".into(), swaps);
    let logs = "/var/log/pods/openshift-cluster-node-tuning-operator_tuned-*";
    host.files.insert("/tare/owners/present".into(), logs.into());
    let profile = "profile openshift-node-performance-db";
    host.files.insert("/tare/owners/tuned-in-pod".into(), profile.into());
    let with = plan(&host.build(), &own()).unwrap();
    let swap = with.items.iter().find(|item| item.knob == "swap").unwrap();
    let Action::Leave { now, reason } = &swap.action else { panic!("{swap:?}") };
    assert_eq!(now, "60");
    assert_eq!(
        reason,
        "TuneD of the Node Tuning Operator sets it: change it in a Tuned or PerformanceProfile object"
    );
    let line = with.notes.iter().find(|note| note.contains("Node Tuning Operator")).unwrap();
    for word in ["profile openshift-node-performance-db", "it sets ", "so Tare leaves ", "--only"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    // A knob that is named is planned; its group is not.
    let only = |name: &str| Options { only: vec![name.into()], ..own() };
    assert_eq!(texts(&host.build(), &own(), "swap")[0], "vm.swappiness: 60 > 1");
    let group = plan(&host.build(), &only("memory")).unwrap();
    let swap = group.items.iter().find(|item| item.knob == "swap").unwrap();
    assert!(swap.change().is_none(), "{swap:?}");
    // perftune.py knows no operator.
    assert!(
        plan(&host.build(), &perftune()).unwrap().notes.iter().all(|n| !n.contains("Operator"))
    );
}

#[test]
fn interrupts_are_left_to_the_node_config_of_scylla() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hosts/i3.8xlarge.toml");
    let mut host: Host = toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority";
    let swaps = format!("{heading}\n/dev/nvme9n1p3\tpartition\t8388604\t\t2048\t\t-2");
    host.files.insert("/proc/swaps".into(), swaps);
    let before = plan(&host.build(), &own()).unwrap();
    assert!(before.changes().any(|(item, _)| item.knob == "nic_irqs"));
    let logs = "/var/log/pods/scylla-operator-node-tuning_*";
    host.files.insert("/tare/owners/present".into(), logs.into());
    let after = plan(&host.build(), &own()).unwrap();
    let of_perftune = ["nic_irqs", "nic_channels", "rps", "xps", "irqbalance", "disk_scheduler"];
    for (item, _) in after.changes() {
        assert!(!of_perftune.contains(&item.knob.as_str()), "{item:?}");
    }
    // What perftune.py does not set is still planned.
    assert!(after.changes().any(|(item, _)| item.knob == "swap"));
    let note = after.notes.iter().find(|note| note.contains("NodeConfig")).unwrap();
    assert!(note.contains("so Tare leaves") && note.contains("nic_irqs"), "{note}");
}
