//! `disk_latency`: a histogram of the latency of the disks below the system's data directories.
//!
//! Source: two BPF programs ([`crate::bpf`]), at `block:block_rq_issue` (a request goes to the
//! driver) and at `block:block_rq_complete`, for these disks alone. The first stores the time under
//! the first sector of the request. The second adds one to a bucket of the elapsed time. There are
//! eight buckets per doubling, so that a time is known within 12.5 %. In a long window the buckets
//! are also read at every second.
//!
//! Limits: the time in the scheduler's queue is not included (the means of `disk` include it). Of
//! two requests for one sector at once, one is counted. A sync that has no data to write is a write
//! in `disk` and none here. RAID and device mapper have no requests of their own: the disks below
//! them are observed.

use std::sync::Arc;

use tare_lab::probe::{Counter, Scope};
use tare_lab::seconds::DiskSecond;

use crate::block_stack::{BlockStack, Device};
use crate::bpf::{self, AluOp, Assembler, Helper, Map, Program, Register, Running, STACK, Width};
use crate::counter_names::CounterNames;
use crate::each_second::EachSecond;
use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::tracefs::{Tracefs, Tracepoint};
use crate::{CounterKind, ProbeError, ProbeKind, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "disk_latency",
    help: "latency of the disks below the data directories, from their driver to completion: a histogram and the longest",
    needs: bpf::NEEDS,
    limits: "I/O of other programs on the disks counts too; times are known within 12.5 %, means within 6 %; below RAID and device mapper \
             they are the times of the disks; no counters for a data directory in memory",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "disk_{reads|writes|flushes}_up_to_{N}_us",
            help: "I/Os that took more than N/2 and at most N µs; N is a power of two",
        },
        CounterKind {
            name: "disk_{read|write|flush}_latency_ns_max",
            help: "the longest I/O of the slice",
        },
    ],
    open: |roots, _| edge_probe(&KIND, DiskLatency::new(BlockStack::new(roots))?),
};

/// A doubling has eight buckets.
const STEP_BITS: i32 = 3;
const BUCKETS: u32 = 512;
/// The most requests in flight at once, on all observed devices.
const UNDER_WAY_MAX: u32 = 16 * 1024;
const NAMES_MAX: usize = 24;
/// The most disks that are observed.
const DEVICES_MAX: u32 = 256;
const US_NS: u64 = 1000;

/// The kinds of requests in the order of their rows: the name of many, the name of one, and the
/// first letter of the kernel's `rwbs` (kernel/trace/blktrace.c, `blk_fill_rwbs`).
const KINDS: [(&str, &str, u8); 3] =
    [("reads", "read", b'R'), ("writes", "write", b'W'), ("flushes", "flush", FLUSH)];
const FLUSH: u8 = b'F';

struct DiskLatency {
    stack: BlockStack,
    /// The observed devices, by the kernel's internal number.
    devices: Map,
    known: Vec<u32>,
    counts: Arc<Map>,
    /// Whether the next slice is followed by the second.
    by_second: bool,
    readings: Option<EachSecond<Rows>>,
    seconds: Vec<DiskSecond>,
    names: [CounterNames; 3],
    // The programs run while these are open.
    _running: [Running; 2],
}

// Offsets on a program's stack.
const DEVICE: i16 = -4;
/// The sector, and the device with four zero bytes.
const REQUEST: i16 = -24;
const TIME: i16 = -32;
const ROW: i16 = -36;

/// Registers that survive calls: the program's argument, a time, and the kind of the request.
const CONTEXT: Register = 6;
const LATENCY: Register = 7;
const LETTER: Register = 8;

