//! A campaign whose system runs on hosts of its own.

use std::path::Path;

use anyhow::anyhow;
use tare_cluster::{Cluster, ClusterOptions};
use tare_env::EnvironmentFactory;
use tare_lab::campaign::SystemHosts;
use tare_lab::doubt::Doubt;
use tare_lab::environment::CpuPlan;
use tare_lab::record::HostFact;
use tare_lab::study::Study;
use tare_std::host_address::HostAddress;

use super::CampaignConfig;
use crate::exit::{Exit, ExitWith};
use crate::remote_run::Connections;
use crate::stream::warn;

/// Refuses what a study cannot have on several hosts.
pub(super) fn check(config: &CampaignConfig) -> anyhow::Result<()> {
    let study = &config.study;
    if study.hosts.is_empty() {
        return Ok(());
    }
    if let Some(spec) = study.environments.iter().find(|spec| !spec.host.is_as_is()) {
        return Err(anyhow!(
            "environment {:?}: host = {:?} tunes this host only, and the system runs on {}; tune \
             each with tare tune apply, or leave the environment out",
            spec.name,
            spec.host.to_string(),
            names(study)
        ))
        .exit_with(Exit::Input);
    }
    if let Some(spec) = study.environments.iter().find(|spec| spec.attach.is_some()) {
        return Err(anyhow!(
            "environment {:?} is attached to a system of this host, and the system runs on {}; leave \
             --hosts out, or take the command to that host with --on",
            spec.name,
            names(study)
        ))
        .exit_with(Exit::Input);
    }
    if let Some(spec) = study.environments.iter().find(|spec| !spec.neighbours.is_empty()) {
        return Err(anyhow!(
            "environment {:?}: its neighbours would run on this host only, and the system runs on {}; \
             set neighbours = [], or leave the environment out",
            spec.name,
            names(study)
        ))
        .exit_with(Exit::Input);
    }
    if config.samples.as_ref().is_some_and(|options| options.stacks) {
        return Err(anyhow!(
            "--stacks samples this host only, and the system runs on {}",
            names(study)
        ))
        .exit_with(Exit::Input);
    }
    Ok(())
}

fn names(study: &Study) -> String {
    let names: Vec<String> = study.hosts.iter().map(|host| host.host.to_string()).collect();
    names.join(", ")
}

/// Starts an agent on each host of the system; `None` if the system runs on this host. The
/// connections have to outlive the agents.
pub(super) fn open(
    config: &CampaignConfig,
    plan: &CpuPlan,
    factory: &EnvironmentFactory,
    state: &Path,
) -> anyhow::Result<Option<(Connections, Cluster)>> {
    if config.study.hosts.is_empty() {
        return Ok(None);
    }
    let connections = Connections::open(state)?;
    let options = ClusterOptions {
        study: &config.study,
        plan,
        destroy: &config.destroy,
        program: &crate::own_program()?,
        state,
        directory: connections.directory(),
        run: factory.run(),
    };
    let cluster = Cluster::open(&options).exit_with(Exit::Host)?;
    Ok(Some((connections, cluster)))
}

/// Returns the environments that a host cannot run, with the reasons.
///
/// # Errors
/// If one of them is not optional.
pub(super) fn left_out(cluster: &Cluster, study: &Study) -> anyhow::Result<Vec<(String, String)>> {
    let mut left_out = Vec::new();
    for (spec, reason) in study.environments.iter().zip(cluster.check(&study.environments)?) {
        match reason {
            None => {}
            Some(reason) if spec.optional => left_out.push((spec.name.clone(), reason)),
            Some(reason) => {
                return Err(anyhow!(reason).context(format!("cannot run {:?}", spec.name)))
                    .exit_with(Exit::Host);
            }
        }
    }
    Ok(left_out)
}

/// Returns what the hosts are, as facts for the record.
pub(super) fn facts(cluster: &Cluster) -> Vec<HostFact> {
    let mut all = Vec::new();
    for (number, host) in cluster.hosts().iter().enumerate() {
        let mut add = |key: String, value: String| {
            let section = format!("node {}", number + 1);
            all.push(HostFact { section, key, value });
        };
        add("host".into(), host.name.clone());
        add("address".into(), host.address.to_string());
        add("system CPUs".into(), host.opened.plan.system.to_string());
        for (section, key, value) in &host.opened.facts {
            add(format!("{section} {key}"), value.clone());
        }
    }
    all
}

/// Returns the doubts about the hosts.
pub(super) fn doubts(cluster: &Cluster) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    for host in cluster.hosts() {
        let missing = host.opened.missing_probes.iter();
        doubts.extend(missing.map(|(probe, reason)| Doubt::ProbeFailed {
            probe: probe.clone(),
            reason: format!("{}: {reason}", host.name),
        }));
        let found = host.opened.overheads.as_ref();
        doubts.extend(
            found.map(|found| Doubt::BaselineNotClean {
                found: format!("{found} on {}", host.name),
            }),
        );
    }
    doubts
}

/// Returns what a campaign has to know about the hosts.
pub(super) fn parts<'c>(cluster: &'c Cluster, study: &Study) -> SystemHosts<'c> {
    let is_here = |host: &tare_lab::study::SystemHost| host.host == HostAddress::Local;
    SystemHosts {
        instance_cpus: cluster.instance_cpus(),
        cpus: cluster.hosts().iter().map(|host| host.opened.plan.all.len()).sum(),
        has_this: study.hosts.iter().any(is_here),
        lost: Box::new(|| cluster.lost()),
    }
}

/// Returns the plan by which the load is sized: as many CPUs as all instances have.
pub(super) fn sizing_plan(cluster: &Cluster, plan: &CpuPlan) -> CpuPlan {
    let all = cluster.instance_cpus().saturating_mul(cluster.hosts().len());
    let system = (0..u32::try_from(all).unwrap_or(u32::MAX)).collect();
    CpuPlan { system, ..plan.clone() }
}

/// Ends the agents on the other hosts, and prints what they could not remove.
pub(crate) fn close(cluster: Option<Cluster>) {
    for left in cluster.iter().flat_map(Cluster::close) {
        warn(&format!("left behind: {left}"));
    }
}
