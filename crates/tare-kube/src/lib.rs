//! The client of the Kubernetes API: what Tare needs of nodes, namespaces, pods, services
//! and claims. No other crate knows the API.
//!
//! Method: `kube` finds the user's access as kubectl does (`KUBECONFIG`, `~/.kube/config`, the
//! account of a pod; `Access`). Every call blocks and has a time limit. A wait asks again in short
//! steps instead of watching, because it is short, and ends in the first reason for which it can
//! never succeed.
//!
//! Limits: fields of API versions that a cluster does not have are ignored there, so what a caller
//! asks for has to be read back on the node.
#![forbid(unsafe_code)]

mod access;
mod account;
mod claim;
mod cluster;
mod error;
mod events;
mod found_pod;
mod loader_pod;
mod node;
mod node_daemon;
mod node_pod;
mod nodes;
mod pod;
mod service;
mod stays;
mod tare_image;

pub use access::Access;
pub use account::AccountUse;
pub use claim::{NewClaim, Volume};
pub use cluster::Cluster;
pub use error::KubeError;
pub use found_pod::{FoundPod, MountedVolume, OtherContainer};
pub use node::Node;
pub use node_daemon::{TuningDaemon, TuningProgram};
pub use node_pod::{KUBELETS, NodePod, NodeProcess, Streams};
pub use pod::{Amounts, Cpus, NewPod, Overhead, PodMount, PodSource, Profile, RunningPod, Sidecar};
pub use service::{NewService, ServiceAddress};
pub use tare_image::{PullPolicy, TareImage};
