//! The layer `sidecar`: a second container in the pod, which does nothing or is a TCP proxy before
//! the system. Its CPU time is an account of its own, beside that of the system.

use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tare_host::tcp::{self, Socket};
use tare_host::{netns, process};
use tare_kube::{PodMount, Sidecar as Container};
use tare_lab::PartError;
use tare_lab::environment::LayerState;
use tare_lab::layer::{Network, Sidecar};

use super::port::{ANSWER_LIMIT, connections};
use super::{KubernetesError, Pod, Running};
use crate::layer::network;
use crate::layer::rootfs::PROGRAM;
use crate::system;

/// How long the proxy may take to accept a connection that the kernel has established.
const ACCEPT_LIMIT: Duration = Duration::from_secs(1);

impl Pod {
    /// Returns where the system listens, and where clients reach it, if both would be `reached`
    /// without a proxy. Behind one it listens on loopback alone, so that no client passes the
    /// proxy by: clients of CQL look for a port of each shard.
    pub(super) fn ends(
        &self,
        reached: SocketAddrV4,
    ) -> Result<(SocketAddrV4, SocketAddrV4), PartError> {
        if self.spec.sidecar != Sidecar::Proxy {
            return Ok((reached, reached));
        }
        let (address, port) = (*reached.ip(), reached.port());
        let listen = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        // All pods of a study share the ports of the node.
        let of_node = match self.layers.network {
            Network::Host => Some(address),
            Network::HostPort => Some(self.node_address()?),
            _ => None,
        };
        let Some(node) = of_node else {
            let other = if port == u16::MAX { port - 1 } else { port + 1 };
            return Ok((listen, SocketAddrV4::new(address, other)));
        };
        loop {
            let free = network::free_port(node)?;
            if free != port {
                return Ok((listen, SocketAddrV4::new(address, free)));
            }
        }
    }

    /// Returns the second container, if the layer has one.
    pub(super) fn second_container(
        &self,
        program: PodMount,
        front: SocketAddrV4,
        listen: SocketAddrV4,
    ) -> Option<Container> {
        match self.spec.sidecar {
            Sidecar::None => None,
            Sidecar::Idle => Some(Container { command: Vec::new(), mounts: Vec::new() }),
            Sidecar::Proxy => {
                let (front, to) = (front.to_string(), listen.to_string());
                let words = [PROGRAM, "proxy", "--listen", &front, "--to", &to];
                let command = words.map(String::from).to_vec();
                Some(Container { command, mounts: vec![program] })
            }
        }
    }

    /// Reads back the second container: its process in the network namespace of the system's, and
    /// of a proxy that a new connection ends at it.
    pub(super) fn read_sidecar(&self) -> Result<Option<LayerState>, PartError> {
        let (wanted, environment) = (self.spec.sidecar, || self.spec.name.clone());
        if wanted.is_none() {
            return Ok(None);
        }
        let running = self.running.as_ref();
        let running =
            running.ok_or_else(|| KubernetesError::NotStarted { environment: environment() })?;
        let pid = running.sidecar.unwrap_or_default();
        let name = process::name(pid).unwrap_or_default();
        let inode = |pid| process::namespace_inode(pid, "net");
        let mut in_force = !name.is_empty() && inode(pid) == inode(running.system.pid);
        let mut found = match in_force {
            true => format!("process {pid} ({name}) in the pod's network namespace"),
            false => "no process in the pod's network namespace".into(),
        };
        if wanted == Sidecar::Proxy {
            let (text, ends) = self.read_proxy(running, pid);
            in_force &= ends;
            found += &format!("; {text}");
        }
        Ok(Some(system::state("sidecar", wanted, found, in_force)))
    }

    /// Returns whether a connection to the dialled address ends at a socket of the proxy.
    fn read_proxy(&self, running: &Running, pid: u32) -> (String, bool) {
        let dialled = running.dialled;
        let before = connections(pid);
        let connect = || TcpStream::connect_timeout(&dialled.into(), ANSWER_LIMIT);
        let _open = match netns::within(self.context.client().namespace(), connect) {
            Ok(Ok(open)) => open,
            Ok(Err(error)) => return (format!("{dialled} does not answer ({error})"), false),
            Err(error) => return (tare_host::error_line(&error), false),
        };
        let is_new = |one: &Socket| !before.contains(one) && one.local.port() == running.front;
        let deadline = Instant::now() + ACCEPT_LIMIT;
        loop {
            let sockets = tcp::open_inodes(pid);
            let all = connections(pid);
            let ours = all.iter().find(|one| is_new(one) && sockets.contains(&one.inode));
            match ours {
                Some(one) => {
                    return (format!("{dialled} ends at its socket, {}", one.local), true);
                }
                None if Instant::now() > deadline => {
                    return (format!("{dialled} ends at no socket of it"), false);
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}
