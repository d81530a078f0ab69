//! The server as a whole: its configuration, start and stop, data directory, division of CPUs and
//! memory, metrics and report.

pub(crate) mod announce;
pub(crate) mod clock;
pub mod config;
pub(crate) mod directory;
pub mod environment;
pub(crate) mod error;
pub mod inject;
pub mod inspect;
pub(crate) mod memory;
pub mod metrics;
pub(crate) mod placement;
pub mod report;
pub(crate) mod server;
pub mod snapshot;
