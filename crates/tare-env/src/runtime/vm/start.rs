//! The start of a guest: root, data, network and monitor, and the orders that start its system.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tare_host::account::Account;
use tare_host::cgroup::Cgroup;
use tare_host::exec::Command;
use tare_host::journal::Entry;
use tare_host::program::Program;
use tare_host::{RUN_VARIABLE, process};
use tare_lab::PartError;
use tare_lab::environment::{Endpoint, Launch};
use tare_lab::layer::Security;
use tare_std::cpus::CpuSet;

use super::container::{Container, ContainerContents};
use super::data::Data;
use super::engine::{CpuAccounts, Engine, Qemu};
use super::error::VmError;
use super::kernel::{Kernel, Modules, Need};
use super::lines::Lines;
use super::monitor::{Monitor, MonitorKind, pin_vcpus, vhost_threads};
use super::qemu::{Files, Machine, Memory, PROGRAM, Shape, network_words};
use super::qmp::Qmp;
use super::running::Running;
use super::{Vm, accelerator, initramfs, uml, virtiofsd};
use crate::groups::Groups;
use crate::guest::protocol::{Answer, DATA, Module, Order};
use crate::layer::network::{Router, SystemAddresses, SystemNetwork};
use crate::layer::{limits, rootfs};
use crate::runtime::process::GATE;
use crate::system::{self, System};

/// How long a guest may take to boot. On a quiet machine it takes up to 1.5 s under KVM and 10 s
/// under TCG.
pub(crate) const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// The modules that a guest needs to receive orders.
pub(crate) const BOOT: &[Need] = &[
    Need { name: "virtio_pci", what: "its devices", needed: true },
    Need { name: "virtio_console", what: "receiving orders", needed: true },
];

const NETWORK: Need = Need { name: "virtio_net", what: "its network", needed: true };

/// What a monitor starts with, and where it runs.
struct MonitorPlacement<'a> {
    kernel: &'a Kernel,
    files: &'a Files,
    network: &'a SystemNetwork,
    groups: &'a Groups,
    cpus: &'a CpuSet,
    /// The NUMA nodes to which the guest's memory is bound, if it is.
    nodes: Option<CpuSet>,
    daemon: Option<&'a Monitor>,
}

/// The files of a guest that is about to boot.
struct Prepared {
    kernel: Kernel,
    /// The modules to load once the guest receives orders.
    later: Vec<Module>,
    /// The OCI runtime inside the guest, if the system runs in a container there.
    container: Option<String>,
}

/// The variable parts of the orders that start a system.
struct Orders {
    later: Vec<Module>,
    mount: Order,
    container: Option<String>,
}

/// A started monitor.
struct Started {
    monitor: Monitor,
    /// The process whose layers are read back.
    pid: u32,
    guest: Lines,
    engine: Engine,
}

impl Vm {
    pub(super) fn begin(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        let context = Arc::clone(&self.context);
        let program = system::program(launch)?;
        self.number = context.next_environment();
        let files = self.files();
        let folder = context.work().join(format!("e{}", self.number));
        let groups = Groups::plan(&context, self.number, self.layers.cgroup);
        let proxy = self.layers.network.has_proxy();
        let router = Router::for_guest(&context, self.number, proxy)?;

        let mut entries = vec![Entry::directory(folder.clone())];
        entries.extend(router.entries());
        entries.push(groups.entry());
        self.entries = context.journal().write(entries)?;

        let shown = files.shown();
        let file = |path: PathBuf| move |source| VmError::File { path, source };
        fs::create_dir_all(&shown).map_err(file(shown.clone()))?;
        let addresses = router.addresses(context.slot());
        let Prepared { kernel, later, container } =
            self.prepare(launch, addresses, &program, &files)?;
        self.data.make(&context, &files, &self.options)?;
        let network = SystemNetwork::make(&context, self.layers.network, Some(router), None)?;
        groups.make()?;
        groups.own().map_or(Ok(()), |group| self.limit(group, &folder))?;

        let cpus = self.layers.cpu.set(context.cpus());
        let daemon = match &self.data {
            Data::Virtiofs { cache } => Some(virtiofsd::start(&context, &files, cache, &cpus)?),
            _ => None,
        };
        let deadline = Instant::now() + BOOT_LIMIT;
        let placement = MonitorPlacement {
            kernel: &kernel,
            files: &files,
            network: &network,
            groups: &groups,
            cpus: &cpus,
            nodes: context.memory_nodes(self.layers.cpu, self.layers.confinement.node),
            daemon: daemon.as_ref(),
        };
        let started = match self.kind {
            MonitorKind::Qemu => self.start_qemu(&placement, deadline)?,
            MonitorKind::Uml => self.start_uml(&placement, deadline)?,
        };
        let Started { monitor, pid, guest, engine } = started;
        let proxy = network.router.as_ref().and_then(|router| router.proxy_pid());
        let system = System::new(pid, groups.own().cloned(), proxy, &self.layers);
        let mount = self.data.mount(&files);
        // From here on `stop` ends the process, even if one of the next steps fails.
        let running = self.running.insert(Running {
            monitor,
            daemon,
            system,
            network,
            engine,
            guest,
            kernel,
            daemon_account: Account::default(),
            frozen: false,
        });
        running.start_system(launch, &program, deadline, Orders { later, mount, container })?;
        Ok(Endpoint { address: running.network.address, data: Some(shown), inside: None })
    }

