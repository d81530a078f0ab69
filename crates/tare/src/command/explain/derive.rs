//! Derives the study that an explanation weighs: the two compared environments and those between
//! them. Pure.

use anyhow::anyhow;
use tare_env::layer::Layers;
use tare_lab::ablation::Plan;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::fake;
use tare_lab::layer::Cgroup;
use tare_lab::study::{Hint, Study, WorkloadSpec};

/// Returns whether the layers of an environment are compatible, whether or not this host can run
/// them.
pub(super) fn are_compatible(spec: &EnvironmentSpec) -> bool {
    let runtime = spec.runtime.kind();
    if runtime == fake::NAME {
        return true;
    }
    let Ok(layers) = Layers::checked(spec) else { return false };
    // An engine always puts a container into a cgroup.
    let is_engine = matches!(runtime, "docker" | "podman");
    !(is_engine && layers.cgroup == Cgroup::None)
}

/// Returns the two compared environments: the named ones, or else the baseline and the first other
/// environment.
pub(super) fn ends<'s>(
    study: &'s Study,
    from: Option<&str>,
    to: Option<&str>,
) -> anyhow::Result<(&'s EnvironmentSpec, &'s EnvironmentSpec)> {
    let find = |name: &str| {
        let known: Vec<&str> = study.environments.iter().map(|spec| spec.name.as_str()).collect();
        study.environments.iter().find(|spec| spec.name == name).ok_or_else(|| {
            let hint = Hint::new(name, &known);
            anyhow!("the study {} has no environment {name:?}{hint}", study.name)
        })
    };
    let from = find(from.unwrap_or(&study.baseline))?;
    let to = match to {
        Some(name) => find(name)?,
        None => study.environments.iter().find(|spec| spec.name != from.name).ok_or_else(|| {
            anyhow!(
                "the study {} has no environment besides {:?} to explain",
                study.name,
                from.name
            )
        })?,
    };
    Ok((from, to))
}

/// Returns the study of these environments with `plan.from` as the baseline. The shares come from
/// the CPU time at capacity, so there is no phase at a fixed rate.
pub(super) fn derive(study: &Study, plan: &Plan, specs: Vec<EnvironmentSpec>) -> Study {
    let at_capacity = |workload: &WorkloadSpec| WorkloadSpec {
        latency_share: 0.0,
        rate_only: false,
        slo: None,
        reads_from_disk: None,
        rate_per_s: None,
        ..workload.clone()
    };
    // The others have the same closed loop as a workload before them.
    let with_capacity = study.workloads.iter().filter(|workload| !workload.rate_only);
    Study {
        name: format!("{}-explained", study.name),
        title: format!(
            "Where does the cost of \"{}\" against \"{}\" come from?",
            plan.to, plan.from
        ),
        baseline: plan.from.clone(),
        workloads: with_capacity.map(at_capacity).collect(),
        published: Vec::new(),
        environments: specs,
        ..study.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{registry, studies};

    fn quick() -> Study {
        let text = studies::find("quick").unwrap();
        tare_lab::study::parse(text, "quick", &registry::vocabulary()).unwrap()
    }

    fn plan(to: &str) -> (Plan, Vec<EnvironmentSpec>) {
        let study = quick();
        let (from, to) = ends(&study, None, Some(to)).unwrap();
        Plan::new(from, to, &are_compatible, 32, 1).unwrap()
    }

    fn names(plan: &Plan) -> Vec<String> {
        plan.steps.iter().map(tare_lab::ablation::Step::name).collect()
    }

    #[test]
    fn steps_have_the_needs_of_their_layers() {
        let all = ["runtime", "network", "cpu", "security", "cgroup"];
        let (runc, specs) = plan("container default");
        assert_eq!(names(&runc), all);
        assert_eq!(runc.needs, [(0, 3)]);
        assert_eq!((specs.len(), runc.orders.len()), (24, 60));
        let (docker, specs) = plan("docker default");
        assert_eq!(names(&docker), all);
        // cgroup, then runtime, then security.
        assert_eq!(docker.needs, [(0, 3), (4, 0), (4, 3)]);
        assert_eq!((specs.len(), docker.orders.len()), (16, 20));
    }

    #[test]
    fn derived_study_has_its_baseline_and_no_fixed_rate() {
        let (plan, specs) = plan("container default");
        let study = derive(&quick(), &plan, specs);
        assert_eq!((study.name.as_str(), study.baseline.as_str()), ("quick-explained", "native"));
        assert_eq!(study.environments[23].name, "container default");
        assert!(study.environments.iter().all(|spec| !spec.optional && are_compatible(spec)));
        assert_eq!(study.workloads[0].latency_share, 0.0);
    }

    #[test]
    fn ends_default_to_the_baseline_and_the_first_other() {
        let study = quick();
        let (from, to) = ends(&study, None, None).unwrap();
        assert_eq!((from.name.as_str(), to.name.as_str()), ("native", "container default"));
        let error = ends(&study, None, Some("docker defualt")).unwrap_err().to_string();
        assert!(error.contains("docker default"), "{error}");
    }
}
