//! `nvme_work`: CPU time of the kernel threads that do the work of NVMe over fabrics, of the target
//! and of the initiator. No process is charged for it.
//!
//! Source: three BPF programs ([`crate::bpf`]). At `workqueue:workqueue_execute_start`, the first
//! notes a thread if the function that it starts is one of nvmet or nvme (`/proc/kallsyms`). At
//! `workqueue_execute_end`, the second removes the thread and adds the elapsed time. At
//! `sched:sched_switch`, the third pauses the clock of a noted thread while it has no CPU, so that
//! the sum is CPU time. The programs start with the first slice whose data is on such a device, and
//! report only slices with such data.
//!
//! Limits: the time includes interrupts and softirqs that occur during the work. Interrupts and
//! softirqs at other times are missing: the receive work of TCP in a softirq of another task, and
//! most of soft-RoCE (its tasklets until Linux 6.3; from 6.4 on its work queue counts with the
//! target). RDMA completions of a target are recognised by the polling function, which other users
//! of RDMA share. Those of an initiator run in a softirq. The work of two environments at the same
//! time cannot be separated, but frozen environments have none.

use std::fs;
use std::path::{Path, PathBuf};

use tare_lab::probe::{Counter, Scope, layer_cpu_name};

use crate::block_stack::device_below;
use crate::bpf::{self, AluOp, Assembler, Helper, Map, Program, Running, STACK, Width};
use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::tracefs::{Tracefs, Tracepoint};
use crate::{CounterKind, ProbeError, ProbeKind, Roots, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "nvme_work",
    help: "CPU time of the kernel threads for NVMe over fabrics, of target and initiator, as the layer's",
    needs: bpf::NEEDS,
    limits: "only if the data is on NVMe over fabrics; fabrics of other programs count too; softirqs of other tasks are \
             missing, which is most of the work of soft-RoCE until Linux 6.3",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "layer_cpu_nvme_{target|initiator}_ns",
            help: "CPU time of the target's or initiator's work; it is part of the layer's CPU time",
        },
        CounterKind {
            name: "nvme_{target|initiator}_work_items",
            help: "work items that kernel threads completed",
        },
    ],
    open: |roots, _| edge_probe(&KIND, NvmeWork::new(roots)?),
};