/// Puts the request's key on the stack. Jumps to the returned label if the device is not observed.
fn request(
    code: &mut Assembler,
    point: &Tracepoint,
    devices: &Map,
) -> Result<bpf::Label, ProbeError> {
    let end = code.label();
    code.register(AluOp::Move, CONTEXT, 1);
    code.load(Width::Word, 2, CONTEXT, point.offset("dev")?);
    code.store(Width::Word, STACK, DEVICE, 2);
    code.store(Width::Word, STACK, REQUEST + 8, 2);
    code.store_number(Width::Word, STACK, REQUEST + 12, 0);
    code.load(Width::Double, 2, CONTEXT, point.offset("sector")?);
    // `FW` is a write after a flush, which is a request of its own. `FF` is a flush. A flush has no
    // sector: the kernel reports 0 at its issue and -1 at its completion.
    let (second, flush, known) = (code.label(), code.label(), code.label());
    let letters = point.offset("rwbs")?;
    code.load(Width::Byte, LETTER, CONTEXT, letters);
    code.jump_if_equal(LETTER, i32::from(FLUSH), second);
    code.jump(known);
    code.place(second);
    code.load(Width::Byte, LETTER, CONTEXT, letters + 1);
    code.jump_if_equal(LETTER, i32::from(FLUSH), flush);
    code.jump(known);
    code.place(flush);
    code.number(AluOp::Move, 2, -1);
    code.place(known);
    code.store(Width::Double, STACK, REQUEST, 2);
    code.call_with_key(Helper::Lookup, devices, DEVICE);
    code.jump_if_equal(0, 0, end);
    Ok(end)
}

/// `under_way[request] = now`.
fn at_issue(point: &Tracepoint, devices: &Map, under_way: &Map) -> Result<Assembler, ProbeError> {
    let mut code = Assembler::default();
    let end = request(&mut code, point, devices)?;
    code.call(Helper::Time);
    code.store(Width::Double, STACK, TIME, 0);
    code.register(AluOp::Move, 3, STACK);
    code.number(AluOp::Add, 3, i32::from(TIME));
    // Overwrites an older entry: a request that is issued again starts its time again.
    code.number(AluOp::Move, 4, 0);
    code.call_with_key(Helper::Update, under_way, REQUEST);
    code.place(end);
    code.exit();
    Ok(code)
}

/// `counts[kind][bucket(now - under_way[request])] += 1`, and removes the request.
fn at_end(
    point: &Tracepoint,
    devices: &Map,
    under_way: &Map,
    counts: &Map,
) -> Result<Assembler, ProbeError> {
    let mut code = Assembler::default();
    let end = request(&mut code, point, devices)?;
    code.call_with_key(Helper::Lookup, under_way, REQUEST);
    code.jump_if_equal(0, 0, end);
    code.load(Width::Double, LATENCY, 0, 0);
    code.call(Helper::Time);
    code.register(AluOp::Subtract, 0, LATENCY);
    code.register(AluOp::Move, LATENCY, 0);
    code.call_with_key(Helper::Delete, under_way, REQUEST);
    let found = code.label();
    for (row, (_, _, letter)) in (0..).zip(KINDS) {
        code.store_number(Width::Word, STACK, ROW, row);
        code.jump_if_equal(LETTER, i32::from(letter), found);
    }
    // A discard, or a kind that this list does not have.
    code.jump(end);
    code.place(found);
    code.call_with_key(Helper::Lookup, counts, ROW);
    code.jump_if_equal(0, 0, end);
    bucket(&mut code);
    code.number(AluOp::ShiftLeft, LATENCY, 3);
    code.register(AluOp::Add, 0, LATENCY);
    code.number(AluOp::Move, 1, 1);
    code.add_to_memory(0, 1);
    code.place(end);
    code.exit();
    Ok(code)
}

/// Replaces a time by the number of its bucket, the inverse of [`bucket_end_ns`].
fn bucket(code: &mut Assembler) {
    // Raises the time to at least 8, so that its highest bit is the fourth or above.
    let large = code.label();
    code.register(AluOp::Move, 1, LATENCY);
    code.number(AluOp::ShiftRight, 1, STEP_BITS);
    let small = code.label();
    code.jump_if_equal(1, 0, small);
    code.jump(large);
    code.place(small);
    code.number(AluOp::Move, LATENCY, 1 << STEP_BITS);
    code.number(AluOp::Move, 1, 1);
    code.place(large);
    // Register 1 is the time divided by 8. Register 2 becomes the number of its highest bit.
    code.number(AluOp::Move, 2, 0);
    for bits in [32, 16, 8, 4, 2, 1] {
        let lower = code.label();
        code.register(AluOp::Move, 3, 1);
        code.number(AluOp::ShiftRight, 3, bits);
        code.jump_if_equal(3, 0, lower);
        code.register(AluOp::Move, 1, 3);
        code.number(AluOp::Add, 2, bits);
        code.place(lower);
    }
    code.register(AluOp::ShiftRight, LATENCY, 2);
    code.number(AluOp::And, LATENCY, (1 << STEP_BITS) - 1);
    code.number(AluOp::ShiftLeft, 2, STEP_BITS);
    code.register(AluOp::Add, LATENCY, 2);
    code.number(AluOp::And, LATENCY, BUCKETS.cast_signed() - 1);
}

