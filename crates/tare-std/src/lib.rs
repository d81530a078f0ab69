//! Types that all of Tare uses: units, CPU sets, the mount table, error chains, seeded random numbers.
#![forbid(unsafe_code)]

pub mod cpus;
mod error;
pub mod mountinfo;
pub mod rng;
pub mod units;

pub use error::error_line;
