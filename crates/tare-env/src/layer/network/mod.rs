//! The network layer between the client and the system.
//!
//! The client always has its own namespace, `tare-RUN-client`; otherwise its packets would take the
//! loopback device past the layer. With `host`, a veth pair links it to the namespace in which the
//! system listens. With `bridge`, each environment has a router namespace in the role of the
//! container's host: veth to the client, DNAT of the published port, masquerade, a forward chain
//! like docker's, a bridge, and the container's namespace behind it. The host's own namespace gets
//! no NAT table, which would add to the cost of the baseline. With `bridge+proxy`, a userland proxy
//! in the router replaces DNAT.
//!
//! The other kinds have no published port: the client dials the system's own address. With
//! `macvlan` and `ipvlan` both have a device on one parent (`same_parent`), with `vxlan` both ends
//! of a tunnel (`overlay`), with `pasta` a program forwards the port (`pasta`), and with `none` the
//! system is in the client's namespace. `needs` finds out what the kernel lacks; `read_links` reads
//! them back.
//!
//! Several instances of a system have one port and different addresses: with `host` more addresses
//! of the link, with `bridge` namespaces behind one bridge, each published on its own address.
//!
//! With loaders on other hosts, systems listen on, or are published at, an address of this host,
//! several instances each at a port of its own: `published` explains how.
//!
//! Addresses are from 198.18.0.0/15, which RFC 2544 reserves for benchmarks: 198.18/16 for links to
//! namespaces that Tare did not create, 198.19/16 inside its own.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;

use tare_host::RUN_VARIABLE;
use tare_host::exec::Command;
use tare_host::journal::Entry;
use tare_host::netns;

pub use crate::client::{Client, NetworkError, ReachError, free_port};
use crate::client::{ROUTERS_MAX, batch, without_ipv6};
pub(crate) use crate::client::{free_pair, must_be_free};
use crate::instance_slot::{InstanceSlot, Peers};
use crate::layer::limits::{LimitError, Link};
use crate::reach::Reach;
use crate::run_context::RunContext;
use tare_lab::layer::{Limits, Network};

mod needs;
mod overlay;
mod pasta;
mod published;
mod read_links;
mod same_parent;

pub(crate) use needs::{check_hosts, needs};
pub(crate) use pasta::PASTA;
pub(crate) use published::read_reach;
use published::{Behind, HostBridge};

/// The default port of a system in a container, and the published port: Cassandra's.
pub const PORT: u16 = 9042;

/// The port of instances for each other where every environment has addresses of its own: that of
/// Cassandra and Scylla.
pub(crate) const NODE_PORT: u16 = 7000;

/// The most instances in an environment: each has a loopback address that ends in its number.
pub(crate) const INSTANCES_MAX: u32 = 200;

/// The addresses of the container and its bridge, the same behind every router.
pub(crate) const SYSTEM_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 2);
pub(crate) const BRIDGE_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 1);

/// The namespaces of one started environment behind a bridge. Every start uses a new number,
/// because the kernel removes the links of a namespace some time after its name.
#[derive(Debug)]
pub struct Router {
    number: u32,
    /// The number of the start that created the router: the first instance's.
    of: u32,
    slot: u32,
    router: String,
    system: String,
    /// The port that the system listens on.
    port: u16,
    /// Whether the system is a guest, with a tap device on the bridge instead of a namespace.
    tap: bool,
    /// The process of the userland proxy, or of pasta.
    proxy: Option<Child>,
    /// What the router consists of.
    network: Network,
    /// The bridge in the host's namespace that replaces the router's, for loaders on other hosts.
    on_host: Option<HostBridge>,
}

/// The tap device of a guest, in its router's namespace.
pub(crate) const TAP: &str = "tare-s";

