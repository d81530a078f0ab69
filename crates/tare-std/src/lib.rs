//! Types that all of Tare uses: units, CPU sets, seeded random numbers, the mount table, metrics as
//! text, errors in one line, locks of files, the pipes to agents.
#![forbid(unsafe_code)]

pub mod cpu_shares;
pub mod cpus;
mod error;
pub mod file_lock;
pub mod host_address;
pub mod line_pipes;
pub mod loader_address;
pub mod mountinfo;
pub mod net_device;
pub mod prometheus;
pub mod rng;
pub mod units;

pub use error::error_line;
