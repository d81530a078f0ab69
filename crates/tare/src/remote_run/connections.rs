//! The connections of one command to other hosts, and the directory of their sockets.

use std::fs;
use std::io::empty;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use tare_host::journal::{Entry, Journal, JournalError};
use tare_kube::{AccountUse, TareImage};
use tare_remote::{InstalledProgram, RemoteError, RemoteHost};
use tare_std::host_address::RemoteAddress;

use super::node::{EnteredNode, NodeView};
use crate::cleanup;
use crate::exit::{Exit, ExitWith};
use crate::registry::KINDS;
use crate::run_server::{Session, SessionAccount};
use crate::stream::warn;

/// The state directory unless the user names another.
const STATE: &str = "/var/lib/tare";
/// A socket of ssh has a path of at most 107 bytes, of which its own name needs 45.
const PATH_MAX: usize = 60;

/// The sockets of this command, in a journalled directory, and its pods on nodes of clusters.
/// Dropping it closes and removes them.
#[derive(Debug)]
pub(crate) struct Connections {
    journal: Journal,
    directory: PathBuf,
    /// The nodes of clusters that have been connected to.
    nodes: Mutex<Vec<EnteredNode>>,
    /// The image of those pods; without it they have the programs of their nodes.
    image: Option<TareImage>,
}

/// A host with the program in place.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) host: RemoteHost,
    pub(crate) program: InstalledProgram,
    pub(crate) connecting: Duration,
    pub(crate) copying: Duration,
}

/// Returns the state directory of a user without root's rights, where `state` is the default one.
pub(crate) fn user_state(state: &Path) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from)?;
    let own = home.is_absolute().then(|| home.join(".local/state/tare"));
    own.filter(|_| state == Path::new(STATE))
}

impl Connections {
    /// Makes the directory of the sockets, journalled first. Without root's rights, the user's own
    /// state directory takes the place of the default one.
    pub(crate) fn open(state: &Path, image: Option<TareImage>) -> anyhow::Result<Self> {
        let (journal, state) = match Journal::create(state, KINDS) {
            Err(error @ JournalError::Open { .. }) => {
                let Some(own) = user_state(state) else { return Err(error).exit_with(Exit::Host) };
                (Journal::create(&own, KINDS).exit_with(Exit::Host)?, own)
            }
            created => (created.exit_with(Exit::Host)?, state.to_path_buf()),
        };
        let directory = std::path::absolute(state.join(journal.prefix()))?;
        if directory.as_os_str().as_bytes().len() > PATH_MAX {
            journal.close();
            return Err(anyhow!(
                "{} is too long for the sockets of ssh; choose a shorter directory with --state",
                directory.display()
            ))
            .exit_with(Exit::Host);
        }
        journal.write(vec![Entry::directory(directory.clone())])?;
        let made = Self { journal, directory, nodes: Mutex::new(Vec::new()), image };
        fs::create_dir(&made.directory)
            .with_context(|| format!("cannot create {}", made.directory.display()))?;
        Ok(made)
    }

    /// Connects to a host.
    fn reach(&self, address: &RemoteAddress) -> anyhow::Result<RemoteHost> {
        match address {
            RemoteAddress::Ssh(ssh) => {
                RemoteHost::connect(ssh, &self.directory).exit_with(Exit::Host)
            }
            RemoteAddress::Node(node) | RemoteAddress::Pod(node) => {
                let number = {
                    let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
                    let number = nodes.len();
                    nodes.push(EnteredNode::find(address, node, &self.journal, number)?);
                    number
                };
                self.node(number).enter(&self.journal, self.image.as_ref())
            }
        }
    }

    fn node(&self, number: usize) -> EnteredNode {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes[number].clone()
    }

    /// Returns the latest connection to a node; `None` for a host that is no node of a cluster.
    fn node_at(&self, address: &RemoteAddress) -> Option<EnteredNode> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        nodes.into_iter().rev().find(|node| node.is(address))
    }

    /// Returns how this host sees the node of a connected loader; what is not known of a host that
    /// ssh reaches.
    pub(crate) fn view(&self, address: &RemoteAddress) -> anyhow::Result<NodeView> {
        self.node_at(address).map_or(Ok(NodeView::default()), |node| node.view())
    }

    /// Creates an account with which a command on a node can make or read pods, and returns it with
    /// its kubeconfig; `None` for a host that is no node of a cluster. It ends with this command.
    pub(crate) fn account(
        &self,
        address: &RemoteAddress,
        account_use: AccountUse,
    ) -> anyhow::Result<Option<(SessionAccount, String)>> {
        let node = self.node_at(address);
        node.map(|node| node.account(&self.journal, account_use)).transpose()
    }

    /// Leaves the account to the run on the node: `delete_account` ends it.
    pub(crate) fn keep_account(&self, address: &RemoteAddress) {
        if let Some(Err(error)) = self.node_at(address).map(|node| node.keep_account(&self.journal))
        {
            warn(&format!("{error:#}; it is deleted after the run"));
        }
    }

    /// Deletes the account that a run which has ended had, if it had one.
    pub(crate) fn delete_account(&self, address: &RemoteAddress, account: Option<&SessionAccount>) {
        let Some(account) = account else { return };
        let stays = format!("kubectl delete namespace {} removes it", account.namespace);
        match self.node_at(address).map(|node| node.delete_account(account)) {
            Some(Ok(())) => {}
            Some(Err(error)) => warn(&format!("the account of the run stays: {error:#}; {stays}")),
            None => warn(&format!("the account of the run in its cluster stays; {stays}")),
        }
    }

    /// Connects to a host and copies the program there, unless it is there.
    pub(crate) fn connect(&self, address: &RemoteAddress) -> anyhow::Result<Connected> {
        let begun = Instant::now();
        let host = self.reach(address)?;
        let connecting = begun.elapsed();
        let program = host.install(&crate::own_program()?).exit_with(Exit::Host)?;
        Ok(Connected { host, program, connecting, copying: begun.elapsed() - connecting })
    }

    /// Returns a directory for files, which is removed with the sockets.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Connected {
    /// Returns the runs on the host.
    pub(crate) fn sessions(&self) -> anyhow::Result<Vec<Session>> {
        let text = self.host.output(&self.program.path, &["run-server", "list"], empty());
        let text = text.map_err(of_program)?;
        serde_json::from_slice(&text)
            .with_context(|| format!("cannot understand the list of runs on {}", self.host.name()))
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        cleanup::warn_left(&self.journal.close());
    }
}

/// Returns the error of a `run-server` task as that program printed it.
pub(crate) fn of_program(error: RemoteError) -> anyhow::Error {
    match error {
        RemoteError::Failed { host, stderr, .. } if stderr.starts_with("tare: ") => {
            anyhow!("{}, on {host}", stderr.trim_start_matches("tare: ").trim())
        }
        other => other.into(),
    }
}
