//! The limits layer: how much memory the environment may use.

use super::Layer;

pub const LAYER: Layer = Layer {
    name: "limits.memory",
    help: "how much memory the environment may use, page cache included",
    values: &[("*", "an amount such as 512M or 6G; no limit when it is left out")],
    needs: "the memory cgroup controller and cgroup = \"own\"",
    cleanup: "goes with the cgroup",
    read_back: "memory.max (v2) or memory.limit_in_bytes (v1)",
};
