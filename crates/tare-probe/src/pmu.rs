//! `pmu`: hardware counters of the system's threads: instructions, cycles, misses of the last-level
//! cache and of the data TLB.
//!
//! Source: perf_event_open(2), one event per thread, inherited by the threads that it starts. Where
//! the CPU has fewer counters than events, the kernel lets them take turns, and the count is scaled
//! by the time for which it ran.
//!
//! Limits: events of a thread are saved and loaded at each switch, which costs about a microsecond.
//! The probe disturbs, and runs in its own slices. A virtual machine has these counters only if its
//! hypervisor passes them on. The hardware's values could not be tried on the machines on which
//! this was written: they have none. The tests run the same code with software events.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use tare_lab::probe::{Counter, Scope};

use crate::bpf;
use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::process_files::{SYSTEM, THREADS_MAX};
use crate::{CounterKind, ProbeError, ProbeKind, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "pmu",
    help: "instructions, cycles, cache and TLB misses of the system's threads, counted by the CPU",
    needs: "a CPU with a PMU that the hypervisor passes on, and root (or CAP_PERFMON)",
    limits: "each switch of a thread takes about 1 µs longer while it runs; at most 160 threads; events that the CPU does not \
             have are left out; where it has too few counters, events take turns and are scaled",
    optional: false,
    disturbs: true,
    counters: &[
        CounterKind { name: INSTRUCTIONS, help: "instructions, in user and kernel mode" },
        CounterKind { name: CYCLES, help: "cycles of a CPU that was not idle" },
        CounterKind { name: LLC_MISSES, help: "reads that missed the last-level cache" },
        CounterKind { name: DTLB_MISSES, help: "reads that missed the TLB of data" },
    ],
    open: |roots, _| edge_probe(&KIND, Pmu::open(roots.proc.clone(), EVENTS)?),
};

const INSTRUCTIONS: &str = "system_instructions";
const CYCLES: &str = "system_cycles";
const LLC_MISSES: &str = "system_llc_misses";
const DTLB_MISSES: &str = "system_dtlb_misses";

/// `PERF_TYPE_HARDWARE` and `PERF_TYPE_HW_CACHE`, include/uapi/linux/perf_event.h.
const HARDWARE: u32 = 0;
const HW_CACHE: u32 = 3;
/// `PERF_COUNT_HW_CACHE_RESULT_MISS << 16`, of reads.
const READ_MISS: u64 = 1 << 16;

/// A counter and the events that may have its figure, the best first: type and configuration.
struct Event {
    counter: &'static str,
    tries: &'static [(u32, u64)],
}

const EVENTS: &[Event] = &[
    Event { counter: INSTRUCTIONS, tries: &[(HARDWARE, 1)] },
    Event { counter: CYCLES, tries: &[(HARDWARE, 0)] },
    // Not every CPU has the event of the cache; the general one is usually the last-level cache.
    Event { counter: LLC_MISSES, tries: &[(HW_CACHE, READ_MISS | 2), (HARDWARE, 3)] },
    Event { counter: DTLB_MISSES, tries: &[(HW_CACHE, READ_MISS | 3)] },
];

struct Pmu {
    proc: PathBuf,
    /// The counters that this CPU has, with their events.
    present: Vec<(&'static str, (u32, u64))>,
    absent: Vec<&'static str>,
    /// For each counter, the events of the threads.
    open: Vec<Vec<fs::File>>,
}

/// A count, and the times for which its event was wanted and ran, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    count: u64,
    wanted_ns: u64,
    ran_ns: u64,
}

impl Reading {
    /// The growth since an earlier reading, scaled to the whole time. `None` if the event never ran
    /// although it was wanted.
    fn since(self, before: Self) -> Option<f64> {
        let count = self.count.saturating_sub(before.count) as f64;
        let wanted = self.wanted_ns.saturating_sub(before.wanted_ns) as f64;
        let ran = self.ran_ns.saturating_sub(before.ran_ns) as f64;
        match (wanted > 0.0, ran > 0.0) {
            (_, true) => Some(count * (wanted / ran).max(1.0)),
            (true, false) => None,
            (false, false) => Some(0.0),
        }
    }
}

impl Pmu {
    fn open(proc: PathBuf, events: &[Event]) -> Result<Self, ProbeError> {
        let (mut present, mut absent) = (Vec::new(), Vec::new());
        let mut refused = None;
        for event in events {
            let mut found = event.tries.iter().map(|at| (*at, bpf::count_event(*at, 0)));
            match found.find_map(|(at, opened)| match opened {
                Ok(_) => Some(at),
                Err(error) => {
                    refused = Some(error);
                    None
                }
            }) {
                Some(at) => present.push((event.counter, at)),
                None => absent.push(event.counter),
            }
        }
        match refused {
            Some(source) if present.is_empty() => Err(ProbeError::NoPmu { source }),
            _ => Ok(Self { proc, present, absent, open: Vec::new() }),
        }
    }
}

