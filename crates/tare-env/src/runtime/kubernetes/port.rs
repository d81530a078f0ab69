//! The port of a pod that the cluster or the network plugin sends on: a service, a port of the
//! node, a port that the pod asks for.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use tare_host::journal::Entry;
use tare_host::netns;
use tare_host::tcp::{self, Socket};
use tare_kube::NewService;
use tare_lab::PartError;
use tare_lab::environment::LayerState;
use tare_lab::layer::Network;

use super::{KubernetesError, Pod};
use crate::kubernetes::KubernetesEntry;
use crate::layer::network::{self, PORT};
use crate::runtime::gvisor;

/// How long the pod may take to accept a connection.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

impl Pod {
    /// Returns the journal entry of the service, if the network has one.
    pub(super) fn service_entry(&self) -> Option<Entry> {
        let has_service = matches!(self.layers.network, Network::Service | Network::NodePort);
        has_service.then(|| {
            let (access, namespace) = (self.access.clone(), self.context.prefix());
            let name = self.name.clone();
            KubernetesEntry::Service { access, namespace, name }.into()
        })
    }

    /// Returns the port on which the system has to listen in the pod's own network.
    pub(super) fn inner_port(&self, fixed: Option<u16>) -> Result<u16, PartError> {
        match (fixed, self.layers.network) {
            (Some(port), _) => Ok(port),
            // All pods of a study share the node's ports.
            (None, Network::HostPort) => Ok(network::free_port(self.node_address()?)?),
            (None, _) => Ok(PORT),
        }
    }

    /// Creates what leads to the pod's port, and returns the address that clients dial; `None` is
    /// the pod's own.
    pub(super) fn publish(&self, port: u16) -> Result<Option<SocketAddrV4>, PartError> {
        let node_port = match self.layers.network {
            Network::HostPort => return Ok(Some(SocketAddrV4::new(self.node_address()?, port))),
            Network::Service => false,
            Network::NodePort => true,
            _ => return Ok(None),
        };
        let (namespace, name, run) = (&*self.namespace, &*self.name, self.context.run());
        let made =
            self.cluster.create_service(&NewService { namespace, name, run, port, node_port })?;
        Ok(Some(match made.node_port {
            Some(port) => SocketAddrV4::new(self.node_address()?, port),
            None => SocketAddrV4::new(self.ipv4(&made.cluster_ip)?, port),
        }))
    }

    /// Returns the node's address in the cluster.
    pub(super) fn node_address(&self) -> Result<Ipv4Addr, KubernetesError> {
        self.ipv4(self.node.address.as_deref().unwrap_or("(none)"))
    }

    pub(super) fn ipv4(&self, address: &str) -> Result<Ipv4Addr, KubernetesError> {
        address.parse().map_err(|_| KubernetesError::Address {
            environment: self.spec.name.clone(),
            address: address.into(),
        })
    }

    /// Adds to the read-back of the network layer where a connection to the dialled address ends:
    /// a new one has to be in the pod's network namespace, at the pod's own address.
    pub(super) fn read_port(&self, mut state: LayerState) -> LayerState {
        let Some(running) = self.running.as_ref().filter(|_| self.layers.network.is_of_pods())
        else {
            return state;
        };
        let dialled = running.dialled;
        // A sandbox has a network stack of its own, which only a process inside sees.
        let seen = || match &running.sandbox {
            None => {
                let all = tcp::connections(&running.system.pid.to_string());
                all.iter().map(Socket::ends).collect()
            }
            Some(sandbox) => gvisor::view_in_pod(sandbox, &running.pod.container)
                .map(|seen| seen.connections)
                .unwrap_or_default(),
        };
        let before = seen();
        let client = self.context.client().namespace();
        let connect = || TcpStream::connect_timeout(&dialled.into(), ANSWER_LIMIT);
        let (text, in_force) = match netns::within(client, connect) {
            Ok(Ok(_open)) => {
                // A proxy in the pod has a connection of its own too, within the pod.
                let is_new = |one: &(SocketAddrV4, SocketAddrV4)| {
                    !before.contains(one) && *one.0.ip() == running.address
                };
                match seen().into_iter().find(is_new) {
                    Some((to, from)) => {
                        let from = from.ip();
                        (format!("leads to {to}, where it comes from {from}"), dialled != to)
                    }
                    None => ("does not lead to the pod's address".into(), false),
                }
            }
            Ok(Err(error)) => (format!("does not answer ({error})"), false),
            Err(error) => (tare_host::error_line(&error), false),
        };
        state.found += &format!("; {dialled} {text}; {}", dataplane(self.layers.network));
        state.in_force &= in_force;
        state
    }
}

/// Returns what sends packets on: the mode of kube-proxy, as it says itself on its port for
/// metrics (`/proxyMode`), or the network plugin.
fn dataplane(network: Network) -> String {
    if network == Network::HostPort {
        return "the network plugin's port".into();
    }
    let ask = || -> io::Result<String> {
        let address = (Ipv4Addr::LOCALHOST, 10249).into();
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        write!(stream, "GET /proxyMode HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let answer = ask().unwrap_or_default();
    let mode = answer.split_once("\r\n\r\n").filter(|(head, _)| head.contains(" 200"));
    match mode {
        Some((_, mode)) => format!("kube-proxy with {}", mode.trim()),
        None => "no kube-proxy that says its mode".into(),
    }
}
