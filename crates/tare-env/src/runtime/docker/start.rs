//! The start of a container: journal, storage, network, and the engine's requests.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tare_host::exec::Command;
use tare_host::journal::Entry;
use tare_host::program::Program;
use tare_host::{mounts, netns, process};
use tare_lab::PartError;
use tare_lab::environment::{Endpoint, Launch};
use tare_lab::layer::Network;

use super::base::Base;
use super::environment::pid_of;
use super::network::InstanceNetwork;
use super::request::{self, Request};
use super::{Container, DockerError, Running, engine};
use crate::groups::Groups;
use crate::layer::confinement::{self, Confined, apparmor};
use crate::layer::limits::{self, Link};
use crate::layer::network::{self, NodeAddresses, PORT, SystemAddresses};
use crate::layer::rootfs;
use crate::reach::Reach;
use crate::runtime::gvisor;
use crate::storage::{self, At, DataLocation, MountView};
use crate::system::{self, System};
use crate::undo::ContainerEntry;

/// What a start has journalled and creates next.
struct Planned {
    /// The nftables table that sends the client's packets to the userland proxy.
    proxy_table: Option<String>,
    /// Whether the engine needs the data's mount in its own mount namespace.
    mount_elsewhere: bool,
    /// The name of the volume that holds the data.
    volume: Option<String>,
    groups: Groups,
    /// The environment's own network, if it has one.
    network: Option<InstanceNetwork>,
}

impl Container {
    /// Starts the system in a new container and returns where clients reach it.
    pub(super) fn begin(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        let context = Arc::clone(&self.context);
        let program = self.base.program(launch)?;
        let folder = self.folder();
        let at = At { context: &context, folder: &folder };
        let planned = self.write_journal(&at)?;
        let volume = self.make_storage(&at, &planned)?;

        let namespace = self.engine.namespace();
        let address = self.address(&namespace)?;
        let (port, common) = self.ports(launch, address, &namespace)?;
        let published = SocketAddrV4::new(address, port);
        if let Some(network) = &planned.network {
            network.make(&self.engine)?;
        }
        let (cpuset, security_opt) =
            self.create_container(launch, &program, &planned, (published, common))?;
        self.engine.start(&self.name)?;

        let inspected = self.engine.inspect(&self.name)?;
        let state = inspected.state.unwrap_or_default();
        let graph = inspected.graph_driver.unwrap_or_default();
        let upper = graph.data.get("UpperDir").cloned();
        let Some(pid) = pid_of(&state) else {
            return Err(self.exit_error(&state).into());
        };
        let proxy = self.wire_proxy(&planned, published, &namespace)?;
        let system = self.system(pid, &inspected.id.unwrap_or_default(), proxy)?;
        self.running = Some(Running {
            system,
            published,
            cpuset,
            security_opt,
            link: None,
            inspected: None,
            inside: None,
        });
        let data = match self.storage.location() {
            DataLocation::Directory => at.data(),
            DataLocation::Volume => volume.unwrap_or_default(),
            // Only through the process does the host reach the data if a driver has no upper layer
            // or has its own cache (fuse-overlayfs).
            DataLocation::Root => upper
                .filter(|_| MountView::root(pid).is("overlay"))
                .map(|upper| Path::new(&upper).join(rootfs::DATA.trim_start_matches('/')))
                .filter(|path| path.exists())
                .unwrap_or_else(|| format!("/proc/{pid}/root{}", rootfs::DATA).into()),
        };
        self.data.clone_from(&data);
        self.apply_limits(&namespace)?;
        let inside = (!self.is_hidden()).then(|| process::network_namespace(pid));
        Ok(Endpoint { address: published.into(), data: Some(data), inside })
    }

