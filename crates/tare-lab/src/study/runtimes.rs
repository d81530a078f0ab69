//! The second control: the baseline's layers under every other runtime of a study.
//!
//! The A/A control runs the baseline twice, so that it cannot see what a runtime changes for every
//! environment under it: the scheduler's group, the session, the limits that an engine sets. This
//! control can. It differs from the baseline in the runtime alone, so that it must cost nothing,
//! and what it seems to cost is part of the noise of every comparison across the two runtimes.
//!
//! Limits: only for runtimes that start the system as a process of the host's kernel. A sandbox or
//! a guest is itself the layer whose cost is measured.

use crate::environment::EnvironmentSpec;
use crate::layer::{Cgroup, Runtime};

/// Returns the environment with the layers of the baseline under another runtime. An engine puts
/// every container into a cgroup, so that this layer may differ there. `None` for the baseline's
/// own runtime, and if no environment is like that.
pub fn runtime_control<'e>(
    mut environments: impl Iterator<Item = &'e EnvironmentSpec>,
    baseline: &EnvironmentSpec,
    runtime: &Runtime,
) -> Option<&'e EnvironmentSpec> {
    let wanted = under(baseline, runtime)?;
    environments.find(|one| {
        let EnvironmentSpec { name, optional, .. } = (*one).clone();
        EnvironmentSpec { name, optional, ..wanted.clone() } == **one
    })
}

/// Returns the controls that a study lacks, one for each runtime, in the order of the study.
pub(super) fn missing(
    environments: &[EnvironmentSpec],
    baseline: &EnvironmentSpec,
) -> Vec<EnvironmentSpec> {
    let mut missing: Vec<EnvironmentSpec> = Vec::new();
    for one in environments {
        let known = environments.iter().chain(&missing);
        let Some(control) = under(baseline, &one.runtime) else { continue };
        let taken = known.clone().any(|known| known.name == control.name);
        if !taken && runtime_control(known, baseline, &one.runtime).is_none() {
            missing.push(control);
        }
    }
    missing
}

/// Returns the baseline under another runtime of the host's kernel.
fn under(baseline: &EnvironmentSpec, runtime: &Runtime) -> Option<EnvironmentSpec> {
    let comparable = runtime.is_on_host_kernel() && baseline.runtime.is_on_host_kernel();
    if !comparable || *runtime == baseline.runtime {
        return None;
    }
    let cgroup = if runtime.is_engine() { Cgroup::Own } else { baseline.cgroup };
    let name = format!("{} in {runtime}", baseline.name);
    let runtime = runtime.clone();
    Some(EnvironmentSpec { name, runtime, cgroup, optional: true, ..baseline.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    fn spec(name: &str, runtime: &str, cgroup: Cgroup) -> EnvironmentSpec {
        EnvironmentSpec { cgroup, ..fake::spec(name, runtime) }
    }

    fn missing_of(environments: &[EnvironmentSpec]) -> Vec<(String, Cgroup)> {
        let missing = missing(environments, &environments[0]).into_iter();
        missing.map(|one| (one.name, one.cgroup)).collect()
    }

    #[test]
    fn each_other_runtime_gets_the_baselines_layers() {
        let native = spec("native", "process", Cgroup::None);
        let runc = spec("box", "oci:runc", Cgroup::Own);
        let docker = spec("docker", "docker", Cgroup::Own);
        let engine = EnvironmentSpec {
            cpu: crate::layer::Cpu::Quota(crate::layer::Quota::of(1.0)),
            ..docker
        };
        let wanted = [
            ("native in oci:runc".to_string(), Cgroup::None),
            ("native in docker".to_string(), Cgroup::Own),
        ];
        assert_eq!(missing_of(&[native.clone(), runc.clone(), engine]), wanted);
        // An environment of the study serves if it has these layers.
        let same = spec("+ no cgroup", "oci:runc", Cgroup::None);
        assert!(missing_of(&[native.clone(), runc, same.clone()]).is_empty());
        let all = [native.clone(), same];
        let runtime = Runtime::from("oci:runc");
        let found = runtime_control(all.iter(), &native, &runtime).unwrap();
        assert_eq!(found.name, "+ no cgroup");
    }

    #[test]
    fn sandboxes_and_guests_have_no_such_control() {
        let native = spec("native", "process", Cgroup::None);
        let others = ["oci:runsc", "oci:kata-runtime", "docker:runsc", "vm:qemu", "fake"];
        for other in others {
            let one = spec("other", other, Cgroup::Own);
            assert!(missing_of(&[native.clone(), one]).is_empty(), "{other}");
        }
        assert!(missing_of(&[native]).is_empty());
    }
}