impl Router {
    /// Returns the router of start `number`. `make` creates it. `port` is the fixed port of a
    /// system whose port cannot be set.
    pub(crate) fn new(
        context: &RunContext,
        number: u32,
        network: Network,
        port: Option<u16>,
    ) -> Result<Self, NetworkError> {
        let has_proxy = network.has_proxy();
        if number >= ROUTERS_MAX {
            return Err(NetworkError::TooManyRouters);
        }
        let prefix = context.prefix();
        let (of, slot) = (context.slot().router(number), context.slot().number());
        let router = format!("{prefix}-r{of}");
        let system = format!("{prefix}-s{number}");
        let plan = |reach| HostBridge::plan(context, reach, number, has_proxy);
        let on_host = context.reach().map(plan).transpose()?;
        // A client asks one instance for the ports of the others.
        let common = context.slot().count() > 1 || context.slot().peers().is_some();
        let published = on_host.as_ref().map(|bridge| bridge.published.port());
        let port = port.or(published.filter(|_| common)).unwrap_or(PORT);
        let (tap, proxy) = (false, None);
        Ok(Self { number, of, slot, router, system, port, tap, proxy, network, on_host })
    }

    /// Returns the router for a virtual machine, whose monitor runs in the router's namespace.
    pub(crate) fn for_guest(
        context: &RunContext,
        number: u32,
        proxy: bool,
    ) -> Result<Self, NetworkError> {
        let network = Network::Bridge { proxy };
        Ok(Self { tap: true, ..Self::new(context, number, network, None)? })
    }

    /// Returns the entries that must be in the journal before `make`.
    pub fn entries(&self) -> Vec<Entry> {
        if let Some(bridge) = &self.on_host {
            let system = (!self.tap).then(|| Entry::network_namespace(self.system.clone()));
            return system.into_iter().chain(bridge.entries()).collect();
        }
        let names = match (self.tap, self.is_first()) {
            (true, true) => vec![&self.router],
            (true, false) => Vec::new(),
            (false, true) => vec![&self.router, &self.system],
            (false, false) => vec![&self.system],
        };
        names.into_iter().map(|name| Entry::network_namespace(name.clone())).collect()
    }

