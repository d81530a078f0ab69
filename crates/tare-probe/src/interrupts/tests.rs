use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::*;
use tare_testkit::{Machine, skip};

const CPUS: u32 = 256;
const DEVICES: u32 = 2000;
/// The first interrupt number.
const FIRST: u32 = 24;

/// Interrupts by device and CPU. All others are 5.
type Busy = HashMap<(u32, u32), u64>;

/// A host of 256 CPUs with 2,000 devices.
fn put(root: &Path, busy: &Busy) {
    let numbers = |device: u32, separator: &str, width: usize| {
        let of = |cpu: u32| busy.get(&(device, cpu)).copied().unwrap_or(5);
        let numbers: Vec<String> = (0..CPUS).map(|cpu| format!("{:>width$}", of(cpu))).collect();
        numbers.join(separator)
    };
    let (idle, idle_file) = (numbers(DEVICES, " ", 10), numbers(DEVICES, ",", 1));
    let mut text = " ".repeat(12);
    (0..CPUS).for_each(|cpu| write!(text, "CPU{cpu:<8}").unwrap());
    for device in 0..DEVICES {
        let is_busy = busy.keys().any(|(known, _)| *known == device);
        let row = if is_busy { numbers(device, " ", 10) } else { idle.clone() };
        let chip = "IR-PCI-MSIX-0000:41:00.0";
        write!(text, "\n{:>5}: {row}  {chip}  {device}-edge      nvme{device}q1", FIRST + device)
            .unwrap();
        let folder = root.join(format!("sys/kernel/irq/{}", FIRST + device));
        // The files of idle devices do not change.
        if is_busy || !folder.exists() {
            fs::create_dir_all(&folder).unwrap();
            let file = if is_busy { numbers(device, ",", 1) } else { idle_file.clone() };
            fs::write(folder.join("per_cpu_count"), file + "\n").unwrap();
        }
    }
    write!(text, "\n LOC: {idle}   Local timer interrupts\n ERR:          0\n").unwrap();
    fs::create_dir_all(root.join("proc")).unwrap();
    fs::write(root.join("proc/interrupts"), text).unwrap();
    let total: u64 = busy.values().sum();
    fs::write(root.join("proc/stat"), format!("cpu  1 2\nintr {total} 0 0\n")).unwrap();
}

fn roots(root: &Path) -> Roots {
    Roots { proc: root.join("proc"), sys: root.join("sys"), cgroup: root.join("cgroup") }
}

/// The counters of a slice, and how the host was read.
fn observe(longest: Duration) -> (Vec<(String, f64)>, Option<String>) {
    let root = tempfile::tempdir().unwrap();
    let roots = roots(root.path());
    put(root.path(), &Busy::new());
    let cpus = ProbeCpus { plan: "0-3".parse().unwrap(), interrupts: "255".parse().unwrap() };
    let mut probe = Interrupts::open(&roots, &cpus, longest).unwrap();
    probe.prepare(&Scope::default()).unwrap();
    // The load interrupts two CPUs by the last three devices.
    let load = |times: u64| -> Busy {
        let devices = DEVICES - 3..DEVICES;
        let busy = devices.flat_map(|device| [3, 255].map(|cpu| (device, cpu)));
        busy.map(|(device, cpu)| ((device, cpu), 5 + times * u64::from(device))).collect()
    };
    put(root.path(), &load(1));
    probe.prepare(&Scope::default()).unwrap();
    let begin = probe.read(Edge::Begin).unwrap();
    put(root.path(), &load(2));
    let end = probe.read(Edge::End).unwrap();
    let counters = probe.counters(begin, end);
    let seen = counters.into_iter().map(|counter| (counter.name, counter.value)).collect();
    (seen, probe.method())
}

