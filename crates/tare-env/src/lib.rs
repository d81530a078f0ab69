//! Environments: one file per runtime (`runtime`) and one per layer (`layer`). The
//! `EnvironmentFactory` of a run creates them.
//!
//! **Invariant:** everything that an environment creates is journalled first, named `tare-RUN...`,
//! and gone after `stop`, after `EnvironmentFactory::close` and after `clean`.
#![forbid(unsafe_code)]

mod client;
mod containerd;
pub mod doctor;
pub mod factory;
mod groups;
pub mod guest;
pub mod inside;
mod instance_slot;
mod kubernetes;
pub mod layer;
pub mod multi_instance;
pub mod neighbour;
mod outcome_cache;
mod pod_sandbox;
pub mod proxy;
mod reach;
pub mod rootfs;
pub mod run_context;
pub mod runtime;
pub mod storage;
mod system;
pub mod unavailable;
pub mod undo;

pub use factory::{EnvironmentFactory, FactoryError, FactoryOptions, PROGRAMS};
pub use instance_slot::{Peers, StartedPods};
pub use kubernetes::{NODE_KUBECONFIG_VARIABLE, namespace_entry};
pub use reach::ReachOptions;
