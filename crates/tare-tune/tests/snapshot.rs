//! Snapshots of folders and of this machine, and the live store on devices that the tests create.
//!
//! Network devices are created in the test's own namespace with its own sysfs, on a thread that
//! ends with the test; a loop device is attached to a file of the test. Both are removed
//! afterwards, also when a test fails.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags};
use tare_host::netns;
use tare_testkit::{Need, Reason, skip, skipped};
use tare_tune::ethtool::Ethtool;
use tare_tune::machine::Topology;
use tare_tune::plan::{EthtoolSetting, Key};
use tare_tune::snapshot::{Node, Snapshot};
use tare_tune::{LiveHost, SettingErrorClass, SettingStore};

fn run(program: &str, arguments: &str) -> Result<String, String> {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn put(root: &Path, path: &str, text: &str) {
    let place = root.join(&path[1..]);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(place, text).unwrap();
}

fn link(root: &Path, path: &str, target: &str) {
    let place = root.join(&path[1..]);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    symlink(target, place).unwrap();
}

/// Writes a host into a folder: one network device and one disk.
fn host(root: &Path) {
    let pci = "/sys/devices/pci0000:00/0000:00:03.0";
    for (file, text) in [
        ("msi_irqs/24", "msix\n"),
        ("numa_node", "0\n"),
        ("config", "never read\n"),
        ("virtio2/modalias", "virtio:d00000001v00001AF4\n"),
        ("virtio2/net/eth0/mtu", "1500\n"),
        ("virtio2/net/eth0/address", "52:54:00:12:34:56\n"),
        ("virtio2/net/eth0/queues/rx-0/rps_cpus", "0\n"),
    ] {
        put(root, &format!("{pci}/{file}"), text);
    }
    link(root, &format!("{pci}/virtio2/net/eth0/device"), "../../../virtio2");
    link(root, &format!("{pci}/virtio2/driver"), "../../../../bus/virtio/drivers/virtio_net");
    link(root, "/sys/class/net/eth0", "../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0");
    for (path, text) in [
        ("/sys/devices/virtual/block/dm-0/dm/name", "vg-data\n"),
        ("/sys/devices/virtual/block/dm-0/dm/uuid", "LVM-abcdef\n"),
        ("/sys/devices/virtual/block/dm-0/queue/scheduler", "[none] kyber\n"),
        ("/sys/devices/system/cpu/cpu0/topology/core_id", "0\n"),
        ("/sys/devices/system/cpu/cpu12/topology/core_id", "6\n"),
        ("/sys/devices/system/cpu/cpufreq/boost", "1\n"),
        ("/proc/irq/24/smp_affinity", "3\n"),
        ("/proc/irq/24/virtio2-input.0/x", ""),
        ("/proc/cmdline", "root=/dev/vda isolcpus=1 quiet\n"),
        ("/proc/interrupts", "  CPU0\n 24: 5 virtio2-input.0\n"),
        ("/proc/77/comm", "irqbalance\n"),
        ("/proc/78/comm", "amazon-ssm-agen\n"),
        ("/etc/real", "OPTIONS=--banirq=3\n"),
        ("/tare/ethtool/eth0/channels", "rx 0\nrx-max 0\ncombined 2\ncombined-max 4\n"),
        ("/tare/ethtool/eth0/features", "ntuple off\nntuple-fixed yes\n"),
        ("/tare/irqbalance/banned-irqs", "\n"),
    ] {
        put(root, path, text);
    }
    link(root, "/sys/class/block/dm-0", "../../devices/virtual/block/dm-0");
    link(root, "/sys/devices/virtual/block/dm-0/slaves/vda", "../../../../nowhere/vda");
    link(root, "/etc/sysconfig/irqbalance", "/etc/real");
    link(root, "/sys/class/net/looped", "looped");
    link(root, "/sys/class/net/outside", "../../../../../../../../../../etc");
}

#[test]
fn takes_files_of_folder_in_table() {
    let folder = tempfile::tempdir().unwrap();
    host(folder.path());
    let snapshot = Snapshot::take(folder.path());
    let check =
        |path: &str, expect: Option<&str>| assert_eq!(snapshot.read(path), expect, "{path}");
    check("/sys/class/net/eth0/mtu", Some("1500"));
    check("/sys/class/net/eth0/address", None);
    check("/sys/class/net/eth0/device/modalias", Some("virtio:d00000001v00001AF4"));
    check("/sys/class/net/eth0/queues/rx-0/rps_cpus", Some("0"));
    check("/sys/bus/pci/devices/0000:00:03.0/msi_irqs/24", Some("msix"));
    check("/sys/bus/pci/devices/0000:00:03.0/config", None);
    check("/sys/devices/system/cpu/cpu12/topology/core_id", Some("6"));
    check("/sys/devices/virtual/block/dm-0/dm/uuid", Some("LVM"));
    check("/sys/class/block/dm-0/queue/scheduler", Some("[none] kyber"));
    check("/proc/cmdline", Some("isolcpus=1"));
    check("/etc/sysconfig/irqbalance", Some("OPTIONS=--banirq=3"));
    check("/tare/irqbalance/banned-irqs", Some(""));
    check("/tare/owners/process/irqbalance", Some("running"));
    check("/tare/owners/process/amazon-ssm-agent", Some("running"));
    check("/proc/77/comm", None);
    let driver = snapshot.real("/sys/class/net/eth0/device/driver");
    assert_eq!(driver.as_deref(), Some("/sys/bus/virtio/drivers/virtio_net"));
    assert_eq!(snapshot.names("/sys/class/block/dm-0/slaves"), ["vda"]);
    assert_eq!(snapshot.names("/proc/irq/24"), ["smp_affinity", "virtio2-input.0"]);
    assert_eq!(snapshot.names("/sys/class/net"), ["eth0", "looped", "outside"]);
    let saved = tempfile::tempdir().unwrap();
    snapshot.save(saved.path()).unwrap();
    assert_eq!(Snapshot::load(saved.path()).unwrap(), snapshot.sanitised());
}

#[test]
fn writes_settings_of_folder() {
    let folder = tempfile::tempdir().unwrap();
    host(folder.path());
    let mut store = LiveHost::new(folder.path());
    let affinity = Key::file("/proc/irq/24/smp_affinity");
    assert_eq!(store.read(&affinity).unwrap(), "3");
    store.may_write(&affinity).unwrap();
    store.write(&affinity, "1").unwrap();
    assert_eq!(store.read(&affinity).unwrap(), "1");
    let rps = Key::file("/sys/class/net/eth0/queues/rx-0/rps_cpus");
    store.write(&rps, "2").unwrap();
    assert_eq!(store.read(&rps).unwrap(), "2");
    // The link to the device is still a link.
    assert!(fs::symlink_metadata(folder.path().join("sys/class/net/eth0")).unwrap().is_symlink());
    let ethtool = |setting| Key::Ethtool { nic: "eth0".into(), setting };
    let channels = ethtool(EthtoolSetting::ChannelsCombined);
    store.write(&channels, "1").unwrap();
    assert_eq!(store.read(&channels).unwrap(), "1");
    assert_eq!(store.read(&ethtool(EthtoolSetting::ChannelsRx)).unwrap(), "0");
    store.write(&Key::IrqbalanceBans, "24 25").unwrap();
    assert_eq!(store.read(&Key::IrqbalanceBans).unwrap(), "24 25");
    for absent in [
        Key::file("/proc/irq/99/smp_affinity"),
        ethtool(EthtoolSetting::RingRx),
        Key::Ethtool { nic: "eth9".into(), setting: EthtoolSetting::ChannelsRx },
    ] {
        assert_eq!(store.read(&absent).unwrap_err().class, SettingErrorClass::Absent);
        assert_eq!(store.write(&absent, "1").unwrap_err().class, SettingErrorClass::Absent);
        store.may_write(&absent).unwrap();
    }
    let after = store.snapshot();
    for key in [&affinity, &rps, &channels] {
        assert_eq!(key.read_from(&after).as_deref(), Some(store.read(key).unwrap().as_str()));
    }
    assert_eq!(after, Snapshot::take(folder.path()));
}

/// Returns every identifier of this machine.
fn secrets() -> Vec<String> {
    let mut secrets = Vec::new();
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    for entry in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        secrets.push(text(&format!("{}/address", entry.path().display())));
    }
    let addresses = run("ip", "-o addr").unwrap_or_default();
    let addresses = addresses.lines().filter_map(|line| line.split_whitespace().nth(3));
    secrets.extend(addresses.map(|a| a.split('/').next().unwrap_or(a).to_string()));
    let routes = run("ip", "route").unwrap_or_default();
    secrets.extend(routes.split_whitespace().filter(|w| w.contains('.')).map(str::to_string));
    for path in ["/etc/machine-id", "/proc/sys/kernel/hostname", "/proc/sys/kernel/random/boot_id"]
    {
        secrets.push(text(path));
    }
    let trimmed = secrets.iter().map(|secret| secret.trim().to_string());
    // `::1` and the zero address of a device without one identify nothing.
    trimmed.filter(|secret| secret.len() > 4 && secret != "00:00:00:00:00:00").collect()
}

