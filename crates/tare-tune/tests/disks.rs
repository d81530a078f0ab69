//! Finding the disks of directories and devices, on described hosts and on this one.

use tare_testkit::Reason;
use tare_tune::fixture::{Disk, DiskKind, Host, Stack};
use tare_tune::machine::disks::{self, DiskError};
use tare_tune::machine::{self, Interrupts};
use tare_tune::plan::Options;
use tare_tune::snapshot::{Node, Snapshot};
use tare_tune::{LiveHost, SettingStore};

fn find(
    snapshot: &Snapshot,
    directories: &[&str],
    devices: &[&str],
) -> Result<Vec<machine::Disk>, DiskError> {
    let texts = |list: &[&str]| list.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    disks::find(snapshot, &Interrupts::read(snapshot), &texts(directories), &texts(devices))
}

/// Formats disks as `NAME<ABOVE<ABOVE`, the disk first.
fn chains(disks: &[machine::Disk]) -> Vec<String> {
    let chain = |disk: &machine::Disk| {
        let above = disk.above.iter().rev();
        above.fold(disk.name.clone(), |chain, above| format!("{chain}<{above}"))
    };
    disks.iter().map(chain).collect()
}

fn stack(name: &str, on: &[&str], mapped: &str, backing: &str) -> Stack {
    let on = on.iter().map(|name| name.to_string()).collect();
    Stack { name: name.into(), on, mapped: mapped.into(), backing: backing.into() }
}

/// Returns a host with disks of every kind: the system on a partition, data on an array, a volume
/// on an array, a loop device on the system's disk, a target on the network.
fn host() -> Host {
    let mut host = Host::new(1, 16, 2);
    let mut system = Disk::new("sda", DiskKind::Scsi, 2);
    system.partitions = 2;
    host.disks = vec![
        system,
        Disk::new("nvme0n1", DiskKind::Nvme, 32),
        Disk::new("nvme1n1", DiskKind::Nvme, 32),
        Disk::new("vda", DiskKind::VirtioBlk, 4),
        Disk::new("sdb", DiskKind::Iscsi, 0),
    ];
    host.stacks = vec![
        stack("md0", &["nvme0n1", "nvme1n1"], "", ""),
        stack("dm-0", &["md0"], "vg--fast-data", ""),
        stack("loop0", &[], "", "/srv/images/data.img"),
        stack("dm-1", &["sda2"], "vg-slow", ""),
    ];
    let mounts = [
        ("/", "sda1"),
        ("/var/lib/scylla", "dm-0"),
        ("/var/lib/cassandra/data", "vda"),
        ("/mnt/loop", "loop0"),
        ("/mnt/slow", "dm-1"),
        ("/mnt/far", "sdb"),
    ];
    host.mounts = mounts.iter().map(|(at, of)| (at.to_string(), of.to_string())).collect();
    host
}

#[test]
fn directories_lead_to_disks() {
    let snapshot = host().build();
    let cases: &[(&str, &[&str])] = &[
        ("/", &["sda"]),
        ("/home/someone", &["sda"]),
        ("/var/lib/scylla", &["nvme0n1<md0<dm-0", "nvme1n1<md0<dm-0"]),
        ("/var/lib/scylla/data/not/there/yet", &["nvme0n1<md0<dm-0", "nvme1n1<md0<dm-0"]),
        // Not below the mount, although its path starts with the mount point.
        ("/var/lib/scylla-old", &["sda"]),
        ("/mnt/loop/data", &["loop0", "sda<loop0"]),
        ("/mnt/slow", &["sda<dm-1"]),
        ("/mnt/far", &["sdb"]),
    ];
    for (directory, expected) in cases {
        let disks = find(&snapshot, &[directory], &[]).unwrap();
        assert_eq!(chains(&disks), *expected, "{directory}");
        assert!(disks.iter().all(|disk| disk.requested == *directory), "{directory}");
    }
    // Each disk once, for the first request.
    let disks = find(&snapshot, &["/home", "/mnt/slow"], &["sda2"]).unwrap();
    assert_eq!(chains(&disks), ["sda"]);
    assert_eq!(disks[0].requested, "/home");
}

