//! The client's network namespace with its links to others, and the parts that the network layers
//! share: errors, free addresses and ports, and lines for `ip`.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tare_host::RUN_VARIABLE;
use tare_host::exec::{Command, ExecError};
use tare_host::journal::{Entry, Journal, JournalError};
use tare_host::netns::{self, NetnsError};
use tare_host::process::inode_of_link;

/// The most starts behind a bridge in one run: their links share 198.19.0.0 to 198.19.254.255.
pub(crate) const ROUTERS_MAX: u32 = 255 * 64;

/// Why a network layer could not be created.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error(
        "the system listens on port {port}, which is taken in the host's network; pass it a port with {{port}}, or use network = \"bridge\""
    )]
    Taken { port: u16, source: io::Error },
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error("cannot set up the network")]
    Command(#[from] ExecError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot set {} to {value}", .path.display())]
    Setting { path: PathBuf, value: &'static str, source: io::Error },
    #[error("cannot read the inode of the network namespace {}", .path.display())]
    Namespace { path: PathBuf },
    #[error("no address is free in 198.18.0.0/16; end other runs, or run tare clean")]
    NoAddress,
    #[error("no port is free on {address}")]
    NoPort { address: Ipv4Addr, source: io::Error },
    #[error("pasta does not bring up its device in the namespace of the system: {log}")]
    Pasta { log: String },
    #[error(
        "environment {environment:?}: other hosts do not reach a system with network = \"{network}\", \
         whose path ends on this host; set network = \"host\" or \"bridge\""
    )]
    OneHost { environment: String, network: tare_lab::layer::Network },
    #[error("a run can start at most {ROUTERS_MAX} environments behind a bridge")]
    TooManyRouters,
}

/// Why loaders on other hosts cannot reach a system.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error(
        "loaders cannot reach this host at {address}: systems listen on IPv4 only; set address in \
         [[loader]] to an IPv4 address of this host"
    )]
    Ipv6 { address: IpAddr },
    #[error(
        "other hosts cannot reach this one at {address}, which is no address of its network devices \
         ({known}); set address in [[loader]], or HOST=ADDRESS in [system] hosts, to one of them"
    )]
    NotHere { address: Ipv4Addr, known: String },
    #[error("cannot list the addresses of this host")]
    Addresses { source: serde_json::Error },
    #[error("cannot hold port {address} of this host")]
    Guard { address: SocketAddrV4, source: io::Error },
    #[error(
        "all instances listen on port {port}, and loaders elsewhere reach one address of this host, \
         {address}; pass them a port with {{port}}, or use network = \"bridge\""
    )]
    FixedPort { port: u16, address: Ipv4Addr },
}

/// The client's network namespace and its links to other namespaces.
#[derive(Debug)]
pub struct Client {
    pub(crate) name: String,
    namespace: PathBuf,
    /// Links by the inode of the other namespace. Each has an address there for each instance.
    links: Mutex<HashMap<u64, Link>>,
}

#[derive(Debug)]
struct Link {
    number: usize,
    addresses: Vec<Ipv4Addr>,
}

impl Client {
    /// Creates the namespace after writing it to the journal.
    pub(crate) fn make(journal: &Journal) -> Result<Self, NetworkError> {
        let name = format!("{}-client", journal.prefix());
        journal.write(vec![Entry::network_namespace(name.clone())])?;
        let namespace = netns::make(&name)?;
        without_ipv6(&namespace)?;
        batch(journal.run(), Some(&namespace), "link set lo up\n")?;
        Ok(Self { name, namespace, links: Mutex::default() })
    }

    pub fn namespace(&self) -> &Path {
        &self.namespace
    }

    /// Links the client to another network namespace (`None`: that of this process) and returns the
    /// address there that the client can reach. A run has one link per namespace, with an address
    /// for each instance.
    ///
    /// # Errors
    /// When the namespace cannot be entered or no address is free.
    pub fn link(
        &self,
        journal: &Journal,
        instance: u32,
        to: Option<&Path>,
    ) -> Result<Ipv4Addr, NetworkError> {
        let own = Path::new("/proc/thread-self/ns/net");
        let requested = to.unwrap_or(own);
        let inode = match to {
            None => inode_of_link(own),
            Some(path) => netns::within(path, || inode_of_link(own))?,
        };
        let inode = inode.ok_or_else(|| NetworkError::Namespace { path: requested.into() })?;
        let to = to.filter(|_| Some(inode) != inode_of_link(own));
        let mut links = self.links.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut known: Vec<Ipv4Addr> =
            links.values().flat_map(|link| &link.addresses).copied().collect();
        let next = links.len();
        let link = links.entry(inode).or_insert(Link { number: next, addresses: Vec::new() });
        let slot = usize::try_from(instance).unwrap_or(usize::MAX);
        while link.addresses.len() <= slot {
            let (near, far) = free_pair(journal.run(), to, known.clone())?;
            self.add_pair(journal, to, link, (near, far))?;
            known.push(far);
        }
        Ok(link.addresses[slot])
    }

