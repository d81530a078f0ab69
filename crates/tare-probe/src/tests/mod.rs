use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tare_lab::probe::{Scope, names};
use tempfile::TempDir;

use super::*;

/// Two CPUs as the kernel prints them. Steal and softirq of CPU 1 are arguments.
fn stat(user: u64, softirq: u64, steal: u64, switches: u64) -> String {
    format!(
        "cpu  {user} 2 300 5000 7 11 {softirq} {steal} 0 0\n\
         cpu0 100 1 100 2500 3 5 40 50 0 0\n\
         cpu1 100 1 200 2500 4 6 {softirq} {steal} 0 0\n\
         intr 1000 0 0 5\nctxt {switches}\nbtime 1\nprocesses 5\n"
    )
}

const SOFTIRQS: &str = "                    CPU0       CPU1       
          HI:          0          0       
      NET_RX:        100        200       
       TIMER:         50         60       
";

const INTERRUPTS: &str = "           CPU0       CPU1       
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 25:          0          1  IO-APIC   6-edge      ACPI:Ged
 36:          0       1000 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
LOC:        500        600   Local timer interrupts
ERR:          0
";

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn kind(name: &str) -> &'static ProbeKind {
    ALL.iter().find(|kind| kind.name == name).unwrap()
}

struct Host(TempDir);

impl Host {
    /// A host that has only `/proc/stat`.
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.put("proc/stat", &stat(1000, 60, 70, 10_000));
        host
    }

    fn put(&self, path: &str, text: &str) {
        write(self.0.path(), path, text);
    }

    fn roots(&self) -> Roots {
        let root = self.0.path();
        Roots { proc: root.join("proc"), cgroup: root.join("cgroup"), sys: root.join("sys") }
    }

    /// The counters of a probe on the CPUs `cpus` during `change`.
    fn observe(&self, name: &str, cpus: &str, change: impl FnOnce(&Self)) -> Vec<(String, f64)> {
        self.observe_scope(name, cpus, &Scope::default(), change)
    }

    fn observe_scope(
        &self,
        name: &str,
        cpus: &str,
        scope: &Scope,
        change: impl FnOnce(&Self),
    ) -> Vec<(String, f64)> {
        let mut probe = kind(name).open(&self.roots(), &cpus_of(cpus)).unwrap();
        probe.prepare(scope).unwrap();
        probe.begin().unwrap();
        change(self);
        probe.end().unwrap().into_iter().map(|counter| (counter.name, counter.value)).collect()
    }
}

/// The CPUs of a plan, such as `0-1`; those for interrupts follow after a `+`.
fn cpus_of(text: &str) -> ProbeCpus {
    let (plan, interrupts) = text.split_once('+').unwrap_or((text, ""));
    ProbeCpus { plan: plan.parse().unwrap(), interrupts: interrupts.parse().unwrap() }
}

/// Ticks in ns, by the USER_HZ of the machine that runs the test.
fn ticks(count: f64) -> f64 {
    count * super::stat::tick_ns()
}

#[test]
fn steal_and_softirq_count_only_planned_cpus() {
    let grow = |host: &Host| host.put("proc/stat", &stat(1000, 63, 75, 10_000));
    let check = |probe: &str, cpus: &str, counter: &str, expect: f64| {
        let seen = Host::new().observe(probe, cpus, grow);
        assert_eq!(seen, [(counter.to_string(), expect)], "{probe} on {cpus}");
    };
    check("steal", "1", names::STEAL_NS, ticks(5.0));
    check("steal", "0-1", names::STEAL_NS, ticks(5.0));
    check("steal", "0", names::STEAL_NS, 0.0);
    check("softirq", "1", names::SOFTIRQ_NS, ticks(3.0));
    check("softirq", "0", names::SOFTIRQ_NS, 0.0);
}

