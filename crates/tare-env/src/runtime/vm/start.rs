//! Starting a guest: its root, its data, its network, QEMU, and the orders until its system runs.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tare_host::exec::Command;
use tare_host::journal::Entry;
use tare_host::{RUN_VARIABLE, process};
use tare_lab::PartError;
use tare_lab::environment::{Endpoint, Launch};

use super::data::Data;
use super::kernel::{Kernel, Modules, Need};
use super::lines::Lines;
use super::monitor::{Monitor, pin_vcpus, vhost_threads};
use super::qemu::{Machine, Memory, PROGRAM, network_words};
use super::qmp::Qmp;
use super::running::{Accounts, Running};
use super::{Vm, VmError, accelerator, initramfs, virtiofsd};
use crate::guest::protocol::{Answer, DATA, Order};
use crate::layer::network::{BRIDGE_ADDRESS, Place, Router, SYSTEM_ADDRESS};
use crate::layer::{CgroupLayer, CpuLayer};
use crate::runtime::process::GATE;
use crate::system::{self, System};

/// A guest is up within 1.5 s under KVM and 10 s under TCG on a quiet machine.
pub(crate) const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// Modules that a guest needs to hear orders.
pub(crate) const BOOT: &[Need] = &[
    Need { name: "virtio_pci", what: "its devices", needed: true },
    Need { name: "virtio_console", what: "taking orders", needed: true },
];

const NETWORK: Need = Need { name: "virtio_net", what: "its network", needed: true };