    /// Sets the limits that the engine was not asked for, on the container's cgroup and its link to
    /// the bridge in the engine's namespace.
    fn apply_limits(&mut self, namespace: &Path) -> Result<(), PartError> {
        let disk = storage::disk_path(&*self.storage, &self.data);
        let (layers, run) = (self.layers.clone(), self.context.run().to_string());
        let running = self.running()?;
        if let Some(group) = &running.system.group {
            limits::apply(group, &layers, &disk)?;
        }
        if let Some(rate) = layers.limits.network_bytes_per_s {
            let inside = PathBuf::from(format!("/proc/{}/ns/net", running.system.pid));
            let link = Link::find(&inside, Some(namespace))?;
            link.shape(&run, rate)?;
            running.link = Some(link);
        }
        Ok(())
    }

    /// Returns the address at which clients reach the engine's namespace: the one that other hosts
    /// reach, if there are such.
    fn address(&self, namespace: &Path) -> Result<Ipv4Addr, PartError> {
        let context = &self.context;
        let peers = context.slot().peers().map(|peers| peers.own);
        let Some(address) = peers.or(context.reach().map(Reach::address)) else {
            let (client, slot) = (context.client(), context.slot().number());
            return Ok(client.link(context.journal(), slot, Some(namespace))?);
        };
        let is_there = netns::within(namespace, || network::free_port(address))?;
        let (environment, engine) = (self.spec.name.clone(), self.engine.kind().name());
        is_there.map_err(|_| DockerError::Elsewhere { environment, engine, address })?;
        Ok(address)
    }

    /// Returns the port that clients dial, and the one that the first instance chose for all: where
    /// other hosts reach all instances at one address, each has its own.
    fn ports(
        &self,
        launch: &Launch,
        address: Ipv4Addr,
        namespace: &Path,
    ) -> Result<(u16, u16), PartError> {
        let (slot, host) = (self.context.slot(), self.layers.network == Network::Host);
        let fixed = launch.port.filter(|_| host);
        let common = slot.port(|| match (slot.peers(), fixed) {
            (Some(peers), fixed) => Ok(fixed.unwrap_or(peers.port)),
            (None, Some(port)) => netns::within(namespace, || network::must_be_free(port))?,
            (None, None) => netns::within(namespace, || network::free_port(address))?,
        })?;
        let free = || netns::within(namespace, || network::free_port(address))?;
        Ok((network::own_port(&self.context, (address, common), fixed, free)?, common))
    }

    /// Journals what this start creates, and imports the image. The container's entry comes last,
    /// because a container is removed before its image.
    fn write_journal(&mut self, at: &At<'_>) -> Result<Planned, PartError> {
        let context = at.context;
        let groups = Groups::plan(context, self.number, self.layers.cgroup);
        let mut entries = vec![Entry::directory(at.folder.to_path_buf()), groups.entry()];
        let proxy = self.layers.network == (Network::Bridge { proxy: true });
        let proxy_table = proxy.then(|| format!("{}-p{}", context.prefix(), self.number));
        if let Some(table) = &proxy_table {
            // An engine in Tare's namespace may be another process by the time of the undo.
            let inode = |pid| process::namespace_inode(pid, "net");
            let elsewhere = inode(self.engine.pid()) != inode(std::process::id());
            let namespace = elsewhere.then(|| self.engine.namespace());
            entries.push(Entry::nft_table("ip", table.clone(), namespace));
        }
        let bridge = matches!(self.layers.network, Network::Bridge { .. });
        let slot = context.slot();
        let network = match bridge && (slot.count() > 1 || slot.peers().is_some()) {
            true => Some(InstanceNetwork::plan(context, self.number, &self.engine)?),
            false => None,
        };
        entries.extend(network.iter().filter_map(|network| network.entry(&self.engine)));
        let made = self.storage.entries(at);
        let mounted = made.contains(&Entry::mount(at.data()));
        entries.extend(confinement::entries(context, self.number, self.layers.confinement));
        // An engine in another mount namespace does not see Tare's mounts.
        let (pid, path) = (self.engine.pid(), at.data());
        let mount_elsewhere = mounted && mounts::is_elsewhere(pid);
        entries.extend(made);
        entries.extend(mount_elsewhere.then_some(Entry::mount_elsewhere(path, pid)));
        let volume = self.storage.location() == DataLocation::Volume;
        let volume = volume.then(|| format!("{}-data", self.name));
        entries.extend(volume.as_ref().map(|name| {
            Entry::from(ContainerEntry::Volume {
                engine: self.engine.kind().name().into(),
                socket: self.engine.socket().into(),
                name: name.clone(),
            })
        }));
        self.entries = context.journal().write(entries)?;
        self.provide_image()?;
        let container = ContainerEntry::Container {
            engine: self.engine.kind().name().into(),
            socket: self.engine.socket().into(),
            name: self.name.clone(),
        };
        self.entries.extend(context.journal().write(vec![container.into()])?);
        Ok(Planned { proxy_table, mount_elsewhere, volume, groups, network })
    }

