//! Counts what the load generator allocates: nothing per operation, no more with time, and with
//! 10,000 requests in flight at most 32 MiB besides its histograms.
//!
//! The server runs as another process of this program, so its allocations do not count.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]
#![allow(unsafe_code, reason = "an allocator has no safe interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering};
use std::time::Duration;

use tare_load::keys::Keys;
use tare_load::load::{LoadEvent, run};
use tare_load::pacing::{Arrivals, Pace, Schedule, Step};
use tare_load::rows::{KeyType, Shape};
use tare_load::workload::Workload;
use tare_load::{Access, LoadConfig, LoadReport, LoadSpec, Part, histogram};
use tare_std::cpus::CpuSet;
use tare_testkit::fake_server::{FakeServer, ServerBehaviour};
use tare_testkit::harness;

/// The limit with 10,000 requests in flight, without histograms, in bytes.
const LIMIT_BYTES: u64 = 32 << 20;
/// How much more memory a load may hold at its end than in the middle, in bytes. The buffers of its
/// 100 connections grow as far as the fullest read so far, which a busy machine may see late. This
/// allows 10 KiB for each.
const GROWTH_BYTES: isize = 1 << 20;
/// A run with so many times fewer allocations than operations allocates nothing per operation.
const OPERATIONS_PER_ALLOCATION: u64 = 100;

/// Allocations made, and bytes held. Histograms, recognised by their size, count apart.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static HELD_BYTES: AtomicIsize = AtomicIsize::new(0);
static HISTOGRAM_BYTES: AtomicIsize = AtomicIsize::new(0);
static HISTOGRAM_BYTES_MAX: AtomicIsize = AtomicIsize::new(0);
/// Size of one histogram's counts.
static ONE_BYTES: AtomicIsize = AtomicIsize::new(-1);

/// A test, against the server at an address.
struct Counting;

fn count(size: usize, sign: isize) {
    let bytes = sign * size.cast_signed();
    if size.cast_signed() == ONE_BYTES.load(Ordering::Relaxed) {
        let now = HISTOGRAM_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
        HISTOGRAM_BYTES_MAX.fetch_max(now, Ordering::Relaxed);
    } else {
        HELD_BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
    if sign > 0 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// JUSTIFICATION: there is no other way to see every allocation.
// SAFETY: all is left to the system's allocator, with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as the caller vouches for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as the caller vouches for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: as the caller vouches for.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as the caller vouches for.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == "serve") {
        return serve();
    }
    let cases: [(&str, fn()); 2] = [
        ("nothing_is_allocated_per_operation", || {
            nothing_is_allocated_per_operation(Server::start().address)
        }),
        ("memory_is_bounded_and_does_not_grow", || {
            memory_is_bounded_and_does_not_grow(Server::start().address)
        }),
    ];
    harness::run(&cases);
    ExitCode::SUCCESS
}

/// Serves until standard input closes.
fn serve() -> ExitCode {
    let server = FakeServer::start(ServerBehaviour::Good);
    std::io::stdout().write_all(format!("{}\n", server.address).as_bytes()).unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

/// The server's process, which ends with this.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().parse().unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::print_stderr, reason = "this is the test harness")]
fn say(line: &str) {
    eprintln!("{line}");
}

fn cpus() -> CpuSet {
    let affinity = rustix::thread::sched_getaffinity(None).unwrap();
    (0u32..1_024).filter(|&cpu| affinity.is_set(cpu as usize)).take(1).collect()
}

/// Half writes, half reads that are verified, of rows of 300 bytes.
fn config(address: SocketAddr, connections: u32, in_flight: u32, pace: Pace) -> LoadConfig {
    let shape = Shape { key_type: KeyType::Bigint, columns: 5, column_bytes: 60 };
    let workload = Workload::plain(shape, 1_000, 0.5, Keys::Uniform).unwrap();
    LoadConfig {
        access: Access::to(address),
        cpus: cpus(),
        spec: LoadSpec { workload: Arc::new(workload), part: Part::ALL, connections, in_flight },
        pace,
        populate: true,
        lead_in: Duration::ZERO,
        seed: 7,
        verify: true,
        hdr_file: None,
        connect_deadline: Duration::from_secs(10),
    }
}

fn closed(length_ms: u64) -> Pace {
    Pace::Closed(Duration::from_millis(length_ms))
}

fn open(rate_per_s: f64, length_ms: u64) -> Pace {
    let steps = vec![Step::steady(rate_per_s, Duration::from_millis(length_ms))];
    Pace::Open(Schedule::new(steps, Arrivals::Constant).unwrap())
}

fn load(config: &LoadConfig, tell: &mut dyn FnMut()) -> LoadReport {
    let mut event = |event: &LoadEvent<'_>| {
        if matches!(event, LoadEvent::Interval(_)) {
            tell();
        }
    };
    let report = run(config, &AtomicBool::new(false), &mut event).unwrap();
    assert!(report.errors.is_empty() && report.operations > 0, "{report:?}");
    report
}

/// A load and one of several times as many operations, each in one stretch, differ by a few
/// buffers.
fn nothing_is_allocated_per_operation(address: SocketAddr) {
    let counted = |pace: Pace| {
        let config = config(address, 4, 64, pace);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let operations = load(&config, &mut || ()).operations;
        (ALLOCATIONS.load(Ordering::Relaxed) - before, operations)
    };
    // What the process needs once.
    counted(closed(100));
    for (fewer, more) in [(closed(100), closed(900)), (open(1_000.0, 900), open(10_000.0, 900))] {
        let (fewer, more) = (counted(fewer), counted(more));
        say(&format!("(allocations, operations): {fewer:?}, {more:?}"));
        let (allocations, operations) = (more.0.saturating_sub(fewer.0), more.1 - fewer.1);
        assert!(operations > 2_000, "{fewer:?} {more:?}");
        assert!(allocations * OPERATIONS_PER_ALLOCATION < operations, "{fewer:?} {more:?}");
    }
}

fn memory_is_bounded_and_does_not_grow(address: SocketAddr) {
    let one = histogram::new().distinct_values() * size_of::<u64>();
    ONE_BYTES.store(one.cast_signed(), Ordering::Relaxed);
    for pace in [closed(4_000), open(5_000.0, 4_000)] {
        let config = config(address, 100, 10_000, pace);
        let mut held = Vec::with_capacity(16);
        load(&config, &mut || held.push(HELD_BYTES.load(Ordering::Relaxed)));
        let growth = held.last().unwrap() - held[held.len() / 2];
        assert!(held.len() >= 3 && growth < GROWTH_BYTES, "{held:?}");
        let histograms = HISTOGRAM_BYTES_MAX.load(Ordering::Relaxed).cast_unsigned() as u64;
        let most = resident_bytes_max();
        let text = format!(
            "resident at most {most} bytes, of which histograms {histograms}; allocated beside \
             those, second by second: {held:?}"
        );
        say(&text);
        assert!(histograms > 0 && most - histograms <= LIMIT_BYTES, "{text}");
    }
}

/// Returns the most memory that this process has had, program and libraries included.
fn resident_bytes_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    most.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}