#[test]
fn devices_lead_to_disks() {
    let snapshot = host().build();
    let cases: &[(&str, &[&str])] = &[
        ("nvme0n1", &["nvme0n1"]),
        ("/dev/nvme0n1", &["nvme0n1"]),
        ("/dev/sda2", &["sda"]),
        ("/dev/md0", &["nvme0n1<md0", "nvme1n1<md0"]),
        ("/dev/mapper/vg--fast-data", &["nvme0n1<md0<dm-0", "nvme1n1<md0<dm-0"]),
        ("/dev/vg-fast/data", &["nvme0n1<md0<dm-0", "nvme1n1<md0<dm-0"]),
        ("loop0", &["loop0", "sda<loop0"]),
    ];
    for (device, expected) in cases {
        assert_eq!(chains(&find(&snapshot, &[], &[device]).unwrap()), *expected, "{device}");
    }
    let unknown = |name: &str, nearest: Option<&str>| DiskError::UnknownDevice {
        name: name.into(),
        nearest: nearest.map(str::to_string),
    };
    assert_eq!(find(&snapshot, &[], &["nvme0"]), Err(unknown("nvme0", Some("nvme0n1"))));
    // seastar #7672 and the like: an option that was split into letters.
    assert_eq!(find(&snapshot, &[], &["e"]), Err(unknown("e", None)));
    assert_eq!(find(&snapshot, &[], &["/dev/"]), Err(unknown("/dev/", None)));
}

#[test]
fn finds_interrupts_of_controllers() {
    let snapshot = host().build();
    let one = |name: &str| find(&snapshot, &[], &[name]).unwrap().remove(0);
    let names = |disk: &machine::Disk| -> Vec<String> {
        disk.irqs.iter().map(|irq| irq.name.clone()).collect()
    };
    let nvme = one("nvme1n1");
    assert!(nvme.nvme && !nvme.remote && nvme.pci.is_some());
    assert_eq!(nvme.irqs.len(), 33);
    assert!(names(&nvme).iter().all(|name| name.starts_with("nvme1q")), "{nvme:?}");
    let virtio = one("vda");
    assert_eq!(names(&virtio).len(), 5, "{virtio:?}");
    assert!(virtio.is_virtual());
    let scsi = one("sda");
    assert_eq!(names(&scsi), ["mpt3sas0-msix0", "mpt3sas0-msix1"]);
    assert!(!scsi.is_virtual());
    let far = one("sdb");
    assert!(far.remote && far.irqs.is_empty() && far.pci.is_none(), "{far:?}");
}

/// perftune.py matches `virtio1` within `virtio10` and takes all devices of the driver (seastar
/// #244).
#[test]
fn defect_5_virtio_disk_has_only_its_own_interrupts() {
    let mut host = Host::new(1, 8, 2);
    host.disks = (b'a'..=b'm')
        .map(|letter| Disk::new(&format!("vd{}", char::from(letter)), DiskKind::VirtioBlk, 2))
        .collect();
    let snapshot = host.build();
    for letter in 'a'..='m' {
        let name = format!("vd{letter}");
        let disk = find(&snapshot, &[], &[&name]).unwrap().remove(0);
        let virtio = disk.path.split('/').find(|part| part.starts_with("virtio")).unwrap();
        let expected = ["config", "req.0", "req.1"].map(|queue| format!("{virtio}-{queue}"));
        let names: Vec<&str> = disk.irqs.iter().map(|irq| irq.name.as_str()).collect();
        assert_eq!(names, expected, "{name}");
    }
}

