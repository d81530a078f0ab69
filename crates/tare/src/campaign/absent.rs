//! The environments of a study that this host cannot run, found without trying them.

use tare_env::layer::check_cpus;
use tare_env::{multi_instance, runtime, storage};
use tare_host::error_line;
use tare_lab::PartError;
use tare_lab::environment::{CpuPlan, EnvironmentSpec};
use tare_lab::study::Study;

use super::{CampaignConfig, fit};

/// Returns the environments that this host cannot run, with the reasons.
pub(crate) fn with_reasons(config: &CampaignConfig) -> anyhow::Result<Vec<(String, String)>> {
    let study = &config.study;
    // Other hosts say at the start of the study what they can run.
    if config.is_fake()? || !study.hosts.is_empty() {
        return Ok(Vec::new());
    }
    let of_system = fit::instances_of_system(study);
    let lack = |spec: &EnvironmentSpec| {
        let checked = runtime::check(spec)
            .and_then(|()| {
                multi_instance::check(spec, fit::instances_in(spec, of_system))
                    .map_err(PartError::from)
            })
            .and_then(|()| storage::check_allowed(spec, &config.destroy).map_err(PartError::from));
        checked.err().map(|error| (spec.name.clone(), error_line(&*error)))
    };
    Ok(study.environments.iter().filter_map(lack).collect())
}

/// Returns the environments that ask for more CPUs than a plan has for the system, with reasons.
pub(crate) fn without_cpus(study: &Study, plan: &CpuPlan) -> Vec<(String, String)> {
    let lack = |spec: &EnvironmentSpec| {
        let checked = check_cpus(spec, plan);
        checked.err().map(|error| (spec.name.clone(), error_line(&error)))
    };
    match study.hosts.is_empty() {
        true => study.environments.iter().filter_map(lack).collect(),
        false => Vec::new(),
    }
}

/// Returns the names of the environments that this host cannot run.
pub(crate) fn names(config: &CampaignConfig) -> anyhow::Result<Vec<String>> {
    Ok(with_reasons(config)?.into_iter().map(|(name, _)| name).collect())
}