#[test]
fn refuses_missing_cpus() {
    let host = Host::new();
    let error = kind("steal").open(&host.roots(), &cpus_of("7")).err().unwrap().to_string();
    assert!(error.contains("proc/stat has no steal column for the CPUs of the plan"), "{error}");
}

#[test]
fn host_cpu_prefers_best_source() {
    let value = |host: &Host, change: &dyn Fn(&Host)| {
        let seen = host.observe("host_cpu", "0", change);
        assert_eq!(seen[1].0, names::HARNESS_CPU_NS);
        assert!(seen[1].1 >= 0.0);
        assert_eq!(seen[0].0, names::HOST_CPU_NS);
        seen[0].1
    };
    // /proc/stat: user, nice, system, irq and softirq. Steal is time of other guests.
    let host = Host::new();
    let grown = |host: &Host| host.put("proc/stat", &stat(1010, 65, 170, 10_000));
    assert_eq!(value(&host, &grown), ticks(15.0));

    // v2: usage_usec may hold steal time and is not used.
    let v2 = |user: u64| format!("usage_usec 999999{user}\nuser_usec {user}\nsystem_usec 500\n");
    host.put("cgroup/cpu.stat", &v2(1000));
    assert_eq!(value(&host, &|host| host.put("cgroup/cpu.stat", &v2(1250))), 250_000.0);

    // A hybrid host has v1 as well.
    host.put("cgroup/cpu,cpuacct/cpuacct.usage", "5000000123\n");
    let grown = |host: &Host| host.put("cgroup/cpu,cpuacct/cpuacct.usage", "5000000456\n");
    assert_eq!(value(&host, &grown), 333.0);
}

#[test]
fn host_cpu_skips_file_without_figures() {
    let host = Host::new();
    host.put("cgroup/cpu.stat", "nr_periods 0\n");
    let grown = |host: &Host| host.put("proc/stat", &stat(1001, 60, 70, 10_000));
    assert_eq!(host.observe("host_cpu", "0", grown)[0].1, ticks(1.0));
}

#[test]
fn switches_of_many_threads_are_read_from_their_short_file() {
    let scope = Scope { system: vec![7], ..Scope::default() };
    let observe = |threads: u32| {
        let host = Host::new();
        host.put("proc/7/sched", "");
        let put = |host: &Host, slices: u32| {
            for thread in 1..=threads {
                let at = format!("proc/7/task/{thread}");
                let sched = format!(
                    "se.nr_migrations : 0\nnr_voluntary_switches : {slices}\n\
                     nr_involuntary_switches : 0\n"
                );
                host.put(&format!("{at}/sched"), &sched);
                host.put(&format!("{at}/schedstat"), &format!("{slices}000 500 {slices}\n"));
            }
        };
        put(&host, 1);
        host.observe_scope("switches", "0", &scope, |host| put(host, 4))
    };
    let named = |name: &str, value: f64| (name.to_string(), value);
    assert!(observe(160).contains(&named("system_switches_voluntary", 480.0)));
    assert_eq!(observe(161), [named("system_switches", 483.0)]);
    let mut probe = kind("switches").open(&Host::new().roots(), &cpus_of("0")).unwrap();
    assert!(probe.prepare(&scope).is_err(), "no process");
}

