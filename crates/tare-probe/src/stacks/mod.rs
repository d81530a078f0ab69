//! Stacks show which code uses the CPU time.
//!
//! Method: `perf record` ([`Perf`]) interrupts the threads of the system, the client and the layer
//! about a thousand times per second of their CPU time, and records the stack in the kernel and in
//! the program. `perf script` prints the stacks with names while the processes still exist, so that
//! it finds files inside containers through their mounts. [`script`] folds the stacks, and
//! [`subsystem`] assigns each to one subsystem.
//!
//! The kernel does most of the work for a packet in the context of the thread that sends it, so
//! that bridges and filters show in the stacks of client and system. Work in kernel threads
//! (`ksoftirqd`) or on an idle CPU belongs to no process. It is missing here, and also in the CPU
//! times that the stacks divide.

mod perf;
pub mod rule;
pub mod script;
pub mod subsystem;
mod user;
pub mod waits;

use tare_lab::stacks::KERNEL_SUFFIX;

pub use perf::{Perf, StacksError};
pub use user::UserFrames;

/// Joins frames, which start with the leaf, to one line from the root to the leaf.
fn folded(frames: &[script::Frame]) -> String {
    let name = |frame: &script::Frame| {
        let suffix = if frame.kernel { KERNEL_SUFFIX } else { "" };
        format!("{}{suffix}", frame.name)
    };
    frames.iter().rev().map(name).collect::<Vec<String>>().join(";")
}
