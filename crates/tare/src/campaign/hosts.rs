//! A campaign whose system runs on hosts of its own.

use std::net::IpAddr;
use std::path::Path;

use anyhow::anyhow;
use tare_cluster::{Cluster, ClusterOptions, Kubeconfig, ReachedHost};
use tare_env::EnvironmentFactory;
use tare_kube::AccountUse;
use tare_lab::campaign::SystemHosts;
use tare_lab::doubt::Doubt;
use tare_lab::environment::{CpuPlan, EnvironmentSpec};
use tare_lab::layer::Network;
use tare_lab::record::HostFact;
use tare_lab::study::{LoaderSpec, Study, SystemHost};
use tare_std::host_address::RemoteAddress;

use super::CampaignConfig;
use crate::exit::{Exit, ExitWith};
use crate::remote_run::{Connected, Connections, Place};
use crate::run_server;
use crate::stream::{say, warn};

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
    study.check_attached_hosts().exit_with(Exit::Input)?;
    if let Some(spec) = study.environments.iter().find(|spec| !spec.neighbours.is_empty()) {
        return Err(anyhow!(
            "environment {:?}: its neighbours would run on this host only, and the system runs on {}; \
             set neighbours = [], or leave the environment out",
            spec.name,
            names(study)
        ))
        .exit_with(Exit::Input);
    }
    let is_no_node =
        |host: &&SystemHost| host.host.remote().and_then(RemoteAddress::as_node).is_none();
    if let Some(spec) = study.environments.iter().find(|spec| spec.is_pod())
        && let Some(host) = study.hosts.iter().find(is_no_node)
    {
        return Err(anyhow!(
            "environment {:?} is a pod, and {} is not reached as a node of a cluster; write \
             kubernetes:NODE, or leave the environment out",
            spec.name,
            host.host
        ))
        .exit_with(Exit::Input);
    }
    let is_outside =
        |loader: &&LoaderSpec| matches!(loader.host.remote(), Some(RemoteAddress::Ssh(_)));
    if let Some(spec) = study.environments.iter().find(|spec| spec.has_pod_network())
        && let Some(loader) = study.loaders.iter().find(is_outside)
    {
        return Err(anyhow!(
            "environment {:?} has the network of pods, which the loader {} outside of the cluster does not \
             reach; write pod:NODE, or network = \"host\"",
            spec.name,
            loader.host
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
    let study = &config.study;
    let connections = Connections::open(state, config.image.clone())?;
    let reached: Vec<anyhow::Result<ReachedHost>> = std::thread::scope(|scope| {
        let reach = |host| reach(host, study, &connections);
        let start = |host| scope.spawn(move || reach(host));
        let threads: Vec<_> = study.hosts.iter().map(start).collect();
        let lost = || Err(anyhow!("a thread panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    });
    let mut reached = reached.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    // A connection ends when it is not used for a minute, and others may have taken longer.
    for (host, _) in reached.iter_mut().filter_map(|one| one.there.as_mut()) {
        if host.check().is_err() {
            *host = host.again(connections.directory()).exit_with(Exit::Host)?;
        }
    }
    let options = ClusterOptions {
        study,
        plan,
        destroy: &config.destroy,
        program: &crate::own_program()?,
        state,
        hosts: &reached,
        run: factory.run(),
    };
    let cluster = Cluster::open(&options).exit_with(Exit::Host)?;
    Ok(Some((connections, cluster)))
}

/// Connects to a host of the system and copies the program there, unless it is this host.
fn reach(
    host: &SystemHost,
    study: &Study,
    connections: &Connections,
) -> anyhow::Result<ReachedHost> {
    let Some(address) = host.host.remote() else {
        return Ok(ReachedHost { there: None, address: None, is_here: true, kubeconfig: None });
    };
    say(&format!("connecting to {address}"));
    let Connected { host, program, .. } = connections.connect(address)?;
    let view = connections.view(address)?;
    if view.place == Place::SameMachine {
        say(&format!(
            "the node of {address} is on this machine, so it shares CPUs, memory and kernel with \
             this one; a node on another machine does not"
        ));
    }
    let dialled_here = study.environments.iter().find(|spec| spec.has_pod_network());
    if let Some(spec) =
        dialled_here.filter(|_| study.loaders.is_empty() && view.address_here.is_none())
    {
        return Err(anyhow!(
            "environment {:?} has the network of pods, which this host outside of the cluster does not \
             reach; add [[loader]] host = \"pod:NODE\", or take the command to a node with --on",
            spec.name
        ))
        .exit_with(Exit::Host);
    }
    let kubeconfig = match study.environments.iter().any(EnvironmentSpec::is_pod) {
        true => pod_access(connections, address)?,
        false => None,
    };
    Ok(ReachedHost {
        kubeconfig,
        there: Some((host, program.path)),
        address: view.address.and_then(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(address) => address.to_ipv4_mapped(),
        }),
        is_here: view.place == Place::Here,
    })
}

/// Returns the access with which the agent of a node makes pods: that of this run, if it has one by
/// `--on`, else an account for it.
fn pod_access(
    connections: &Connections,
    address: &RemoteAddress,
) -> anyhow::Result<Option<Kubeconfig>> {
    if let Some(text) = run_server::kubeconfig()? {
        return Ok(Some(Kubeconfig(text)));
    }
    let account = connections.account(address, AccountUse::MakePods)?;
    Ok(account.map(|(_, text)| Kubeconfig(text)))
}

/// Returns the environments that a host cannot run, with the reasons.
///
/// # Errors
/// If one of them is not optional.
pub(super) fn left_out(cluster: &Cluster, study: &Study) -> anyhow::Result<Vec<(String, String)>> {
    let mut left_out = Vec::new();
    let here = cluster.hosts().iter().find(|host| host.is_here);
    for (spec, reason) in study.environments.iter().zip(cluster.check(&study.environments)?) {
        let is_published = !spec.is_pod() && spec.network != Network::Host;
        let unreached = here.filter(|_| is_published).map(|host| {
            format!(
                "{} is this host, whose own packets do not pass the rules that publish a port at its \
                 address; write network = \"host\", or run the command on another machine",
                host.name
            )
        });
        match reason.or(unreached) {
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
pub(super) fn parts(cluster: &Cluster) -> SystemHosts<'_> {
    SystemHosts {
        instance_cpus: cluster.instance_cpus(),
        cpus: cluster.hosts().iter().map(|host| host.opened.plan.all.len()).sum(),
        has_this: cluster.hosts().iter().any(|host| host.is_here),
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
