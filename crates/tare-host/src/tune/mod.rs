//! Tuning a host: applying a plan, verifying it, putting it back.
//!
//! **Invariant:** nothing is written before its old value is in the journal, synced.

mod apply;
mod companions;
mod error;
mod hand;
mod identity;
mod journal;
mod lock;
mod revert;
mod tuning;
pub mod idle;

pub use apply::{Applied, AppliedItem, Outcome};
pub use error::TuneError;
pub use hand::{Failure, Hand, LiveHost, SnapshotHost, Trouble, TroubleClass};
pub use revert::{RevertOutcome, Reverted, RevertedSetting};
pub use tuning::{Purpose, Tuning, apply_plan, clean, folder, revert_all};
