//! A system on several hosts, with one instance on each.
//!
//! Each host runs an agent (`agent`), the same program, which makes the environment of its instance
//! and reads its accounts and probes. `Cluster` sends orders to all agents at once, as lines of
//! JSON over pipes of ssh or of the API of a cluster, and uses the instances as one environment and
//! the probes as one probe.
//!
//! An agent that hears nothing for a while, or whose pipe closes, removes what it made and ends.
#![forbid(unsafe_code)]

pub mod agent;
mod cluster;
mod environment;
mod error;
mod link;
mod probe;
pub mod protocol;
mod shared;

pub use cluster::{Cluster, ClusterOptions, ReachedHost};
pub use error::{ClusterError, OpenError};
pub use protocol::Kubeconfig;
pub use shared::HostFacts;