#[test]
fn records_this_machine_without_identifiers() {
    let snapshot = Snapshot::take(Path::new("/"));
    let folder = tempfile::tempdir().unwrap();
    snapshot.save(folder.path()).unwrap();
    let loaded = Snapshot::load(folder.path()).unwrap();
    assert_eq!(loaded, snapshot.sanitised());
    assert!(loaded.read("/sys/devices/system/cpu/online").is_some());
    assert!(loaded.read("/proc/interrupts").is_some_and(|text| text.contains("CPU0")));
    assert!(loaded.read("/proc/self/mountinfo").is_some());
    let load = |file| loaded.read(file).unwrap_or_default().lines().count();
    assert!(load("/tare/load/stat-0") >= 2 && load("/tare/load/stat-1") >= 2);
    let secrets = secrets();
    let check = |text: &str, of: &str| {
        for secret in &secrets {
            let places = text.match_indices(secret.as_str());
            // A short name may be part of another word.
            let whole = places.filter(|(at, _)| {
                let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
                let (before, after) = (&text[..*at], &text[at + secret.len()..]);
                !letter(before.chars().next_back()) && !letter(after.chars().next())
            });
            assert_eq!(whole.count(), 0, "{of} holds {secret:?}");
        }
    };
    for (path, node) in loaded.nodes() {
        check(path, path);
        match node {
            Node::File(text) => check(text, path),
            Node::Link(target) => check(target, path),
            Node::Directory => {}
        }
    }
}