    /// Returns the addresses for the arguments of the system behind the bridge.
    pub(crate) fn addresses(&self, slot: &InstanceSlot) -> SystemAddresses {
        SystemAddresses {
            listen: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, self.port),
            advertised: *self.published().ip(),
            nodes: self.nodes(slot),
        }
    }

    /// Returns the addresses at which the instances find each other.
    fn nodes(&self, slot: &InstanceSlot) -> NodeAddresses {
        match (&self.on_host, slot.peers()) {
            (Some(bridge), Some(peers)) => {
                NodeAddresses { own: bridge.system, ..NodeAddresses::of_hosts(peers) }
            }
            (Some(bridge), None) => NodeAddresses::of(slot, |number| bridge.instance(number)),
            (None, _) => NodeAddresses::of(slot, behind_bridge),
        }
    }

    fn is_first(&self) -> bool {
        self.of == self.number
    }

    /// Returns the address of the system behind the bridge.
    pub(crate) fn system_address(&self) -> Ipv4Addr {
        self.on_host.as_ref().map_or_else(|| behind_bridge(self.slot), |bridge| bridge.system)
    }

    /// Returns the address of the bridge and the length of its network's prefix.
    pub(crate) fn gateway(&self) -> (Ipv4Addr, u8) {
        self.on_host.as_ref().map_or((BRIDGE_ADDRESS, 24), HostBridge::gateway)
    }

    /// Returns the device of the bridge behind which the system is: of a guest the tap device.
    pub(crate) fn bridge_port(&self) -> String {
        self.on_host
            .as_ref()
            .map_or_else(|| bridge_port(self.slot), |bridge| bridge.port_device.clone())
    }

    /// Returns the namespace in which the system or its guest's monitor runs; `None`: the host's.
    pub fn system_namespace(&self) -> Option<PathBuf> {
        match (self.tap, &self.on_host) {
            (true, Some(_)) => None,
            (true, None) => Some(netns::path(&self.router)),
            (false, _) => Some(netns::path(&self.system)),
        }
    }

    /// Returns the namespace that holds the bridge; `None`: the host's.
    pub(crate) fn bridge_namespace(&self) -> Option<PathBuf> {
        self.on_host.is_none().then(|| netns::path(&self.router))
    }

    /// Returns the address to which the client connects.
    pub fn published(&self) -> SocketAddrV4 {
        match &self.on_host {
            Some(bridge) => bridge.published,
            None => {
                let direct =
                    matches!(self.network, Network::Macvlan | Network::Ipvlan | Network::Vxlan);
                let port = if direct { self.port } else { PORT };
                SocketAddrV4::new(self.link_address(2), port)
            }
        }
    }

    /// Returns address `last` of the /30 between client and router.
    fn link_address(&self, last: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 19, 0, 0)) + self.number * 4 + last)
    }

    /// Creates both namespaces with their links and rules, and starts the proxy if requested.
    ///
    /// # Errors
    /// When a step fails; undoing the journal removes what was created.
    pub fn make(&mut self, context: &RunContext) -> Result<(), NetworkError> {
        match self.network {
            Network::Macvlan | Network::Ipvlan => return self.make_on_same_parent(context),
            Network::Vxlan => return self.make_overlay(context),
            Network::Pasta => return self.make_pasta(context),
            _ => {}
        }
        let proxy = self.network.has_proxy();
        let router = match (self.on_host.is_some(), self.is_first()) {
            (true, _) => self.make_on_host(context, proxy)?,
            (_, true) => Some(self.make_router(context, proxy)?),
            (_, false) => Some(self.join(context, proxy)?),
        };
        if proxy {
            self.proxy = Some(self.start_proxy(context, router.as_deref())?);
        }
        Ok(())
    }

    /// Creates the bridge in the host's namespace. Returns the namespace of the router: none.
    fn make_on_host(
        &mut self,
        context: &RunContext,
        proxy: bool,
    ) -> Result<Option<PathBuf>, NetworkError> {
        let (tap, port) = (self.tap, self.port);
        let Some(bridge) = &mut self.on_host else { return Ok(None) };
        let system = (!tap).then(|| netns::make(&self.system)).transpose()?;
        system.as_deref().map_or(Ok(()), without_ipv6)?;
        let namespace = system.is_some().then_some(self.system.as_str());
        bridge.make(context, Behind { namespace, port, proxy })?;
        if let Some(system) = &system {
            batch(context.run(), Some(system), &bridge.inside())?;
        }
        Ok(None)
    }

    /// Creates the namespaces of this start that do not exist yet: the system's, and for the first
    /// instance the router's.
    fn make_namespaces(&self) -> Result<(PathBuf, PathBuf), NetworkError> {
        let router = match self.is_first() {
            true => netns::make(&self.router)?,
            false => netns::path(&self.router),
        };
        let system = netns::make(&self.system)?;
        without_ipv6(&router)?;
        without_ipv6(&system)?;
        Ok((router, system))
    }

    /// Returns the lines of `ip` for the system's namespace, whose device has the address that the
    /// client dials. Several instances have more addresses, at which they find each other.
    fn inside_direct(&self, context: &RunContext, prefix: u8) -> String {
        let far = self.link_address(2);
        let others = match context.slot().count() {
            1 => String::new(),
            _ => format!("addr add {}/24 dev eth0\n", behind_bridge(self.slot)),
        };
        format!("link set lo up\naddr add {far}/{prefix} dev eth0\n{others}link set eth0 up\n")
    }

    /// Returns the name of the client's device towards this router.
    fn client_device(&self) -> String {
        format!("tare-r{}", self.of)
    }

    /// Adds a namespace to the router of another instance.
    fn join(&self, context: &RunContext, proxy: bool) -> Result<PathBuf, NetworkError> {
        let router = netns::path(&self.router);
        let system = (!self.tap).then(|| netns::make(&self.system)).transpose()?;
        system.as_deref().map_or(Ok(()), without_ipv6)?;
        let port = self.bridge_port();
        let device = self.device(&port);
        let (near, far) = (self.link_address(1), self.link_address(2));
        let text = format!(
            "{device}\n\
             link set {port} master tare0\n\
             link set {port} up\n\
             addr add {far}/30 dev tare-c\n"
        );
        batch(context.run(), Some(&router), &text)?;
        if let Some(system) = &system {
            batch(context.run(), Some(system), &self.inside())?;
        }
        let text = format!("addr add {near}/30 dev tare-r{}\n", self.of);
        batch(context.run(), Some(context.client().namespace()), &text)?;
        let system = SocketAddrV4::new(self.system_address(), self.port);
        let rules = joining(system, far, proxy);
        let rules = Command::new("nft").args(["-f", "-"]).input(rules);
        rules.variable(RUN_VARIABLE, context.run()).in_namespace(&router).run()?;
        Ok(router)
    }

    /// Returns the line of `ip` that creates the device of the bridge behind which the system is.
    fn device(&self, port: &str) -> String {
        match self.tap {
            true => format!("tuntap add dev {port} mode tap vnet_hdr"),
            false => format!("link add {port} type veth peer name eth0 netns {}", self.system),
        }
    }

    /// Returns the lines of `ip` for the system's namespace.
    fn inside(&self) -> String {
        let address = self.system_address();
        format!(
            "link set lo up\n\
             addr add {address}/24 dev eth0\n\
             link set eth0 up\n\
             route add default via {BRIDGE_ADDRESS}\n"
        )
    }

    fn make_router(&self, context: &RunContext, proxy: bool) -> Result<PathBuf, NetworkError> {
        let (router, system) = thread::scope(|scope| {
            let router = scope.spawn(|| netns::make(&self.router));
            let system = (!self.tap).then(|| netns::make(&self.system)).transpose();
            (joined(router), system)
        });
        let (router, system) = (router?, system?);
        system.as_deref().map_or(Ok(()), without_ipv6)?;
        let port = self.device(TAP);
        let (near, far) = (self.link_address(1), self.link_address(2));
        let (number, client) = (self.number, &context.client().name);
        // One command creates both veth pairs, with their far ends in the other namespaces.
        batch(
            context.run(),
            Some(&router),
            &format!(
                "link set lo up\n\
                 link add tare0 type bridge\n\
                 addr add {BRIDGE_ADDRESS}/24 dev tare0\n\
                 {port}\n\
                 link set {TAP} master tare0\n\
                 link set {TAP} up\n\
                 link set tare0 up\n\
                 link add tare-c type veth peer name tare-r{number} netns {client}\n\
                 addr add {far}/30 dev tare-c\n\
                 link set tare-c up\n"
            ),
        )?;
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let Some(system) = &system else { return Ok(()) };
                batch(context.run(), Some(system), &self.inside())
            });
            let outside = scope.spawn(|| {
                let link = format!("tare-r{number}");
                let text = format!("addr add {near}/30 dev {link}\nlink set {link} up\n");
                batch(context.run(), Some(context.client().namespace()), &text)
            });
            let forward = || {
                let path = PathBuf::from("/proc/sys/net/ipv4/ip_forward");
                let result = fs::write(&path, "1");
                result.map_err(|source| NetworkError::Setting { path, value: "1", source })
            };
            netns::within(&router, forward)??;
            let table = Command::new("nft").args(["-f", "-"]).input(table(proxy, self.port));
            table.variable(RUN_VARIABLE, context.run()).in_namespace(&router).run()?;
            joined(inside)?;
            joined(outside)
        })?;
        Ok(router)
    }

    fn start_proxy(
        &self,
        context: &RunContext,
        router: Option<&Path>,
    ) -> Result<Child, NetworkError> {
        let to = SocketAddrV4::new(self.system_address(), self.port);
        let command = Command::new(context.program())
            .args(["proxy", "--listen", &self.published().to_string(), "--to", &to.to_string()])
            .variable(RUN_VARIABLE, context.run())
            .on_cpus(&context.cpus().all);
        let command = match router {
            Some(router) => command.in_namespace(router),
            None => command,
        };
        Ok(command.spawn(Stdio::null(), Stdio::null(), Stdio::null())?)
    }

    /// Returns the process of the userland proxy, if there is one.
    pub fn proxy_pid(&self) -> Option<u32> {
        self.proxy.as_ref().map(Child::id)
    }

    /// Stops the proxy, which would keep its namespace alive. Idempotent.
    pub fn end_proxy(&mut self) -> io::Result<()> {
        match self.proxy.take() {
            Some(mut proxy) => {
                proxy.kill()?;
                proxy.wait().map(|_| ())
            }
            None => Ok(()),
        }
    }
}

