//! The read-back of the inject layer.

use tare_host::process;
use tare_lab::environment::{CpuPlan, LayerState};
use tare_lab::layer::{Inject, Layer, Quota};

use super::{System, read_quota, state};
use crate::layer::inject;

/// Returns what a running system has of the injected costs, or `None` if the environment injects
/// nothing: a filter or a quota is then reported by the layer that sets it.
pub(super) fn read(wanted: Inject, system: &System, plan: &CpuPlan) -> Option<LayerState> {
    if wanted.is_nothing() {
        return None;
    }
    let mut found = Vec::new();
    let mut in_force = true;
    let expected = inject::arguments(wanted);
    if !expected.is_empty() {
        let line = process::command_line(system.pid);
        in_force &= expected.chunks(2).all(|want| line.windows(2).any(|words| words == want));
        found.push(shown(&line));
    }
    if wanted.filter.is_some() {
        let mode = system.read_seccomp();
        in_force &= mode == Some(2);
        found.push(mode.map_or("Seccomp unreadable".into(), |mode| format!("Seccomp: {mode}")));
    }
    if let Some(cpus) = wanted.quota_cpus(plan) {
        let quota = system.group.as_ref().map(|group| read_quota(group, Quota::of(cpus)));
        let (text, matches) = quota.unwrap_or_else(|| ("no cgroup of its own".into(), false));
        in_force &= matches;
        found.push(format!("quota: {text}"));
    }
    if let Some(delay) = wanted.delay {
        let line = system.proxy.map(process::command_line).unwrap_or_default();
        in_force &= line.windows(2).any(|words| words == inject::relay_delay(delay));
        found.push(format!("relay: {}", shown(&line)));
    }
    Some(state(Layer::Inject.name(), wanted, found.join("; "), in_force))
}

/// Returns the part of a command line that injects.
fn shown(line: &[String]) -> String {
    let from = line.iter().position(|word| word.starts_with("--inject") || word == "--delay");
    from.map_or_else(|| "no such argument".to_string(), |from| line[from..].join(" "))
}
