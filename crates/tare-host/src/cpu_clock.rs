//! The CPU time of a process by its CPU clock.

use std::io;
use std::time::Duration;

/// Returns the CPU time of a process: of all its threads, also those that have ended
/// (`thread_group_cputime` in kernel/sched/cputime.c). A running thread's part may be one scheduler
/// tick old.
///
/// # Errors
/// When there is no such process.
pub fn of_process(pid: u32) -> io::Result<Duration> {
    let mut clock: libc::clockid_t = 0;
    let pid = pid.cast_signed();
    // JUSTIFICATION: no safe library has the clocks of other processes.
    // SAFETY: the call writes one clock id into `clock`.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec` into `time`.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Ok(Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::{ClockId, clock_gettime};
    use std::thread;

    #[test]
    fn threads_that_ended_count() {
        let before = of_process(std::process::id()).unwrap();
        let used_ms = || clock_gettime(ClockId::ThreadCPUTime).tv_nsec / 1_000_000;
        let busy = thread::spawn(move || while used_ms() < 20 {});
        busy.join().unwrap();
        assert!(of_process(std::process::id()).unwrap() >= before + Duration::from_millis(10));
        // Beyond the most processes that Linux has (PID_MAX_LIMIT).
        assert!(of_process((1 << 22) + 1).is_err());
    }
}
