//! Sampled stacks of a record: what each subsystem and each function takes per operation in two
//! environments, as tables, JSON and flame graphs.
//!
//! Method (`figures`): a slice's samples divide the CPU time that the accounts measured in it, per
//! operation; rounds are averaged by the mean, so that parts add up to the whole; intervals are
//! Student's t over rounds, for a difference over the paired rounds.

mod figures;
mod flame;
mod table;
#[cfg(test)]
mod tests;

pub use figures::{Figure, NOT_SAMPLED, Profile, Row, Side};
pub(crate) use flame::data as flame_data;
pub use table::{as_json as json, overview, pair};
pub(crate) use table::{change, environments as sampled, method};
