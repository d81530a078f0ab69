//! A container inside the guest: one of the host's runtimes, copied into the initramfs with its
//! libraries, runs the system from a bundle. Kata Containers does the same, but here each part can
//! be switched.
//!
//! The container is like one of `oci:*`: namespaces, capabilities, seccomp profile, a read-only
//! root, and its own cgroup in the guest. CPUs, memory and network are the guest's.

use std::path::{Path, PathBuf};

use tare_host::program::Program;
use tare_lab::PartError;

use super::initramfs::{Bundle, PROGRAM_NAME};
use crate::guest::protocol::{CONTAINER, DATA};
use crate::layer::{self, Layers};
use crate::run_context::RunContext;
use crate::runtime::bundle;
use tare_lab::layer::{Cpu, Limits, Network};

#[derive(Debug)]
pub(super) struct Container {
    pub(super) runtime: Program,
    pub(super) bundle: Bundle,
}

/// What runs in the container, and on which kernel.
#[derive(Debug)]
pub(super) struct ContainerContents<'a> {
    pub(super) arguments: Vec<String>,
    /// Files of the host that the system needs.
    pub(super) files: &'a [PathBuf],
    /// Release of the guest's kernel.
    pub(super) release: &'a str,
}

impl Container {
    /// Returns the runtime and the bundle of the container.
    ///
    /// # Errors
    /// Fails if the runtime is not installed, or if the security layer has no profile.
    pub(super) fn new(
        runtime: &str,
        context: &RunContext,
        layers: &Layers,
        inside: ContainerContents<'_>,
    ) -> Result<Self, PartError> {
        let runtime = Program::find(runtime, &[], &[])?;
        let program = PathBuf::from(format!("/{PROGRAM_NAME}"));
        let contents = bundle::Contents {
            id: CONTAINER,
            run: context.run(),
            program: &program,
            data: Some(Path::new(DATA)),
            device: None,
            arguments: inside.arguments,
            files: inside.files,
            path: "/",
            read_only: true,
            cgroup: CONTAINER,
            network: None,
            cpus: context.cpus(),
            // The monitor is bound, and the guest has one node.
            nodes: None,
            kernel: bundle::numbers(inside.release),
            profile: None,
        };
        // The container has all CPUs, memory and network of the guest.
        let layers = Layers {
            cpu: Cpu::Shared,
            network: Network::Host,
            cgroup: layer::Cgroup::Own,
            limits: Limits::default(),
            confinement: tare_lab::layer::Confinement::default(),
            ..layers.clone()
        };
        let config = bundle::text(&contents, &layers)?;
        Ok(Self { runtime, bundle: Bundle { config, files: inside.files.to_vec() } })
    }
}
