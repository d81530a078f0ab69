//! What the rest of Tare stands on: units, CPU sets, seeded random numbers.
#![forbid(unsafe_code)]

pub mod cpus;
pub mod rng;
pub mod units;
