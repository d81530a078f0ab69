//! Sampled stacks of a record: the CPU time per operation of each subsystem and function in two
//! environments, as tables, JSON and flame graphs.
//!
//! Method (`figures`): the samples of a slice divide the CPU time that was measured in it, per
//! operation. The figure is the mean over rounds, so that parts add up to the whole; intervals are
//! Student's t over rounds, and over paired rounds for a difference.

mod figures;
mod flame;
mod table;
#[cfg(test)]
mod tests;

pub use figures::{Figure, NOT_SAMPLED, Profile, Row, Side};
pub(crate) use flame::data as flame_data;
pub use table::{as_json as json, overview, pair};
pub(crate) use table::{change, environments as sampled, method};
