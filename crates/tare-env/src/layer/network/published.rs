//! Systems that loaders on other hosts reach, at one address of this host.
//!
//! With `host` the system listens on that address. With `bridge` the bridge is a device of the
//! host's own network namespace, like docker's, and NAT publishes the port. The rules, and the
//! forwarding that they need, stand only while the environment runs: freezing it withdraws them, so
//! that a baseline beside it does not pay for connection tracking. With `bridge+proxy` the proxy
//! listens on the address, and the other rules come and go in the same way.
//!
//! Connections stay open while the rules are away. What still arrives for them would find no socket
//! and be answered with a reset, so a listening socket holds the port, and a filter on it drops
//! everything (`tcp_filter` in net/ipv4/tcp_ipv4.c runs before the answer to an unknown packet).
//! The kernel keeps its table of connections, so those that are open work again with the rules.
//!
//! The client of this host dials the same address, through its link and a route.
//!
//! Several instances are behind one bridge, and each is published at a port of its own. One table
//! has the rules of all, in the order in which they started. An instance whose peers are on other
//! hosts is also published for them, at the port that all have for each other.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::{Domain, SockFilter, Socket, Type};
use tare_host::RUN_VARIABLE;
use tare_host::exec::Command;
use tare_host::journal::Entry;
use tare_host::netns;
use tare_lab::environment::LayerState;

use super::SystemNetwork;
use crate::client::{NetworkError, ReachError, free_block};
use crate::instance_slot::HostRules;
use crate::reach::{Forwarding, Reach};
use crate::run_context::RunContext;

/// The most starts behind a bridge of the host: longer names do not fit into those of devices.
const BRIDGES_MAX: u32 = 10_000;

/// How long a published port may take to accept a connection from outside.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// The instruction of a socket filter that drops every packet: return 0 bytes (BPF_RET | BPF_K).
const DROP: u16 = 0x06;

/// A bridge in the host's namespace, with the rules that publish the port of a system behind it.
#[derive(Debug)]
pub(crate) struct HostBridge {
    bridge: String,
    /// The bridge's port: the end of a veth pair, or the tap of a guest.
    pub(super) port_device: String,
    pub(super) published: SocketAddrV4,
    /// The port for instances on other hosts, inside and outside.
    node_port: Option<u16>,
    subnet: Subnet,
    pub(super) system: Ipv4Addr,
    /// Hold the published ports, and drop what arrives while no rules stand.
    _guards: Vec<Socket>,
    client_device: String,
    /// Whether this instance makes the bridge.
    is_first: bool,
    rules: Arc<Mutex<HostRules>>,
}

/// The network behind a bridge of the host.
#[derive(Clone, Copy, Debug)]
struct Subnet {
    base: Ipv4Addr,
    prefix: u8,
}

/// What a bridge of the host is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind<'a> {
    /// The name of the system's namespace; `None` for a guest with a tap device.
    pub(super) namespace: Option<&'a str>,
    /// The port that the system listens on.
    pub(super) port: u16,
    /// Whether a userland proxy listens on the published port.
    pub(super) proxy: bool,
}

impl Subnet {
    /// Chooses the network of an instance; the first instance chooses that of all.
    fn choose(context: &RunContext) -> Result<Self, NetworkError> {
        let (run, slot) = (context.run(), context.slot());
        let free = |size| free_block(run, None, Vec::new(), size);
        Ok(match slot.count() {
            1 => Self { base: free(4)?, prefix: 30 },
            _ => Self { base: slot.subnet(|| free(256))?, prefix: 24 },
        })
    }

    fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base) + 1)
    }

    fn instance(self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base) + 2 + number)
    }
}

