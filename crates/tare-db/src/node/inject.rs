//! Known costs that are added on purpose, so that an instrument can be tried on a truth.
//!
//! Method: a shard spins for the time that its operations owe, by the clock that needs no system
//! call. It does so in the turns of its loop that find no work, in pieces of 1 µs, so that its
//! answers are neither late nor fewer at a time: a server that is really slower finds more requests
//! waiting and saves system calls on them, or lets its client fall asleep and pays for waking it, and
//! then the sum of all that it does is not what was added. A server that is never idle pays in large
//! pieces before it answers. The filter is a program for seccomp that computes for nothing and then
//! allows everything.
//!
//! Limits: a payment costs one reading of the clock more than it counts. Of a payment that was
//! preempted only what was wanted is taken for burnt.

use seccompiler::{BpfProgram, sock_filter};

use crate::node::clock::Clock;

/// What is added to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inject {
    /// CPU time per operation, ns.
    pub busy_ns: Option<u64>,
    /// Instructions that a system call filter executes at every system call.
    pub filter: Option<u16>,
}

/// What is burnt in one idle turn at most, ns: a request that comes meanwhile waits for it.
const PIECE_NS: u64 = 1_000;
/// A server that owes so much, ns, is never idle (or never polls), and pays in a turn that had work.
const DEBT_NS_MAX: u64 = 50_000;
/// A payment that took so much longer than was wanted was preempted in the middle, ns.
const PREEMPTED_NS: u64 = 20_000;

/// The debt of one shard.
#[derive(Debug)]
pub(crate) struct Busy {
    per_operation_ns: u64,
    clock: Clock,
    /// Operations that have been charged.
    operations: u64,
    /// Below 0: burnt in advance.
    owed_ns: i64,
}

impl Busy {
    pub(crate) fn new(per_operation_ns: u64, clock: Clock) -> Self {
        Self { per_operation_ns, clock, operations: 0, owed_ns: 0 }
    }

    /// Charges the operations since the start that are new, and burns what may be burnt in a turn of
    /// the loop that had work, or in an `idle` one. Returns what it burnt, in ns.
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
                // Who was preempted does not know how much of that time was his own.
                let burnt = if spent - wanted < PREEMPTED_NS { spent } else { wanted };
                self.owed_ns = self.owed_ns.saturating_sub_unsigned(burnt);
                return burnt;
            }
            std::hint::spin_loop();
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
    fn idle_turns_pay_what_is_owed_in_pieces() {
        let mut busy = Busy::new(2_000, Clock::new());
        assert_eq!(busy.pay(10, false), 0, "20 µs wait for an idle turn");
        let burnt: u64 = (0..20).map(|_| busy.pay(10, true)).sum();
        assert!(busy.owed_ns <= 0 && burnt >= 20_000, "{burnt} ns; {busy:?}");
        assert_eq!(busy.pay(10, true), 0, "nothing is owed any more");
    }

    #[test]
    fn who_is_never_idle_pays_at_work() {
        let mut busy = Busy::new(2_000, Clock::new());
        assert_eq!(busy.pay(24, false), 0);
        assert!(busy.pay(25, false) >= 50_000 && busy.owed_ns <= 0, "{busy:?}");
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
