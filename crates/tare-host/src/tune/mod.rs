//! Tuning a host: applying a plan, verifying it, putting it back.
//!
//! **Invariant:** nothing is written before its old value is in the journal, synced.

mod hand;
pub mod idle;

pub use hand::{Failure, Hand, LiveHost, SnapshotHost, Trouble, TroubleClass};
