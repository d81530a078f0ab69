//! What all shards of a server share: its configuration, data directory, division of CPUs and
//! memory, metrics and report.

pub(crate) mod clock;
pub mod config;
pub(crate) mod directory;
pub mod environment;
pub mod inject;
pub(crate) mod memory;
pub mod metrics;
pub(crate) mod placement;
pub mod report;
pub mod snapshot;
