//! The cgroup layer: whether the system is accounted and limited in a cgroup of its own.

use super::Layer;

pub const LAYER: Layer = Layer {
    name: "cgroup",
    help: "whether the system has a cgroup of its own in every hierarchy",
    values: &[
        ("own", "a cgroup /tare-RUN/eN, as every container has"),
        ("none", "the cgroups that Tare itself is in, as a process that is started by hand"),
    ],
    needs: "cgroup v1, hybrid or v2, writable",
    cleanup: "its processes are killed and its directories removed",
    read_back: "/proc/PID/cgroup",
};

/// A value of the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupLayer {
    Own,
    None,
}

impl CgroupLayer {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "own" => Some(Self::Own),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}