    /// Finds the kernel and its modules, and writes the guest's initramfs.
    fn prepare(
        &self,
        launch: &Launch,
        addresses: SystemAddresses,
        program: &Program,
        files: &Files,
    ) -> Result<Prepared, PartError> {
        let image = self.options.kernel.as_deref();
        let (kernel, boot, mut needs) = match self.kind {
            MonitorKind::Qemu => (Kernel::find(image)?, BOOT, vec![NETWORK]),
            // A user-mode kernel has its serial and network drivers built in.
            MonitorKind::Uml => (Kernel::user_mode(image)?, [].as_slice(), Vec::new()),
        };
        let mut modules = Modules::index(&kernel);
        let boot: Vec<String> =
            modules.choose(boot)?.into_iter().map(|module| module.name).collect();
        needs.extend(self.data.needs());
        let later = modules.choose(&needs)?;
        let container = match &self.options.container {
            Some(runtime) => {
                let arguments = system::arguments(launch, addresses, rootfs::DATA, program, None);
                let release = &kernel.release;
                let contents = ContainerContents { arguments, files: &program.files, release };
                Some(Container::new(runtime, &self.context, &self.layers, contents)?)
            }
            None => None,
        };
        let mut shown_files = program.files.clone();
        shown_files.extend(container.iter().flat_map(|one| one.runtime.files.clone()));
        let contents = initramfs::Contents {
            program: self.context.program(),
            files: &shown_files,
            modules: modules.chosen(),
            boot: &boot,
            bundle: container.as_ref().map(|container| &container.bundle),
        };
        let path = files.initramfs();
        initramfs::write(&path, &contents).map_err(|source| VmError::File { path, source })?;
        let container = container.map(|one| one.runtime.path.to_string_lossy().into_owned());
        Ok(Prepared { kernel, later, container })
    }

    /// Sets the limits of the environment on the monitor's own cgroup. The disk of the guest is a
    /// file in the directory of the start.
    fn limit(&self, group: &Cgroup, folder: &Path) -> Result<(), PartError> {
        limits::confine(group, &self.layers, &self.context)?;
        limits::apply(group, &self.layers, folder)
    }

