//! `syscalls`: system calls by name, of the system, the layer and the client.
//!
//! Source: a BPF program ([`crate::bpf`]) at the tracepoint `sys_enter` looks up the process of the
//! caller in a table and adds one under the number of the call. It counts every call; it does not
//! sample.
//!
//! Limits: while it runs, every system call on the host takes the slow path of the kernel's entry
//! and runs the program. On a virtual machine where a bare call takes 1.0 µs, a counted call took
//! 0.7 µs more and a call of another program 0.45 µs more. The probe disturbs, and runs in its own
//! slices. A call that a seccomp filter refuses is not counted. Operations of io_uring are not
//! calls.

use std::fs;
use std::os::unix::fs::MetadataExt;

use syscalls::Sysno;
use tare_lab::probe::{Counter, Scope};

use crate::bpf::{self, AluOp, Assembler, Helper, Map, Program, Running, STACK, Width};
use crate::counter_names::CounterNames;
use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::process_files::{CLIENT, LAYER, SYSTEM};
use crate::{CounterKind, ProbeError, ProbeKind, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "syscalls",
    help: "system calls by name",
    needs: bpf::NEEDS,
    limits: "every call takes about 0.5 µs longer while it runs; processes that start inside a slice are missed; at most 64 names of each part",
    optional: false,
    disturbs: true,
    counters: &[
        CounterKind { name: "system_syscalls", help: "system calls of the system's processes" },
        CounterKind { name: "system_syscalls_{name}", help: "system calls of one name" },
        CounterKind {
            name: "layer_syscalls",
            help: "system calls of the processes that the layer adds",
        },
        CounterKind { name: "layer_syscalls_{name}", help: "system calls of one name" },
        CounterKind { name: "client_syscalls", help: "system calls of the client" },
        CounterKind { name: "client_syscalls_{name}", help: "system calls of one name" },
    ],
    open: |roots, _| {
        // Inode of the first namespace: kernel, include/uapi/linux/nsfs.h (PID_NS_INIT_INO).
        let own = fs::metadata(roots.proc.join("self/ns/pid")).map_or(0, |found| found.ino());
        if own != FIRST_PID_NAMESPACE {
            return Err(ProbeError::PidNamespace);
        }
        edge_probe(&KIND, Syscalls::new()?)
    },
};

const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;
/// All system call numbers on x86-64 and arm64 are below this.
const NUMBERS: u32 = 512;
const PROCESSES_MAX: u32 = 4096;
const NAMES_MAX: usize = 64;
/// The parts. The index is the value of a process in the table.
const PARTS: [&str; 3] = [SYSTEM, LAYER, CLIENT];

struct Syscalls {
    program: Program,
    /// The part of each process.
    processes: Map,
    counts: Map,
    known: Vec<u32>,
    /// Parts that have processes.
    present: [bool; 3],
    names: [CounterNames; 3],
    running: Option<Running>,
}

/// `counts[processes[pid]][number] += 1`.
fn program(processes: &Map, counts: &Map) -> Assembler {
    let mut code = Assembler::default();
    let end = code.label();
    // The tracepoint's arguments are the caller's registers and the number of the call.
    code.load(Width::Double, 6, 1, 8);
    code.call(Helper::Ids);
    code.number(AluOp::ShiftRight, 0, 32);
    code.store(Width::Word, STACK, -4, 0);
    code.call_with_key(Helper::Lookup, processes, -4);
    code.jump_if_equal(0, 0, end);
    code.load(Width::Word, 0, 0, 0);
    code.store(Width::Word, STACK, -8, 0);
    code.call_with_key(Helper::Lookup, counts, -8);
    code.jump_if_equal(0, 0, end);
    code.number(AluOp::And, 6, NUMBERS.cast_signed() - 1);
    code.number(AluOp::ShiftLeft, 6, 3);
    code.register(AluOp::Add, 0, 6);
    code.number(AluOp::Move, 1, 1);
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
            names: PARTS.map(|_| CounterNames::new(NAMES_MAX)),
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

impl EdgeReader for Syscalls {
    /// The calls of each part by number.
    type Values = [Vec<u64>; 3];

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

    fn read(&mut self, edge: Edge) -> Result<Self::Values, ProbeError> {
        let reading = [self.counts.row(0)?, self.counts.row(1)?, self.counts.row(2)?];
        if edge == Edge::End {
            self.running = None;
        }
        Ok(reading)
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
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
            counters.extend(self.names[at].select(named.collect()));
        }
        counters
    }
}