#[test]
fn context_switches_and_pressure_grow() {
    let host = Host::new();
    let seen = host.observe("context_switches", "0", |host| {
        host.put("proc/stat", &stat(1000, 60, 70, 10_500));
    });
    assert_eq!(seen, [("context_switches".to_string(), 500.0)]);

    let psi = |total: u64| {
        format!(
            "some avg10=1.00 avg60=0.50 avg300=0.10 total={total}\n\
             full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        )
    };
    host.put("proc/pressure/cpu", &psi(100));
    let seen = host.observe("pressure", "0", |host| host.put("proc/pressure/cpu", &psi(142)));
    assert_eq!(seen, [("cpu_pressure_some_ns".to_string(), 42_000.0)]);
}

#[test]
fn a_host_without_pressure_serves_the_other_probes() {
    let host = Host::new();
    host.put("proc/softirqs", SOFTIRQS);
    host.put("proc/interrupts", INTERRUPTS);
    host.put("proc/diskstats", "");
    host.put("proc/72/stat", "72 (kworker/0:1H) I 2 0 0 0 -1 69238880 0 0\n");
    host.put("proc/72/schedstat", "1000 20 3\n");
    let (opened, missing) = open_all(&host.roots(), &cpus_of("0-1"));
    // KVM, the link to loaders and the queues of cards are optional and not reported as missing.
    let ordinary = ALL.iter().filter(|kind| !kind.disturbs).count();
    assert_eq!(opened.len(), ordinary - 6);
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["pressure", "pressure_io", "pressure_memory"]);
    let error = missing[0].1.to_string();
    assert!(error.contains("needs /proc/pressure/cpu"), "{error}");
}

#[test]
fn end_without_begin_is_an_error() {
    let host = Host::new();
    for mut probe in open_all(&host.roots(), &cpus_of("0")).0 {
        let error = probe.end().unwrap_err().to_string();
        assert!(error.contains("at the end of a slice before its beginning"), "{error}");
    }
}

#[test]
fn reads_stat_larger_than_buffer() {
    let host = Host::new();
    let long = |switches: u64| {
        let intr = format!("intr 1{}\n", " 0".repeat(100_000));
        stat(1000, 60, 70, switches).replace("intr 1000 0 0 5\n", &intr)
    };
    host.put("proc/stat", &long(7));
    let seen = host.observe("context_switches", "0", |host| host.put("proc/stat", &long(9)));
    assert_eq!(seen[0].1, 2.0);
}

#[test]
fn every_probe_is_documented() {
    for kind in ALL {
        assert!(!kind.help.is_empty() && !kind.needs.is_empty() && !kind.counters.is_empty());
        assert!(ALL.iter().filter(|other| other.name == kind.name).count() == 1, "{}", kind.name);
    }
}

mod known_work;
mod recorded;
mod reference;
mod traced;

/// Reads this machine. Prints how long a reading takes, but asserts no time.
#[test]
#[expect(clippy::print_stderr, reason = "figures for the reader")]
fn reads_this_machine() {
    let cpus = cpus_of("0");
    let own = vec![std::process::id()];
    let data = vec![std::env::temp_dir()];
    let scope =
        Scope { system: own.clone(), layer: own.clone(), client: own, data, ..Scope::default() };
    let (mut probes, missing) = open_all(&Roots::default(), &cpus);
    for (name, error) in &missing {
        eprintln!("not on this machine: {name}: {error}");
    }
    let times = 200u32;
    for probe in &mut probes {
        probe.prepare(&scope).unwrap();
        let started = Instant::now();
        for _ in 0..times {
            probe.begin().unwrap();
            probe.end().unwrap();
        }
        let each = started.elapsed() / (2 * times);
        probe.begin().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let counters = probe.end().unwrap();
        eprintln!("{}: a reading takes {each:?}; over 20 ms: {counters:?}", probe.name());
        for counter in counters {
            assert!(counter.value >= 0.0 && counter.value.is_finite(), "{counter:?}");
            assert!(is_documented(probe.name(), &counter.name), "{counter:?} of {}", probe.name());
        }
    }
    assert!(probes.iter().any(|probe| probe.name() == "host_cpu"), "{missing:?}");
}

/// Whether the probe documents a counter of this name.
fn is_documented(probe: &str, name: &str) -> bool {
    kind(probe).counters.iter().any(|counter| {
        let parts: Vec<&str> = counter.name.split(['{', '}']).step_by(2).collect();
        let (first, last) = (parts[0], parts[parts.len() - 1]);
        match parts.len() {
            1 => name == first,
            _ => {
                name.len() > first.len() && name.starts_with(first) && name.ends_with(last)
                    || last.is_empty() && name.starts_with(first)
            }
        }
    })
}
