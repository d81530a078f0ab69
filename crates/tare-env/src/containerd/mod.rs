//! The client of the API of containerd: containers, tasks and namespaces, over gRPC on a unix
//! socket. The runtime (`crate::runtime::containerd`) creates with it what the journal
//! (`crate::undo`) removes.

mod client;
mod grpc;
pub(crate) mod messages;
pub(crate) mod shim;

pub use client::ContainerdError;
pub(crate) use client::{Client, NewContainer};
pub use grpc::CallError;
