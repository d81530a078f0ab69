//! The layer `sidecar`: a second container in the pod, which does nothing or is a TCP proxy before
//! the system. Its CPU time is an account of its own, beside that of the system.

use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tare_host::cgroup::Cgroup;
use tare_host::tcp::{self, Socket};
use tare_host::{netns, process};
use tare_kube::{Amounts, Cpus, PodMount, Sidecar as Container};
use tare_lab::PartError;
use tare_lab::environment::LayerState;
use tare_lab::layer::{Network, Sidecar};

use super::port::ANSWER_LIMIT;
use super::{KubernetesError, Pod, Running};
use crate::layer::network;
use crate::layer::rootfs::PROGRAM;
use crate::system;

/// What the pause program gets in a Guaranteed pod, where every container needs limits.
const IDLE: Amounts = Amounts { cpu_milli: 10, memory_bytes: 16 << 20 };

/// What a proxy gets there, beside as much CPU time as the system.
const PROXY_BYTES: u64 = 64 << 20;

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
        let (command, mounts) = match self.spec.sidecar {
            Sidecar::None => return None,
            Sidecar::Idle => (Vec::new(), Vec::new()),
            Sidecar::Proxy => {
                let (front, to) = (front.to_string(), listen.to_string());
                let words = [PROGRAM, "proxy", "--listen", &front, "--to", &to];
                (words.map(String::from).to_vec(), vec![program])
            }
        };
        Some(Container { command, mounts, amounts: self.amounts_of_sidecar() })
    }

    /// Returns the requests and limits of the second container. Without them the pod would not be
    /// Guaranteed.
    fn amounts_of_sidecar(&self) -> Option<Amounts> {
        let (Cpus::Limit(cpu_milli), Some(_)) = (self.cpus, self.layers.limits.memory_bytes) else {
            return None;
        };
        match self.spec.sidecar {
            Sidecar::None => None,
            Sidecar::Idle => Some(IDLE),
            Sidecar::Proxy => Some(Amounts { cpu_milli, memory_bytes: PROXY_BYTES }),
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
        if let (Some(amounts), Some(id)) = (self.amounts_of_sidecar(), &running.pod.sidecar) {
            let (text, are_in_force) = read_amounts(self.group_of(pid, id)?.as_ref(), amounts);
            in_force &= are_in_force;
            found += &format!("; {text}");
        }
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
        let connections = || tcp::connections(&pid.to_string());
        let before = connections();
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
            let all = connections();
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

/// Reads the limits of a container in its cgroup. Whole CPUs of a static CPU manager have no quota
/// since Kubernetes 1.33.
fn read_amounts(group: Option<&Cgroup>, amounts: Amounts) -> (String, bool) {
    let Some(group) = group else { return ("no cgroup with its id".into(), false) };
    let memory = group.memory().ok().flatten();
    let quota = group.bandwidth().ok().flatten();
    let is_whole = amounts.cpu_milli.is_multiple_of(1000);
    let is_limited = match quota {
        Some(quota) => quota.quota_us * 1000 == amounts.cpu_milli * quota.period_us,
        None => is_whole,
    };
    let memory_text = memory.map_or("none".into(), |bytes| format!("{} MiB", bytes >> 20));
    let quota_text = quota.map_or("none".into(), |quota| quota.to_string());
    let in_force = memory == Some(amounts.memory_bytes) && is_limited;
    (format!("memory limit {memory_text}, quota {quota_text}"), in_force)
}
