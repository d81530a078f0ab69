//! Other hosts, through the user's ssh or the API of a Kubernetes cluster: a connection
//! (`RemoteHost`), commands on it, and Tare's own program there.
//!
//! Nodes of a cluster are reached through a pod (`tare_kube::NodePod`). For all others the user's
//! OpenSSH makes the connection (configuration, agent, jump hosts), once for each host; everything
//! else goes through that one connection. Nothing asks for a password. A name never reaches a shell
//! unquoted.
#![forbid(unsafe_code)]

mod error;
mod host;
mod install;
mod process;

pub use error::RemoteError;
pub use host::{HostBasics, RemoteHost};
pub use install::InstalledProgram;
pub use process::RemoteProcess;
