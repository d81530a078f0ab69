//! The two system calls that BPF needs: bpf(2) and perf_event_open(2). No safe library has them.
//!
//! The structures are the first fields of `union bpf_attr` and `struct perf_event_attr`
//! (include/uapi/linux/bpf.h, perf_event.h). The kernel accepts a structure that is shorter than
//! its own and takes the rest as zero. Every pointer in them is a slice that the caller borrows
//! during the call.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::c_long;

const BPF_MAP_CREATE: c_long = 0;
const BPF_MAP_LOOKUP_ELEM: c_long = 1;
const BPF_MAP_UPDATE_ELEM: c_long = 2;
const BPF_MAP_DELETE_ELEM: c_long = 3;
const BPF_PROG_LOAD: c_long = 5;
const BPF_RAW_TRACEPOINT_OPEN: c_long = 17;
/// `_IOW('$', 8, __u32)`.
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
/// `_IO('$', 0)`.
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_FLAG_FD_CLOEXEC: c_long = 8;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`.
const PERF_FORMAT_TIMES: u64 = 3;
/// The bit `inherit`.
const PERF_ATTR_INHERIT: u64 = 1 << 1;
/// Places of `read_format` and of the bits in [`PerfEvent::rest`].
const READ_FORMAT: usize = 1;
const FLAGS: usize = 2;

/// The licence by which the kernel decides which helpers a program may call. The programs use no
/// helper that is reserved for the GPL.
const LICENSE: &[u8] = b"Apache-2.0\0";
/// The buffer for the verifier's message.
const LOG_BYTES: usize = 16 * 1024;

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct Element {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
}

#[repr(C)]
struct RawTracepoint {
    name: u64,
    program: u32,
    _pad: u32,
}

/// The first version of `struct perf_event_attr` (`PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Default)]
struct PerfEvent {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    rest: [u64; 5],
}

fn address<T>(slice: &[T]) -> u64 {
    slice.as_ptr() as u64
}

fn number(fd: &OwnedFd) -> u32 {
    // An open descriptor is never negative.
    u32::try_from(fd.as_raw_fd()).unwrap_or(u32::MAX)
}

fn size_of_u32<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(0)
}

fn bpf<A>(command: c_long, attributes: &A) -> io::Result<c_long> {
    // JUSTIFICATION: no safe library has this call.
    // SAFETY: `attributes` is a `repr(C)` structure of `size` bytes that outlives the call. Every
    // address in it belongs to a slice that the caller borrows during the call; see each below.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of_u32::<A>())
    };
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes ownership of a descriptor that a call has just created.
fn owned(result: c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(result).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    // JUSTIFICATION: the calls return a bare number.
    // SAFETY: `fd` is a new descriptor that nothing else uses or closes.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn map(
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
) -> io::Result<OwnedFd> {
    owned(bpf(BPF_MAP_CREATE, &MapCreate { kind, key_size, value_size, max_entries })?)
}

/// Reads a value. `key` and `value` must have the sizes of the map. [`super::Map`] ensures that.
pub(super) fn lookup(map: &OwnedFd, key: &[u8], value: &mut [u8]) -> io::Result<()> {
    let (key, value) = (address(key), value.as_mut_ptr() as u64);
    let element = Element { map: number(map), _pad: 0, key, value, flags: 0 };
    bpf(BPF_MAP_LOOKUP_ELEM, &element).map(drop)
}

/// Writes a value. The sizes must match as for [`lookup`].
pub(super) fn update(map: &OwnedFd, key: &[u8], value: &[u8]) -> io::Result<()> {
    let (key, value) = (address(key), address(value));
    let element = Element { map: number(map), _pad: 0, key, value, flags: 0 };
    bpf(BPF_MAP_UPDATE_ELEM, &element).map(drop)
}

/// Removes a key. Its size must match as for [`lookup`].
pub(super) fn delete(map: &OwnedFd, key: &[u8]) -> io::Result<()> {
    let key = address(key);
    let element = Element { map: number(map), _pad: 0, key, value: 0, flags: 0 };
    bpf(BPF_MAP_DELETE_ELEM, &element).map(drop)
}

/// Loads a program. If the kernel refuses it, the error has the last line of the verifier.
pub(super) fn load(kind: u32, instructions: &[u64]) -> Result<OwnedFd, (io::Error, String)> {
    let mut log = vec![0_u8; LOG_BYTES];
    let attempt = |log_level: u32, log: &mut [u8]| {
        let attributes = ProgLoad {
            kind,
            instruction_count: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
            instructions: address(instructions),
            license: address(LICENSE),
            log_level,
            log_size: if log_level == 0 { 0 } else { u32::try_from(log.len()).unwrap_or(0) },
            log: if log_level == 0 { 0 } else { log.as_mut_ptr() as u64 },
        };
        bpf(BPF_PROG_LOAD, &attributes).and_then(owned)
    };
    let error = match attempt(0, &mut log) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    // The second attempt fetches the verifier's message.
    if attempt(1, &mut log).is_ok() {
        return Err((error, String::new()));
    }
    let text = String::from_utf8_lossy(&log);
    let lines = text.trim_end_matches('\0').lines().filter(|line| !line.trim().is_empty());
    let last: Vec<&str> =
        lines.rev().filter(|line| !line.starts_with("processed")).take(1).collect();
    Err((error, last.join(" ")))
}

/// Runs a program at a raw tracepoint for as long as the descriptor is open.
pub(super) fn raw_tracepoint(name: &str, program: &OwnedFd) -> io::Result<OwnedFd> {
    let name: Vec<u8> = name.bytes().chain([0]).collect();
    let attributes = RawTracepoint { name: address(&name), program: number(program), _pad: 0 };
    owned(bpf(BPF_RAW_TRACEPOINT_OPEN, &attributes)?)
}

/// Counts an event of a thread on any CPU, and of the threads that it starts from now on.
pub(super) fn count_event((kind, config): (u32, u64), thread: u32) -> io::Result<OwnedFd> {
    let mut attributes =
        PerfEvent { kind, size: size_of_u32::<PerfEvent>(), config, ..PerfEvent::default() };
    attributes.rest[READ_FORMAT] = PERF_FORMAT_TIMES;
    attributes.rest[FLAGS] = PERF_ATTR_INHERIT;
    let thread = libc::pid_t::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (any_cpu, group): (c_long, c_long) = (-1, -1);
    // JUSTIFICATION: no safe library has this call.
    // SAFETY: `attributes` has the layout of the first version and contains its own size.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            any_cpu,
            group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if event < 0 { Err(io::Error::last_os_error()) } else { owned(event) }
}

/// Runs a program at the tracepoint with this number, on all CPUs, for as long as the descriptor is
/// open. (The event counts on one CPU, but the kernel runs the programs of a tracepoint on all.)
pub(super) fn tracepoint(id: u64, program: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes = PerfEvent {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of_u32::<PerfEvent>(),
        config: id,
        sample_period: 1,
        ..PerfEvent::default()
    };
    let (every_process, cpu, group): (libc::pid_t, c_long, c_long) = (-1, 0, -1);
    // JUSTIFICATION: no safe library has this call with the requests that follow.
    // SAFETY: `attributes` has the layout of the first version and contains its own size.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            every_process,
            cpu,
            group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if event < 0 {
        return Err(io::Error::last_os_error());
    }
    let event = owned(event)?;
    for (request, argument) in
        [(PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()), (PERF_EVENT_IOC_ENABLE, 0)]
    {
        // JUSTIFICATION: as above.
        // SAFETY: both requests take a number and no address.
        if unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(event)
}
