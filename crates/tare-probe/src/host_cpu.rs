//! `host_cpu`: CPU time of every task on the host, and of the harness itself. The rest after the
//! system, its layer and the client are subtracted belongs to other programs.
//!
//! Sources, the best first:
//! - cgroup v1, the root's `cpuacct.usage`: ns, charged as tasks run. A task that runs while the
//!   file is read is counted up to its last tick or switch, so an edge is off by at most one tick
//!   of the kernel (1 to 10 ms) per CPU.
//! - cgroup v2, the root's `cpu.stat`: `user_usec + system_usec`, which the kernel copies from the
//!   figures behind `/proc/stat`. `usage_usec` is not used: until Linux 6.14 it included steal time
//!   (kernel commit db5fd3cf8bf4).
//! - `/proc/stat`: the same in ticks.
//!
//! Limits: inside a cgroup namespace the mounted root is not the host's, and the figure is that of
//! the container.

use rustix::time::{ClockId, clock_gettime};
use tare_lab::PartError;
use tare_lab::probe::{Counter, Probe, names};

use crate::source::Source;
use crate::{CounterKind, Opened, ProbeCpus, ProbeError, ProbeKind, Roots, counter, stat};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "host_cpu",
    help: "CPU time of every task on the host, and of the harness itself",
    needs: "the root cgroup's cpuacct.usage (v1) or cpu.stat (v2), or /proc/stat",
    limits: "off by at most a tick per CPU; inside a container it counts the container alone",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind { name: names::HOST_CPU_NS, help: "CPU time of every task on the host" },
        CounterKind { name: names::HARNESS_CPU_NS, help: "CPU time of the harness itself" },
    ],
    open,
};

/// The files that may have the figure, in the order in which they are tried.
const SOURCES: [(&str, Format); 4] = [
    ("cpuacct/cpuacct.usage", Format::CpuAcct),
    ("cpu,cpuacct/cpuacct.usage", Format::CpuAcct),
    ("cpu.stat", Format::CpuStat),
    ("unified/cpu.stat", Format::CpuStat),
];

#[derive(Clone, Copy, Debug)]
enum Format {
    /// One number, in ns.
    CpuAcct,
    /// `user_usec N`, `system_usec N`.
    CpuStat,
    /// Ticks.
    ProcStat,
}

impl Format {
    fn take(self, text: &str) -> Option<u64> {
        match self {
            Self::CpuAcct => text.trim().parse().ok(),
            Self::CpuStat => {
                let value = |key: &str| {
                    let line = text.lines().find_map(|line| line.strip_prefix(key));
                    line.and_then(|number| number.trim().parse::<u64>().ok())
                };
                Some(value("user_usec ")? + value("system_usec ")?)
            }
            Self::ProcStat => stat::worked(text),
        }
    }

    fn unit_ns(self) -> f64 {
        match self {
            Self::CpuAcct => 1.0,
            Self::CpuStat => 1000.0,
            Self::ProcStat => stat::tick_ns(),
        }
    }
}

struct HostCpu {
    source: Source,
    format: Format,
    /// The host's time in units of the format, and the harness's in ns.
    begin: Option<(u64, u64)>,
}

fn open(roots: &Roots, _: &ProbeCpus) -> Opened {
    let in_cgroups = SOURCES.map(|(path, format)| (roots.cgroup.join(path), format));
    for (path, format) in in_cgroups {
        if let Ok(source) = Source::open(&path, KIND.needs) {
            let mut probe = HostCpu { source, format, begin: None };
            // The root of a v2 hierarchy may have the file without the figures.
            if probe.host().is_ok() {
                return Ok(Box::new(probe));
            }
        }
    }
    let source = Source::open(&roots.proc.join("stat"), KIND.needs)?;
    let mut probe = HostCpu { source, format: Format::ProcStat, begin: None };
    probe.host()?;
    Ok(Box::new(probe))
}

impl HostCpu {
    fn host(&mut self) -> Result<u64, ProbeError> {
        let format = self.format;
        self.source.number("CPU time", |text| format.take(text))
    }
}

/// CPU time of all threads of this process, in ns.
fn harness() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0) * 1_000_000_000 + ns.unwrap_or(0)
}

impl Probe for HostCpu {
    fn name(&self) -> &str {
        KIND.name
    }

    fn begin(&mut self) -> Result<(), PartError> {
        self.begin = Some((self.host()?, harness()));
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Counter>, PartError> {
        let begin = self.begin.take().ok_or(ProbeError::NotBegun { probe: KIND.name })?;
        let host = self.host()?.saturating_sub(begin.0) as f64 * self.format.unit_ns();
        let harness = harness().saturating_sub(begin.1) as f64;
        Ok(vec![counter(names::HOST_CPU_NS, host), counter(names::HARNESS_CPU_NS, harness)])
    }
}
