//! The CPUs that the tuner keeps for interrupts.

use std::path::Path;

use anyhow::{Context, anyhow};
use tare_lab::cpus;
use tare_lab::environment::CpuPlan;
use tare_lab::layer::Host;
use tare_lab::study::Study;
use tare_std::cpus::CpuSet;
use tare_tune::plan::{Group, Options};
use tare_tune::{LiveHost, SettingStore, knobs, planner};

use super::CampaignConfig;
use crate::exit::{Exit, ExitWith, plan_error};

/// Returns the CPUs to which the tuner moves interrupts in an environment of the study, or to which
/// it has moved them on this host. `None` if it does neither, and on small hosts, where it lets all
/// CPUs share them.
pub(super) fn of_tuner(
    study: &Study,
    options: &Options,
    state: &Path,
) -> anyhow::Result<Option<CpuSet>> {
    let store = LiveHost::new("/");
    if study.tunes_host() {
        if !study.environments.iter().any(|spec| tunes_interrupts(&spec.host)) {
            return Ok(None);
        }
        let cpus = planner::plan(&store.snapshot(), options).map_err(plan_error)?.cpus;
        return Ok(cpus.interrupts_alone());
    }
    // Only root tunes hosts and measures on them; others may not be allowed to read the journals.
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let applied = tare_tune::interrupt_cpus(&store, state);
    applied.context("cannot read whether this host is tuned; [cpus] interrupts = 0 ignores it")
}

/// Returns the options of the planner for a study. Interrupts move to the CPUs that the study keeps
/// for them, unless the options name others.
///
/// # Errors
/// If the study's CPUs cannot be divided.
pub(super) fn plan_options(study: &Study, options: &Options) -> anyhow::Result<Options> {
    let mut options = options.clone();
    if options.irq_cpus.is_none() && study.cpus.says_interrupts() {
        let topology = crate::topology::allowed_here()?;
        let kept = cpus::plan(&topology, &study.cpus).exit_with(Exit::Input)?.interrupts;
        options.irq_cpus = Some(kept).filter(|cpus| !cpus.is_empty());
    }
    Ok(options)
}

/// Refuses `--interrupt-cpus` if `[cpus] interrupts` of the study keeps other CPUs: the option
/// counts what the kept CPUs do, and there is one such group.
///
/// # Errors
/// If they differ.
pub(crate) fn check(config: &CampaignConfig, plan: &CpuPlan) -> anyhow::Result<()> {
    let asked = config.samples.as_ref().and_then(|options| options.interrupt_cpus.as_ref());
    match asked {
        Some(asked) if config.study.cpus.says_interrupts() && *asked != plan.interrupts => {
            Err(contradiction(asked, &plan.interrupts)).exit_with(Exit::Input)
        }
        _ => Ok(()),
    }
}

fn contradiction(asked: &CpuSet, kept: &CpuSet) -> anyhow::Error {
    let (kept, instead) = match kept.is_empty() {
        true => ("none".to_string(), "write them there"),
        false => (format!("CPUs {kept}"), "leave the option out, or change the study"),
    };
    anyhow!(
        "--interrupt-cpus {asked} contradicts [cpus] interrupts of the study, which keeps {kept} for \
         interrupts; {instead}"
    )
}

fn tunes_interrupts(host: &Host) -> bool {
    match host {
        Host::AsIs => false,
        Host::Tuned => true,
        Host::TunedGroups(names) => names.iter().any(|name| {
            let group = knobs::find(name).map(|knob| knob.group());
            name == Group::Interrupts.name() || group == Some(Group::Interrupts)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradiction_names_both_groups() {
        let list = |text: &str| CpuSet::parse_list(text).unwrap();
        assert_eq!(
            contradiction(&list("3"), &list("0-1")).to_string(),
            "--interrupt-cpus 3 contradicts [cpus] interrupts of the study, which keeps CPUs 0-1 for \
             interrupts; leave the option out, or change the study"
        );
        let none = contradiction(&list("3"), &CpuSet::new()).to_string();
        assert!(none.ends_with("keeps none for interrupts; write them there"), "{none}");
    }
}
