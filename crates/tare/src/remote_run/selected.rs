//! Loaders of which only the labels of their nodes are named: which nodes of the cluster those are.

use anyhow::anyhow;
use tare_kube::{Cluster, KubeError};
use tare_lab::study::{LoaderSelector, Study};
use tare_std::host_address::{HostAddress, RemoteAddress};
use tare_std::loader_address::{LoaderAddress, NodeSelector};

use super::node;
use crate::exit::{Exit, ExitWith};
use crate::stream::say;

/// The nodes that are weighed, which a selector gives no loader.
#[derive(Debug, Default)]
struct Weighed {
    names: Vec<String>,
    /// Whether this host is weighed.
    is_here: bool,
}

impl Weighed {
    /// Returns what a study weighs. `on` are the hosts to which its command is taken.
    fn by(study: &Study, on: &[RemoteAddress]) -> Self {
        let names = |addresses: &[&RemoteAddress]| -> Vec<String> {
            let nodes = addresses.iter().filter_map(|address| address.as_node());
            nodes.map(|node| node.node().to_string()).collect()
        };
        if study.hosts.is_empty() {
            return Self { names: names(&on.iter().collect::<Vec<_>>()), is_here: on.is_empty() };
        }
        let remote: Vec<_> = study.hosts.iter().filter_map(|host| host.host.remote()).collect();
        let is_here = study.hosts.iter().any(|host| host.host == HostAddress::Local);
        Self { names: names(&remote), is_here }
    }
}

/// Gives a study loaders on the nodes that its selectors match, and says which these are. `on` are
/// the hosts to which its command is taken; empty if it runs here.
///
/// # Errors
/// If the cluster cannot be asked, no node is left, or the load cannot be divided among so many.
pub(crate) fn place_loaders(study: &mut Study, on: &[RemoteAddress]) -> anyhow::Result<()> {
    if study.loader_selectors.is_empty() {
        return Ok(());
    }
    let weighed = Weighed::by(study, on);
    study.place_loaders(|LoaderSelector { nodes, count, .. }| {
        let names = choose(nodes, *count, &weighed)?;
        anyhow::Ok(names.iter().map(|name| nodes.node(name)).collect())
    })?;
    study.check_placed_loaders().exit_with(Exit::Input)
}

/// Returns the hosts of loaders, with a pod on each node of their selectors.
///
/// # Errors
/// As [`place_loaders`].
pub(crate) fn loader_hosts(loaders: &[LoaderAddress]) -> anyhow::Result<Vec<HostAddress>> {
    let mut hosts = Vec::new();
    for loader in loaders {
        match loader {
            LoaderAddress::Host(host) => hosts.push(host.clone()),
            LoaderAddress::Nodes(nodes) => {
                let names = choose(nodes, None, &Weighed::default())?;
                let pod = |name: &String| RemoteAddress::Pod(nodes.node(name));
                hosts.extend(names.iter().map(pod).map(HostAddress::Remote));
            }
        }
    }
    Ok(hosts)
}

/// Returns the names of the nodes that get a loader, and says why others that match get none.
fn choose(
    nodes: &NodeSelector,
    count: Option<usize>,
    weighed: &Weighed,
) -> anyhow::Result<Vec<String>> {
    let access = node::access(nodes.context())?;
    let cluster = Cluster::connect(&access).exit_with(Exit::Host)?;
    let mut matching = cluster.nodes_with_labels(nodes.labels()).exit_with(Exit::Host)?;
    matching.sort_by(|one, other| one.name.cmp(&other.name));
    let mut names = weighed.names.clone();
    if weighed.is_here {
        match cluster.node_here() {
            Err(KubeError::NotANode { .. }) => {}
            here => names.push(here.exit_with(Exit::Host)?.name),
        }
    }
    let (mut chosen, mut left_out) = (Vec::new(), Vec::new());
    for node in matching {
        let is_weighed = names.contains(&node.name).then(|| "it is weighed".to_string());
        match is_weighed.or_else(|| node.why_unused()) {
            Some(why) => left_out.push(format!("{} ({why})", node.name)),
            None => chosen.push(node.name),
        }
    }
    let left_out = left_out.join(", ");
    if chosen.is_empty() {
        return Err(anyhow!(
            "{nodes} matches no node for a loader but {left_out}; give another node this label, or \
             write pod:NODE to load from one of these"
        ))
        .exit_with(Exit::Host);
    }
    chosen.truncate(count.unwrap_or(usize::MAX));
    let but = if left_out.is_empty() { left_out } else { format!("; without {left_out}") };
    say(&format!("loaders of {nodes}: {}{but}", chosen.join(", ")));
    Ok(chosen)
}
