//! The way to a node of a Kubernetes cluster: a namespace of this command with a pod in it, and an
//! account for commands that make or read pods themselves, all journalled first.

use std::io::Write;

use anyhow::anyhow;
use tare_host::journal::Journal;
use tare_kube::{Access, AccountUse, Cluster};
use tare_remote::RemoteHost;
use tare_std::host_address::{NodeAddress, RemoteAddress};

use crate::exit::{Exit, ExitWith};
use crate::run_server::SessionAccount;

/// A node, and the namespace through which it is reached.
#[derive(Clone, Debug)]
pub(super) struct EnteredNode {
    address: NodeAddress,
    access: Access,
    namespace: String,
}

fn access(address: &NodeAddress) -> anyhow::Result<Access> {
    let found = match address.context() {
        None => Access::find(),
        Some(context) => Access::find_in(context),
    };
    found.exit_with(Exit::Host)
}

impl EnteredNode {
    /// Finds the access to a node. `number` tells the nodes of one command apart.
    pub(super) fn find(
        address: &NodeAddress,
        journal: &Journal,
        number: usize,
    ) -> anyhow::Result<Self> {
        let namespace = format!("{}-n{number}", journal.prefix());
        Ok(Self { address: address.clone(), access: access(address)?, namespace })
    }

    pub(super) fn is(&self, address: &RemoteAddress) -> bool {
        matches!(address, RemoteAddress::Node(node) if *node == self.address)
    }

    /// Creates the pod through which commands run on the node.
    pub(super) fn enter(&self, journal: &Journal) -> anyhow::Result<RemoteHost> {
        let Self { address, access, namespace } = self;
        let cluster = Cluster::connect(access).exit_with(Exit::Host)?;
        journal.write(vec![tare_env::namespace_entry(access.clone(), namespace.clone())])?;
        let pod = cluster.create_node_pod(access, namespace, journal.run(), address.node());
        Ok(RemoteHost::through(pod.exit_with(Exit::Host)?, address))
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

/// Prints what would be created in the clusters of these nodes, and the rights that it takes.
pub(super) fn print(
    addresses: &[RemoteAddress],
    account_use: AccountUse,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    for address in addresses {
        let RemoteAddress::Node(address) = address else {
            let why = format!("{address} is no node of a cluster; leave out --print-manifests");
            return Err(anyhow!(why)).exit_with(Exit::Usage);
        };
        let cluster = Cluster::connect(&access(address)?).exit_with(Exit::Host)?;
        for manifest in
            cluster.node_pod_manifests(address.node(), account_use).exit_with(Exit::Host)?
        {
            // JSON is YAML.
            writeln!(out, "---\n{}", serde_json::to_string_pretty(&manifest)?)?;
        }
    }
    Ok(Exit::Success)
}
