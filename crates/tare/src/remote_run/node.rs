//! The way to a node of a Kubernetes cluster, or into a pod on it: a namespace of this command with
//! a pod in it, and an account for commands that make or read pods themselves, all journalled
//! first.

use std::io::Write;
use std::net::IpAddr;

use anyhow::anyhow;
use tare_host::journal::Journal;
use tare_kube::{Access, AccountUse, Cluster, KubeError, TareImage};
use tare_remote::RemoteHost;
use tare_std::host_address::{NodeAddress, RemoteAddress};

use crate::exit::{Exit, ExitWith};
use crate::run_server::SessionAccount;

/// A node or a pod on it, and the namespace through which it is reached.
#[derive(Clone, Debug)]
pub(super) struct EnteredNode {
    address: RemoteAddress,
    node: NodeAddress,
    access: Access,
    namespace: String,
}

/// A node as this host sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeView {
    /// The address of this host in the cluster, if it is a node of it.
    pub(crate) address_here: Option<IpAddr>,
    /// Its own address in the cluster (`InternalIP`).
    pub(crate) address: Option<IpAddr>,
    pub(crate) place: Place,
}

/// Where a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    #[default]
    Elsewhere,
    /// This host is that node.
    Here,
    /// Both are containers of one machine, so that they share its CPUs.
    SameMachine,
}

/// Returns the user's access in a context; without one in the current context.
pub(super) fn access(context: Option<&str>) -> anyhow::Result<Access> {
    let found = match context {
        None => Access::find(),
        Some(context) => Access::find_in(context),
    };
    found.exit_with(Exit::Host)
}

impl EnteredNode {
    /// Finds the access to a node. `number` tells the nodes of one command apart.
    pub(super) fn find(
        address: &RemoteAddress,
        node: &NodeAddress,
        journal: &Journal,
        number: usize,
    ) -> anyhow::Result<Self> {
        let namespace = format!("{}-n{number}", journal.prefix());
        let (address, access) = (address.clone(), access(node.context())?);
        Ok(Self { address, node: node.clone(), access, namespace })
    }

    pub(super) fn is(&self, address: &RemoteAddress) -> bool {
        *address == self.address
    }

    /// Creates the pod through which commands run on the node, or in which they run.
    pub(super) fn enter(
        &self,
        journal: &Journal,
        image: Option<&TareImage>,
    ) -> anyhow::Result<RemoteHost> {
        let Self { address, node, access, namespace } = self;
        let (node, run) = (node.node(), journal.run());
        let cluster = Cluster::connect(access).exit_with(Exit::Host)?;
        journal.write(vec![tare_env::namespace_entry(access.clone(), namespace.clone())])?;
        let pod = match address {
            RemoteAddress::Pod(_) => cluster.create_loader_pod(access, namespace, run, node, image),
            _ => cluster.create_node_pod(access, namespace, run, node, image),
        };
        Ok(RemoteHost::through(pod.exit_with(Exit::Host)?, address))
    }

    /// Returns how this host sees the node.
    pub(super) fn view(&self) -> anyhow::Result<NodeView> {
        let cluster = Cluster::connect(&self.access).exit_with(Exit::Host)?;
        let node = cluster.node(self.node.node()).exit_with(Exit::Host)?;
        let parse = |text: &String| text.parse().ok();
        let address = node.address.as_ref().and_then(parse);
        let here = match cluster.node_here() {
            Err(KubeError::NotANode { .. }) => {
                return Ok(NodeView { address, ..NodeView::default() });
            }
            here => here.exit_with(Exit::Host)?,
        };
        let place = match (here.name == node.name, node.shares_kernel()) {
            (true, _) => Place::Here,
            (false, true) => Place::SameMachine,
            (false, false) => Place::Elsewhere,
        };
        let address_here = here.address.as_ref().and_then(parse);
        Ok(NodeView { address_here, address, place })
    }

    /// Creates an account for a command there, and returns it with its kubeconfig. The entry of the
    /// namespace removes it.
    pub(super) fn account(
        &self,
        journal: &Journal,
        account_use: AccountUse,
    ) -> anyhow::Result<(SessionAccount, String)> {
        let Self { access, namespace, .. } = self;
        let cluster = Cluster::connect(access).exit_with(Exit::Host)?;
        let made = cluster.create_account(access, namespace, journal.run(), account_use);
        let account = SessionAccount { namespace: namespace.clone(), run: journal.run().into() };
        Ok((account, made.exit_with(Exit::Host)?))
    }

    /// Leaves the account to the run on the node, which goes on without this command. Only the pod
    /// is deleted.
    pub(super) fn keep_account(&self, journal: &Journal) -> anyhow::Result<()> {
        let Self { access, namespace, .. } = self;
        let entry = tare_env::namespace_entry(access.clone(), namespace.clone());
        let live = journal.live().into_iter();
        let ids: Vec<_> = live.filter_map(|(id, one)| (one == entry).then_some(id)).collect();
        journal.forget(&ids);
        let cluster = Cluster::connect(access)?;
        Ok(cluster.delete_node_pod(namespace)?)
    }

    /// Deletes the account of a run that has ended.
    pub(super) fn delete_account(&self, account: &SessionAccount) -> anyhow::Result<()> {
        let cluster = Cluster::connect(&self.access)?;
        Ok(cluster.delete_namespace(&account.namespace, &account.run)?)
    }
}

/// Prints what would be created in the clusters of these nodes, for them, for the hosts of a system
/// and for loaders, and the rights that it takes. All pods have one image.
pub(super) fn print(
    addresses: &[RemoteAddress],
    hosts: &[NodeAddress],
    loaders: &[NodeAddress],
    (account_use, image): (AccountUse, Option<TareImage>),
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let image = image.as_ref();
    // JSON is YAML.
    let mut print = |manifest: &serde_json::Value| -> anyhow::Result<()> {
        Ok(writeln!(out, "---\n{}", serde_json::to_string_pretty(manifest)?)?)
    };
    for address in addresses {
        let RemoteAddress::Node(address) = address else {
            let why = format!("{address} is no node of a cluster; leave out --print-manifests");
            return Err(anyhow!(why)).exit_with(Exit::Usage);
        };
        let cluster = Cluster::connect(&access(address.context())?).exit_with(Exit::Host)?;
        let manifests = cluster.node_pod_manifests(address.node(), account_use, image);
        manifests.exit_with(Exit::Host)?.iter().try_for_each(&mut print)?;
        for host in hosts {
            let manifests = cluster.host_pod_manifests(host.node(), image);
            manifests.exit_with(Exit::Host)?.iter().try_for_each(&mut print)?;
        }
        for loader in loaders {
            let manifests = cluster.loader_pod_manifests(loader.node(), image);
            manifests.exit_with(Exit::Host)?.iter().try_for_each(&mut print)?;
        }
    }
    Ok(Exit::Success)
}
