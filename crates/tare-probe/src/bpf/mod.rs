//! Small BPF programs that the kernel runs at tracepoints to count events where they happen.
//!
//! Method: [`Assembler`] builds a program of a few dozen instructions. The kernel checks and
//! compiles it when it is loaded, and runs it at a tracepoint while its descriptor is open. Nothing
//! is left when the process ends, even after a kill. A program counts in maps, which the probe
//! reads at the edges of a slice. This needs no compiler, library or tool.
//!
//! Limits: it needs CAP_BPF and CAP_PERFMON (or root), and Linux 5.8 or newer without lockdown
//! (kernel_lockdown(7)). Process ids are those of the host's first namespace.

mod assembler;
#[allow(unsafe_code, reason = "bpf(2) takes addresses")]
mod sys;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::ProbeError;

pub(crate) use assembler::{AluOp, Assembler, Helper, Label, Register, STACK, Width};

/// What probes with BPF programs need from the host.
pub(crate) const NEEDS: &str =
    "root (or CAP_BPF and CAP_PERFMON), and Linux 5.8 or newer without lockdown";

const BPF_MAP_TYPE_HASH: u32 = 1;
const BPF_MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const BPF_PROG_TYPE_TRACEPOINT: u32 = 5;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

fn refused(step: &'static str) -> impl Fn(io::Error) -> ProbeError {
    move |source| ProbeError::Bpf { step, verdict: String::new(), source }
}

/// A table that BPF programs and this process share.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key_bytes: usize,
    /// The bytes of a value on one CPU.
    value_bytes: usize,
    /// Values under one key: one for each possible CPU, or one.
    copies: usize,
}

impl Map {
    /// Makes a hash table of at most `entries` entries.
    pub(crate) fn hash(key_bytes: u32, value_bytes: u32, entries: u32) -> Result<Self, ProbeError> {
        Self::new(BPF_MAP_TYPE_HASH, key_bytes, value_bytes, entries, 1)
    }

    /// Makes a table of `rows` rows with `numbers` numbers each. Each CPU has its own copy, so that
    /// no CPU waits for another.
    pub(crate) fn rows(rows: u32, numbers: u32) -> Result<Self, ProbeError> {
        Self::new(BPF_MAP_TYPE_PERCPU_ARRAY, 4, numbers * 8, rows, cpus_possible()?)
    }

    fn new(
        kind: u32,
        key: u32,
        value: u32,
        entries: u32,
        copies: usize,
    ) -> Result<Self, ProbeError> {
        let fd = sys::map(kind, key, value, entries).map_err(refused("create a table"))?;
        Ok(Self { fd, key_bytes: key as usize, value_bytes: value as usize, copies })
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), ProbeError> {
        assert!(key.len() == self.key_bytes && value.len() == self.value_bytes && self.copies == 1);
        sys::update(&self.fd, key, value).map_err(refused("write into a table"))
    }

    /// Removes a key. A missing key is no error.
    pub(crate) fn take_out(&self, key: &[u8]) -> Result<(), ProbeError> {
        assert_eq!(key.len(), self.key_bytes);
        match sys::delete(&self.fd, key) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(refused("remove from a table")(error))
            }
            _ => Ok(()),
        }
    }

    /// Returns the numbers of a row, summed over CPUs.
    pub(crate) fn row(&self, row: u32) -> Result<Vec<u64>, ProbeError> {
        assert_eq!(self.key_bytes, size_of_val(&row));
        let mut bytes = vec![0; self.value_bytes * self.copies];
        sys::lookup(&self.fd, &row.to_ne_bytes(), &mut bytes).map_err(refused("read a table"))?;
        let mut sums = vec![0_u64; self.value_bytes / 8];
        let (numbers, _) = bytes.as_chunks::<8>();
        for copy in numbers.chunks(sums.len()) {
            for (sum, number) in sums.iter_mut().zip(copy) {
                *sum += u64::from_ne_bytes(*number);
            }
        }
        Ok(sums)
    }
}

/// The number of possible CPUs. A per-CPU table has a copy for each.
fn cpus_possible() -> Result<usize, ProbeError> {
    let path = PathBuf::from("/sys/devices/system/cpu/possible");
    let text = std::fs::read_to_string(&path)
        .map_err(|source| ProbeError::Read { path: path.clone(), source })?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    let missing = || ProbeError::Missing { path, what: "CPU".into(), needs: NEEDS };
    last.map(|last| last + 1).ok_or_else(missing)
}

/// A loaded program that is not attached yet.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads a program that gets the raw arguments of a tracepoint, 8 bytes each.
    pub(crate) fn of_raw_tracepoint(code: Assembler) -> Result<Self, ProbeError> {
        Self::load(BPF_PROG_TYPE_RAW_TRACEPOINT, code)
    }

    /// Loads a program that gets the fields of a tracepoint, laid out as in its `format` file.
    pub(crate) fn of_tracepoint(code: Assembler) -> Result<Self, ProbeError> {
        Self::load(BPF_PROG_TYPE_TRACEPOINT, code)
    }

    fn load(kind: u32, code: Assembler) -> Result<Self, ProbeError> {
        let loaded = sys::load(kind, &code.finish());
        let failed = |(source, verdict): (io::Error, String)| {
            let verdict = if verdict.is_empty() { verdict } else { format!(" ({verdict})") };
            ProbeError::Bpf { step: "load a program", verdict, source }
        };
        loaded.map(Self).map_err(failed)
    }

    /// Runs the program at the raw tracepoint `name`, such as `sys_enter`, until the result is
    /// dropped.
    pub(crate) fn run_at(&self, name: &str) -> Result<Running, ProbeError> {
        sys::raw_tracepoint(name, &self.0).map(Running).map_err(refused("run a program"))
    }

    /// Runs the program at the tracepoint with this number until the result is dropped.
    pub(crate) fn run_at_id(&self, id: u64) -> Result<Running, ProbeError> {
        sys::tracepoint(id, &self.0).map(Running).map_err(refused("run a program"))
    }
}

/// Opens a counting event of a thread (0 is the calling one), with its times, on any CPU. The
/// threads that it starts count, too. `event` is a type and its configuration.
pub(crate) fn count_event(event: (u32, u64), thread: u32) -> io::Result<OwnedFd> {
    sys::count_event(event, thread)
}

/// A program that is attached to a tracepoint.
#[derive(Debug)]
#[expect(dead_code, reason = "the kernel runs the program while the descriptor is open")]
pub(crate) struct Running(OwnedFd);
