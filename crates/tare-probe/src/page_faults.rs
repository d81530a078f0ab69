//! `page_faults`: faults of the system's processes.
//! Source: `minflt` and `majflt` of `/proc/PID/stat`, proc_pid_stat(5): all threads, the ended too.

use tare_lab::probe::{Counter, Scope};

use crate::between::{Edge, Numbers, between};
use crate::files::{Files, SYSTEM};
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
    open: |roots, _| between(&KIND, PageFaults { roots: roots.clone(), files: None }),
};

struct PageFaults {
    roots: Roots,
    files: Option<Files<2>>,
}

/// The fields behind the process's name, which stands in parentheses and may hold any character:
/// the state is the third, `minflt` the 10th, `majflt` the 12th.
fn faults(text: &str) -> Option<[u64; 2]> {
    let mut fields = text.rsplit_once(") ")?.1.split_ascii_whitespace().skip(10 - 3);
    let minor = fields.next()?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    Some([minor, major])
}

impl Numbers for PageFaults {
    type Reading = [u64; 2];

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.files = None;
        let (proc, pids) = (&self.roots.proc, &scope.system);
        self.files = Some(Files::of_processes(SYSTEM, proc, pids, "stat", faults)?);
        Ok(())
    }

    fn read(&mut self, _: Edge) -> Result<Self::Reading, ProbeError> {
        let files = self.files.as_mut().ok_or(ProbeError::NoProcess { of: SYSTEM })?;
        Ok(files.read())
    }

    fn counters(&mut self, begin: Self::Reading, end: Self::Reading) -> Vec<Counter> {
        let names = KIND.counters.iter().zip(begin).zip(end);
        names.map(|((kind, b), e)| counter(kind.name, e.saturating_sub(b) as f64)).collect()
    }
}
