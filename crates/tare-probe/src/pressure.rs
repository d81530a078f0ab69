//! `pressure`, `pressure_io`, `pressure_memory`: time in which some task of the host waited for a
//! CPU, for a disk, or for memory.
//! Source: kernel, Documentation/accounting/psi.rst; `total` is in µs.

use crate::source::GrowthProbe;
use crate::{CounterKind, Opened, ProbeKind, Roots};

const LIMITS: &str = "counts the whole host; the kernel's figure is at most 2 s old";

pub(crate) const CPU: ProbeKind = ProbeKind {
    name: "pressure",
    help: "time in which some task on the host waited for a CPU (PSI)",
    needs: "/proc/pressure/cpu (CONFIG_PSI, and psi=1 where it is off by default)",
    limits: LIMITS,
    optional: false,
    disturbs: false,
    counters: &[CounterKind {
        name: "cpu_pressure_some_ns",
        help: "time in which at least one task could run and had no CPU",
    }],
    open: |roots, _| open(&CPU, roots, "cpu"),
};

pub(crate) const IO: ProbeKind = ProbeKind {
    name: "pressure_io",
    help: "time in which some task on the host waited for a disk (PSI)",
    needs: "/proc/pressure/io (CONFIG_PSI, and psi=1 where it is off by default)",
    limits: LIMITS,
    optional: false,
    disturbs: false,
    counters: &[CounterKind {
        name: "io_pressure_some_ns",
        help: "time in which at least one task waited for block I/O",
    }],
    open: |roots, _| open(&IO, roots, "io"),
};

pub(crate) const MEMORY: ProbeKind = ProbeKind {
    name: "pressure_memory",
    help: "time in which some task on the host waited for memory (PSI)",
    needs: "/proc/pressure/memory (CONFIG_PSI, and psi=1 where it is off by default)",
    limits: LIMITS,
    optional: false,
    disturbs: false,
    counters: &[CounterKind {
        name: "memory_pressure_some_ns",
        help: "time in which at least one task waited for reclaim, swap or refault",
    }],
    open: |roots, _| open(&MEMORY, roots, "memory"),
};

fn open(kind: &ProbeKind, roots: &Roots, resource: &str) -> Opened {
    let path = roots.proc.join("pressure").join(resource);
    GrowthProbe::open(kind, &path, "some total", 1000.0, some_total)
}

fn some_total(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}
