//! The network layer: what lies between the client and the system.
//!
//! The client always stands in a namespace of its own, `tare-RUN-client`, so that it meets the
//! layer and not a loopback short cut. With `host`, a veth pair links it to the namespace in which
//! the system listens. With `bridge`, a router namespace of each environment plays the host of the
//! container: veth to the client, DNAT of the published port, masquerade, a forward chain as
//! docker's, a bridge, and the container's namespace behind it. So the host's own namespace gets no
//! NAT table, and the baseline stays clean. With `bridge+proxy` a userland proxy in the router
//! takes the place of DNAT.
//!
//! Addresses are from 198.18.0.0/15, which RFC 2544 sets aside for measuring: 198.18/16 for links to
//! namespaces that are not ours, 198.19/16 inside our own.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::thread;

use tare_host::RUN_VARIABLE;
use tare_host::exec::{Command, ExecError};
use tare_host::journal::{Entry, Journal, JournalError};
use tare_host::netns::{self, NetnsError};
use tare_host::process::inode_of_link;

use super::Layer;
use crate::site::Ground;

pub const LAYER: Layer = Layer {
    name: "network",
    help: "what lies between the client and the system",
    values: &[
        ("host", "the host's network namespace; one veth pair to the client"),
        ("bridge", "a namespace behind a bridge; the published port is reached through DNAT"),
        ("bridge+proxy", "the same, but through a userland proxy instead of DNAT"),
    ],
    needs: "iproute2, nftables; veth, bridge, nf_nat and nf_conntrack in the kernel",
    cleanup: "its namespaces are removed, and with them links, bridge and nft table",
    read_back: "the inode of the network namespace of /proc/PID/ns/net",
};

/// A value of the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkLayer {
    Host,
    Bridge { proxy: bool },
}

impl NetworkLayer {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "host" => Some(Self::Host),
            "bridge" => Some(Self::Bridge { proxy: false }),
            "bridge+proxy" => Some(Self::Bridge { proxy: true }),
            _ => None,
        }
    }
}

/// Where a containerised system listens, and the port that is published for it: Cassandra's.
pub const PORT: u16 = 9042;

/// How many starts behind a bridge one run can have: their links share 198.19.0.0 to 198.19.254.255.
const ROUTERS_MAX: u32 = 255 * 64;

/// The container's address and that of its bridge, the same behind every router.
pub(crate) const SYSTEM_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 2);
pub(crate) const BRIDGE_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 1);