/// The largest time of a bucket, in ns. Bucket `8 e + s` holds the times whose highest bit is
/// number `e + 3` and whose next three bits are `s`.
fn bucket_end_ns(bucket: usize) -> u64 {
    let (octave, step) = (bucket >> STEP_BITS, bucket as u64 & 7);
    u64::try_from((u128::from(9 + step) << octave) - 1).unwrap_or(u64::MAX)
}

impl DiskLatency {
    fn new(stack: BlockStack) -> Result<Self, ProbeError> {
        let tracefs = Tracefs::open()?;
        let [issue, complete] = ["block/block_rq_issue", "block/block_rq_complete"]
            .map(|name| tracefs.tracepoint(name));
        let (issue, complete) = (issue?, complete?);
        let devices = Map::hash(4, 4, DEVICES_MAX)?;
        let under_way = Map::hash(16, 8, UNDER_WAY_MAX)?;
        let counts = Arc::new(Map::rows(3, BUCKETS)?);
        let at_issue = Program::of_tracepoint(at_issue(&issue, &devices, &under_way)?)?;
        let at_end = Program::of_tracepoint(at_end(&complete, &devices, &under_way, &counts)?)?;
        // The program for the end starts first, so that no request stays in the table.
        let _running = [at_end.run_at_id(complete.id)?, at_issue.run_at_id(issue.id)?];
        let names = KINDS.map(|_| CounterNames::new(NAMES_MAX));
        Ok(Self {
            stack,
            devices,
            known: Vec::new(),
            counts,
            by_second: false,
            readings: None,
            seconds: Vec::new(),
            names,
            _running,
        })
    }
}

/// The kernel's internal number of a device (include/linux/kdev_t.h).
fn internal((major, minor): Device) -> u32 {
    major << 20 | minor
}

/// Requests by kind and bucket.
type Rows = [Vec<u64>; 3];

fn read_rows(counts: &Map) -> Result<Rows, ProbeError> {
    Ok([counts.row(0)?, counts.row(1)?, counts.row(2)?])
}

/// Returns the requests of a kind between two readings: their number, and their mean and longest
/// time in ns, 0 without one.
fn between(begin: &[u64], end: &[u64]) -> [u64; 3] {
    let (mut count, mut sum_ns, mut max_ns) = (0, 0, 0);
    for (bucket, (begin, end)) in begin.iter().zip(end).enumerate() {
        let grown = end.saturating_sub(*begin);
        if grown > 0 {
            max_ns = bucket_end_ns(bucket);
            let least_ns = bucket.checked_sub(1).map_or(0, bucket_end_ns);
            count += grown;
            sum_ns += u128::from(grown) * (u128::from(least_ns) + u128::from(max_ns)) / 2;
        }
    }
    let mean_ns = sum_ns.checked_div(u128::from(count)).unwrap_or(0);
    [count, u64::try_from(mean_ns).unwrap_or(u64::MAX), max_ns]
}

/// Returns what the disks did between each two readings.
fn seconds(readings: &[Rows]) -> Vec<DiskSecond> {
    let second = |pair: &[Rows]| {
        let [reads, read_mean_ns, read_max_ns] = between(&pair[0][0], &pair[1][0]);
        let [writes, write_mean_ns, write_max_ns] = between(&pair[0][1], &pair[1][1]);
        DiskSecond { reads, read_mean_ns, read_max_ns, writes, write_mean_ns, write_max_ns }
    };
    readings.windows(2).map(second).collect()
}

