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

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use socket2::{Domain, SockFilter, Socket, Type};
use tare_host::RUN_VARIABLE;
use tare_host::exec::Command;
use tare_host::journal::Entry;
use tare_host::netns;
use tare_lab::environment::LayerState;

use super::SystemNetwork;
use crate::client::{NetworkError, ReachError, free_pair};
use crate::reach::{Forwarding, Reach};
use crate::run_context::RunContext;

/// The most starts behind a bridge of the host: longer names do not fit into those of devices.
const BRIDGES_MAX: u32 = 10_000;

/// How long a published port may take to accept a connection from outside.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// The instruction of a socket filter that drops every packet: return 0 bytes (BPF_RET | BPF_K).
const DROP: u16 = 0x06;

/// A bridge in the host's namespace, with the rules that publish the port of the system behind it.
#[derive(Debug)]
pub(crate) struct HostBridge {
    bridge: String,
    /// The bridge's port: the end of a veth pair, or the tap of a guest.
    pub(super) port_device: String,
    table: String,
    pub(super) published: SocketAddrV4,
    pub(super) gateway: Ipv4Addr,
    pub(super) system: Ipv4Addr,
    rules: String,
    /// Holds the published port, and drops what arrives while no rules stand.
    guard: Option<Socket>,
    client_device: String,
    standing: bool,
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

impl HostBridge {
    pub(super) fn plan(
        context: &RunContext,
        reach: &Reach,
        number: u32,
    ) -> Result<Self, NetworkError> {
        if number >= BRIDGES_MAX {
            return Err(NetworkError::TooManyRouters);
        }
        let prefix = context.prefix();
        Ok(Self {
            bridge: format!("{prefix}-b{number}"),
            port_device: format!("{prefix}-v{number}"),
            table: format!("{prefix}-n{number}"),
            published: SocketAddrV4::new(reach.address(), 0),
            gateway: Ipv4Addr::UNSPECIFIED,
            system: Ipv4Addr::UNSPECIFIED,
            rules: String::new(),
            guard: None,
            client_device: reach.client_device().to_string(),
            standing: false,
        })
    }

    /// Returns the entries that must be in the journal before `make`.
    pub(super) fn entries(&self) -> Vec<Entry> {
        vec![
            Entry::link(self.bridge.clone(), None),
            Entry::link(self.port_device.clone(), None),
            Entry::nft_table("ip", self.table.clone(), None),
        ]
    }

    /// Creates the bridge with its port, and chooses addresses and the published port.
    pub(super) fn make(
        &mut self,
        context: &RunContext,
        behind: Behind<'_>,
    ) -> Result<(), NetworkError> {
        let (bridge, port) = (&self.bridge, &self.port_device);
        (self.gateway, self.system) = free_pair(context.run(), None, Vec::new())?;
        let port_line = match behind.namespace {
            None => format!("tuntap add dev {port} mode tap vnet_hdr"),
            Some(name) => format!("link add {port} type veth peer name eth0 netns {name}"),
        };
        let gateway = self.gateway;
        let made = format!(
            "link add {bridge} type bridge\n\
             addr add {gateway}/30 dev {bridge}\n\
             {port_line}\n"
        );
        super::batch(context.run(), None, &made)?;
        [bridge, port].into_iter().try_for_each(|device| without_ipv6(device))?;
        let up =
            format!("link set {port} master {bridge}\nlink set {port} up\nlink set {bridge} up\n");
        super::batch(context.run(), None, &up)?;
        let address = *self.published.ip();
        let port = match behind.proxy {
            true => super::free_port(address)?,
            false => {
                let held = hold(address);
                let fail = |source| ReachError::Guard { address: self.published, source };
                let (guard, port) = held.map_err(fail)?;
                self.guard = Some(guard);
                port
            }
        };
        self.published.set_port(port);
        self.rules = self.rules(behind);
        Ok(())
    }

    /// Returns the lines of `ip` for the system's namespace.
    pub(super) fn inside(&self) -> String {
        let Self { system, gateway, .. } = self;
        format!(
            "link set lo up\n\
             addr add {system}/30 dev eth0\n\
             link set eth0 up\n\
             route add default via {gateway}\n"
        )
    }

    /// Returns the nft table: hooks and decisions like those of a router namespace
    /// (`super::table`). Packets of others pass, which a router has not.
    fn rules(&self, behind: Behind<'_>) -> String {
        let Self { table, bridge, system, gateway, published, .. } = self;
        let port = behind.port;
        let publish = match behind.proxy {
            true => String::new(),
            false => format!(
                "fib daddr type local ip daddr {} tcp dport {} dnat to {system}:{port}",
                published.ip(),
                published.port()
            ),
        };
        // One line of `nft`, so it ends in a semicolon.
        let publish = if publish.is_empty() { publish } else { format!("{publish};") };
        format!(
            "table ip {table} {{
  chain prerouting {{ type nat hook prerouting priority -100; policy accept; {publish} }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {gateway}/30 oifname != \"{bridge}\" masquerade
    ip saddr {system} ip daddr {system} tcp dport {port} masquerade
  }}
  chain user {{ return; }}
  chain isolate {{ iifname \"{bridge}\" oifname != \"{bridge}\" jump isolate2; return; }}
  chain isolate2 {{ oifname \"{bridge}\" drop; return; }}
  chain publish {{
    ip daddr {system} iifname != \"{bridge}\" oifname \"{bridge}\" tcp dport {port} accept
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

    /// Adds the rules, and lets the devices of the path forward. Idempotent.
    fn publish(&mut self, context: &RunContext, reach: &Reach) -> Result<(), NetworkError> {
        if self.standing {
            return Ok(());
        }
        self.standing = true;
        reach.forwarding().set(true)?;
        for device in [&self.client_device, &self.bridge] {
            Forwarding::of_ours(device, true)?;
        }
        let rules = Command::new("nft").args(["-f", "-"]).input(self.rules.clone());
        rules.variable(RUN_VARIABLE, context.run()).run()?;
        Ok(())
    }

    /// Removes the rules, and puts forwarding back. Idempotent.
    fn withdraw(&mut self, context: &RunContext, reach: &Reach) -> Result<(), NetworkError> {
        if !self.standing {
            return Ok(());
        }
        // Before the rules go, so that no packet leaves with the address behind the bridge.
        for device in [&self.bridge, &self.client_device] {
            Forwarding::of_ours(device, false)?;
        }
        let delete = Command::new("nft").args(["delete", "table", "ip", &self.table]);
        delete.variable(RUN_VARIABLE, context.run()).run()?;
        reach.forwarding().set(false)?;
        self.standing = false;
        Ok(())
    }
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
        let table = self.host_bridge().map(|bridge| bridge.table.as_str());
        read_reach(context, self.address, table, state)
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

/// Opens a listening socket on a free port that drops everything.
fn hold(address: Ipv4Addr) -> io::Result<(Socket, u16)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.attach_filter(&[SockFilter::new(DROP, 0, 0, 0)])?;
    socket.bind(&SocketAddr::from((address, 0)).into())?;
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
        let (_guard, port) = hold(Ipv4Addr::LOCALHOST).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let error = TcpStream::connect_timeout(&address, Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }
}
