//! `memory`: memory of the system's processes at the end of a slice.
//!
//! Source: `RssAnon`, `RssFile` and `RssShmem` of `/proc/PID/status`, proc_pid_status(5). Every
//! environment has this file, with or without its own cgroup. The kernel sums the values from
//! per-CPU batches, so that each is off by some dozens of pages.

use tare_lab::probe::{Counter, Scope};

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::process_files::{ProcessFiles, SYSTEM};
use crate::{CounterKind, ProbeError, ProbeKind, Roots, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "memory",
    help: "memory of the system's processes at the end of a slice",
    needs: "/proc/PID/status",
    limits: "shared pages count once for each process; the page cache of unmapped files is not \
             included",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "system_rss_anon_bytes_at_end",
            help: "private memory: heap and stacks",
        },
        CounterKind {
            name: "system_rss_file_bytes_at_end",
            help: "mapped files, such as its program",
        },
        CounterKind { name: "system_rss_shmem_bytes_at_end", help: "shared memory" },
    ],
    open: |roots, _| edge_probe(&KIND, Memory { roots: roots.clone(), files: None }),
};

struct Memory {
    roots: Roots,
    files: Option<ProcessFiles<3>>,
}

fn resident(text: &str) -> Option<[u64; 3]> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes << 10)
    };
    Some([bytes("RssAnon:")?, bytes("RssFile:")?, bytes("RssShmem:")?])
}

impl EdgeReader for Memory {
    type Values = [u64; 3];

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.files = None;
        let (proc, pids) = (&self.roots.proc, &scope.system);
        self.files = Some(ProcessFiles::of_processes(SYSTEM, proc, pids, "status", resident)?);
        Ok(())
    }

    fn read(&mut self, edge: Edge) -> Result<Self::Values, ProbeError> {
        let files = self.files.as_mut().ok_or(ProbeError::NoProcess { of: SYSTEM })?;
        // Only the end is reported.
        Ok(if edge == Edge::Begin { [0; 3] } else { files.read() })
    }

    fn counters(&mut self, _: Self::Values, end: Self::Values) -> Vec<Counter> {
        KIND.counters
            .iter()
            .zip(end)
            .map(|(kind, bytes)| counter(kind.name, bytes as f64))
            .collect()
    }
}