/// Returns the router's nft table. It has the hooks and decisions of dockerd's iptables chains in
/// the same order (PREROUTING/DOCKER, POSTROUTING, FORWARD with DOCKER-USER, isolation, conntrack,
/// DOCKER). NAT priorities are numbers because nft 1.0 does not accept the names in every hook.
fn table(proxy: bool, port: u16) -> String {
    let publish = match proxy {
        true => String::new(),
        false => format!("fib daddr type local tcp dport {PORT} dnat to {SYSTEM_ADDRESS}:{port}"),
    };
    format!(
        "table ip tare {{
  chain prerouting {{ type nat hook prerouting priority -100; policy accept; {publish}; }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr 198.19.255.0/24 oifname != \"tare0\" masquerade
    ip saddr {SYSTEM_ADDRESS} ip daddr {SYSTEM_ADDRESS} tcp dport {port} masquerade
  }}
  chain user {{ return; }}
  chain isolate {{ iifname \"tare0\" oifname != \"tare0\" jump isolate2; return; }}
  chain isolate2 {{ oifname \"tare0\" drop; return; }}
  chain publish {{
    ip daddr {SYSTEM_ADDRESS} iifname != \"tare0\" oifname \"tare0\" tcp dport {port} accept
  }}
  chain forward {{
    type filter hook forward priority 0; policy drop;
    jump user
    jump isolate
    oifname \"tare0\" ct state established,related accept
    oifname \"tare0\" jump publish
    iifname \"tare0\" accept
  }}
}}
"
    )
}

/// Returns the rules of a further instance behind the bridge: those that docker adds for each
/// container, and its DNAT before that of the first instance, which matches every address.
fn joining(system: SocketAddrV4, published: Ipv4Addr, proxy: bool) -> String {
    let (address, port) = (system.ip(), system.port());
    let publish = match proxy {
        true => String::new(),
        false => format!(
            "insert rule ip tare prerouting ip daddr {published} tcp dport {PORT} dnat to {system}\n"
        ),
    };
    format!(
        "{publish}add rule ip tare postrouting ip saddr {address} ip daddr {address} tcp dport {port} masquerade
add rule ip tare publish ip daddr {address} iifname != \"tare0\" oifname \"tare0\" tcp dport {port} accept
"
    )
}

/// Returns the name of an instance's device in the router's namespace: the near end of a veth pair,
/// or the tap device of a guest.
fn bridge_port(slot: u32) -> String {
    if slot == 0 { TAP.to_string() } else { format!("{TAP}{slot}") }
}

/// Returns the address of an instance behind the bridge.
fn behind_bridge(slot: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(SYSTEM_ADDRESS) + slot)
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The network of one started environment.
#[derive(Debug)]
pub struct SystemNetwork {
    /// The address to which the client connects.
    pub address: SocketAddr,
    /// The address on which the system listens, as seen from inside.
    pub listen: SocketAddrV4,
    /// The addresses at which the instances of the environment find each other.
    pub(crate) nodes: NodeAddresses,
    /// The namespace in which the system must run; `None` for the host's.
    pub namespace: Option<PathBuf>,
    pub router: Option<Router>,
}

impl SystemNetwork {
    /// Returns the entries that must be in the journal before `make`, and the router if there is
    /// one. `port` is the fixed port of a system whose port cannot be set.
    pub(crate) fn plan(
        context: &RunContext,
        layer: Network,
        number: u32,
        port: Option<u16>,
    ) -> Result<(Vec<Entry>, Option<Router>), NetworkError> {
        match layer {
            Network::Host | Network::None => Ok((Vec::new(), None)),
            _ => {
                let router = Router::new(context, number, layer, port)?;
                Ok((router.entries(), Some(router)))
            }
        }
    }

    /// Creates the layer. `port` is the fixed port of a system whose port cannot be set.
    pub(crate) fn make(
        context: &RunContext,
        layer: Network,
        router: Option<Router>,
        port: Option<u16>,
    ) -> Result<Self, NetworkError> {
        let slot = context.slot();
        match (layer, router) {
            (Network::None, _) => Self::beside_client(context, port),
            (_, Some(mut router)) => {
                router.make(context)?;
                let mut network = Self {
                    address: router.published().into(),
                    listen: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, router.port),
                    nodes: router.nodes(slot),
                    namespace: router.system_namespace(),
                    router: Some(router),
                };
                network.publish(context)?;
                Ok(network)
            }
            _ if let Some(peers) = slot.peers() => {
                let listen = SocketAddrV4::new(peers.own, port.unwrap_or(peers.port));
                let nodes = NodeAddresses::of_hosts(peers);
                Ok(Self { address: listen.into(), listen, nodes, namespace: None, router: None })
            }
            _ => {
                let linked =
                    context.client().link(context.journal(), context.slot().number(), None)?;
                let address = context.reach().map_or(linked, Reach::address);
                let free = || port.map_or_else(|| free_port(address), must_be_free);
                let common = slot.port(free)?;
                let own = own_port(context, (address, common), port, || free_port(address))?;
                let listen = SocketAddrV4::new(address, own);
                let nodes = NodeAddresses::on_loopback(common, slot);
                Ok(Self { address: listen.into(), listen, nodes, namespace: None, router: None })
            }
        }
    }

    /// Returns the network of a system in the client's own namespace, at a loopback address.
    fn beside_client(context: &RunContext, port: Option<u16>) -> Result<Self, NetworkError> {
        let (slot, namespace) = (context.slot(), context.client().namespace());
        let free = || port.map_or_else(|| free_port(Ipv4Addr::LOCALHOST), must_be_free);
        let common = slot.port(|| netns::within(namespace, free)?)?;
        let nodes = NodeAddresses::on_loopback(common, slot);
        let listen = SocketAddrV4::new(nodes.own, common);
        let namespace = Some(namespace.to_path_buf());
        Ok(Self { address: listen.into(), listen, nodes, namespace, router: None })
    }

    /// Returns the link of a system behind a bridge, limited to what the layer allows; `None`
    /// without a limit.
    pub(crate) fn limited(
        &self,
        context: &RunContext,
        limits: &Limits,
    ) -> Result<Option<Link>, LimitError> {
        let (Some(rate), Some(inside)) = (limits.network_bytes_per_s, &self.namespace) else {
            return Ok(None);
        };
        let outside = self.router.as_ref().and_then(Router::bridge_namespace);
        let link = Link::find(inside, outside.as_deref())?;
        link.shape(context.run(), rate)?;
        Ok(Some(link))
    }

    /// Returns the name of a guest's tap device.
    pub(crate) fn tap(&self) -> String {
        self.router.as_ref().map_or_else(|| TAP.to_string(), Router::bridge_port)
    }

    /// Returns the address of a guest, its gateway, and the length of their network's prefix.
    pub(crate) fn in_guest(&self) -> (Ipv4Addr, Ipv4Addr, u8) {
        let address = self.router.as_ref().map_or(SYSTEM_ADDRESS, Router::system_address);
        let (gateway, prefix) = self.router.as_ref().map_or((BRIDGE_ADDRESS, 24), Router::gateway);
        (address, gateway, prefix)
    }

    /// Returns the addresses for the system's arguments.
    pub(crate) fn addresses(&self) -> SystemAddresses {
        let advertised = match self.address.ip() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => *self.listen.ip(),
        };
        SystemAddresses { listen: self.listen, advertised, nodes: self.nodes.clone() }
    }
}

