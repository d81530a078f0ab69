//! `page_faults`: page faults of the system's processes.
//! Source: `minflt` and `majflt` of `/proc/PID/stat`, proc_pid_stat(5), which include all threads,
//! also those that have ended.

use tare_lab::probe::{Counter, Scope};

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::process_files::{ProcessFiles, SYSTEM};
use crate::{CounterKind, ProbeError, ProbeKind, Roots, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "page_faults",
    help: "page faults of the system's processes",
    needs: "/proc/PID/stat",
    limits: "processes that start inside a slice are missed",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "system_page_faults_minor",
            help: "faults that needed no disk: first touch, copy on write, mapping of cached pages",
        },
        CounterKind { name: "system_page_faults_major", help: "faults that waited for a disk" },
    ],
    open: |roots, _| edge_probe(&KIND, PageFaults { roots: roots.clone(), files: None }),
};

struct PageFaults {
    roots: Roots,
    files: Option<ProcessFiles<2>>,
}

/// Minor and major faults. The name of the process is in parentheses and can contain any character.
/// After it come the state as field 3, `minflt` as field 10 and `majflt` as field 12.
fn faults(text: &str) -> Option<[u64; 2]> {
    let mut fields = text.rsplit_once(") ")?.1.split_ascii_whitespace().skip(10 - 3);
    let minor = fields.next()?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    Some([minor, major])
}

impl EdgeReader for PageFaults {
    type Values = [u64; 2];

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.files = None;
        let (proc, pids) = (&self.roots.proc, &scope.system);
        self.files = Some(ProcessFiles::of_processes(SYSTEM, proc, pids, "stat", faults)?);
        Ok(())
    }

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        let files = self.files.as_mut().ok_or(ProbeError::NoProcess { of: SYSTEM })?;
        Ok(files.read())
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let names = KIND.counters.iter().zip(begin).zip(end);
        names.map(|((kind, b), e)| counter(kind.name, e.saturating_sub(b) as f64)).collect()
    }
}
