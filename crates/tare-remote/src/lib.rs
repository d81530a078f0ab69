//! Other hosts, through the user's ssh or the API of a Kubernetes cluster: a connection
//! (`RemoteHost`), commands on it, and Tare's own program there.
//!
//! Nodes of a cluster are reached through a pod (`tare_kube::NodePod`); in a pod whose image has
//! Tare's program, that program finds the way (`enter_node`, `place_program`). For all others the
//! user's OpenSSH makes the connection (configuration, agent, jump hosts), once for each host;
//! everything else goes through that one connection. Nothing asks for a password. A name never
//! reaches a shell unquoted.
#![forbid(unsafe_code)]

mod error;
mod host;
mod install;
mod node_entry;
mod placed;
mod process;
mod program_copy;

pub use error::RemoteError;
pub use host::{HostBasics, RemoteHost};
pub use install::InstalledProgram;
pub use node_entry::{NodeEntryError, enter_node};
pub use placed::{OWN_PROGRAM, PlaceError, PlacedProgram, place_program};
pub use process::RemoteProcess;
