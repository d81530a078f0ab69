//! Adds known costs, so that an instrument can be checked against a truth.
//!
//! Method: a shard spins for the time that its operations owe, by the clock that needs no system
//! call. It spins in iterations of its loop that find no work, in pieces of 1 µs, so that answers
//! are not delayed or batched differently: a server that is slower finds more requests waiting and
//! saves system calls, or lets its client fall asleep and pays for waking it, and then the total
//! change is not the added cost. A server that is never idle pays in large pieces before it
//! answers. The filter is a program for seccomp that computes without effect and then allows
//! everything.
//!
//! Limits: each payment costs one reading of the clock more than it counts. If a payment was
//! preempted, only the time that it wanted counts as spent.

use seccompiler::{BpfProgram, sock_filter};

use crate::node::clock::Clock;

/// The costs that a server adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inject {
    /// CPU time per operation, ns.
    pub busy_ns: Option<u64>,
    /// Instructions that a system call filter executes at every system call.
    pub filter: Option<u16>,
}

/// Time that one idle iteration may spin, in ns; a request that comes meanwhile waits for it.
const PIECE_NS: u64 = 1_000;
/// A server that owes this much, in ns, is never idle (or never polls), and pays in iterations that
/// had work.
const DEBT_NS_MAX: u64 = 50_000;
/// A payment that took this much longer than it wanted was preempted, in ns.
const PREEMPTED_NS: u64 = 20_000;

/// The debt of one shard.
#[derive(Debug)]
pub(crate) struct Busy {
    per_operation_ns: u64,
    clock: Clock,
    /// Number of operations that have been charged.
    operations: u64,
    /// The debt; below 0 it is paid in advance.
    owed_ns: i64,
}

impl Busy {
    pub(crate) fn new(per_operation_ns: u64, clock: Clock) -> Self {
        Self { per_operation_ns, clock, operations: 0, owed_ns: 0 }
    }

    /// Charges the new operations among those since the start, and spins as long as an iteration
    /// may: one that had work, or an `idle` one. Returns the time it spun, in ns.
    pub(crate) fn pay(&mut self, operations: u64, idle: bool) -> u64 {
        let new = operations - self.operations;
        self.operations = operations;
        let charge = new.saturating_mul(self.per_operation_ns);
        self.owed_ns = self.owed_ns.saturating_add_unsigned(charge);
        let owed = u64::try_from(self.owed_ns).unwrap_or(0);
        match (idle, owed) {
            (_, 0) => 0,
            (true, _) => self.burn(owed.min(PIECE_NS)),
            (false, DEBT_NS_MAX..) => self.burn(owed),
            (false, _) => 0,
        }
    }

    fn burn(&mut self, wanted: u64) -> u64 {
        let start = self.clock.now_ns();
        loop {
            let spent = self.clock.now_ns() - start;
            if spent >= wanted {
                // A preempted thread does not know how much of that time it ran.
                let burnt = if spent - wanted < PREEMPTED_NS { spent } else { wanted };
                self.owed_ns = self.owed_ns.saturating_sub_unsigned(burnt);
                return burnt;
            }
            std::hint::spin_loop();
        }
    }
}

/// The error of an installation.
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
/// the threads that it starts later.
pub(crate) fn install_filter(instructions: u16) -> Result<(), FilterError> {
    let failed =
        |error: seccompiler::Error| FilterError { instructions, reason: error.to_string() };
    seccompiler::apply_filter(&program(instructions)).map_err(failed)
}

/// A program of `instructions` instructions: additions to the accumulator, and a return that allows
/// the call.
///
/// It uses additions, because since Linux 5.11 the kernel tries a filter once per system call
/// number and skips it where the answer depends on the number alone. The kernel can follow loads,
/// jumps, returns and the bitwise and, but no addition (`seccomp_is_const_allow` in
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
    fn idle_iterations_pay_in_pieces() {
        let mut busy = Busy::new(2_000, Clock::new());
        assert_eq!(busy.pay(10, false), 0, "20 µs wait for an idle iteration");
        let burnt: u64 = (0..20).map(|_| busy.pay(10, true)).sum();
        assert!(busy.owed_ns <= 0 && burnt >= 20_000, "{burnt} ns; {busy:?}");
        assert_eq!(busy.pay(10, true), 0, "nothing is owed any more");
    }

    #[test]
    fn busy_server_pays_in_iterations_with_work() {
        let mut busy = Busy::new(2_000, Clock::new());
        assert_eq!(busy.pay(24, false), 0);
        assert!(busy.pay(25, false) >= 50_000 && busy.owed_ns <= 0, "{busy:?}");
    }

    #[test]
    fn filter_has_the_requested_length_and_allows() {
        for length in [1, 2, 200, 4095] {
            let program = program(length);
            assert_eq!(program.len(), usize::from(length));
            assert_eq!(program.last().map(|last| (last.code, last.k)), Some((6, 0x7fff_0000)));
        }
    }

    #[test]
    fn thread_with_filter_still_works() {
        let thread = std::thread::Builder::new().spawn(|| {
            install_filter(200).unwrap();
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = thread.unwrap().join().unwrap();
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).unwrap();
        assert_eq!(mode.trim(), "2", "2 is a filter");
    }
}
