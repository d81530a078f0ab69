//! The start of a pod: journal, storage, the namespace of the run, the pod, and its process.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tare_host::RUN_VARIABLE;
use tare_host::cgroup::Cgroup;
use tare_host::journal::Entry;
use tare_host::memory_policy::PAGES_VARIABLE;
use tare_host::process;
use tare_host::program::Program;
use tare_kube::{NewPod, PodMount, PodSource, Profile};
use tare_lab::PartError;
use tare_lab::environment::{Endpoint, Launch};
use tare_lab::layer::{
    Apparmor, Capabilities, Confinement, Layer, Network, Security, Sidecar, User,
};
use tare_std::units::parse_bytes;

use super::{KubernetesError, Pod, Running};
use crate::kubernetes::{KubernetesEntry, data_directory};
use crate::layer;
use crate::layer::confinement::{self, Confined, apparmor, huge_pages};
use crate::layer::network::{self, NODE_PORT, NodeAddresses, SystemAddresses};
use crate::layer::rootfs::{DATA, PROGRAM};
use crate::pod_sandbox::{PodSandbox, names_pod};
use crate::reach::Reach;
use crate::runtime::gvisor;
use crate::storage::At;
use crate::system::{self, System};

/// The default size of an emptyDir in memory: that of `storage = "tmpfs"`.
const MEMORY_BYTES: u64 = 1 << 30;

/// The variable with the pod's own address.
const OWN_ADDRESS: &str = "TARE_POD_ADDRESS";

/// Represents that address in arguments. No pod has it: 192.0.2.0/24 is for documentation (RFC
/// 5737), and 255 its broadcast address.
const UNKNOWN_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 255);

/// What a pod in the node's network meets in gVisor. Most systems end, as they find no address.
pub(super) const CUT_OFF: &str = "runsc starts a pod in the node's network without one, unless its configuration has \
                                  network = \"host\"; write network = \"bridge\"";

impl Pod {
    /// Starts the system in a new pod and returns where clients reach it.
    pub(super) fn begin(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        let context = Arc::clone(&self.context);
        let program = system::program(launch)?;
        let folder = self.folder();
        let at = At { context: &context, folder: &folder };
        self.provide_namespace()?;
        self.write_journal(&at)?;
        fs::create_dir_all(&folder)
            .map_err(|source| KubernetesError::File { path: folder.clone(), source })?;
        if !self.is_of_kubelet() {
            self.storage.make(&at)?;
            self.initial_data.put(&at.data())?;
        }

        let (client, journal) = (context.client(), context.journal());
        if let Some(profile) = &self.profile {
            profile.provide(journal)?;
        }
        let reached = self.reached(launch)?;
        let (listen, front) = self.ends(reached)?;
        let published = self.publish(front.port())?;
        let confined = Confined::make(&context, self.number, self.own_confinement())?;
        let volume_limit = self.claim_volume()?;
        let new = NewPod {
            volume_limit,
            ..self.new_pod(launch, &program, (listen, front), &at, &confined)?
        };
        let manifest = serde_json::to_string_pretty(&new.manifest());
        // A manifest is always JSON.
        let config = manifest.unwrap_or_default();
        let pod = self.cluster.create_pod(&new);
        drop(new);
        self.config = Some(config);
        let pod = pod?;

        let inside = self.ipv4(&pod.address)?;
        context.slot().add_pod(inside);
        let host = self.layers.network == Network::Host;
        let address = if host { *front.ip() } else { inside };
        let dialled = published.unwrap_or(SocketAddrV4::new(address, front.port()));
        if !host {
            client.route_to(journal, *dialled.ip(), None)?;
        }
        let sandbox = PodSandbox::find(&pod.uid);
        if let Some(sandbox) = &sandbox {
            self.check_sandbox(sandbox)?;
        }
        let process = |container: &str| {
            first_process(container).ok_or_else(|| KubernetesError::NoProcess {
                environment: self.spec.name.clone(),
                pod: self.name.clone(),
            })
        };
        let (pid, group) = match &sandbox {
            Some(sandbox) => (sandbox.pid, self.group_of_pod(sandbox.pid, &pod.uid)?),
            None => {
                let pid = process(&pod.container)?;
                (pid, self.group_of(pid, &pod.container)?)
            }
        };
        let sidecar = pod.sidecar.as_deref().map(process).transpose()?;
        let mut system = System::new(pid, group, None, &self.layers);
        system.add_server(sidecar.map(|pid| ("sidecar", pid)));
        let gofer = match &sandbox {
            Some(_) => gvisor::gofer_of(&pod.container, &system.pids()),
            None => None,
        };
        system.add_server(gofer.map(|pid| (gvisor::GOFER, pid)));
        let data = match self.is_of_kubelet() {
            true => format!("/proc/{}/root{DATA}", gofer.unwrap_or(pid)).into(),
            false => at.data(),
        };
        self.data.clone_from(&data);
        let (front, volume) = (front.port(), self.bound_volume()?);
        // gVisor's sentry has a network stack of its own in the namespace.
        let inside = sandbox.is_none().then(|| process::network_namespace(pid));
        self.running = Some(Running {
            system,
            pod,
            mounts_of: gofer.unwrap_or(pid),
            sandbox,
            inside: None,
            address,
            dialled,
            front,
            sidecar,
            volume,
        });
        Ok(Endpoint { address: dialled.into(), data: Some(data), inside })
    }