#[test]
fn xen_disks_share_interrupt_name() {
    let mut host = Host::new(1, 4, 2);
    host.virtualization = tare_tune::fixture::Virtualization::Xen;
    host.disks = vec![Disk::new("xvda", DiskKind::Xen, 2), Disk::new("xvdb", DiskKind::Xen, 2)];
    let snapshot = host.build();
    let disk = find(&snapshot, &[], &["xvdb"]).unwrap().remove(0);
    assert_eq!(disk.irqs.len(), 4, "{disk:?}");
    assert!(disk.is_virtual());
}

#[test]
fn takes_only_data_mounts_by_default() {
    let snapshot = host().build();
    let disks = find(&snapshot, &[], &[]).unwrap();
    let mut found = chains(&disks);
    found.sort();
    assert_eq!(found, ["nvme0n1<md0<dm-0", "nvme1n1<md0<dm-0", "vda"]);
    assert!(disks::notes(false, &disks).is_empty());
    let mut host = host();
    host.mounts.retain(|point, _| point == "/");
    let disks = find(&host.build(), &[], &[]).unwrap();
    assert!(disks.is_empty());
    let notes = disks::notes(false, &disks);
    assert!(notes[0].contains("--dir"), "{notes:?}");
}

fn with_mounts(lines: &[&str]) -> Snapshot {
    let mut snapshot = host().build();
    snapshot.write("/proc/self/mountinfo", &lines.join("\n"));
    snapshot
}

#[test]
fn file_systems_without_a_device_number() {
    let mut snapshot = with_mounts(&[
        "26 1 8:1 / / rw,noatime - ext4 /dev/sda1 rw",
        "30 26 0:40 /@data /data rw shared:1 - btrfs /dev/nvme0n1 rw,subvol=/@data",
        "31 26 0:41 / /over rw - overlay overlay rw,lowerdir=/a",
        "32 26 0:42 / /far rw - nfs4 server:/export rw",
        "33 26 0:43 / /mem rw - tmpfs tmpfs rw",
        r"34 26 254:0 / /my\040data rw - xfs /dev/vda rw",
        // Mounted later at the same point, so it is on top.
        "35 26 0:44 / /twice rw - tmpfs tmpfs rw",
        "36 35 254:0 / /twice rw - xfs /dev/vda rw",
        "37 26 0:45 / /tank rw - zfs tank/data rw",
    ]);
    let chain = |snapshot: &Snapshot, at: &str| chains(&find(snapshot, &[at], &[]).unwrap());
    assert_eq!(chain(&snapshot, "/data/x"), ["nvme0n1"]);
    for name in ["nvme0n1", "nvme1n1"] {
        let target = format!("/sys/class/block/{name}");
        let path = format!("/sys/fs/btrfs/0b6a/devices/{name}");
        snapshot.insert(&path, Node::Link(target));
    }
    assert_eq!(chain(&snapshot, "/data/x"), ["nvme0n1", "nvme1n1"]);
    assert_eq!(chain(&snapshot, "/my data/x"), ["vda"]);
    assert_eq!(chain(&snapshot, "/twice"), ["vda"]);
    let refusal = |at: &str| find(&snapshot, &[at], &[]).unwrap_err().to_string();
    for (at, says) in [
        ("/over/lib", "overlay"),
        ("/far", "nfs4"),
        ("/mem", "tmpfs"),
        ("/tank", "--dev"),
        ("data", "absolute"),
    ] {
        assert!(refusal(at).contains(says), "{at}: {}", refusal(at));
    }
    assert!(find(&Snapshot::default(), &["/"], &[]).is_err());
    // A default data directory on a file system without a disk is not an error.
    assert!(find(&snapshot, &[], &[]).unwrap().is_empty());
}

