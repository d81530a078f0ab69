//! Types that all of Tare uses: units, CPU sets, error chains, seeded random numbers.
#![forbid(unsafe_code)]

pub mod cpus;
pub mod errors;
pub mod rng;
pub mod units;
