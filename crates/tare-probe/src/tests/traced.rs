//! Probes with BPF programs observe work of a known size on this machine. They need root.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::known_work::{KillOnDrop, of, seen, system};
use super::*;
use tare_testkit::{Machine, Need, Reason, skip, skipped};

#[test]
fn counts_every_system_call() {
    if skipped("counts_every_system_call", &[Need::Root]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("file")).unwrap();
    let (writes, syncs) = (3000, 7);
    let seen = seen(&["syscalls"], &system(std::process::id()), || {
        for at in 0..writes {
            file.write_all_at(b"x", at).unwrap();
        }
        for _ in 0..syncs {
            file.sync_data().unwrap();
        }
    });
    assert_eq!(of(&seen, "system_syscalls_pwrite64"), 3000.0, "{seen:?}");
    assert_eq!(of(&seen, "system_syscalls_fdatasync"), f64::from(syncs), "{seen:?}");
    assert!(of(&seen, "system_syscalls") >= 3007.0, "{seen:?}");
    assert!(!seen.iter().any(|(name, _)| name.starts_with("client_")), "{seen:?}");
}

/// Starts a process in its own pid namespace that waits for a line and then writes bytes one by
/// one.
fn writer_in_a_namespace(bytes: u32, file: &Path) -> (Child, u32) {
    let script = format!(
        "read line; exec dd if=/dev/zero of={} bs=1 count={bytes} status=none",
        file.display()
    );
    let outer = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", outer.id());
    let inner = (0..1000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        std::fs::read_to_string(&children).ok()?.trim().parse().ok()
    });
    (outer, inner.unwrap())
}

#[test]
fn counts_system_calls_in_pid_namespace() {
    if skipped("counts_system_calls_in_pid_namespace", &[Need::Root]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (outer, inner) = writer_in_a_namespace(2000, &folder.path().join("file"));
    let mut outer = KillOnDrop(outer);
    let seen = seen(&["syscalls"], &system(inner), || {
        outer.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        outer.0.wait().unwrap();
    });
    assert_eq!(of(&seen, "system_syscalls_write"), 2000.0, "{seen:?}");
}

/// Runs a command of the host. Returns its output, or its errors if it fails.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// An ext4 file system on a loop device. Both are removed on drop.
struct Disk {
    folder: tempfile::TempDir,
    device: Option<String>,
    mounted: bool,
}

impl Disk {
    /// `None` where this test has to be skipped.
    fn of(test: &str) -> Option<Self> {
        if skipped(test, &[Need::Root]) {
            return None;
        }
        Self::make().map_err(|reason| skip(test, Reason::no_loop_device(&reason))).ok()
    }

    fn make() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut disk = Self { folder, device: None, mounted: false };
        let image = disk.folder.path().join("image");
        let file = File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(64 << 20).map_err(|error| error.to_string())?;
        let image = image.to_string_lossy().into_owned();
        // mkfs leaves no initialisation for the background.
        let eager = "lazy_itable_init=0,lazy_journal_init=0";
        run("mkfs.ext4", &["-q", "-E", eager, &image])?;
        let device = run("losetup", &["--find", "--show", &image])?;
        disk.device = Some(device.clone());
        std::fs::create_dir(disk.data()).map_err(|error| error.to_string())?;
        run("mount", &["-o", "noatime", &device, &disk.data().to_string_lossy()])?;
        disk.mounted = true;
        Ok(disk)
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            run("umount", &[&self.data().to_string_lossy()]).ok();
        }
        if let Some(device) = &self.device {
            run("losetup", &["--detach", device]).ok();
        }
    }
}

#[test]
fn histogram_has_every_disk_request() {
    let Some(disk) = Disk::of("histogram_has_every_disk_request") else { return };
    let target = format!("of={}", disk.data().join("file").display());
    let write = ["if=/dev/zero", &target, "bs=4k", "count=500", "oflag=direct", "status=none"];
    run("dd", &[&write[..], &["conv=fsync"]].concat()).unwrap();
    run("sync", &[]).unwrap();
    let scope = Scope { data: vec![disk.data()], ..Scope::default() };
    // The histogram starts first and ends last, with no request in flight.
    let seen = seen(&["disk_latency", "disk"], &scope, || {
        run("dd", &[&write[..], &["conv=notrunc,fsync"]].concat()).unwrap();
        run("sync", &[]).unwrap();
    });
    let sum = |of: &str| -> f64 {
        let named = seen.iter().filter(|(name, _)| name.starts_with(of));
        named.map(|(_, value)| value).sum()
    };
    let writes = sum("disk_writes_up_to_");
    assert!(writes >= 500.0, "{seen:?}");
    // A sync without data counts as a write in the kernel's statistics.
    let (most, empty) = (of(&seen, "disk_writes"), of(&seen, "disk_flushes"));
    assert!((most - empty..=most).contains(&writes), "{seen:?}");
    assert_eq!(sum("disk_flushes_up_to_"), of(&seen, "disk_flushes"), "{seen:?}");
    assert!(of(&seen, "disk_write_latency_ns_max") > 0.0, "{seen:?}");
}