/// Returns the port of an instance in the host's network, whose instances listen on `common`. Where
/// other hosts reach all of them at one address, each after the first has its own, which `free`
/// chooses. `fixed` is the port of a system whose port cannot be set.
pub(crate) fn own_port(
    context: &RunContext,
    (address, common): (Ipv4Addr, u16),
    fixed: Option<u16>,
    free: impl FnOnce() -> Result<u16, NetworkError>,
) -> Result<u16, NetworkError> {
    match (context.reach().is_some() && context.slot().number() > 0, fixed) {
        (false, _) => Ok(common),
        (true, None) => free(),
        (true, Some(port)) => Err(ReachError::FixedPort { port, address }.into()),
    }
}

/// Addresses at which only the instances of one environment find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeAddresses {
    /// The address on which this instance listens for the others.
    pub(crate) own: Ipv4Addr,
    /// The address at which the others reach it.
    pub(crate) advertised: Ipv4Addr,
    /// The addresses of all instances in the order of their slots, including this one's.
    pub(crate) all: Vec<Ipv4Addr>,
    /// The port of all instances for each other.
    pub(crate) port: u16,
}

impl NodeAddresses {
    pub(crate) fn of(slot: &InstanceSlot, address: impl Fn(u32) -> Ipv4Addr) -> Self {
        let all = (0..slot.count()).map(&address).collect();
        let own = address(slot.number());
        Self { own, advertised: own, all, port: NODE_PORT }
    }