fn devices(seen: &[(String, f64)]) -> Vec<(String, f64)> {
    let mut found: Vec<_> =
        seen.iter().filter(|(name, _)| name.starts_with("interrupts_nvme")).cloned().collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[test]
fn large_host_counts_its_busiest_devices() {
    let (by_table, method) = observe(Duration::MAX);
    assert_eq!(method, None);
    let expect: Vec<(String, f64)> = (DEVICES - 3..DEVICES)
        .flat_map(|device| {
            ["255", "3"]
                .map(|cpu| (format!("interrupts_nvme{device}q1_cpu{cpu}"), f64::from(device)))
        })
        .collect();
    assert_eq!(devices(&by_table), expect);
    assert!(by_table.contains(&("interrupts_cpu255".into(), 5994.0)), "{by_table:?}");
    assert!(by_table.contains(&("interrupts".into(), 2.0 * 5994.0)), "{by_table:?}");

    // The same counts without the table.
    let (by_file, method) = observe(Duration::ZERO);
    assert!(method.unwrap().contains("because /proc/interrupts takes"));
    // With no time to spare, one device is still observed.
    let one = devices(&by_file);
    assert_eq!(one.len(), 2, "{by_file:?}");
    assert!(one.iter().all(|found| expect.contains(found)), "{one:?}");
    assert!(by_file.contains(&("interrupts_on_host".into(), 2.0 * 5994.0)), "{by_file:?}");
    let sum = |cpu: u32| {
        let name = format!("device_interrupts_cpu{cpu}");
        by_file.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    };
    assert_eq!((sum(0), sum(3)), (Some(0.0), Some(one[0].1)), "{by_file:?}");
}

#[test]
fn files_of_devices_agree_with_the_table() {
    let root = tempfile::tempdir().unwrap();
    let roots = roots(root.path());
    let places = (0..20).flat_map(|device| (0..CPUS).map(move |cpu| (50 * device, cpu)));
    put(root.path(), &places.map(|place| (place, u64::from(place.0 + place.1))).collect());
    let cpus: ProbeCpus = "1-200".parse::<tare_std::cpus::CpuSet>().unwrap().into();
    let mut source = Source::open(&roots.proc.join("interrupts"), KIND.needs).unwrap();
    let mut table = CpuTable::new(&cpus.all());
    let counts = read_table(&mut source, &mut table).unwrap();
    let limits = (Duration::from_millis(20), Duration::from_secs(1));
    let mut reader = PerIrq::open(&roots, source, table, limits).unwrap();
    let values = reader.read().unwrap();
    assert_eq!(values.devices().len(), 16);
    for (index, numbers) in values.devices() {
        let expect: Vec<u64> = (0..200).map(|cpu| counts.of(*index, cpu)).collect();
        assert_eq!(*numbers, expect, "device {index}");
    }
}

#[test]
fn a_large_host_without_device_files_says_so() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("proc")).unwrap();
    fs::write(root.path().join("proc/interrupts"), "     CPU0\nLOC: 5  Local\n").unwrap();
    let roots = roots(root.path());
    let cpus: ProbeCpus = "0".parse::<tare_std::cpus::CpuSet>().unwrap().into();
    let error = Interrupts::open(&roots, &cpus, Duration::ZERO).err().unwrap().to_string();
    assert!(error.contains("and there is no") && error.contains("sys/kernel/irq"), "{error}");
}

#[test]
fn reads_device_files_of_this_machine() {
    if !Path::new("/sys/kernel/irq").is_dir() {
        let lacks = Machine::KernelLacks("this kernel has no /sys/kernel/irq".into());
        return skip("reads_device_files_of_this_machine", lacks);
    }
    let cpus: ProbeCpus = "0-1023".parse::<tare_std::cpus::CpuSet>().unwrap().into();
    let mut probe = Interrupts::open(&Roots::default(), &cpus, Duration::ZERO).unwrap();
    probe.prepare(&Scope::default()).unwrap();
    let begin = probe.read(Edge::Begin).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let end = probe.read(Edge::End).unwrap();
    let counters = probe.counters(begin, end);
    let on_host = counters.iter().find(|one| one.name == "interrupts_on_host").unwrap();
    assert!(on_host.value > 0.0, "{counters:?}");
}
