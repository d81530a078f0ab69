//! Chooses the rows of workloads whose reads are to come from disk.
//!
//! Method: with uniform keys, the share of reads from memory is that of the rows in memory. So the
//! rows are as many as make this share of what the system keeps the one that the study asks for.
//! The slices show the share that it was, and a wrong one is a doubt.

use std::path::Path;

use anyhow::anyhow;
use tare_lab::campaign;
use tare_lab::study::{KeyDistribution, Study, WorkloadSpec};
use tare_system::ClientRoute;
use tare_tune::plan::Options;

use super::{cpu_plan, fit, space};
use crate::exit::{Exit, ExitWith};

/// The memory of the reference database for each CPU, where a study leaves it to Tare: the least
/// that it starts with, so that few rows are enough.
const MEMORY_PER_CPU: (&str, &str) = ("memory_per_cpu", "32M");
/// With more reads from disk than this, the rows would not fit anywhere.
const SHARE_MAX: f64 = 0.99;

/// Chooses the rows, and the memory of the system, that a study leaves to Tare. A second call
/// changes nothing.
///
/// # Errors
/// If Tare does not know how many rows the system keeps in memory, or keys are not uniform.
pub(crate) fn choose_rows(
    study: &mut Study,
    options: &Options,
    state: &Path,
) -> anyhow::Result<()> {
    if !study.workloads.iter().any(|workload| workload.load.rows_from_disk_share) {
        return Ok(());
    }
    let info = tare_system::find(&study.system.name).filter(|info| info.name == "tare-db");
    let Some(info) = info else { return Err(unknown(study)).exit_with(Exit::Input) };
    if !fit::names_memory(study) {
        let (name, value) = MEMORY_PER_CPU;
        study.system.options.push((name.into(), value.into()));
    }
    let system = info
        .make_for(study, &ClientRoute::default())
        .map_err(|error| anyhow!(error))
        .exit_with(Exit::Input)?;
    let plan = cpu_plan::of_study(study, options, state)?;
    let instances = fit::instances_of_baseline(study, system.instances());
    let cpus = campaign::instance_cpus(campaign::system_cpus(study, &plan), instances.count);
    // The nodes of a cluster divide the rows.
    let parts = if instances.cluster { u64::from(instances.count.max(1)) } else { 1 };
    let Some(kept) = system.row_memory_bytes(cpus).map(|bytes| bytes.saturating_mul(parts)) else {
        return Err(unknown(study)).exit_with(Exit::Input);
    };
    for workload in &mut study.workloads {
        if std::mem::take(&mut workload.load.rows_from_disk_share) {
            workload.rows = rows(workload, kept).exit_with(Exit::Input)?;
        }
    }
    Ok(())
}

fn unknown(study: &Study) -> anyhow::Error {
    anyhow!(
        "reads_from_disk without rows: Tare does not know how many rows {} keeps in memory; write rows",
        study.system.name
    )
}

/// Returns the rows of which a system keeps all but the share that is to come from disk.
fn rows(workload: &WorkloadSpec, kept_bytes: u64) -> anyhow::Result<u64> {
    let name = &workload.name;
    let share = workload.reads_from_disk.unwrap_or_default();
    if share > SHARE_MAX {
        let most = SHARE_MAX * 100.0;
        return Err(anyhow!(
            "workload {name:?}: reads_from_disk without rows is at most {most:.0} %; write rows"
        ));
    }
    if workload.keys != KeyDistribution::Uniform || workload.workload.is_some() {
        return Err(anyhow!(
            "workload {name:?}: reads_from_disk without rows needs uniform keys of a workload with \
             columns and column_bytes; write rows"
        ));
    }
    let all_bytes = kept_bytes as f64 / (1.0 - share);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and far below 2^53"
    )]
    let rows = (all_bytes / space::row_bytes(workload).max(1) as f64).ceil() as u64;
    Ok(rows.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(system: &str, workload: &str) -> Study {
        let text = format!(
            "name = \"s\"\nbaseline = \"a\"\n[system]\n{system}\n[[environment]]\nname = \"a\"\nruntime = \"process\"\n\
             [[workload]]\nname = \"cold\"\nwrite_share = 0\ncolumns = 1\n{workload}"
        );
        tare_lab::study::parse(&text, "s.toml", &crate::registry::vocabulary()).unwrap()
    }

    fn chosen(system: &str, workload: &str) -> Result<Study, String> {
        let mut study = study(system, workload);
        let state = tempfile::tempdir().unwrap();
        let chosen = choose_rows(&mut study, &Options::default(), state.path());
        chosen.map(|()| study).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn rows_follow_from_memory_and_share() {
        let rows = |share: &str, memory: &str| {
            let workload = format!("column_bytes = 1024\nreads_from_disk = \"{share}\"\n");
            let system = format!("name = \"tare-db\"\nmemory_per_cpu = \"{memory}\"");
            chosen(&system, &workload).unwrap().workloads[0].rows as f64
        };
        let (small, large) = (rows("95%", "32M"), rows("95%", "64M"));
        assert!(large > 1.9 * small, "{small} {large}");
        assert!((rows("90%", "32M") / small - 0.5).abs() < 0.01);
        let named = "column_bytes = 1024\nreads_from_disk = \"95%\"\nrows = 7\n";
        assert_eq!(chosen("name = \"tare-db\"", named).unwrap().workloads[0].rows, 7);
    }

    #[test]
    fn memory_is_chosen_where_the_study_does_not_say() {
        let workload = "column_bytes = 1024\nreads_from_disk = \"95%\"\n";
        let study = chosen("name = \"tare-db\"", workload).unwrap();
        let (name, value) = MEMORY_PER_CPU;
        assert!(study.system.options.contains(&(name.into(), value.into())));
        assert!(!study.workloads[0].load.rows_from_disk_share);
        let plain = chosen("name = \"tare-db\"", "").unwrap();
        assert!(plain.system.options.is_empty());
    }

    #[test]
    fn what_cannot_be_chosen_is_one_line() {
        let refused = |system: &str, workload: &str, expect: &str| {
            let error = chosen(system, workload).unwrap_err();
            assert!(error.contains(expect) && !error.contains('\n'), "{error}");
        };
        let cold = "reads_from_disk = \"95%\"\n";
        refused("name = \"redis\"", cold, "how many rows redis keeps in memory; write rows");
        let gaussian = format!("keys = \"gaussian\"\n{cold}");
        refused("name = \"tare-db\"", &gaussian, "needs uniform keys");
        refused("name = \"tare-db\"", "reads_from_disk = \"100%\"\n", "is at most 99 %");
    }
}
