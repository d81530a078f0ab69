//! Real-time priority for the calling thread.

use std::io;

/// Gives the calling thread the lowest real-time priority. Its children do not inherit it.
pub(super) fn make_real_time() -> io::Result<()> {
    let mut parameters = std::mem::MaybeUninit::<libc::sched_param>::zeroed();
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // JUSTIFICATION: neither std nor rustix has sched_setscheduler(2).
    // SAFETY: all zeros are a valid sched_param, which is a struct of integers. The call reads it
    // and changes the scheduling of the calling thread (0) alone.
    let status = unsafe {
        (*parameters.as_mut_ptr()).sched_priority = 1;
        libc::sched_setscheduler(0, policy, parameters.as_ptr())
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