impl Vm {
    pub(super) fn begin(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        let ground = Arc::clone(&self.ground);
        let program = system::program(launch)?;
        self.number = ground.next_environment();
        let files = self.files();
        let folder = ground.work().join(format!("e{}", self.number));
        let group = format!("{}/e{}", ground.prefix(), self.number);
        let own = self.layers.cgroup == CgroupLayer::Own;
        let group = own.then(|| ground.cgroups().group(&group));
        let router = Router::for_guest(&ground, self.number)?;

        let mut entries = vec![Entry::Directory { path: folder }];
        entries.extend(router.entries());
        entries.extend(group.iter().map(|group| ground.cgroups().entry(group.name())));
        self.entries = ground.journal().write(entries)?;

        let shown = files.shown();
        let file = |path: PathBuf| move |source| VmError::File { path, source };
        fs::create_dir_all(&shown).map_err(file(shown.clone()))?;
        let kernel = Kernel::find(self.options.kernel.as_deref())?;
        let mut modules = Modules::index(&kernel);
        let boot: Vec<String> =
            modules.choose(BOOT)?.into_iter().map(|module| module.name).collect();
        let mut needs = vec![NETWORK];
        needs.extend(self.data.needs());
        let later = modules.choose(&needs)?;
        let contents = initramfs::Contents {
            program: ground.program(),
            files: &program.files,
            modules: modules.chosen(),
            boot: &boot,
        };
        initramfs::write(&files.initramfs(), &contents).map_err(file(files.initramfs()))?;
        self.data.make(&ground, &files, &self.options)?;
        let accelerator =
            accelerator::choose(ground.mark(), self.options.accelerator, &kernel, &files)?;
        let place = Place::make(&ground, self.layers.network, Some(router))?;
        if let Some(group) = &group {
            group.make_folders()?;
            match self.layers.cpu {
                CpuLayer::Pinned => group.set_cpuset(&ground.cpus().system)?,
                CpuLayer::Quota(cpus) => group.set_quota(cpus)?,
                CpuLayer::Shared => {}
            }
            if let Some(bytes) = self.layers.memory_bytes {
                group.set_memory(bytes)?;
            }
        }

        let cpus = self.layers.cpu.set(ground.cpus()).clone();
        let daemon = match &self.data {
            Data::Virtiofs { cache } => Some(virtiofsd::start(&ground, &files, cache, &cpus)?),
            _ => None,
        };
        let own_cpus = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
        let vhost = fs::exists("/dev/vhost-net").unwrap_or(false);
        let mut devices = network_words(vhost);
        devices.extend(self.data.words(&files, &self.options));
        let machine = Machine {
            name: format!("{}-e{}", ground.prefix(), self.number),
            accelerator: accelerator.0,
            vcpus: self.options.vcpus.unwrap_or(own_cpus).max(1),
            kernel: &kernel.image,
            files: &files,
            memory: Memory {
                bytes: self.options.memory_bytes,
                huge_pages: self.options.huge_pages,
                shared: self.data.shares_memory(),
            },
            devices,
            sandbox: self.layers.security != "none",
        };
        let words = machine.arguments();
        self.config = Some(format!("{PROGRAM}\n{}\n", words.join("\n")));
        let mut command = match own {
            true => Command::new("/bin/sh").args(["-c", GATE, PROGRAM]),
            false => Command::new(PROGRAM),
        };
        command = command.args(words).variable(RUN_VARIABLE, ground.run()).on_cpus(&cpus);
        if let Some(namespace) = &place.namespace {
            command = command.in_namespace(namespace);
        }
        let stderr = File::create(files.stderr()).map_err(file(files.stderr()))?;
        let stdin = if own { Stdio::piped() } else { Stdio::null() };
        let child = command.spawn(stdin, Stdio::null(), stderr.into()).map_err(VmError::Start)?;
        let mut monitor = Monitor::new(child);
        let pid = monitor.pid();
        if let Some(group) = &group {
            group.add(pid)?;
            process::pin(pid, &cpus)?;
            for helper in daemon.iter().flat_map(|daemon| process::tree(daemon.pid())) {
                group.add(helper)?;
                process::pin(helper, &cpus)?;
            }
            let gate = monitor.child().stdin.take();
            gate.map_or(Ok(()), |mut gate| gate.write_all(b"go\n"))
                .map_err(file("/bin/sh".into()))?;
        }
        let deadline = Instant::now() + BOOT_LIMIT;
        let guest = Lines::connect(&files.orders(), deadline, || monitor.alive())
            .map_err(|source| VmError::Boot { limit: BOOT_LIMIT, source })?;
        let mut qmp = Qmp::connect(&files.qmp(), deadline, || monitor.alive())?;
        let vcpus = qmp.vcpu_threads()?;
        if self.layers.cpu == CpuLayer::Pinned {
            pin_vcpus(&vcpus, &cpus)?;
        }
        let proxy = place.router.as_ref().and_then(|router| router.proxy_pid());
        let system = System::new(pid, group, proxy, &self.layers);
        let mut pids = vec![pid];
        pids.extend(vhost_threads(pid));
        let mount = self.data.mount();
        // From here on `stop` ends the process, also when one of the next steps fails.
        let running = self.running.insert(Running {
            monitor,
            daemon,
            system,
            place,
            qmp,
            guest,
            kernel,
            accelerator,
            vhost,
            vcpus,
            pids,
            accounts: Accounts::default(),
            frozen: false,
        });
        match running.guest.receive(deadline) {
            Ok(Answer::Hello { .. }) => {}
            Ok(_) => return Err(VmError::Answer { order: "hello" }.into()),
            Err(source) => return Err(VmError::Boot { limit: BOOT_LIMIT, source }.into()),
        }
        let listen = running.place.listen;
        let arguments = system::arguments(launch, listen, DATA, &program);
        running.done("load", &Order::Load { modules: later })?;
        let (address, gateway) = (SYSTEM_ADDRESS, BRIDGE_ADDRESS);
        running.done("network", &Order::Network { address, prefix: 24, gateway })?;
        running.done("mount", &mount)?;
        match running.order("start", &Order::Start { arguments })? {
            Answer::Started { .. } => {}
            _ => return Err(VmError::Answer { order: "start" }.into()),
        }
        Ok(Endpoint { address: running.place.address, data: Some(shown) })
    }
}