    /// Checks that the layers can be read back in gVisor's sandbox. Only a pod that runs says which
    /// runtime its class has.
    fn check_sandbox(&self, sandbox: &PodSandbox) -> Result<(), KubernetesError> {
        let refuse = |layer: Layer, value, why| {
            let environment = self.spec.name.clone();
            Err(KubernetesError::Sandbox { environment, layer, value, why })
        };
        let (network, sidecar) = (self.layers.network, self.spec.sidecar);
        let host = process::inode_of_link(Path::new("/proc/thread-self/ns/net"));
        if network == Network::Host && process::namespace_inode(sandbox.pid, "net") != host {
            return refuse(Layer::Network, network.to_string(), CUT_OFF);
        }
        if !sidecar.is_none() {
            let why = "one sandbox has both containers";
            return refuse(Layer::Sidecar, sidecar.to_string(), why);
        }
        match layer::confinement_set(self.layers.confinement).next() {
            None => Ok(()),
            Some((layer, value)) => {
                refuse(layer, value, "its kernel is not the node's, which cannot read it there")
            }
        }
    }

    /// Returns where clients would reach the system without a proxy and a service.
    fn reached(&self, launch: &Launch) -> Result<SocketAddrV4, PartError> {
        let (context, client) = (&self.context, self.context.client());
        let host = self.layers.network == Network::Host;
        Ok(if let (true, Some(peers)) = (host, context.slot().peers()) {
            SocketAddrV4::new(peers.own, launch.port.unwrap_or(peers.port))
        } else if host {
            let linked = client.link(context.journal(), context.slot().number(), None)?;
            let address = context.reach().map_or(linked, Reach::address);
            let free = || match (launch.port, self.spec.sidecar) {
                (Some(port), _) => network::must_be_free(port),
                (None, Sidecar::Proxy) => network::free_port(Ipv4Addr::LOCALHOST),
                (None, _) => network::free_port(address),
            };
            SocketAddrV4::new(address, context.slot().port(free)?)
        } else {
            SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, self.inner_port(launch.port)?)
        })
    }

    /// Creates the namespace of the run, unless another environment has.
    fn provide_namespace(&self) -> Result<(), PartError> {
        let (journal, name) = (self.context.journal(), self.context.prefix());
        let access = self.access.clone();
        let entry: Entry = KubernetesEntry::Namespace { access, name: name.clone() }.into();
        if journal.live().iter().any(|(_, live)| *live == entry) {
            return Ok(());
        }
        let ids = journal.write(vec![entry])?;
        let created = self.cluster.create_namespace(&name, self.context.run());
        if created.is_err() {
            // Only a namespace with the label of this run is removed.
            journal.undo(&ids);
        }
        Ok(created?)
    }

    /// Journals what this start creates. The pod's entry comes last, because a pod is removed
    /// before the files that it has mounted.
    fn write_journal(&mut self, at: &At<'_>) -> Result<(), PartError> {
        let mut entries = vec![Entry::directory(at.folder.to_path_buf())];
        if !self.is_of_kubelet() {
            entries.extend(self.storage.entries(at));
        }
        entries.extend(confinement::entries(&self.context, self.number, self.own_confinement()));
        entries.extend(self.claim_entry());
        let (access, namespace) = (self.access.clone(), self.context.prefix());
        let name = self.name.clone();
        entries.push(KubernetesEntry::Pod { access, namespace, name }.into());
        entries.extend(self.service_entry());
        self.entries = self.context.journal().write(entries)?;
        Ok(())
    }

    fn new_pod<'a>(
        &'a self,
        launch: &Launch,
        program: &Program,
        (listen, front): (SocketAddrV4, SocketAddrV4),
        at: &At<'_>,
        confined: &'a Confined,
    ) -> Result<NewPod<'a>, PartError> {
        let data = match self.spec.storage.kind.as_str() {
            "volume" => PodSource::Empty { memory_bytes: None },
            "tmpfs" => PodSource::Empty { memory_bytes: Some(self.memory_size()) },
            _ if self.storage.claim().is_some() => PodSource::Claim {
                name: self.name.clone(),
                directory: data_directory(&self.namespace, &self.name),
            },
            _ => PodSource::HostDirectory(at.data().to_string_lossy().into_owned()),
        };
        let shown = |path: &Path, inside: &str| {
            let host = path.to_string_lossy().into_owned();
            let source = match path.is_dir() {
                true => PodSource::HostDirectory(host),
                false => PodSource::HostFile(host),
            };
            PodMount { path: inside.into(), source, read_only: true }
        };
        let mut mounts = vec![
            shown(self.context.program(), PROGRAM),
            PodMount { path: DATA.into(), source: data, read_only: false },
        ];
        let sidecar = self.second_container(mounts[0].clone(), front, listen);
        mounts.extend(program.files.iter().map(|file| shown(file, &file.to_string_lossy())));
        let (addresses, own) = self.addresses(listen);
        let arguments = system::arguments(launch, addresses, DATA, program, None);
        let arguments = arguments.into_iter().map(|word| match own {
            Some(own) => word.replace(&own.to_string(), &format!("$({OWN_ADDRESS})")),
            None => word,
        });
        // The mark by which `clean` finds the processes of a killed run.
        let mut variables = vec![(RUN_VARIABLE.into(), self.context.run().into())];
        let confinement = self.layers.confinement;
        if let Some(pages) = huge_pages::variable(confinement.pages) {
            variables.push((PAGES_VARIABLE.into(), pages.into()));
        }
        Ok(NewPod {
            namespace: &self.namespace,
            name: &self.name,
            run: self.context.run(),
            node: &self.node.name,
            image: &self.image,
            runtime_class: self.runtime_class.as_deref(),
            command: std::iter::once(PROGRAM.to_string()).chain(arguments).collect(),
            variables,
            address_variable: own.map(|_| OWN_ADDRESS),
            host_network: self.layers.network == Network::Host,
            host_port: (self.layers.network == Network::HostPort).then(|| front.port()),
            without_capabilities: confinement.capabilities == Capabilities::None,
            user_namespace: confinement.user == User::Namespace,
            seccomp: match (&self.profile, self.layers.security) {
                (Some(profile), _) => Profile::OfNode(profile.name()),
                (None, Security::None) => Profile::None,
                (None, _) => Profile::Default,
            },
            apparmor: match (confined.profile(), confinement.apparmor) {
                (Some(name), _) => Some(Profile::OfNode(name)),
                (None, Apparmor::Runtime) => Some(Profile::Default),
                // Without the field a kernel with AppArmor has the container runtime's profile.
                (None, _) => apparmor::is_there().then_some(Profile::None),
            },
            cpus: self.cpus,
            memory_bytes: self.layers.limits.memory_bytes,
            huge_pages_bytes: self.layers.limits.huge_pages_bytes,
            mounts,
            sidecar,
            volume_limit: Duration::ZERO,
        })
    }

    /// Returns the addresses in the arguments of the system, and that among them which represents
    /// the pod's own, which nobody knows before the pod is there.
    fn addresses(&self, listen: SocketAddrV4) -> (SystemAddresses, Option<Ipv4Addr>) {
        let slot = self.context.slot();
        if slot.count() == 1 && slot.peers().is_none() {
            return (listen.into(), None);
        }
        if let (Network::Host, Some(peers)) = (self.layers.network, slot.peers()) {
            let (advertised, nodes) = (peers.own, NodeAddresses::of_hosts(peers));
            return (SystemAddresses { listen, advertised, nodes }, None);
        }
        if self.layers.network == Network::Host {
            let nodes = NodeAddresses::on_loopback(listen.port(), slot);
            return (SystemAddresses { nodes, ..listen.into() }, None);
        }
        let own = UNKNOWN_ADDRESS;
        let all = slot.pods().into_iter().chain([own]).collect();
        let nodes = NodeAddresses { own, advertised: own, all, port: NODE_PORT };
        (SystemAddresses { listen, advertised: own, nodes }, Some(own))
    }

    /// Returns what Tare makes on the node for the layers of a pod's rights: the profile. The
    /// kubelet makes the user namespace.
    fn own_confinement(&self) -> Confinement {
        Confinement { user: User::Host, ..self.layers.confinement }
    }

    /// Returns the size of an emptyDir in memory, in bytes.
    pub(super) fn memory_size(&self) -> u64 {
        let options = &self.spec.storage.options;
        let size = options.iter().find(|(name, _)| name == "size");
        size.and_then(|(_, value)| parse_bytes(value).ok()).unwrap_or(MEMORY_BYTES)
    }

    /// Returns the cgroup of a container, by a process in it.
    pub(super) fn group_of(&self, pid: u32, id: &str) -> Result<Option<Cgroup>, PartError> {
        let cgroups = self.context.cgroups();
        let paths = cgroups.of_process(Path::new("/proc"), &pid.to_string())?;
        let group = paths.into_iter().find(|(_, path)| path.contains(id));
        Ok(group.map(|(_, path)| cgroups.group(&path)))
    }

    /// Returns the cgroup of a pod, by a process in it or below.
    fn group_of_pod(&self, pid: u32, uid: &str) -> Result<Option<Cgroup>, PartError> {
        let cgroups = self.context.cgroups();
        let paths = cgroups.of_process(Path::new("/proc"), &pid.to_string())?;
        let group = paths.into_iter().find_map(|(_, path)| path_of_pod(&path, uid));
        Ok(group.map(|path| cgroups.group(&path)))
    }
}