/// Why a network layer could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error(
        "the system listens on port {port}, which is taken in the host's network; tell it its port ({{port}}), or take network = \"bridge\""
    )]
    Taken { port: u16, source: io::Error },
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error("cannot lay the network")]
    Command(#[from] ExecError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot set {} to {value}", .path.display())]
    Setting { path: PathBuf, value: &'static str, source: io::Error },
    #[error("cannot read which network namespace {} is", .path.display())]
    Namespace { path: PathBuf },
    #[error("no address is free in 198.18.0.0/16; are many runs alive? see tare clean")]
    NoAddress,
    #[error("no port is free on {address}")]
    NoPort { address: Ipv4Addr, source: io::Error },
    #[error("a run can start at most {ROUTERS_MAX} environments behind a bridge")]
    TooManyRouters,
}

/// The client's network namespace and its links to others'.
#[derive(Debug)]
pub struct Client {
    name: String,
    namespace: PathBuf,
    /// Our end's address in other namespaces, by their inode.
    links: Mutex<HashMap<u64, Ipv4Addr>>,
}

impl Client {
    /// Makes the namespace, journalled first.
    pub(crate) fn make(journal: &Journal) -> Result<Self, NetworkError> {
        let name = format!("{}-client", journal.prefix());
        journal.write(vec![Entry::NetworkNamespace { name: name.clone() }])?;
        let namespace = netns::make(&name)?;
        without_ipv6(&namespace)?;
        batch(journal.run(), Some(&namespace), "link set lo up\n")?;
        Ok(Self { name, namespace, links: Mutex::default() })
    }

    pub fn namespace(&self) -> &Path {
        &self.namespace
    }

    /// Links the client to another network namespace (`None`: that of this process) and returns
    /// the address there at which the client reaches what listens. One link per namespace and run.
    ///
    /// # Errors
    /// When the namespace cannot be entered or no address is free.
    pub fn link(&self, ground: &Ground, to: Option<&Path>) -> Result<Ipv4Addr, NetworkError> {
        let own = Path::new("/proc/thread-self/ns/net");
        let asked = to.unwrap_or(own);
        let inode = match to {
            None => inode_of_link(own),
            Some(path) => netns::within(path, || inode_of_link(own))?,
        };
        let inode = inode.ok_or_else(|| NetworkError::Namespace { path: asked.into() })?;
        let to = to.filter(|_| Some(inode) != inode_of_link(own));
        let mut links = self.links.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(address) = links.get(&inode) {
            return Ok(*address);
        }
        let number = links.len();
        let there = format!("{}-h{number}", ground.prefix());
        let known: Vec<Ipv4Addr> = links.values().copied().collect();
        let (near, far) = free_pair(ground.run(), to, known)?;
        let entry = Entry::Link { name: there.clone(), namespace: to.map(Path::to_path_buf) };
        ground.journal().write(vec![entry])?;
        let client = &self.name;
        batch(
            ground.run(),
            to,
            &format!(
                "link add {there} type veth peer name tare-h{number} netns {client}\n\
                 addr add {far}/30 dev {there}\n\
                 link set {there} up\n"
            ),
        )?;
        batch(
            ground.run(),
            Some(&self.namespace),
            &format!("addr add {near}/30 dev tare-h{number}\nlink set tare-h{number} up\n"),
        )?;
        links.insert(inode, far);
        Ok(far)
    }
}

/// Two neighbouring addresses in a /30 of 198.18/16 that neither the namespace nor one of the
/// client's links (`known`) has yet. Runs begin to look at different places, so that two of them
/// hardly ever race for the same.
pub(crate) fn free_pair(
    run: &str,
    namespace: Option<&Path>,
    known: Vec<Ipv4Addr>,
) -> Result<(Ipv4Addr, Ipv4Addr), NetworkError> {
    let routes = || fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap_or_default();
    let routes = match namespace {
        None => routes(),
        Some(path) => netns::within(path, routes)?,
    };
    let taken: Vec<Ipv4Addr> = routes
        .split(|c: char| c.is_whitespace() || c == '/')
        .filter_map(|word| word.parse().ok())
        .chain(known)
        .collect();
    let first = u32::from_str_radix(run, 16).unwrap_or(0);
    for step in 0..256 {
        let slot = (first + step) % (1 << 14);
        let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + slot * 4;
        let block = base..base + 4;
        if !taken.iter().any(|address| block.contains(&u32::from(*address))) {
            return Ok((Ipv4Addr::from(base + 1), Ipv4Addr::from(base + 2)));
        }
    }
    Err(NetworkError::NoAddress)
}

/// A port that is free on an address of this process's namespace right now.
pub fn free_port(address: Ipv4Addr) -> Result<u16, NetworkError> {
    let bind = || TcpListener::bind((address, 0))?.local_addr();
    let bound = bind().map_err(|source| NetworkError::NoPort { address, source })?;
    Ok(bound.port())
}

/// A port that the system insists on, if nothing of this process's namespace listens on it.
pub(crate) fn must_be_free(port: u16) -> Result<u16, NetworkError> {
    let bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    bound.map(|_| port).map_err(|source| NetworkError::Taken { port, source })
}

/// The namespaces of one started environment behind a bridge. Every start takes a number of its own:
/// the kernel removes the links of a namespace some time after its name.
#[derive(Debug)]
pub struct Router {
    number: u32,
    router: String,
    system: String,
    /// The port that the system listens on.
    port: u16,
    /// The system is a guest: a tap device on the bridge takes the place of its namespace.
    tap: bool,
    proxy: Option<Child>,
}

/// The tap device of a guest, in its router's namespace.
pub(crate) const TAP: &str = "tare-s";

impl Router {
    /// The router of environment `number`; nothing is made yet.
    pub fn new(ground: &Ground, number: u32) -> Result<Self, NetworkError> {
        if number >= ROUTERS_MAX {
            return Err(NetworkError::TooManyRouters);
        }
        let prefix = ground.prefix();
        let router = format!("{prefix}-r{number}");
        let system = format!("{prefix}-s{number}");
        Ok(Self { number, router, system, port: PORT, tap: false, proxy: None })
    }

    /// The same for a virtual machine, whose monitor runs in the router's namespace.
    pub(crate) fn for_guest(ground: &Ground, number: u32) -> Result<Self, NetworkError> {
        Ok(Self { tap: true, ..Self::new(ground, number)? })
    }

    /// What has to be in the journal before `make`.
    pub fn entries(&self) -> Vec<Entry> {
        let names = match self.tap {
            true => vec![&self.router],
            false => vec![&self.router, &self.system],
        };
        names.into_iter().map(|name| Entry::NetworkNamespace { name: name.clone() }).collect()
    }

    /// The namespace in which the system runs, or the monitor of its guest.
    pub fn system_namespace(&self) -> PathBuf {
        netns::path(if self.tap { &self.router } else { &self.system })
    }

    /// Where the client dials.
    pub fn published(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.link_address(2), PORT)
    }

    /// Address `last` of the /30 between client and router.
    fn link_address(&self, last: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 19, 0, 0)) + self.number * 4 + last)
    }

    /// Makes both namespaces with all that is in them, and starts the proxy if asked.
    ///
    /// # Errors
    /// When a step fails; the journal undoes what was made.
    pub fn make(&mut self, ground: &Ground, proxy: bool) -> Result<(), NetworkError> {
        let (router, system) = thread::scope(|scope| {
            let router = scope.spawn(|| netns::make(&self.router));
            let system = (!self.tap).then(|| netns::make(&self.system)).transpose();
            (joined(router), system)
        });
        let (router, system) = (router?, system?);
        system.as_deref().map_or(Ok(()), without_ipv6)?;
        let port = match self.tap {
            true => format!("tuntap add dev {TAP} mode tap vnet_hdr"),
            false => format!("link add {TAP} type veth peer name eth0 netns {}", self.system),
        };
        let (near, far) = (self.link_address(1), self.link_address(2));
        let (number, client) = (self.number, &ground.client().name);
        // One command makes both veth pairs, with their far ends in the other namespaces.
        batch(
            ground.run(),
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
                batch(
                    ground.run(),
                    Some(system),
                    &format!(
                        "link set lo up\n\
                         addr add {SYSTEM_ADDRESS}/24 dev eth0\n\
                         link set eth0 up\n\
                         route add default via {BRIDGE_ADDRESS}\n"
                    ),
                )
            });
            let outside = scope.spawn(|| {
                let link = format!("tare-r{number}");
                let text = format!("addr add {near}/30 dev {link}\nlink set {link} up\n");
                batch(ground.run(), Some(ground.client().namespace()), &text)
            });
            let forward = || {
                let path = PathBuf::from("/proc/sys/net/ipv4/ip_forward");
                let result = fs::write(&path, "1");
                result.map_err(|source| NetworkError::Setting { path, value: "1", source })
            };
            netns::within(&router, forward)??;
            let table = Command::new("nft").args(["-f", "-"]).input(table(proxy, self.port));
            table.variable(RUN_VARIABLE, ground.run()).in_namespace(&router).run()?;
            joined(inside)?;
            joined(outside)
        })?;
        if proxy {
            self.proxy = Some(self.start_proxy(ground, &router)?);
        }
        Ok(())
    }

    fn start_proxy(&self, ground: &Ground, router: &Path) -> Result<Child, NetworkError> {
        let to = SocketAddrV4::new(SYSTEM_ADDRESS, self.port);
        let command = Command::new(ground.program())
            .args(["proxy", "--listen", &self.published().to_string(), "--to", &to.to_string()])
            .variable(RUN_VARIABLE, ground.run())
            .in_namespace(router)
            .on_cpus(&ground.cpus().all);
        Ok(command.spawn(Stdio::null(), Stdio::null(), Stdio::null())?)
    }

    /// The process of the userland proxy, if there is one.
    pub fn proxy_pid(&self) -> Option<u32> {
        self.proxy.as_ref().map(Child::id)
    }

    /// Ends the proxy, so that it holds its namespace no longer. Idempotent.
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