#[test]
fn topology_needs_only_its_files() {
    let root = Path::new("/");
    let small = Snapshot::take_topology(root);
    assert_eq!(Topology::read(&small).unwrap(), Topology::read(&Snapshot::take(root)).unwrap());
    assert!(small.read("/proc/interrupts").is_none());
}

/// Runs a test in its own network namespace with a sysfs for it.
fn in_own_network(test: impl FnOnce() + Send) -> io::Result<()> {
    netns::on_own_thread(|| {
        #[expect(deprecated, reason = "unsafe only for the descriptor table, which stays shared")]
        rustix::thread::unshare(
            rustix::thread::UnshareFlags::NEWNET | rustix::thread::UnshareFlags::NEWNS,
        )?;
        let apart = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", apart)?;
        rustix::mount::mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None)?;
        test();
        Ok(())
    })
}

#[test]
fn sets_network_device_and_reads_back() {
    let name = "sets_network_device_and_reads_back";
    if skipped(name, &[Need::Root, Need::Program("ip")]) {
        return;
    }
    let tested = in_own_network(|| {
        let pair = "link add tare-t0 numrxqueues 4 numtxqueues 4 type veth \
                    peer name tare-t1 numrxqueues 4 numtxqueues 4";
        if let Err(error) = run("ip", pair) {
            skip(name, Reason::no_link("veth", &error));
            return;
        }
        let mut store = LiveHost::new("/");
        let rps = Key::file("/sys/class/net/tare-t0/queues/rx-0/rps_cpus");
        let as_found = store.read(&rps).unwrap();
        store.may_write(&rps).unwrap();
        store.write(&rps, "1").unwrap();
        assert!(store.read(&rps).unwrap().ends_with('1'));
        store.write(&rps, &as_found).unwrap();
        assert_eq!(store.read(&rps).unwrap(), as_found);
        assert_eq!(store.write(&rps, "no mask").unwrap_err().class, SettingErrorClass::Absent);

        let of = |setting| Key::Ethtool { nic: "tare-t0".into(), setting };
        let rx = of(EthtoolSetting::ChannelsRx);
        store.write(&rx, "2").unwrap();
        assert_eq!(store.read(&rx).unwrap(), "2");
        store.write(&rx, "1").unwrap();
        assert_eq!(store.read(&rx).unwrap(), "1");
        // More than the device has.
        assert_eq!(store.write(&rx, "64").unwrap_err().class, SettingErrorClass::Absent);
        assert_eq!(store.write(&rx, "many").unwrap_err().class, SettingErrorClass::Failed);
        let gro = of(EthtoolSetting::Feature("generic-receive-offload".into()));
        let was = store.read(&gro).unwrap();
        let other = if was == "on" { "off" } else { "on" };
        for value in [other, &was] {
            store.write(&gro, value).unwrap();
            assert_eq!(store.read(&gro).unwrap(), *value);
        }
        // veth has no rings.
        let ring = store.write(&of(EthtoolSetting::RingRx), "512").unwrap_err();
        assert_eq!(ring.class, SettingErrorClass::Absent, "{ring}");
        let missing = Key::Ethtool { nic: "tare-no".into(), setting: EthtoolSetting::ChannelsRx };
        assert_eq!(store.read(&missing).unwrap_err().class, SettingErrorClass::Absent);
        let long = Key::Ethtool { nic: "x".repeat(70_000), setting: EthtoolSetting::ChannelsRx };
        assert_eq!(store.read(&long).unwrap_err().class, SettingErrorClass::Absent);

        let snapshot = store.snapshot();
        assert_eq!(rx.read_from(&snapshot).as_deref(), Some("1"));
        assert_eq!(gro.read_from(&snapshot), Some(was));
        assert_eq!(rps.read_from(&snapshot), Some(as_found));
        assert!(snapshot.names("/sys/class/net").contains(&"tare-t1"));
        assert!(!snapshot.exists("/sys/class/net/eth0"), "the namespace is its own");
        same_features_as_ethtool("tare-t0");
    });
    if let Err(error) = tested {
        skip(name, Reason::Other(format!("no namespace of its own: {error}")));
    }
}

