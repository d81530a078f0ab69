//! The runtime layer: the program or engine that runs the system. `tare-env` implements the
//! runtimes and defines their names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Name of a runtime. An argument follows after a colon if it takes one: `process`, `oci:runc`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Runtime(String);

impl Runtime {
    /// The runtime without isolation: a plain process of the host.
    pub const PROCESS: &'static str = "process";
    /// The runtime of a system that runs already (`attach` of an environment).
    pub const ATTACHED: &'static str = "attached";

    /// Returns the whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name before the colon.
    pub fn kind(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }

    /// Returns the text after the colon.
    pub fn argument(&self) -> Option<&str> {
        self.0.split_once(':').map(|(_, argument)| argument)
    }

    /// Returns whether an engine creates the containers.
    pub fn is_engine(&self) -> bool {
        matches!(self.kind(), "docker" | "podman")
    }

    /// Returns whether the system is a process of the host's kernel, without a sandbox or a guest
    /// between them.
    pub fn is_on_host_kernel(&self) -> bool {
        let program = self.argument().and_then(|text| text.rsplit('/').next()).unwrap_or("");
        let apart = program.contains("runsc") || program.contains("kata");
        matches!(self.kind(), "process" | "oci" | "containerd" | "docker" | "podman") && !apart
    }

    /// Returns whether the system is a plain process of the host.
    pub fn is_process(&self) -> bool {
        self.0 == Self::PROCESS
    }
}

impl<T: Into<String>> From<T> for Runtime {
    fn from(name: T) -> Self {
        Self(name.into())
    }
}

impl PartialEq<str> for Runtime {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Runtime {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