#[test]
fn follows_a_disk_by_the_second() {
    let Some(disk) = Disk::of("follows_a_disk_by_the_second") else { return };
    let target = format!("of={}", disk.data().join("file").display());
    let write = ["if=/dev/zero", &target, "bs=4k", "oflag=direct", "status=none"];
    let mut probe = kind("disk_latency").open(&Roots::default(), &cpus_of("0")).unwrap();
    let mut follow = |by_second| {
        let scope = Scope { data: vec![disk.data()], by_second, ..Scope::default() };
        probe.prepare(&scope).unwrap();
        probe.begin().unwrap();
        run("dd", &[&write[..], &["count=500"]].concat()).unwrap();
        std::thread::sleep(Duration::from_millis(2300));
        let counters = probe.end().unwrap();
        let max = counters.iter().find(|one| one.name == "disk_write_latency_ns_max").unwrap();
        (max.value, probe.disk_seconds())
    };
    let (max, seconds) = follow(true);
    assert!(seconds.len() >= 2, "{seconds:?}");
    let writes: u64 = seconds.iter().map(|one| one.writes).sum();
    assert!(writes >= 500, "{seconds:?}");
    let longest = seconds.iter().map(|one| one.write_max_ns).max().unwrap();
    assert!(longest as f64 <= max, "{max} {seconds:?}");
    let one = seconds.iter().find(|one| one.writes > 0).unwrap();
    assert!(0 < one.write_mean_ns && one.write_mean_ns <= one.write_max_ns, "{one:?}");
    assert!(follow(false).1.is_empty());
}

/// A mapping of the device mapper over two loop devices. All are removed on drop.
struct Mapped {
    folder: tempfile::TempDir,
    loops: Vec<String>,
    name: String,
    made: bool,
    mounted: bool,
}

impl Mapped {
    fn make() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let name = format!("tare-test-{}", std::process::id());
        let mut mapped = Self { folder, loops: Vec::new(), name, made: false, mounted: false };
        let mut table = String::new();
        for at in 0..2_u64 {
            let image = mapped.folder.path().join(format!("image{at}"));
            let file = File::create(&image).map_err(|error| error.to_string())?;
            file.set_len(BYTES).map_err(|error| error.to_string())?;
            let device = run("losetup", &["--find", "--show", &image.to_string_lossy()])?;
            let sectors = BYTES / 512;
            table += &format!("{} {sectors} linear {device} 0\n", at * sectors);
            mapped.loops.push(device);
        }
        run("dmsetup", &["create", "--noudevsync", &mapped.name, "--table", &table])?;
        mapped.made = true;
        run("dmsetup", &["mknodes", &mapped.name])?;
        let device = format!("/dev/mapper/{}", mapped.name);
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &device])?;
        std::fs::create_dir(mapped.data()).map_err(|error| error.to_string())?;
        run("mount", &["-o", "noatime", &device, &mapped.data().to_string_lossy()])?;
        mapped.mounted = true;
        Ok(mapped)
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }
}

const BYTES: u64 = 48 << 20;

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.mounted {
            run("umount", &[&self.data().to_string_lossy()]).ok();
        }
        if self.made {
            run("dmsetup", &["remove", "--noudevsync", "--retry", &self.name]).ok();
        }
        for device in &self.loops {
            run("losetup", &["--detach", device]).ok();
        }
    }
}

#[test]
fn counts_the_disks_below_device_mapper() {
    let test = "counts_the_disks_below_device_mapper";
    if skipped(test, &[Need::Root, Need::Program("dmsetup")]) {
        return;
    }
    if !Path::new("/sys/class/misc/device-mapper").exists() {
        return skip(test, Machine::KernelLacks("this kernel has no device mapper".into()));
    }
    let disk = match Mapped::make() {
        Ok(disk) => disk,
        Err(reason) => return skip(test, Reason::no_loop_device(&reason)),
    };
    let target = format!("of={}", disk.data().join("file").display());
    let scope = Scope { data: vec![disk.data()], ..Scope::default() };
    let seen = seen(&["disk_latency", "disk"], &scope, || {
        run("dd", &["if=/dev/zero", &target, "bs=64k", "count=100", "oflag=direct"]).unwrap();
        run("sync", &[]).unwrap();
    });
    assert_eq!(of(&seen, "disk_devices_at_end"), 2.0, "{seen:?}");
    assert!(of(&seen, "disk_written_bytes") >= 6_553_600.0, "{seen:?}");
    let writes: f64 = seen
        .iter()
        .filter(|(name, _)| name.starts_with("disk_writes_up_to_"))
        .map(|(_, value)| value)
        .sum();
    assert!(writes >= 100.0, "{seen:?}");
}

/// The work of NVMe is counted by function names. This test uses the functions of a loop device,
/// which every kernel has.
#[test]
fn counts_kernel_work_by_function() {
    let test = "counts_kernel_work_by_function";
    if skipped(test, &[Need::Root]) {
        return;
    }
    let disk = match Disk::make() {
        Ok(disk) => disk,
        Err(reason) => {
            skip(test, Reason::no_loop_device(&reason));
            return;
        }
    };
    let parts: &[crate::nvme_work::Part] =
        &[("nothing", &["no_function_is_called_so"]), ("loop", &["loop_"])];
    let mut work = crate::nvme_work::Work::run(parts.len()).unwrap();
    assert!(work.look_up(Path::new("/proc"), parts).unwrap() > 0);
    let target = format!("of={}", disk.data().join("file").display());
    let write = ["if=/dev/zero", &target, "bs=4k", "count=500", "oflag=direct", "status=none"];
    let started = std::time::Instant::now();
    run("dd", &write).unwrap();
    run("sync", &[]).unwrap();
    let [ns, items] = work.sums(1).unwrap();
    assert_eq!(work.sums(0).unwrap(), [0, 0]);
    // A thread that is still awake handles the next request in the same work item, so that there
    // can be fewer items than requests.
    assert!(items > 0, "{items} items");
    let cpus = std::thread::available_parallelism().unwrap().get() as u128;
    assert!(ns > 0 && u128::from(ns) <= started.elapsed().as_nanos() * cpus, "{ns} ns");
}
