//! What the rest of Tare stands on: units, CPU sets, error chains, seeded random numbers.
#![forbid(unsafe_code)]

pub mod cpus;
pub mod errors;
pub mod rng;
pub mod units;
