//! A study small enough for a test: a native baseline, containers on a bridge, few short slices.

use std::fs;
use std::path::{Path, PathBuf};

/// Writes the study and returns its path. `rounds` and `schedule` are as in a study.
///
/// # Panics
/// If the file cannot be written.
pub fn write(directory: &Path, schedule: &str, rounds: u32) -> PathBuf {
    let text = format!(
        r#"name = "tiny"
title = "Does everything work?"
baseline = "native"

[system]
name = "tare-db"
durability = "periodic"

[schedule]
kind = "{schedule}"
window = "100ms"
lead_in = "30ms"
rounds = {rounds}
rounds_min = {rounds}
budget = "10m"

[[environment]]
name = "native"
runtime = "process"
network = "host"
cpu = "pinned"
security = "none"
cgroup = "none"

[[environment]]
name = "runc bridge"
runtime = "oci:runc"
network = "bridge"
cpu = "pinned"
security = "default"
cgroup = "own"

[[environment]]
name = "runc proxy"
extends = "runc bridge"
network = "bridge+proxy"

# Left out where no engine answers.
[[environment]]
name = "docker bridge"
extends = "runc bridge"
runtime = "docker"
optional = true

[[workload]]
name = "write"
rows = 2_000
columns = 5
column_bytes = 64
keys = "gaussian"
latency_share = 0.3
"#
    );
    let path = directory.join("tiny.toml");
    fs::write(&path, text).expect("the study can be written");
    path
}