    /// Routes the client to an address of another network namespace (`None`: that of this process),
    /// and returns the device there of the client's link.
    ///
    /// # Errors
    /// When the link cannot be created.
    pub(crate) fn route_to(
        &self,
        journal: &Journal,
        address: Ipv4Addr,
        to: Option<&Path>,
    ) -> Result<String, NetworkError> {
        let via = self.link(journal, 0, to)?;
        let text = format!("route replace {address}/32 via {via}\n");
        batch(journal.run(), Some(&self.namespace), &text)?;
        let links = self.links.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let link = links.values().find(|link| link.addresses.contains(&via));
        Ok(format!("{}-h{}", journal.prefix(), link.map_or(0, |link| link.number)))
    }

    /// Adds a pair of addresses to a link, and creates the link before the first pair.
    fn add_pair(
        &self,
        journal: &Journal,
        to: Option<&Path>,
        link: &mut Link,
        (near, far): (Ipv4Addr, Ipv4Addr),
    ) -> Result<(), NetworkError> {
        let (client, number) = (&self.name, link.number);
        let there = format!("{}-h{number}", journal.prefix());
        let mut make = String::new();
        if link.addresses.is_empty() {
            let entry = Entry::link(there.clone(), to.map(Path::to_path_buf));
            journal.write(vec![entry])?;
            make = format!("link add {there} type veth peer name tare-h{number} netns {client}\n");
        }
        let up = |device: &str, address| {
            format!("addr add {address}/30 dev {device}\nlink set {device} up\n")
        };
        batch(journal.run(), to, &(make + &up(&there, far)))?;
        let here = format!("tare-h{number}");
        batch(journal.run(), Some(&self.namespace), &up(&here, near))?;
        link.addresses.push(far);
        Ok(())
    }
}

/// Returns two neighbouring addresses in a /30 of 198.18/16 that neither the namespace nor one of
/// the client's links (`known`) has.
pub(crate) fn free_pair(
    run: &str,
    namespace: Option<&Path>,
    known: Vec<Ipv4Addr>,
) -> Result<(Ipv4Addr, Ipv4Addr), NetworkError> {
    let base = u32::from(free_block(run, namespace, known, 4)?);
    Ok((Ipv4Addr::from(base + 1), Ipv4Addr::from(base + 2)))
}

/// Returns the first of `size` addresses of 198.18/16, a power of two, none of which the namespace
/// or one of the client's links (`known`) has. Runs start to search at different addresses, to
/// avoid races for the same one.
pub(crate) fn free_block(
    run: &str,
    namespace: Option<&Path>,
    known: Vec<Ipv4Addr>,
    size: u32,
) -> Result<Ipv4Addr, NetworkError> {
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
        let slot = (first + step) % ((1 << 16) / size);
        let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + slot * size;
        let block = base..base + size;
        if !taken.iter().any(|address| block.contains(&u32::from(*address))) {
            return Ok(Ipv4Addr::from(base));
        }
    }
    Err(NetworkError::NoAddress)
}

/// Returns a port that is free right now on an address of this process's namespace.
pub fn free_port(address: Ipv4Addr) -> Result<u16, NetworkError> {
    let bind = || TcpListener::bind((address, 0))?.local_addr();
    let bound = bind().map_err(|source| NetworkError::NoPort { address, source })?;
    Ok(bound.port())
}

/// Returns the system's fixed port if nothing in this process's namespace listens on it.
pub(crate) fn must_be_free(port: u16) -> Result<u16, NetworkError> {
    let bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    bound.map(|_| port).map_err(|source| NetworkError::Taken { port, source })
}

/// Turns off IPv6 in a namespace of Tare, as docker does for a network without it. This avoids
/// duplicate address detection and multicast reports during the measurement.
pub(crate) fn without_ipv6(namespace: &Path) -> Result<(), NetworkError> {
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

/// Runs lines of `ip` in one process, with the run's mark.
pub(crate) fn batch(run: &str, namespace: Option<&Path>, lines: &str) -> Result<(), NetworkError> {
    let mut command =
        Command::new("ip").args(["-batch", "-"]).input(lines).variable(RUN_VARIABLE, run);
    if let Some(path) = namespace {
        command = command.in_namespace(path);
    }
    command.run()?;
    Ok(())
}
