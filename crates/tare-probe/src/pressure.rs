//! `pressure`: time in which some task of the host waited for a CPU.
//! Source: kernel, Documentation/accounting/psi.rst; `total` is in µs.

use tare_std::cpus::CpuSet;

use crate::source::Growth;
use crate::{Opened, ProbeKind, Roots};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "pressure",
    help: "time in which some task on the host waited for a CPU (PSI)",
    needs: "/proc/pressure/cpu (CONFIG_PSI, and psi=1 where it is off by default)",
    counters: &["cpu_pressure_some_ns"],
    open,
};

fn open(roots: &Roots, _: &CpuSet) -> Opened {
    Growth::open(&KIND, &roots.proc.join("pressure/cpu"), "some total", 1000.0, some_total)
}

fn some_total(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}