impl HostBridge {
    /// Chooses addresses and the published port. `proxy`: a userland proxy will listen on it.
    pub(super) fn plan(
        context: &RunContext,
        reach: &Reach,
        number: u32,
        proxy: bool,
    ) -> Result<Self, NetworkError> {
        if number >= BRIDGES_MAX {
            return Err(NetworkError::TooManyRouters);
        }
        let (prefix, slot) = (context.prefix(), context.slot());
        let of = slot.router(number);
        let subnet = Subnet::choose(context)?;
        let address = reach.address();
        let (mut guards, node_port) = (Vec::new(), slot.peers().map(|peers| peers.node_port));
        let mut guard = |port| -> Result<u16, NetworkError> {
            let fail =
                |source| ReachError::Guard { address: SocketAddrV4::new(address, port), source };
            let (socket, port) = hold(address, port).map_err(fail)?;
            guards.push(socket);
            Ok(port)
        };
        let wanted = slot.peers().map(|peers| peers.port);
        let port = match (proxy, wanted) {
            (true, Some(port)) => port,
            (true, None) => super::free_port(address)?,
            (false, wanted) => guard(wanted.unwrap_or(0))?,
        };
        node_port.map_or(Ok(0), guard)?;
        Ok(Self {
            bridge: format!("{prefix}-b{of}"),
            port_device: format!("{prefix}-v{number}"),
            published: SocketAddrV4::new(address, port),
            node_port,
            subnet,
            system: subnet.instance(slot.number()),
            _guards: guards,
            client_device: reach.client_device().to_string(),
            is_first: of == number,
            rules: slot.host_rules(format!("{prefix}-n{of}")),
        })
    }