#[test]
fn cycle_of_loop_devices_is_an_error() {
    let mut host = host();
    host.stacks = (0..20).map(|n| stack(&format!("loop{n}"), &[], "", "/dev/loop0")).collect();
    for n in 0..20 {
        host.stacks[n].backing = format!("/dev/loop{}", n + 1);
    }
    host.mounts.retain(|point, _| point == "/");
    let snapshot = host.build();
    let error = find(&snapshot, &[], &["loop0"]).unwrap_err();
    assert!(matches!(error, DiskError::TooDeep { .. }), "{error}");
    // A file in memory has no disk below it.
    host.stacks = vec![stack("loop0", &[], "", "/mem/file (deleted)")];
    let mut snapshot = host.build();
    snapshot.write("/proc/self/mountinfo", "33 26 0:43 / /mem rw - tmpfs tmpfs rw");
    assert_eq!(chains(&find(&snapshot, &[], &["loop0"]).unwrap()), ["loop0"]);
}

/// A namespace of a subsystem with two controllers: the device on top has no hardware, but the
/// hidden devices below the controllers do.
#[test]
fn finds_paths_of_nvme_multipath() {
    let mut snapshot = host().build();
    let head = "/sys/devices/virtual/nvme-subsystem/nvme-subsys4";
    let mut file = |path: &str, text: &str| snapshot.insert(path, Node::File(text.into()));
    file(&format!("{head}/nvme4n1/dev"), "259:9");
    file(&format!("{head}/nvme4n1/queue/nomerges"), "0");
    let controllers = ["0000:81:00.0", "0000:82:00.0"];
    for (index, address) in controllers.iter().enumerate() {
        let id = 4 + index;
        let folder = format!("/sys/devices/pci0000:80/{address}/nvme/nvme{id}");
        for namespace in 1..=2 {
            let path = format!("{folder}/nvme4c{id}n{namespace}");
            snapshot.insert(&format!("{path}/queue/nomerges"), Node::File("0".into()));
        }
        snapshot.insert(&format!("{head}/nvme{id}"), Node::Link(folder));
    }
    snapshot.insert("/sys/class/block/nvme4n1", Node::Link(format!("{head}/nvme4n1")));
    let disks = find(&snapshot, &[], &["nvme4n1"]).unwrap();
    assert_eq!(chains(&disks), ["nvme4c4n1<nvme4n1", "nvme4c5n1<nvme4n1"]);
    let addresses: Vec<&str> = disks.iter().map(|disk| disk.pci.as_deref().unwrap()).collect();
    assert_eq!(addresses, controllers);
    assert!(disks.iter().all(|disk| disk.nvme));
}

#[test]
fn recognises_network_disks() {
    let mut snapshot = host().build();
    for (name, path) in [
        ("nvme7n1", "/sys/devices/virtual/nvme-fabrics/ctl/nvme7/nvme7n1"),
        ("nbd0", "/sys/devices/virtual/block/nbd0"),
        ("rbd0", "/sys/devices/rbd/0/block/rbd0"),
        // An adapter with its own iSCSI initiator.
        (
            "sdx",
            "/sys/devices/pci0000:00/0000:00:03.0/host5/session2/target5:0:0/5:0:0:0/block/sdx",
        ),
    ] {
        snapshot.insert(&format!("{path}/queue/nomerges"), Node::File("0".into()));
        snapshot.insert(&format!("/sys/class/block/{name}"), Node::Link(path.into()));
        let disks = find(&snapshot, &[], &[name]).unwrap();
        assert!(disks[0].remote && disks[0].irqs.is_empty(), "{disks:?}");
        assert!(disks::notes(true, &disks)[0].contains("network"));
        assert!(disks[0].setting(&snapshot, "queue/nomerges").is_some());
    }
}

