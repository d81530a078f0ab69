//! The two clocks of the load generator: one to time operations, one for its own CPU time.

use rustix::time::{ClockId, clock_gettime};

/// Now on CLOCK_MONOTONIC, in ns. Answered by the vDSO, without a system call.
#[inline]
pub(crate) fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// CPU time that the calling thread has used, in ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both clocks count up from a start in the past, so neither field is ever negative.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