/// Compares values and fixed features with ethtool, if it is installed.
fn same_features_as_ethtool(nic: &str) {
    let Ok(theirs) = run("ethtool", &format!("-k {nic}")) else {
        skip("same_features_as_ethtool", Reason::not_installed("ethtool"));
        return;
    };
    let ours = Ethtool::open().unwrap().files().unwrap();
    let ours = &ours[nic]["features"];
    let mut compared = 0;
    for line in ours.lines().filter(|line| !line.contains("-fixed ")) {
        let (name, value) = line.split_once(' ').unwrap();
        let theirs_name = if name == "ntuple" { "ntuple-filters" } else { name };
        let found = theirs.lines().find_map(|line| {
            let (of, rest) = line.trim().split_once(": ")?;
            (of == theirs_name).then_some(rest)
        });
        let Some(found) = found else { continue };
        let fixed = ours.lines().any(|line| line == format!("{name}-fixed yes"));
        assert!(found.starts_with(value), "{name}: {found}");
        assert_eq!(found.contains("[fixed]"), fixed, "{name}: {found}");
        compared += 1;
    }
    assert!(compared > 40, "{compared} features in common\n{ours}");
}

#[test]
fn sets_disk_and_restores_it() {
    let name = "sets_disk_and_restores_it";
    if skipped(name, &[Need::Root, Need::Program("losetup")]) {
        return;
    }
    struct Loop(String);
    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = run("losetup", &format!("-d {}", self.0));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let device = match run("losetup", &format!("--find --show {}", file.display())) {
        Ok(device) => Loop(device.trim().to_string()),
        Err(error) => return skip(name, Reason::no_loop_device(&error)),
    };
    let disk = device.0.trim_start_matches("/dev/");
    let mut store = LiveHost::new("/");
    let nomerges = Key::file(format!("/sys/block/{disk}/queue/nomerges"));
    let as_found = store.read(&nomerges).unwrap();
    store.write(&nomerges, "2").unwrap();
    assert_eq!(store.read(&nomerges).unwrap(), "2");
    store.write(&nomerges, &as_found).unwrap();
    assert_eq!(store.read(&nomerges).unwrap(), as_found);
    let scheduler = Key::file(format!("/sys/block/{disk}/queue/scheduler"));
    let refused = store.write(&scheduler, "no-such-scheduler").unwrap_err();
    assert_eq!(refused.class, SettingErrorClass::Absent, "{refused}");
    let absent = Key::file(format!("/sys/block/{disk}/queue/no_such_file"));
    assert_eq!(store.write(&absent, "1").unwrap_err().class, SettingErrorClass::Absent);
    let snapshot = store.snapshot();
    assert_eq!(nomerges.read_from(&snapshot), Some(as_found));
    let backing = snapshot.read(&format!("/sys/class/block/{disk}/loop/backing_file"));
    assert!(backing.is_some_and(|path| path.ends_with("/file")), "{backing:?}");
    assert!(!store.boot_id().is_empty());
}
