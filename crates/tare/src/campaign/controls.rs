//! Decides which controls of runtimes a host has no room for.
//!
//! A control is not part of the question that the study asks, so that a host with room for the
//! study alone runs the study without it. Reports then show a doubt.

use std::path::Path;

use anyhow::Result;
use tare_lab::campaign::Memory;
use tare_lab::environment::{CpuPlan, EnvironmentSpec};
use tare_lab::study::Study;

use super::CampaignConfig;
use super::space::{DiskPlan, amount, disk, memory_available_bytes};

/// Returns the controls of runtimes that do not fit into this host's memory or disk, with the
/// reasons. `absent` are the environments that it cannot run at all: they take no disk.
pub(crate) fn without_room(
    config: &CampaignConfig,
    absent: &[String],
    cpus: &CpuPlan,
    state: &Path,
) -> Result<Vec<(String, String)>> {
    let elsewhere = !config.study.hosts.is_empty();
    if config.study.runtime_controls.is_empty() || elsewhere || config.is_fake()? {
        return Ok(Vec::new());
    }
    let memory = memory_available_bytes().map(|available| config.memory(available, cpus));
    let disk = |out: &[String]| disk(&config.study, &[absent, out].concat(), state);
    Ok(choose(&config.study, memory, disk))
}

/// Leaves out the last controls until the rest has room. `disk` returns the need of a study without
/// these environments.
fn choose(
    study: &Study,
    memory: Option<Memory>,
    disk: impl Fn(&[String]) -> DiskPlan,
) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    for control in study.runtime_controls.iter().rev() {
        let names: Vec<String> = out.iter().map(|(name, _)| name.clone()).collect();
        let runs = |spec: &&EnvironmentSpec| !names.contains(&spec.name);
        let specs = study.environments.iter().filter(runs).chain(study.baseline_environment());
        let needed = |memory: Memory| memory.needed(study.schedule.kind, specs).1;
        let lack = memory.and_then(|memory| {
            let needed = needed(memory);
            (needed > memory.available_bytes).then(|| {
                let (needed, available) = (amount(needed), amount(memory.available_bytes));
                format!("with it, the study needs {needed} of memory, and {available} is available")
            })
        });
        let lack = lack.or_else(|| {
            let disk = disk(&names);
            let free = disk.free_bytes.filter(|free| *free < disk.data_bytes)?;
            let (needed, free) = (amount(disk.data_bytes), amount(free));
            Some(format!("with it, the study needs {needed} of disk space, and {free} is free"))
        });
        let Some(lack) = lack else { break };
        out.push((control.clone(), lack));
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::campaign::study;

    const MIB: u64 = 1 << 20;

    fn left_out(memory_mib: u64, free_mib: u64) -> Vec<(String, String)> {
        let mut study = study::read("redis", false).unwrap().0;
        study.add_runtime_controls();
        let memory = Memory {
            available_bytes: memory_mib * MIB,
            per_environment_bytes: 100 * MIB,
            instances: 1,
        };
        let environments = study.environments.len() as u64 + 1;
        let disk = |out: &[String]| DiskPlan {
            data_bytes: (environments - out.len() as u64) * 10 * MIB,
            images_bytes: 0,
            free_bytes: Some(free_mib * MIB),
            directory: PathBuf::from("/state"),
        };
        choose(&study, Some(memory), disk)
    }

    #[test]
    fn controls_without_room_are_left_out() {
        let mut study = study::read("redis", false).unwrap().0;
        let before = study.environments.len() as u64 + 1;
        study.add_runtime_controls();
        let controls = study.runtime_controls.clone();
        let all = before + controls.len() as u64;
        assert!(!controls.is_empty(), "redis compares runtimes");
        assert!(left_out(all * 100, all * 10).is_empty());
        // One too many, then none fits: the last one goes first.
        let one = left_out(all * 100 - 1, all * 10);
        assert_eq!(one.len(), 1);
        assert_eq!(Some(&one[0].0), controls.last());
        assert!(one[0].1.contains("of memory, and"), "{}", one[0].1);
        let disk = left_out(all * 100, before * 10);
        let names: Vec<String> = disk.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, controls);
        assert!(disk[0].1.contains("of disk space, and"), "{}", disk[0].1);
        // Without room for the study itself, it ends with an error of its own.
        assert_eq!(left_out(1, all * 10).len(), controls.len());
    }
}