    /// Returns the entries that must be in the journal before `make`.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let port = Entry::link(self.port_device.clone(), None);
        if !self.is_first {
            return vec![port];
        }
        let table = Entry::nft_table("ip", self.table(), None);
        vec![Entry::link(self.bridge.clone(), None), port, table]
    }

    /// Returns the address of an instance, counted from 0.
    pub(super) fn instance(&self, number: u32) -> Ipv4Addr {
        self.subnet.instance(number)
    }

    /// Returns the address of the bridge and the length of its network's prefix.
    pub(super) fn gateway(&self) -> (Ipv4Addr, u8) {
        (self.subnet.gateway(), self.subnet.prefix)
    }

    fn table(&self) -> String {
        lock(&self.rules).table.clone()
    }

    /// Creates the bridge, if this is the first instance, with the port of this one.
    pub(super) fn make(
        &mut self,
        context: &RunContext,
        behind: Behind<'_>,
    ) -> Result<(), NetworkError> {
        let (bridge, port) = (&self.bridge, &self.port_device);
        let mut made = String::new();
        if self.is_first {
            let (gateway, prefix) = self.gateway();
            made = format!(
                "link add {bridge} type bridge\naddr add {gateway}/{prefix} dev {bridge}\n"
            );
        }
        made += &match behind.namespace {
            None => format!("tuntap add dev {port} mode tap vnet_hdr\n"),
            Some(name) => format!("link add {port} type veth peer name eth0 netns {name}\n"),
        };
        super::batch(context.run(), None, &made)?;
        let new = self.is_first.then_some(bridge).into_iter().chain([port]);
        new.into_iter().try_for_each(|device| without_ipv6(device))?;
        let up =
            format!("link set {port} master {bridge}\nlink set {port} up\nlink set {bridge} up\n");
        super::batch(context.run(), None, &up)?;
        let table = self.table();
        let part = match self.is_first {
            true => self.first_rules(&table, behind),
            false => self.joining_rules(&table, behind),
        };
        lock(&self.rules).parts.push(part);
        Ok(())
    }

    /// Returns the lines of `ip` for the system's namespace.
    pub(super) fn inside(&self) -> String {
        let Self { system, .. } = self;
        let (gateway, prefix) = self.gateway();
        format!(
            "link set lo up\n\
             addr add {system}/{prefix} dev eth0\n\
             link set eth0 up\n\
             route add default via {gateway}\n"
        )
    }

    /// Returns the rules that map the published ports to those of the system.
    fn publishing(&self, behind: Behind<'_>) -> Vec<String> {
        let Self { system, published, .. } = self;
        let address = published.ip();
        let to_client = (published.port(), behind.port);
        let to_client = (!behind.proxy).then_some(to_client);
        let to_node = self.node_port.map(|port| (port, port));
        let rule = |(outside, inside)| {
            format!(
                "fib daddr type local ip daddr {address} tcp dport {outside} dnat to {system}:{inside}"
            )
        };
        to_client.into_iter().chain(to_node).map(rule).collect()
    }

    /// Returns the ports that the system listens on.
    fn ports(&self, behind: Behind<'_>) -> String {
        let ports = std::iter::once(behind.port).chain(self.node_port);
        let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
        match &ports[..] {
            [port] => port.clone(),
            _ => format!("{{ {} }}", ports.join(", ")),
        }
    }

    /// Returns the nft table of the first instance: hooks and decisions like those of a router
    /// namespace (`super::table`). Packets of others pass, which a router has not.
    fn first_rules(&self, table: &str, behind: Behind<'_>) -> String {
        let Self { bridge, system, .. } = self;
        let (gateway, prefix) = self.gateway();
        let ports = self.ports(behind);
        let publish: String =
            self.publishing(behind).into_iter().map(|rule| format!("    {rule}\n")).collect();
        format!(
            "table ip {table} {{
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
{publish}  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {gateway}/{prefix} oifname != \"{bridge}\" masquerade
    ip saddr {system} ip daddr {system} tcp dport {ports} masquerade
  }}
  chain user {{ return; }}
  chain isolate {{ iifname \"{bridge}\" oifname != \"{bridge}\" jump isolate2; return; }}
  chain isolate2 {{ oifname \"{bridge}\" drop; return; }}
  chain publish {{
    ip daddr {system} iifname != \"{bridge}\" oifname \"{bridge}\" tcp dport {ports} accept
  }}
  chain forward {{
    type filter hook forward priority 0; policy accept;
    jump user
    jump isolate
    oifname \"{bridge}\" ct state established,related accept
    oifname \"{bridge}\" jump publish
    iifname \"{bridge}\" accept
    oifname \"{bridge}\" drop
  }}
}}
"
        )
    }

    /// Returns the rules that a further instance adds to the table, like `super::joining`.
    fn joining_rules(&self, table: &str, behind: Behind<'_>) -> String {
        let Self { bridge, system, .. } = self;
        let ports = self.ports(behind);
        let publish: String = self
            .publishing(behind)
            .into_iter()
            .map(|rule| format!("add rule ip {table} prerouting {rule}\n"))
            .collect();
        format!(
            "{publish}add rule ip {table} postrouting ip saddr {system} ip daddr {system} tcp dport {ports} masquerade
add rule ip {table} publish ip daddr {system} iifname != \"{bridge}\" oifname \"{bridge}\" tcp dport {ports} accept
"
        )
    }

    /// Adds the rules of all instances that have started, and lets the devices of the path forward.
    /// Idempotent.
    fn publish(&mut self, context: &RunContext, reach: &Reach) -> Result<(), NetworkError> {
        let mut rules = lock(&self.rules);
        if rules.standing == rules.parts.len() {
            return Ok(());
        }
        let missing = rules.parts[rules.standing..].concat();
        let are_first = rules.standing == 0;
        // Before anything is changed, so that `withdraw` also undoes a part of it.
        rules.standing = rules.parts.len();
        if are_first {
            reach.forwarding().set(true)?;
            for device in [&self.client_device, &self.bridge] {
                Forwarding::of_ours(device, true)?;
            }
        }
        let added = Command::new("nft").args(["-f", "-"]).input(missing);
        added.variable(RUN_VARIABLE, context.run()).run()?;
        Ok(())
    }

    /// Removes the rules of all instances, and puts forwarding back. Idempotent.
    fn withdraw(&mut self, context: &RunContext, reach: &Reach) -> Result<(), NetworkError> {
        let mut rules = lock(&self.rules);
        if rules.standing == 0 {
            return Ok(());
        }
        // Before the rules go, so that no packet leaves with the address behind the bridge.
        Forwarding::of_ours(&self.bridge, false)?;
        Forwarding::of_ours(&self.client_device, reach.client_forwards())?;
        let delete = Command::new("nft").args(["delete", "table", "ip", &rules.table]);
        delete.variable(RUN_VARIABLE, context.run()).run()?;
        reach.forwarding().set(false)?;
        rules.standing = 0;
        Ok(())
    }
}

