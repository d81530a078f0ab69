//! `syscalls`: system calls by name, of the system, of what the layer adds and of the client.
//!
//! Source: a program of the kernel at the tracepoint `sys_enter` ([`crate::bpf`]), which finds the
//! caller's process in a table and adds one under the call's number. Nothing is lost, and nothing is
//! sampled. Limits: while it runs every system call on the host takes the slow way through the
//! kernel's entry and runs the program. On a virtual machine where a bare call takes 1.0 µs that was
//! 0.7 µs more for a call that counts, and 0.45 µs for a stranger's: it disturbs, and has slices of its own.
//! A call that a seccomp filter refuses is not counted; io_uring's operations are no calls.

use std::fs;
use std::os::unix::fs::MetadataExt;

use syscalls::Sysno;
use tare_lab::probe::{Counter, Scope};

use crate::between::{Edge, Numbers, between};
use crate::bpf::{self, Code, Do, Helper, Map, Program, Running, STACK, Width};
use crate::files::{CLIENT, LAYER, SYSTEM};
use crate::sticky::Sticky;
use crate::{CounterKind, ProbeError, ProbeKind, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "syscalls",
    help: "system calls by name",
    needs: bpf::NEEDS,
    limits: "every call takes some 0.5 µs longer while it runs; processes that start inside a slice are missed; at most 64 names of each part",
    optional: false,
    disturbs: true,
    counters: &[
        CounterKind { name: "system_syscalls", help: "system calls of the system's processes" },
        CounterKind { name: "system_syscalls_{name}", help: "those of them of one name" },
        CounterKind {
            name: "layer_syscalls",
            help: "system calls of what the layer adds outside the system",
        },
        CounterKind { name: "layer_syscalls_{name}", help: "those of them of one name" },
        CounterKind { name: "client_syscalls", help: "system calls of the client" },
        CounterKind { name: "client_syscalls_{name}", help: "those of them of one name" },
    ],
    open: |roots, _| {
        // Inode of the first namespace: kernel, include/uapi/linux/nsfs.h (PID_NS_INIT_INO).
        let own = fs::metadata(roots.proc.join("self/ns/pid")).map_or(0, |found| found.ino());
        if own != FIRST_PID_NAMESPACE {
            return Err(ProbeError::PidNamespace);
        }
        between(&KIND, Syscalls::new()?)
    },
};

const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;
/// Calls have numbers below this, on x86-64 and on arm64.
const NUMBERS: u32 = 512;
const PROCESSES_MAX: u32 = 4096;
const NAMES_MAX: usize = 64;
/// The parts, by the number that a process has in the table.
const PARTS: [&str; 3] = [SYSTEM, LAYER, CLIENT];

struct Syscalls {
    program: Program,
    /// The number of the part that a process belongs to.
    processes: Map,
    counts: Map,
    known: Vec<u32>,
    /// Parts that have processes.
    present: [bool; 3],
    names: [Sticky; 3],
    running: Option<Running>,
}

/// `counts[processes[pid]][number] += 1`.
fn program(processes: &Map, counts: &Map) -> Code {
    let mut code = Code::default();
    let end = code.label();
    // The arguments of the tracepoint: the registers of the caller, and the number of the call.
    code.load(Width::Double, 6, 1, 8);
    code.call(Helper::Ids);
    code.number(Do::ShiftRight, 0, 32);
    code.store(Width::Word, STACK, -4, 0);
    code.call_with_key(Helper::Lookup, processes, -4);
    code.jump_if_equal(0, 0, end);
    code.load(Width::Word, 0, 0, 0);
    code.store(Width::Word, STACK, -8, 0);
    code.call_with_key(Helper::Lookup, counts, -8);
    code.jump_if_equal(0, 0, end);
    code.number(Do::And, 6, NUMBERS.cast_signed() - 1);
    code.number(Do::ShiftLeft, 6, 3);
    code.register(Do::Add, 0, 6);
    code.number(Do::Move, 1, 1);
    code.add_to_memory(0, 1);
    code.place(end);
    code.exit();
    code
}

impl Syscalls {
    fn new() -> Result<Self, ProbeError> {
        let processes = Map::hash(4, 4, PROCESSES_MAX)?;
        let counts = Map::rows(3, NUMBERS)?;
        let program = Program::of_raw_tracepoint(program(&processes, &counts))?;
        Ok(Self {
            program,
            processes,
            counts,
            known: Vec::new(),
            present: [false; 3],
            names: PARTS.map(|_| Sticky::new(NAMES_MAX)),
            running: None,
        })
    }
}

fn name_of(number: usize) -> String {
    match Sysno::new(number) {
        Some(call) => call.name().to_string(),
        None => format!("number_{number}"),
    }
}

impl Numbers for Syscalls {
    /// Calls by number, of each part.
    type Reading = [Vec<u64>; 3];

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.running = None;
        for pid in self.known.drain(..) {
            self.processes.take_out(&pid.to_ne_bytes())?;
        }
        if scope.system.is_empty() {
            return Err(ProbeError::NoProcess { of: SYSTEM });
        }
        let parts = [&scope.system, &scope.layer, &scope.client];
        for (part, pids) in (0_u32..).zip(parts) {
            for pid in pids {
                self.processes.put(&pid.to_ne_bytes(), &part.to_ne_bytes())?;
                self.known.push(*pid);
            }
        }
        self.present = parts.map(|pids| !pids.is_empty());
        self.running = Some(self.program.run_at("sys_enter")?);
        Ok(())
    }

    fn read(&mut self, edge: Edge) -> Result<Self::Reading, ProbeError> {
        let reading = [self.counts.row(0)?, self.counts.row(1)?, self.counts.row(2)?];
        if edge == Edge::End {
            self.running = None;
        }
        Ok(reading)
    }

    fn counters(&mut self, begin: Self::Reading, end: Self::Reading) -> Vec<Counter> {
        let mut counters = Vec::new();
        for (at, (begin, end)) in begin.into_iter().zip(end).enumerate() {
            if !self.present[at] {
                continue;
            }
            let calls: Vec<u64> =
                begin.iter().zip(&end).map(|(begin, end)| end.saturating_sub(*begin)).collect();
            let all: u64 = calls.iter().sum();
            counters.push(counter(format!("{}_syscalls", PARTS[at]), all as f64));
            let name = |number| format!("{}_syscalls_{}", PARTS[at], name_of(number));
            let named = calls.into_iter().enumerate().map(|(number, count)| (name(number), count));
            counters.extend(self.names[at].of(named.collect()));
        }
        counters
    }
}