/// The router's nft table: the same hooks and decisions in the same order as dockerd's iptables
/// chains (PREROUTING/DOCKER, POSTROUTING, FORWARD with DOCKER-USER, isolation, conntrack, DOCKER).
/// NAT priorities are numbers because nft 1.0 does not take the names in every hook.
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

/// Turns IPv6 off in a namespace of ours, as docker does for a network without it: no duplicate
/// address detection or multicast reports during the measurement.
fn without_ipv6(namespace: &Path) -> Result<(), NetworkError> {
    let write = || -> Result<(), NetworkError> {
        for which in ["all", "default"] {
            let path = PathBuf::from(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"));
            match fs::write(&path, "1") {
                // A kernel without IPv6 has no such file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => {
                    result.map_err(|source| NetworkError::Setting { path, value: "1", source })?
                }
            }
        }
        Ok(())
    };
    netns::within(namespace, write)?
}

/// Runs lines of `ip` in one process, marked as the run's like all that it starts.
fn batch(run: &str, namespace: Option<&Path>, lines: &str) -> Result<(), NetworkError> {
    let mut command =
        Command::new("ip").args(["-batch", "-"]).input(lines).variable(RUN_VARIABLE, run);
    if let Some(path) = namespace {
        command = command.in_namespace(path);
    }
    command.run()?;
    Ok(())
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Everything that one started environment has of the network.
#[derive(Debug)]
pub struct Place {
    /// Where the client dials.
    pub address: SocketAddr,
    /// What the system listens on, as seen from inside.
    pub listen: SocketAddrV4,
    /// The namespace that the system has to run in; `None` is the host's.
    pub namespace: Option<PathBuf>,
    pub router: Option<Router>,
}

impl Place {
    /// What has to be in the journal before `make`, and the router if there is one.
    pub(crate) fn plan(
        ground: &Ground,
        layer: NetworkLayer,
        number: u32,
    ) -> Result<(Vec<Entry>, Option<Router>), NetworkError> {
        match layer {
            NetworkLayer::Host => Ok((Vec::new(), None)),
            NetworkLayer::Bridge { .. } => {
                let router = Router::new(ground, number)?;
                Ok((router.entries(), Some(router)))
            }
        }
    }

    /// Makes the layer; `port` is the one that the system listens on, where it cannot be told another.
    pub(crate) fn make(
        ground: &Ground,
        layer: NetworkLayer,
        router: Option<Router>,
        port: Option<u16>,
    ) -> Result<Self, NetworkError> {
        match (layer, router) {
            (NetworkLayer::Bridge { proxy }, Some(mut router)) => {
                router.port = port.unwrap_or(PORT);
                router.make(ground, proxy)?;
                Ok(Self {
                    address: router.published().into(),
                    listen: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, router.port),
                    namespace: Some(router.system_namespace()),
                    router: Some(router),
                })
            }
            _ => {
                let address = ground.client().link(ground, None)?;
                let port = port.map_or_else(|| free_port(address), must_be_free)?;
                let listen = SocketAddrV4::new(address, port);
                Ok(Self { address: listen.into(), listen, namespace: None, router: None })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_two_namespaces_never_share_addresses() {
        let first = free_pair("01ab", None, Vec::new()).unwrap();
        let second = free_pair("01ab", None, vec![first.1]).unwrap();
        assert_ne!(u32::from(first.1) / 4, u32::from(second.1) / 4);
        assert_eq!(u32::from(first.0) + 1, u32::from(first.1));
    }
}
