//! Stacks: which code the CPU time goes to.
//!
//! Method: `perf record` ([`Perf`]) interrupts the threads of the system, of the client and of what
//! the layer adds about a thousand times per second of their CPU time and notes the stack, in the
//! kernel and in the program. `perf script` prints the stacks with names while the processes still
//! exist, so that files inside containers are found through their own mounts. [`script`] folds
//! them, and [`subsystem`] says for each what it is counted for.
//!
//! Work that the kernel does for a packet happens mostly in the context of the thread that sends
//! it, so that bridges and filters show in the stacks of client and system. What is done in
//! threads of the kernel (`ksoftirqd`) or on an idle CPU is nobody's, and is not in these figures,
//! as it is not in the CPU accounts that they divide.

mod perf;
pub mod script;
pub mod subsystem;
mod user;
pub mod waits;

use tare_lab::stacks::KERNEL_SUFFIX;

pub use perf::{Perf, StacksError};
pub use user::UserFrames;

/// Frames, the leaf first, as one line from the root to the leaf.
fn folded(frames: &[script::Frame]) -> String {
    let name = |frame: &script::Frame| {
        let suffix = if frame.kernel { KERNEL_SUFFIX } else { "" };
        format!("{}{suffix}", frame.name)
    };
    frames.iter().rev().map(name).collect::<Vec<String>>().join(";")
}
