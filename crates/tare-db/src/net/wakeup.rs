//! The eventfd that wakes a shard's engine.

use std::os::fd::OwnedFd;

/// Makes an eventfd readable.
pub(crate) fn signal(wakeup: &OwnedFd) {
    // It fails only if the counter is full, and then the reader is awake anyway.
    let _ = rustix::io::write(wakeup, &1u64.to_ne_bytes());
}

/// Makes an eventfd unreadable again. Returns whether it was readable.
pub(crate) fn drain(wakeup: &OwnedFd) -> bool {
    // It fails if the counter is zero already.
    rustix::io::read(wakeup, &mut [0u8; 8]).is_ok()
}