    fn start_qemu(
        &mut self,
        placement: &MonitorPlacement<'_>,
        deadline: Instant,
    ) -> Result<Started, PartError> {
        let context = Arc::clone(&self.context);
        let MonitorPlacement { kernel, files, cpus, .. } = placement;
        let accelerator =
            accelerator::choose(context.identity(), self.options.accelerator, kernel, files)?;
        let own_cpus = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
        let vhost = fs::exists("/dev/vhost-net").unwrap_or(false);
        let mut devices = network_words(vhost, &placement.network.tap(), context.slot().number());
        devices.extend(self.data.words(files, &self.options));
        let machine = Machine {
            name: format!("{}-e{}", context.prefix(), self.number),
            accelerator: accelerator.0,
            vcpus: self.options.vcpus.unwrap_or(own_cpus).max(1),
            kernel: &kernel.image,
            files,
            shape: Shape::default(),
            memory: Memory {
                bytes: self.options.memory_bytes,
                huge_pages: self.options.huge_pages,
                shared: self.data.shares_memory(),
            },
            devices,
            sandbox: self.layers.security != Security::None,
            ends_if_stuck: false,
        };
        let words = machine.arguments();
        self.config = Some(format!("{PROGRAM}\n{}\n", words.join("\n")));
        let command = Command::new("/bin/sh").args(["-c", GATE, PROGRAM]);
        let command = placement.command(command.args(words), context.run());
        let log = |source| VmError::File { path: files.stderr(), source };
        let stderr = File::create(files.stderr()).map_err(log)?;
        let child =
            command.spawn(Stdio::piped(), Stdio::null(), stderr.into()).map_err(VmError::Start)?;
        let mut monitor = Monitor::new(child);
        let pid = monitor.pid();
        placement.enter(pid)?;
        let gate = monitor.child().stdin.take();
        let fail = |source| VmError::File { path: "/bin/sh".into(), source };
        gate.map_or(Ok(()), |mut gate| gate.write_all(b"go\n")).map_err(fail)?;
        let guest = Lines::connect(&files.orders(), deadline, || monitor.alive())
            .map_err(|source| VmError::Boot { limit: BOOT_LIMIT, source })?;
        let mut qmp = Qmp::connect(&files.qmp(), deadline, || monitor.alive())?;
        let vcpus = qmp.vcpu_threads()?;
        if self.layers.cpu.has_cpuset() {
            pin_vcpus(&vcpus, cpus)?;
        }
        let mut pids = vec![pid];
        pids.extend(vhost_threads(pid));
        let accounts = CpuAccounts::default();
        let engine =
            Engine::Qemu(Box::new(Qemu { qmp, accelerator, vhost, vcpus, pids, accounts }));
        Ok(Started { monitor, pid, guest, engine })
    }

    fn start_uml(
        &mut self,
        placement: &MonitorPlacement<'_>,
        deadline: Instant,
    ) -> Result<Started, PartError> {
        uml::check_memory(self.options.memory_bytes)?;
        let network = uml::network_word(&placement.network.tap());
        let devices = std::iter::once(network).chain(self.data.user_mode_word(&self.options));
        let words = uml::arguments(self.options.memory_bytes, devices);
        let program: &Path = &placement.kernel.image;
        self.config = Some(format!("{}\n{}\n", program.display(), words.join("\n")));
        let command = placement.command(uml::command(program), self.context.run());
        let started = uml::Started::at_gate(command, &words, placement.files)?;
        placement.enter(started.monitor.pid())?;
        let (monitor, guest, pid) = started.go(deadline)?;
        Ok(Started { monitor, pid, guest, engine: Engine::Uml })
    }
}

impl Running {
    /// Waits for the guest's hello, then sends the orders up to the start of the system.
    fn start_system(
        &mut self,
        launch: &Launch,
        program: &Program,
        deadline: Instant,
        orders: Orders,
    ) -> Result<(), PartError> {
        match self.guest.receive(deadline) {
            Ok(Answer::Hello { .. }) => {}
            Ok(_) => return Err(VmError::Answer { order: "hello" }.into()),
            Err(source) => return Err(VmError::Boot { limit: BOOT_LIMIT, source }.into()),
        }
        let Orders { later, mount, container } = orders;
        let arguments = system::arguments(launch, self.network.addresses(), DATA, program, None);
        self.done("load", &Order::Load { modules: later })?;
        let (address, gateway, prefix) = self.network.in_guest();
        self.done("network", &Order::Network { address, prefix, gateway })?;
        self.done("mount", &mount)?;
        match self.order("start", &Order::Start { arguments, container })? {
            Answer::Started { .. } => Ok(()),
            _ => Err(VmError::Answer { order: "start" }.into()),
        }
    }
}

impl MonitorPlacement<'_> {
    /// Returns the command with the run's mark, in the monitor's namespace and on its CPUs.
    fn command(&self, command: Command, run: &str) -> Command {
        let command = command.variable(RUN_VARIABLE, run).on_cpus(self.cpus);
        let command = match (&self.nodes, self.groups.own()) {
            (Some(nodes), None) => command.on_nodes(nodes),
            _ => command,
        };
        match &self.network.namespace {
            Some(namespace) => command.in_namespace(namespace),
            None => command,
        }
    }

    /// Moves the monitor, and the daemon that serves its data, into the cgroup.
    fn enter(&self, pid: u32) -> Result<(), PartError> {
        let helpers = self.daemon.map(|daemon| process::tree(daemon.pid())).unwrap_or_default();
        for one in std::iter::once(pid).chain(helpers) {
            self.groups.add(one)?;
            process::pin(one, self.cpus)?;
        }
        Ok(())
    }
}