    /// Returns the addresses of instances on several hosts.
    pub(crate) fn of_hosts(peers: &Peers) -> Self {
        let (own, all) = (peers.own, peers.all.clone());
        Self { own, advertised: own, all, port: peers.node_port }
    }

    /// Returns addresses of 127.0.0.0/8 that contain the port, which differs between environments
    /// in one network namespace. 127.0.x.x is left to other programs.
    pub(crate) fn on_loopback(port: u16, slot: &InstanceSlot) -> Self {
        Self::of(slot, |number| {
            let [high, low] = port.to_be_bytes();
            let last = u8::try_from(number + 1).unwrap_or(u8::MAX);
            Ipv4Addr::new(127, high.max(1), low, last)
        })
    }
}

/// The addresses in a system's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SystemAddresses {
    pub(crate) listen: SocketAddrV4,
    /// The address at which clients reach the system.
    pub(crate) advertised: Ipv4Addr,
    pub(crate) nodes: NodeAddresses,
}

impl From<SocketAddrV4> for SystemAddresses {
    /// Returns the addresses of a single instance. If it listens on every address, its own node
    /// address is advertised.
    fn from(listen: SocketAddrV4) -> Self {
        let nodes = NodeAddresses::on_loopback(listen.port(), &InstanceSlot::single());
        let advertised = if listen.ip().is_unspecified() { nodes.own } else { *listen.ip() };
        Self { listen, advertised, nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_distinct_addresses() {
        let first = free_pair("01ab", None, Vec::new()).unwrap();
        let second = free_pair("01ab", None, vec![first.1]).unwrap();
        assert_ne!(u32::from(first.1) / 4, u32::from(second.1) / 4);
        assert_eq!(u32::from(first.0) + 1, u32::from(first.1));
    }

    #[test]
    fn loopback_address_depends_on_port_and_instance() {
        let check = |port, count, expect: &str| {
            let last = InstanceSlot::slots(count).last().unwrap();
            let nodes = NodeAddresses::on_loopback(port, &last);
            assert_eq!(nodes.own.to_string(), expect);
            assert_eq!(nodes.all.last(), Some(&nodes.own));
        };
        check(9042, 1, "127.35.82.1");
        check(9042, 2, "127.35.82.2");
        check(65535, INSTANCES_MAX, "127.255.255.200");
        check(80, 1, "127.1.80.1");
    }

    #[test]
    fn advertises_address_for_clients() {
        let addresses = SystemAddresses::from("198.18.0.2:7000".parse::<SocketAddrV4>().unwrap());
        assert_eq!(addresses.advertised.to_string(), "198.18.0.2");
        let addresses = SystemAddresses::from("0.0.0.0:9042".parse::<SocketAddrV4>().unwrap());
        assert_eq!(addresses.advertised.to_string(), "127.35.82.1");
    }
}