fn lock(rules: &Mutex<HostRules>) -> MutexGuard<'_, HostRules> {
    rules.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SystemNetwork {
    /// Publishes the port of the system, if it is behind a bridge of the host. Idempotent.
    pub(crate) fn publish(&mut self, context: &RunContext) -> Result<(), NetworkError> {
        match (context.reach(), self.host_bridge_mut()) {
            (Some(reach), Some(bridge)) => bridge.publish(context, reach),
            _ => Ok(()),
        }
    }

    /// Removes what `publish` added. Idempotent.
    pub(crate) fn withdraw(&mut self, context: &RunContext) -> Result<(), NetworkError> {
        match (context.reach(), self.host_bridge_mut()) {
            (Some(reach), Some(bridge)) => bridge.withdraw(context, reach),
            _ => Ok(()),
        }
    }

    fn host_bridge_mut(&mut self) -> Option<&mut HostBridge> {
        self.router.as_mut()?.on_host.as_mut()
    }

    pub(crate) fn host_bridge(&self) -> Option<&HostBridge> {
        self.router.as_ref()?.on_host.as_ref()
    }

    /// Adds to the read-back of the network layer how the system is reached from other hosts.
    pub(crate) fn read_reach(&self, context: &RunContext, state: LayerState) -> LayerState {
        let table = self.host_bridge().map(HostBridge::table);
        read_reach(context, self.address, table.as_deref(), state)
    }
}

impl HostBridge {
    /// Returns whether the port's device is on the bridge.
    pub(crate) fn has_port(&self) -> bool {
        let master = format!("/sys/class/net/{}/master", self.port_device);
        fs::read_link(master).is_ok_and(|path| path.ends_with(&self.bridge))
    }
}

/// Adds to the read-back of the network layer of a running system whether `address` answers outside
/// of the host's namespace, and whether only the environment's own rules stand.
pub(crate) fn read_reach(
    context: &RunContext,
    address: SocketAddr,
    table: Option<&str>,
    mut state: LayerState,
) -> LayerState {
    let Some(reach) = context.reach() else { return state };
    let (tables, as_wanted) = match tables_of_run(context) {
        Ok(tables) => (tables.join(" "), tables.iter().map(String::as_str).eq(table)),
        Err(error) => (tare_host::error_line(&error), false),
    };
    let tables = if tables.is_empty() { "none".into() } else { tables };
    let connect = || TcpStream::connect_timeout(&address, ANSWER_LIMIT);
    let (answer, answers) = match netns::within(context.client().namespace(), connect) {
        Ok(Ok(_)) => ("answers outside".to_string(), true),
        Ok(Err(error)) => {
            (format!("does not answer outside ({error}; does a firewall drop it?)"), false)
        }
        Err(error) => (tare_host::error_line(&error), false),
    };
    let (forwarding, forwards) = reach.forwarding().state(table.is_some());
    state.found += &format!("; {address} {answer}; rules on the host: {tables}; {forwarding}");
    state.in_force &= as_wanted && answers && forwards;
    state
}

/// Returns the nft tables of this run that publish a port on the host now.
fn tables_of_run(context: &RunContext) -> Result<Vec<String>, NetworkError> {
    let listed = Command::new("nft").args(["list", "tables", "ip"]).run()?.stdout;
    let prefix = format!("table ip {}-n", context.prefix());
    let ours = listed.lines().filter(|line| line.starts_with(&prefix));
    Ok(ours.filter_map(|line| line.rsplit(' ').next().map(str::to_string)).collect())
}

/// Opens a listening socket on a port, or on any free one (0), that drops everything.
fn hold(address: Ipv4Addr, port: u16) -> io::Result<(Socket, u16)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.attach_filter(&[SockFilter::new(DROP, 0, 0, 0)])?;
    socket.bind(&SocketAddr::from((address, port)).into())?;
    socket.listen(1)?;
    let port = socket.local_addr()?.as_socket_ipv4().map_or(0, |bound| bound.port());
    Ok((socket, port))
}

/// Turns off IPv6 on one of Tare's devices in the host's namespace, as in namespaces of its own.
fn without_ipv6(device: &str) -> Result<(), NetworkError> {
    let path = PathBuf::from(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"));
    match fs::write(&path, "1") {
        // A kernel without IPv6 has no such file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|source| NetworkError::Setting { path, value: "1", source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_port_answers_nothing() {
        let (_guard, port) = hold(Ipv4Addr::LOCALHOST, 0).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let error = TcpStream::connect_timeout(&address, Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }
}