    /// Creates the directory of the start and the storage. Returns the host's path of the volume if
    /// the data is in one.
    fn make_storage(
        &mut self,
        at: &At<'_>,
        planned: &Planned,
    ) -> Result<Option<PathBuf>, PartError> {
        fs::create_dir_all(at.folder)
            .map_err(|source| DockerError::File { path: at.folder.to_path_buf(), source })?;
        self.storage.make(at)?;
        // Volumes and container roots exist only after the engine has started the system.
        if self.storage.location() == DataLocation::Directory {
            self.initial_data.put(&at.data())?;
        }
        if planned.mount_elsewhere {
            let (path, pid) = (at.data(), self.engine.pid());
            mounts::show_to(pid, &path).map_err(|source| storage::StorageError::Show {
                path,
                pid,
                source,
            })?;
        }
        let create = |name: &String| self.engine.create_volume(name, self.storage.bound(at));
        Ok(planned.volume.as_ref().map(create).transpose()?)
    }

    /// Creates the container. Returns the request's `cpuset_cpus` and `security_opt`.
    fn create_container(
        &mut self,
        launch: &Launch,
        program: &Program,
        planned: &Planned,
        (published, common): (SocketAddrV4, u16),
    ) -> Result<(String, Vec<String>), PartError> {
        let context = Arc::clone(&self.context);
        let folder = self.folder();
        let data = match (&planned.volume, self.storage.location()) {
            (Some(name), _) => request::Data::Volume(name),
            (None, DataLocation::Root) => request::Data::Root,
            (None, _) => request::Data::Bind(At { context: &context, folder: &folder }.data()),
        };
        // A client asks one instance for the addresses of the others; all have one port.
        let usual = if planned.network.is_some() { published.port() } else { PORT };
        let inner = launch.port.unwrap_or(usual);
        let listen = match self.layers.network {
            Network::Host => published,
            _ => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, inner),
        };
        let slot = context.slot();
        let addresses = match &planned.network {
            network if let Some(peers) = slot.peers() => SystemAddresses {
                listen,
                advertised: peers.own,
                nodes: NodeAddresses {
                    own: network.as_ref().map_or(peers.own, |network| network.address(0)),
                    ..NodeAddresses::of_hosts(peers)
                },
            },
            _ if slot.count() == 1 => SystemAddresses::from(listen),
            Some(network) => SystemAddresses {
                listen,
                advertised: *published.ip(),
                nodes: NodeAddresses::of(slot, |number| network.address(number)),
            },
            None => SystemAddresses {
                listen,
                advertised: *published.ip(),
                nodes: NodeAddresses::on_loopback(common, slot),
            },
        };
        let cgroup_parent = match self.engine.has_systemd_cgroups()? {
            true => context.slice(),
            false => {
                planned.groups.make_parent()?;
                planned.groups.parent()
            }
        };
        let confined = Confined::make(&context, self.number, self.layers.confinement)?;
        let image_config = self.base.config();
        let cpuset = self.cpuset();
        let request = Request {
            kind: self.engine.kind(),
            image: &self.base.image(&context),
            program: (!matches!(self.base, Base::Program)).then(|| context.program()),
            read_only: !self.writes_root(),
            port: inner,
            node_port: slot.peers().map(|peers| peers.node_port),
            run: context.run(),
            environment: &self.spec.name,
            runtime: self.runtime.as_deref(),
            layers: &self.layers,
            cpuset: cpuset.clone(),
            cgroup_parent,
            nodes: context
                .memory_nodes(self.layers.cpu, self.layers.confinement.node)
                .map(|nodes| nodes.to_string()),
            published,
            network: planned.network.as_ref().map(|own| (own.name(), own.address(slot.number()))),
            data: &data,
            arguments: system::arguments(launch, addresses, rootfs::DATA, program, image_config),
            files: &program.files,
            seccomp: self.seccomp(&folder)?,
            apparmor: confined
                .profile()
                .map(String::from)
                .or_else(|| apparmor::is_there().then(|| "unconfined".into())),
        };
        let body = request.body();
        let security_opt = body.host_config.as_ref().and_then(|host| host.security_opt.clone());
        self.config = Some(request::shown(&body, self.layers.security));
        self.engine.create(&self.name, body)?;
        Ok((cpuset.unwrap_or_default(), security_opt.unwrap_or_default()))
    }

    /// Returns the pid of the engine's userland proxy behind a bridge. With `bridge+proxy` it also
    /// redirects the client's packets to the proxy.
    fn wire_proxy(
        &self,
        planned: &Planned,
        published: SocketAddrV4,
        namespace: &Path,
    ) -> Result<Option<u32>, PartError> {
        let proxy = match self.layers.network {
            Network::Bridge { .. } => engine::userland_proxy(namespace, published),
            _ => None,
        };
        if let Some(table) = &planned.proxy_table {
            if proxy.is_none() {
                let (environment, engine) = (self.spec.name.clone(), self.engine.kind().name());
                return Err(DockerError::NoProxy { environment, engine }.into());
            }
            redirect_to_proxy(table, published, namespace)?;
        }
        Ok(proxy)
    }

    /// Returns the container's processes, found by its first process and by its id, which names its
    /// cgroup.
    fn system(&self, pid: u32, id: &str, proxy: Option<u32>) -> Result<System, PartError> {
        let cgroups = self.context.cgroups();
        let paths = cgroups.of_process(Path::new("/proc"), &pid.to_string())?;
        let group = paths.into_iter().find(|(_, path)| !id.is_empty() && path.contains(id));
        let group = group.map(|(_, path)| cgroups.group(&path));
        let mut system = System::new(pid, group, proxy, &self.layers);
        if self.sandbox.is_some() {
            let gofers = gvisor::gofers(&system.pids());
            gofers.into_iter().for_each(|pid| system.add_server(Some((gvisor::GOFER, pid))));
        }
        Ok(system)
    }
}

/// Maps connections to the published port to the same port before the engine's chain (priority
/// -100) can map them to the container. The kernel maps a connection once (nf_nat_inet_fn in
/// net/netfilter/nf_nat_core.c), so it reaches the userland proxy.
fn redirect_to_proxy(table: &str, to: SocketAddrV4, namespace: &Path) -> Result<(), DockerError> {
    let (address, port) = (to.ip(), to.port());
    let text = format!(
        "table ip {table} {{\n  chain prerouting {{\n    \
         type nat hook prerouting priority -110; policy accept;\n    \
         ip daddr {address} tcp dport {port} dnat to {address}:{port}\n  }}\n}}\n"
    );
    let command = Command::new("nft").args(["-f", "-"]).input(text).in_namespace(namespace);
    command.run().map(drop).map_err(DockerError::Table)
}