/// The threads of some processes.
fn threads(proc: &Path, pids: &[u32]) -> Vec<u32> {
    let tasks = pids.iter().map(|pid| proc.join(pid.to_string()).join("task"));
    let entries = tasks.flat_map(|task| fs::read_dir(task).into_iter().flatten().flatten());
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Reads an event: its count and both times (`PERF_FORMAT_TOTAL_TIME_*`).
fn read(mut event: &fs::File) -> Option<Reading> {
    let mut bytes = [0; 24];
    event.read_exact(&mut bytes).ok()?;
    let (words, _) = bytes.as_chunks::<8>();
    let [count, wanted_ns, ran_ns] = [words[0], words[1], words[2]].map(u64::from_ne_bytes);
    Some(Reading { count, wanted_ns, ran_ns })
}

impl EdgeReader for Pmu {
    /// The readings of each counter, by thread.
    type Values = Vec<Vec<Reading>>;

    fn method(&self) -> Option<String> {
        (!self.absent.is_empty())
            .then(|| format!("this CPU has no event for {}", self.absent.join(", ")))
    }

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.open.clear();
        let threads = threads(&self.proc, &scope.system);
        if threads.is_empty() {
            return Err(ProbeError::NoProcess { of: SYSTEM });
        }
        if threads.len() > THREADS_MAX {
            let (threads, limit) = (threads.len(), THREADS_MAX);
            return Err(ProbeError::ManyThreads { of: SYSTEM, threads, limit });
        }
        for (_, at) in &self.present {
            let mut events = Vec::new();
            for thread in &threads {
                match bpf::count_event(*at, *thread) {
                    Ok(event) => events.push(fs::File::from(event)),
                    // A thread that has just ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(source) => return Err(ProbeError::NoPmu { source }),
                }
            }
            self.open.push(events);
        }
        Ok(())
    }

    fn read(&mut self, edge: Edge) -> Result<Self::Values, ProbeError> {
        let of = |events: &Vec<fs::File>| {
            events.iter().map(|event| read(event).unwrap_or_default()).collect()
        };
        let readings = self.open.iter().map(of).collect();
        // Outside of the slices nothing is slowed down.
        if edge == Edge::End {
            self.open.clear();
        }
        Ok(readings)
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let mut counters = Vec::new();
        for ((name, _), (begin, end)) in self.present.iter().zip(begin.iter().zip(&end)) {
            let grown = begin.iter().zip(end).map(|(begin, end)| end.since(*begin));
            // A thread whose event never ran would be missing from the sum.
            if let Some(sum) = grown.sum::<Option<f64>>() {
                counters.push(counter(*name, sum));
            }
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_testkit::{Machine, skip};

    /// `PERF_TYPE_SOFTWARE`: the time on a CPU in ns, page faults, and an event that no kernel has.
    const SOFTWARE: &[Event] = &[
        Event { counter: "system_task_ns", tries: &[(1, 999), (1, 1)] },
        Event { counter: "system_faults", tries: &[(1, 2)] },
        Event { counter: "system_nothing", tries: &[(1, 998)] },
    ];

    #[test]
    fn counts_all_threads_of_a_process() {
        if !tare_testkit::skip::is_root() {
            return skip("counts_all_threads_of_a_process", Machine::NotRoot);
        }
        let mut probe = Pmu::open("/proc".into(), SOFTWARE).unwrap();
        let absent = "this CPU has no event for system_nothing";
        assert_eq!(EdgeReader::method(&probe).as_deref(), Some(absent));
        let scope = Scope { system: vec![std::process::id()], ..Scope::default() };
        probe.prepare(&scope).unwrap();
        let begin = probe.read(Edge::Begin).unwrap();
        let pages = 4000;
        // The thread starts inside the slice and ends in it.
        let touch = move || {
            let mut memory = vec![0_u8; pages * 4096];
            memory.chunks_mut(4096).for_each(|page| page[0] = 1);
            memory.iter().map(|byte| usize::from(*byte)).sum::<usize>()
        };
        assert_eq!(std::thread::spawn(touch).join().unwrap(), pages);
        let end = probe.read(Edge::End).unwrap();
        let counters = probe.counters(begin, end);
        let of = |name: &str| counters.iter().find(|one| one.name == name).unwrap().value;
        // A huge page takes one fault instead of 512.
        assert!(of("system_faults") >= 4000.0 / 512.0, "{counters:?}");
        assert!(of("system_task_ns") > 0.0, "{counters:?}");
        assert!(probe.open.is_empty(), "the events end with the slice");
        assert!(probe.prepare(&Scope::default()).unwrap_err().to_string().contains("no process"));
    }

    #[test]
    fn counts_are_scaled_by_the_time_they_ran() {
        let at = |count, wanted_ns, ran_ns| Reading { count, wanted_ns, ran_ns };
        assert_eq!(at(100, 10, 10).since(at(40, 4, 4)), Some(60.0));
        assert_eq!(at(100, 20, 10).since(at(0, 0, 0)), Some(200.0));
        assert_eq!(at(0, 20, 0).since(at(0, 0, 0)), None);
        assert_eq!(at(7, 5, 5).since(at(7, 5, 5)), Some(0.0));
    }

    #[test]
    fn a_machine_without_counters_is_an_error() {
        let nothing = &[Event { counter: "system_nothing", tries: &[(1, 998)] }];
        let error = Pmu::open("/proc".into(), nothing).err().unwrap().to_string();
        assert!(error.contains("no hardware counters"), "{error}");
    }
}