/// Returns the part of a cgroup's path that ends with the pod's own.
fn path_of_pod(path: &str, uid: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    let last = parts.iter().position(|part| names_pod(part, uid))?;
    Some(parts[..=last].join("/"))
}

/// Returns the first process of a container: the one whose parent is not in its cgroup.
pub(in crate::runtime) fn first_process(id: &str) -> Option<u32> {
    let is_inside = |pid: &u32| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        !id.is_empty() && groups.contains(id)
    };
    let all: Vec<u32> = process::all().into_iter().filter(is_inside).collect();
    let parent = |pid: u32| process::status_field(pid, "PPid")?.parse::<u32>().ok();
    all.iter().copied().find(|pid| parent(*pid).is_none_or(|parent| !all.contains(&parent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_of_pod_ends_with_its_uid() {
        let cut = |path: &str| path_of_pod(path, "6cc2-b7");
        let plain = "/kubepods/burstable/pod6cc2-b7";
        assert_eq!(cut(plain).as_deref(), Some(plain));
        assert_eq!(cut(&format!("{plain}/4ed5")).as_deref(), Some(plain));
        let slice = "/kubepods.slice/kubepods-pod6cc2_b7.slice";
        assert_eq!(cut(&format!("{slice}/cri-containerd-4ed5.scope")).as_deref(), Some(slice));
        assert_eq!(cut("/kubepods/burstable/other"), None);
        assert_eq!(path_of_pod("/kubepods/4ed5", ""), None);
    }
}
