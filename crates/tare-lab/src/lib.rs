//! The core of Tare: `study` parses the question, `schedule` orders the slices, `campaign` runs
//! them, `record` stores them, and `judge` and `analysis` draw the conclusions.
//!
//! **Invariant:** this crate contains no code for a container, a database or a host file. It
//! reaches them only through four traits, `Environment`, `System`, `Driver` and `Probe`, which
//! other crates implement.
#![forbid(unsafe_code)]

pub mod ablation;
pub mod access;
pub mod analysis;
pub mod attach;
pub mod background;
pub mod campaign;
pub mod cpus;
pub mod doubt;
pub mod driver;
pub mod environment;
pub mod fake;
pub mod forecast;
pub mod judge;
pub mod layer;
pub mod loader;
mod own_accounts;
pub mod own_view;
pub mod path;
pub mod probe;
pub mod record;
pub mod response_time;
pub mod saturation;
pub mod schedule;
pub mod seconds;
pub mod stacks;
pub mod staircase;
pub mod study;
pub mod system;

/// The error of an implementation of a trait. Its chain of sources is printed as one line: what
/// failed, on what, why, what to do.
pub type PartError = Box<dyn std::error::Error + Send + Sync>;
