//! What of a study this host cannot run, without trying it.

use anyhow::anyhow;
use tare_env::runtime;
use tare_host::exec;
use tare_lab::environment::{CpuPlan, EnvironmentSpec};
use tare_lab::study::Study;

use super::elsewhere::has_hosts;
use crate::campaign::{CampaignConfig, check_other_hosts, fit, interrupts, neighbours};
use crate::exit::{Exit, ExitError};

/// Returns what limits an environment that runs, or what only its start shows.
pub(super) fn note(study: &Study, spec: &EnvironmentSpec) -> Option<String> {
    if has_hosts(study) {
        return Some("if its hosts can run it".into());
    }
    match spec.runtime.as_str() {
        "vm:uml" => Some("if its kernel boots, which the start of the study tries".into()),
        "vm:qemu" => runtime::vm::emulation_reason()
            .map(|why| format!("on an emulated CPU, whose figures are not a measurement: {why}")),
        _ => None,
    }
}

/// Returns why a study cannot start on this host, and the exit code that it would end with.
pub(super) fn obstacles(
    config: &CampaignConfig,
    absent: &[(String, String)],
    cpus: &CpuPlan,
) -> anyhow::Result<(Vec<String>, Exit)> {
    let mut found = Vec::new();
    let mut exit = Exit::Success;
    let mut add = |text: String, code: Exit| {
        found.push(text);
        exit = if exit == Exit::Success { code } else { exit };
    };
    if let Err(error) = config.check_output() {
        add(format!("{error:#}"), Exit::Input);
    }
    if config.is_fake()? {
        return Ok((found, exit));
    }
    let study = &config.study;
    if let Err(error) = interrupts::check(config, cpus) {
        add(format!("{error:#}"), Exit::Input);
    }
    if let Err(error) = check_other_hosts(config) {
        add(format!("{error:#}"), Exit::Input);
    }
    if let Err(error) = system_and_driver(study, cpus) {
        let code = error.downcast_ref::<ExitError>().map_or(Exit::Input, |error| error.exit);
        add(format!("{error:#}"), code);
    }
    let driver = tare_driver::find(&study.driver);
    // Loaders on other hosts are asked when the study starts.
    let is_client = study.loaders.is_empty()
        || study.loaders.iter().any(|loader| loader.host.remote().is_none());
    if let Some(program) = driver.and_then(|driver| driver.program)
        && is_client
        && exec::find(program.name).is_none()
    {
        add(format!("{} is not on PATH: {}", program.name, program.get), Exit::Host);
    }
    for (program, package) in tare_env::PROGRAMS {
        if exec::find(program).is_none() {
            add(format!("{program} is not installed: apt-get install {package}"), Exit::Host);
        }
    }
    for spec in study.environments.iter().filter(|spec| !spec.optional) {
        if let Some((name, reason)) = absent.iter().find(|(name, _)| *name == spec.name) {
            add(format!("\"{name}\" is not optional: {reason}"), Exit::Host);
        }
    }
    Ok((found, exit))
}

fn system_and_driver(study: &Study, cpus: &CpuPlan) -> anyhow::Result<()> {
    let name = &study.system.name;
    let info = tare_system::find(name).ok_or_else(|| anyhow!("there is no system {name}"))?;
    tare_driver::of(study, &info.speaks(&study.system)).map_err(|error| anyhow!(error))?;
    fit::check(study, info, cpus)?;
    neighbours::check(study)
}