/// The name of a part, and the prefixes of the names of its functions.
pub(crate) type Part = (&'static str, &'static [&'static str]);

const PARTS: &[Part] = &[
    ("nvme_target", &["nvmet_", "ib_cq_poll_work", "do_work.rxe"]),
    ("nvme_initiator", &["nvme_"]),
];

const FUNCTIONS_MAX: u32 = 8 * 1024;
/// The most threads that work at the same time.
const THREADS_MAX: u32 = 4 * 1024;

/// Counts the work of some functions until it is dropped.
pub(crate) struct Work {
    functions: Map,
    sums: Map,
    /// The modules that were loaded when the functions were looked up.
    modules: String,
    found: usize,
    // The programs run while these are open.
    _running: [Running; 3],
}

// Offsets on a program's stack.
const FUNCTION: i16 = -8;
const THREAD: i16 = -12;
const ROW: i16 = -16;
/// The entry of a working thread: a time and a row.
const KNOWN: i16 = -32;

// Registers that survive calls: the program's argument, a time, and the address of an entry.
const CONTEXT: bpf::Register = 6;
const NOW: bpf::Register = 7;
const ENTRY: bpf::Register = 8;

/// `working[thread] = (now, functions[function])`.
fn at_start(point: &Tracepoint, functions: &Map, working: &Map) -> Result<Assembler, ProbeError> {
    let mut code = Assembler::default();
    let end = code.label();
    code.load(Width::Double, 2, 1, point.offset("function")?);
    code.store(Width::Double, STACK, FUNCTION, 2);
    code.call_with_key(Helper::Lookup, functions, FUNCTION);
    code.jump_if_equal(0, 0, end);
    code.load(Width::Word, 2, 0, 0);
    code.store(Width::Word, STACK, KNOWN + 8, 2);
    code.store_number(Width::Word, STACK, KNOWN + 12, 0);
    code.call(Helper::Time);
    code.store(Width::Double, STACK, KNOWN, 0);
    code.call(Helper::Ids);
    code.store(Width::Word, STACK, THREAD, 0);
    code.register(AluOp::Move, 3, STACK);
    code.number(AluOp::Add, 3, i32::from(KNOWN));
    code.number(AluOp::Move, 4, 0);
    code.call_with_key(Helper::Update, working, THREAD);
    code.place(end);
    code.exit();
    Ok(code)
}

/// `sums[row] += (now - since, items)` for the entry at the address in register 0.
fn add(code: &mut Assembler, sums: &Map, items: i32, end: bpf::Label) {
    code.register(AluOp::Move, ENTRY, 0);
    code.call(Helper::Time);
    code.register(AluOp::Move, NOW, 0);
    code.load(Width::Word, 2, ENTRY, 8);
    code.store(Width::Word, STACK, ROW, 2);
    code.call_with_key(Helper::Lookup, sums, ROW);
    code.jump_if_equal(0, 0, end);
    code.load(Width::Double, 2, ENTRY, 0);
    code.register(AluOp::Move, 3, NOW);
    code.register(AluOp::Subtract, 3, 2);
    code.add_to_memory(0, 3);
    if items > 0 {
        code.number(AluOp::Add, 0, 8);
        code.number(AluOp::Move, 3, items);
        code.add_to_memory(0, 3);
    }
}

/// Adds the elapsed time, and removes the thread.
fn at_end(working: &Map, sums: &Map) -> Assembler {
    let mut code = Assembler::default();
    let end = code.label();
    code.call(Helper::Ids);
    code.store(Width::Word, STACK, THREAD, 0);
    code.call_with_key(Helper::Lookup, working, THREAD);
    code.jump_if_equal(0, 0, end);
    add(&mut code, sums, 1, end);
    code.call_with_key(Helper::Delete, working, THREAD);
    code.place(end);
    code.exit();
    code
}

/// Adds the elapsed time of the thread that leaves its CPU, and restarts the clock of the next one.
fn at_switch(point: &Tracepoint, working: &Map, sums: &Map) -> Result<Assembler, ProbeError> {
    let mut code = Assembler::default();
    let (next, end) = (code.label(), code.label());
    code.register(AluOp::Move, CONTEXT, 1);
    code.load(Width::Word, 2, CONTEXT, point.offset("prev_pid")?);
    code.store(Width::Word, STACK, THREAD, 2);
    code.call_with_key(Helper::Lookup, working, THREAD);
    code.jump_if_equal(0, 0, next);
    add(&mut code, sums, 0, end);
    code.place(next);
    code.load(Width::Word, 2, CONTEXT, point.offset("next_pid")?);
    code.store(Width::Word, STACK, THREAD, 2);
    code.call_with_key(Helper::Lookup, working, THREAD);
    code.jump_if_equal(0, 0, end);
    code.register(AluOp::Move, ENTRY, 0);
    code.call(Helper::Time);
    code.store(Width::Double, ENTRY, 0, 0);
    code.place(end);
    code.exit();
    Ok(code)
}

impl Work {
    pub(crate) fn run(parts: usize) -> Result<Self, ProbeError> {
        let tracefs = Tracefs::open()?;
        let start = tracefs.tracepoint("workqueue/workqueue_execute_start")?;
        let end = tracefs.tracepoint("workqueue/workqueue_execute_end")?;
        let switch = tracefs.tracepoint("sched/sched_switch")?;
        let functions = Map::hash(8, 4, FUNCTIONS_MAX)?;
        let working = Map::hash(4, 16, THREADS_MAX)?;
        let sums = Map::rows(u32::try_from(parts).unwrap_or(u32::MAX), 2)?;
        let at_start = Program::of_tracepoint(at_start(&start, &functions, &working)?)?;
        let at_end = Program::of_tracepoint(at_end(&working, &sums))?;
        let at_switch = Program::of_tracepoint(at_switch(&switch, &working, &sums)?)?;
        // The program for the start is attached last, so that the others see each noted thread.
        let _running = [
            at_end.run_at_id(end.id)?,
            at_switch.run_at_id(switch.id)?,
            at_start.run_at_id(start.id)?,
        ];
        Ok(Self { functions, sums, modules: String::new(), found: 0, _running })
    }

    /// Looks the functions up if the list of modules has changed. Returns their number.
    pub(crate) fn look_up(&mut self, proc: &Path, parts: &[Part]) -> Result<usize, ProbeError> {
        let modules = fs::read_to_string(proc.join("modules")).unwrap_or_default();
        // Only names count: the use counts of modules change all the time.
        let modules = modules.lines().filter_map(|line| line.split(' ').next()).collect::<Vec<_>>();
        let modules = modules.join(" ");
        if self.found > 0 && modules == self.modules {
            return Ok(self.found);
        }
        let path = proc.join("kallsyms");
        let text = fs::read_to_string(&path)
            .map_err(|source| ProbeError::Read { path: path.clone(), source })?;
        let functions = functions(&text, parts);
        if functions.iter().any(|(address, _)| *address == 0) {
            let what = "readable addresses (kernel.kptr_restrict)".into();
            return Err(ProbeError::Missing { path, what, needs: bpf::NEEDS });
        }
        for (address, row) in functions.iter().take(FUNCTIONS_MAX as usize) {
            self.functions.put(&address.to_ne_bytes(), &row.to_ne_bytes())?;
        }
        (self.modules, self.found) = (modules, functions.len());
        Ok(self.found)
    }

    /// The CPU time in ns and the work items of a part so far.
    pub(crate) fn sums(&self, row: u32) -> Result<[u64; 2], ProbeError> {
        let numbers = self.sums.row(row)?;
        Ok([numbers[0], numbers[1]])
    }
}

/// The addresses of functions, each with the row of its part. A line is
/// `ffffffffc0a1b2c0 t nvmet_tcp_io_work\t[nvmet_tcp]`.
fn functions(kallsyms: &str, parts: &[Part]) -> Vec<(u64, u32)> {
    let row = |name: &str, module: &str| {
        let is_it = |start: &&str| match start.split_once('.') {
            // The function name is ambiguous without its module.
            Some((function, of)) => name == function && module.contains(of),
            None => name.starts_with(*start),
        };
        (0..).zip(parts).find(|(_, (_, starts))| starts.iter().any(is_it))
    };
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let is_code = matches!(words.next()?, "t" | "T");
        let (name, module) = (words.next()?, words.next().unwrap_or_default());
        let (row, _) = is_code.then(|| row(name, module))??;
        Some((address, row))
    };
    kallsyms.lines().filter_map(line).collect()
}

struct NvmeWork {
    proc: PathBuf,
    sys: PathBuf,
    /// Runs from the first slice with data on such a device.
    work: Option<Work>,
    /// The data of this slice is on such a device.
    asked: bool,
}

impl NvmeWork {
    fn new(roots: &Roots) -> Result<Self, ProbeError> {
        // This reports a missing feature at the start of a study and not in its first slice.
        drop(Work::run(PARTS.len())?);
        let (proc, sys) = (roots.proc.clone(), roots.sys.clone());
        Ok(Self { proc, sys, work: None, asked: false })
    }
}

/// Whether data is on a namespace behind a fabric. A local NVMe disk has a subsystem too, with the
/// transport `pcie`.
pub(crate) fn is_remote(data: &Path, proc: &Path, sys: &Path) -> bool {
    let Some((major, minor)) = device_below(data, &proc.join("self/mountinfo")) else {
        return false;
    };
    let device = sys.join(format!("dev/block/{major}:{minor}/device"));
    if let Ok(transport) = fs::read_to_string(device.join("transport")) {
        return transport.trim() != "pcie";
    }
    // With multipath the device belongs to the subsystem, which contains the controllers.
    let controllers = fs::read_dir(&device).into_iter().flatten().flatten();
    let transports = controllers.map(|entry| entry.path().join("transport"));
    let mut transports = transports.filter_map(|path| fs::read_to_string(path).ok());
    transports.any(|transport| transport.trim() != "pcie")
}

impl EdgeReader for NvmeWork {
    /// CPU time in ns and items of each part. `None` if the data is not on such a device.
    type Values = Option<Vec<[u64; 2]>>;

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.asked = scope.data.iter().any(|data| is_remote(data, &self.proc, &self.sys));
        if !self.asked {
            return Ok(());
        }
        let work = match &mut self.work {
            Some(work) => work,
            None => self.work.insert(Work::run(PARTS.len())?),
        };
        work.look_up(&self.proc, PARTS).map(drop)
    }

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        let Some(work) = self.work.as_ref().filter(|_| self.asked) else { return Ok(None) };
        let rows = (0..).zip(PARTS).map(|(row, _)| work.sums(row));
        rows.collect::<Result<_, _>>().map(Some)
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let (Some(begin), Some(end)) = (begin, end) else { return Vec::new() };
        let mut counters = Vec::new();
        for (((part, _), begin), end) in PARTS.iter().zip(begin).zip(end) {
            // This host never worked for the part. A target on another host is not counted here.
            if end[1] == 0 {
                continue;
            }
            let [ns, items] = [0, 1].map(|at| end[at].saturating_sub(begin[at]) as f64);
            counters.push(counter(layer_cpu_name(part), ns));
            counters.push(counter(format!("{part}_work_items"), items));
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_functions_by_name_and_module() {
        let text = "ffffffff81000000 T _stext\n\
            ffffffffc0a1b2c0 t nvmet_tcp_io_work\t[nvmet_tcp]\n\
            ffffffffc0a1b2d0 d nvmet_ops\t[nvmet]\n\
            ffffffffc0b00000 t nvme_tcp_io_work\t[nvme_tcp]\n\
            ffffffffc0c00000 t do_work\t[rdma_rxe]\n\
            ffffffffc0d00000 t do_work\t[another]\n\
            ffffffff82000000 t ib_cq_poll_work\n";
        let expected = [
            (0xffff_ffff_c0a1_b2c0, 0),
            (0xffff_ffff_c0b0_0000, 1),
            (0xffff_ffff_c0c0_0000, 0),
            (0xffff_ffff_8200_0000, 0),
        ];
        assert_eq!(functions(text, PARTS), expected);
    }
}