#[test]
fn setting_is_found_in_nearest_parent() {
    let mut snapshot = host().build();
    let disk = find(&snapshot, &[], &["sda"]).unwrap().remove(0);
    let own = format!("{}/queue/nomerges", disk.path);
    assert_eq!(disk.setting(&snapshot, "queue/nomerges"), Some(own.clone()));
    snapshot.remove(&own);
    assert_eq!(disk.setting(&snapshot, "queue/nomerges"), None);
    let above = format!("{}/queue/nomerges", disk.path.rsplit_once('/').unwrap().0);
    snapshot.insert(&above, Node::File("0".into()));
    assert_eq!(disk.setting(&snapshot, "queue/nomerges"), Some(above));
    for (rotational, turns) in [("1", true), ("0", false)] {
        snapshot.write(&format!("{}/queue/rotational", disk.path), rotational);
        assert_eq!(disk.is_rotational(&snapshot), turns);
    }
    // A guest does not see it: virtio-blk reports 1 by default.
    let disk = find(&snapshot, &[], &["vda"]).unwrap().remove(0);
    snapshot.write(&format!("{}/queue/rotational", disk.path), "1");
    assert!(!disk.is_rotational(&snapshot));
}

/// A loop device on a file of this machine. Dropping it removes both.
struct Loop {
    name: String,
    folder: std::path::PathBuf,
}

impl Loop {
    /// Attaches a loop device; `None` if that is impossible, and the test is reported as skipped.
    #[expect(clippy::unwrap_used, reason = "without its temporary folder the test cannot go on")]
    fn attach(test: &str) -> Option<Self> {
        let skip = |said: &str| {
            tare_testkit::skip(test, Reason::no_loop_device(said));
            None
        };
        let folder = std::env::temp_dir().join(format!("tare-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut device = Self { name: String::new(), folder };
        let image = device.folder.join("image");
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let output =
            std::process::Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
        match output {
            Ok(output) if output.status.success() => {
                device.name = String::from_utf8_lossy(&output.stdout).trim().to_string();
                Some(device)
            }
            Ok(output) => skip(&String::from_utf8_lossy(&output.stderr)),
            Err(error) => skip(&error.to_string()),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            let _ = std::process::Command::new("losetup").args(["--detach", &self.name]).status();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// On this machine: finds the loop device and the disk of its file; writes the loop device's
/// settings, reads them back and restores them. The disk below is only read.
#[test]
fn tunes_loop_device_of_this_machine() {
    let Some(device) = Loop::attach("tunes_loop_device_of_this_machine") else { return };
    let mut host = LiveHost::new("/");
    let snapshot = host.snapshot();
    let disks = find(&snapshot, &[], &[&device.name]).unwrap();
    let name = device.name.strip_prefix("/dev/").unwrap();
    assert_eq!(disks[0].name, name);
    assert!(disks[0].irqs.is_empty() && disks[0].pci.is_none());
    let folder = device.folder.to_str().unwrap();
    // If the temporary folder is in memory or on a network there is no disk below.
    let below = find(&snapshot, &[folder], &[]).unwrap_or_default();
    let paths = |disks: &[machine::Disk]| disks.iter().map(|d| d.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&disks[1..]), paths(&below));

    let options = Options {
        devices: vec![device.name.clone()],
        only: vec!["disk_scheduler".into(), "disk_nomerges".into()],
        ..Options::default()
    };
    let plan = tare_tune::planner::plan(&snapshot, &options).unwrap();
    let mut changes: Vec<_> = plan.changes().filter(|(item, _)| item.subject == name).collect();
    assert!(changes.iter().any(|(item, _)| item.knob == "disk_nomerges"), "{plan:?}");
    for (_, change) in &changes {
        if let Err(error) = host.write(&change.key, &change.wanted) {
            return tare_testkit::skip(
                "tunes_loop_device_of_this_machine",
                Reason::Other(error.to_string()),
            );
        }
        let now = host.read(&change.key).unwrap();
        assert!(change.form.same(&now, &change.wanted), "{change:?}: {now}");
    }
    let again = tare_tune::planner::plan(&host.snapshot(), &options).unwrap();
    assert!(!again.changes().any(|(item, _)| item.subject == name), "{again:?}");
    changes.reverse();
    for (_, change) in &changes {
        host.write(&change.key, &change.now).unwrap();
        assert!(change.form.same(&host.read(&change.key).unwrap(), &change.now));
    }
}