impl EdgeReader for DiskLatency {
    /// `None` without a device.
    type Values = Option<Rows>;

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.by_second = scope.by_second;
        self.readings = None;
        self.seconds.clear();
        for known in self.known.drain(..) {
            self.devices.take_out(&known.to_ne_bytes())?;
        }
        if scope.data.is_empty() {
            return Err(ProbeError::NoData);
        }
        let disks = self.stack.disks_below(&scope.data);
        // Requests have the number of the disk, not of the partition.
        let mut disks: Vec<u32> =
            disks.into_iter().map(|disk| internal(self.stack.whole(disk))).collect();
        disks.sort_unstable();
        disks.dedup();
        disks.truncate(DEVICES_MAX as usize);
        for disk in disks {
            self.devices.put(&disk.to_ne_bytes(), &1_u32.to_ne_bytes())?;
            self.known.push(disk);
        }
        Ok(())
    }

    fn read(&mut self, edge: Edge) -> Result<Self::Values, ProbeError> {
        if let Some(readings) = self.readings.take() {
            self.seconds = seconds(&readings.stop());
        }
        if self.known.is_empty() {
            return Ok(None);
        }
        if edge == Edge::Begin && self.by_second {
            let counts = Arc::clone(&self.counts);
            let readings = EachSecond::start(move || read_rows(&counts).ok());
            self.readings = Some(readings.map_err(ProbeError::Thread)?);
        }
        read_rows(&self.counts).map(Some)
    }

    fn disk_seconds(&mut self) -> Vec<DiskSecond> {
        std::mem::take(&mut self.seconds)
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let (Some(begin), Some(end)) = (begin, end) else { return Vec::new() };
        let mut counters = Vec::new();
        let kinds = KINDS.iter().zip(&mut self.names);
        for ((begin, end), ((many, one, _), names)) in begin.iter().zip(end).zip(kinds) {
            // The index is the exponent of two of the µs.
            let mut by_us = [0; LONGEST + 1];
            let mut max_ns = None;
            for (bucket, (begin, end)) in begin.iter().zip(end).enumerate() {
                let grown = end.saturating_sub(*begin);
                if grown > 0 {
                    let ns = bucket_end_ns(bucket);
                    max_ns = Some(ns);
                    let us = ns.div_ceil(US_NS).next_power_of_two();
                    by_us[LONGEST.min(us.trailing_zeros() as usize)] += grown;
                }
            }
            // Seven digits, so that the names sort by time.
            let named = by_us.iter().enumerate().map(|(exponent, grown)| {
                (format!("disk_{many}_up_to_{:07}_us", 1_u64 << exponent), *grown)
            });
            counters.extend(names.select(named.collect()));
            let name = format!("disk_{one}_latency_ns_max");
            counters.extend(max_ns.map(|ns| counter(name, ns as f64)));
        }
        counters
    }
}

/// The exponent of the last line. 2^23 µs are 8.4 s; longer times count there too.
const LONGEST: usize = 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_an_eighth_wide() {
        for bucket in 0..480 {
            let (end, next) = (bucket_end_ns(bucket), bucket_end_ns(bucket + 1));
            assert!(next > end && (bucket < 8 || next - end <= end / 8 + 1), "{bucket}");
        }
        assert_eq!([0, 7, 8, 15].map(bucket_end_ns), [8, 15, 17, 31]);
    }

    #[test]
    fn seconds_are_what_grew_between_readings() {
        // Bucket 8 ends at 17 ns, 15 at 31, and the one below each at 15 and 29.
        let row = |few, many| {
            let mut row = vec![0_u64; 16];
            (row[8], row[15]) = (few, many);
            row
        };
        let reading = |reads, writes| [reads, writes, row(0, 0)];
        let readings = [
            reading(row(1, 1), row(0, 0)),
            reading(row(2, 4), row(0, 0)),
            reading(row(2, 4), row(5, 0)),
        ];
        let found = seconds(&readings);
        let (read_mean_ns, read_max_ns) = ((16 + 3 * 30) / 4, 31);
        let reads = DiskSecond { reads: 4, read_mean_ns, read_max_ns, ..DiskSecond::default() };
        let writes =
            DiskSecond { writes: 5, write_mean_ns: 16, write_max_ns: 17, ..DiskSecond::default() };
        assert_eq!(found, [reads, writes]);
        assert!(seconds(&readings[..1]).is_empty());
    }
}
