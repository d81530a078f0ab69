//! The CPUs that the tuner keeps for interrupts.

use std::path::Path;

use anyhow::Context;
use tare_lab::layer::Host;
use tare_lab::study::Study;
use tare_std::cpus::CpuSet;
use tare_tune::plan::{Group, Options};
use tare_tune::{LiveHost, SettingStore, planner};

use super::tuning::tunes_host;
use crate::exit::plan_error;

/// Returns the CPUs to which the tuner moves interrupts in an environment of the study, or to which
/// it has moved them on this host. `None` if it does neither, and on small hosts, where it lets all
/// CPUs share them.
pub(super) fn of_tuner(
    study: &Study,
    options: &Options,
    state: &Path,
) -> anyhow::Result<Option<CpuSet>> {
    let store = LiveHost::new("/");
    if tunes_host(study) {
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

fn tunes_interrupts(host: &Host) -> bool {
    match host {
        Host::AsIs => false,
        Host::Tuned => true,
        Host::TunedGroups(groups) => groups.iter().any(|group| group == Group::Interrupts.name()),
    }
}
