//! Known costs that are added on purpose, so that an instrument can be tried on a truth.
//!
//! Method: after every turn of its loop a shard burns the CPU time that the operations of the turn
//! owe, by the scheduler's own account of its thread, before it sends their answers. What was burnt
//! too much or too little is carried to the next turn, so that the sum is the truth however many
//! operations share a turn. The filter is a program for seccomp that computes for nothing and then
//! allows everything.
//!
//! Limits: a read of the CPU clock is a system call, of which only the part between the kernel's two
//! readings shows in the clock itself; its price is measured at the start and counted as burnt.
//! Nothing here makes a turn of the loop last as long as it would have without: a slower server
//! finds more operations waiting and saves work on them, as it would under any real cost.

use seccompiler::{BpfProgram, sock_filter};

use crate::clock::Clock;

/// What is added to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inject {
    /// CPU time per operation, ns.
    pub busy_ns: Option<u64>,
    /// Instructions that a system call filter executes at every system call.
    pub filter: Option<u16>,
}

/// Debts below so many prices of a clock reading wait for those of the next turns.
const READINGS_PER_PAYMENT: u64 = 4;
/// Readings of the clock by which its price is measured.
const READINGS: u32 = 200;

/// The debt of one shard.
#[derive(Debug)]
pub(crate) struct Busy {
    per_operation_ns: u64,
    clock: Clock,
    /// What a reading of the CPU clock costs, ns.
    reading_ns: u64,
    /// Operations that have been charged.
    operations: u64,
    owed_ns: i128,
}

impl Busy {
    pub(crate) fn new(per_operation_ns: u64, clock: Clock) -> Self {
        let price = |_| {
            let before = clock.thread_cpu_ns();
            clock.thread_cpu_ns() - before
        };
        let reading_ns = (0..READINGS).map(price).min().unwrap_or(0);
        Self { per_operation_ns, clock, reading_ns, operations: 0, owed_ns: 0 }
    }

    /// Burns what is owed after `operations` operations since the start.
    pub(crate) fn pay(&mut self, operations: u64) {
        let new = operations - self.operations;
        self.operations = operations;
        self.owed_ns += i128::from(new) * i128::from(self.per_operation_ns);
        if self.owed_ns <= i128::from(self.reading_ns * READINGS_PER_PAYMENT) {
            return;
        }
        let start = self.clock.thread_cpu_ns();
        loop {
            let spent = i128::from(self.clock.thread_cpu_ns() - start + self.reading_ns);
            let left = self.owed_ns - spent;
            if left <= 0 {
                self.owed_ns = left;
                return;
            }
            // The clock that needs no system call says when to ask the other one again. A thread that
            // is preempted here finds that its CPU time has stood still, and goes on.
            let until = self.clock.now_ns() + u64::try_from(left).unwrap_or(0);
            while self.clock.now_ns() < until {
                std::hint::spin_loop();
            }
        }
    }
}

/// Why the filter could not be installed.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot install a system call filter of {instructions} instructions: {reason}; \
     a kernel with CONFIG_SECCOMP_FILTER takes at most 4096"
)]
pub struct FilterError {
    instructions: u16,
    reason: String,
}

/// Installs a filter that executes so many instructions at every system call of this thread and of
/// those it starts from now on.
pub(crate) fn install_filter(instructions: u16) -> Result<(), FilterError> {
    let failed =
        |error: seccompiler::Error| FilterError { instructions, reason: error.to_string() };
    seccompiler::apply_filter(&program(instructions)).map_err(failed)
}

/// `instructions` instructions: additions to the accumulator, and a return that allows the call.
///
/// Additions, because since Linux 5.11 the kernel tries a filter once per system call number and
/// passes the filter by where the answer depends on the number alone; what it can follow there is
/// loads, jumps, returns and the bitwise and, but no addition (`seccomp_is_const_allow` in
/// kernel/seccomp.c). Codes: linux/bpf_common.h, linux/seccomp.h.
fn program(instructions: u16) -> BpfProgram {
    const ADD_CONSTANT: u16 = 0x04; // BPF_ALU | BPF_ADD | BPF_K
    const RETURN_CONSTANT: u16 = 0x06; // BPF_RET | BPF_K
    const ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
    let instruction = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    let additions = (1..instructions).map(|_| instruction(ADD_CONSTANT, 1));
    additions.chain([instruction(RETURN_CONSTANT, ALLOW)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_burnt_is_what_is_owed() {
        let clock = Clock::new();
        let mut busy = Busy::new(2_000, clock);
        let before = clock.thread_cpu_ns();
        // Turns of 1, 2, 3 ... operations: 5,050 operations owe 10.1 ms.
        let mut operations = 0;
        for turn in 1..=100 {
            operations += turn;
            busy.pay(operations);
        }
        let burnt = clock.thread_cpu_ns() - before;
        assert!(busy.owed_ns <= 0, "nothing is owed any more: {busy:?}");
        // What a payment burns beside its readings is never less than is owed. There is no upper bound:
        // the scheduler books an interrupt on whoever it hits.
        let readings = 100 * busy.reading_ns;
        assert!(burnt + readings >= 10_100_000, "{burnt} ns; {busy:?}");
    }

    #[test]
    fn small_debts_wait_and_are_not_forgotten() {
        let mut busy = Busy { reading_ns: 300, ..Busy::new(10, Clock::new()) };
        busy.pay(100);
        assert_eq!(busy.owed_ns, 1000);
        busy.pay(121);
        assert!(busy.owed_ns <= 0, "{busy:?}");
    }

    #[test]
    fn a_filter_has_the_length_that_is_asked_and_allows() {
        for length in [1, 2, 200, 4095] {
            let program = program(length);
            assert_eq!(program.len(), usize::from(length));
            assert_eq!(program.last().map(|last| (last.code, last.k)), Some((6, 0x7fff_0000)));
        }
    }

    #[test]
    fn a_thread_behind_the_filter_goes_on() {
        let thread = std::thread::Builder::new().spawn(|| {
            install_filter(200).unwrap();
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = thread.unwrap().join().unwrap();
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).unwrap();
        assert_eq!(mode.trim(), "2", "2 is a filter");
    }
}
