//! Virtual machines: a guest with a kernel of its own, made by QEMU with KVM where a guest boots
//! with it, else with TCG, which emulates the CPU and so is functional only.
//!
//! Method: the guest is Tare's own program in an initramfs (`crate::guest`), so nothing is
//! installed and the same bytes run as everywhere else. A tap device on the bridge takes the place
//! of a container's veth; the data lies on a disk image of its own. QEMU runs in the environment's
//! cgroup like any system. The guest is stopped through the monitor and not by the freezer, so
//! that its clock stands still too.
//!
//! Accounts: the threads of the vCPUs are the system, guest's kernel included; what else QEMU and
//! vhost do is the layer's.
//!
//! Limits: one disk and one network device; x86-64.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tare_host::account::Account;
use tare_host::exec::{self, Command};
use tare_host::journal::{Entry, EntryId};
use tare_host::{RUN_VARIABLE, process};
use tare_lab::PartError;
use tare_lab::environment::{
    Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes, Usage,
};
use tare_std::cpus::CpuSet;

use super::process::GATE;
use super::{Argument, Runtime, Unavailable};
use crate::guest::protocol::{self, Answer, DATA, Order, Source};
use crate::layer::network::{BRIDGE_ADDRESS, Place, Router, SYSTEM_ADDRESS};
use crate::layer::{CgroupLayer, CpuLayer, Layers};
use crate::site::Ground;
use crate::system::{self, System};

pub mod accelerator;
pub mod doctor;
mod initramfs;
pub mod kernel;
mod lines;
mod options;
mod qemu;
mod qmp;
mod read_back;

use kernel::{Kernel, KernelError, Modules, Need};
use lines::Lines;
use options::Options;
pub use options::{OPTIONS, OptionError};
use qemu::{Accelerator, Files, Machine, PROGRAM};
use qmp::Qmp;
pub use qmp::QmpError;

pub const RUNTIME: Runtime = Runtime {
    name: "vm",
    help: "a guest with its own kernel, Tare's program its only process",
    argument: Argument::Required("MONITOR: qemu"),
    options: OPTIONS,
    needs,
    cleanup: "QEMU is killed; disk image, sockets and initramfs go with the directory",
    read_back: "the monitor's status and accelerator, and what the guest says of itself",
    found: || if needs(Some("qemu")).is_ok() { vec!["vm:qemu".into()] } else { Vec::new() },
    make,
};

/// A guest is up within 1.5 s under KVM and 10 s under TCG on a quiet machine.
const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// How long the guest may take for an order: it loads modules and mounts.
const ORDER_LIMIT: Duration = Duration::from_secs(60);

/// Modules that the guest needs to hear orders.
const BOOT: &[Need] = &[
    Need { name: "virtio_pci", what: "its devices", needed: true },
    Need { name: "virtio_console", what: "taking orders", needed: true },
];

/// Modules for its network and its disk. The two of crc32c are what ext4 asks modprobe for by
/// another name; on a CPU without the instruction the second does not load.
const DEVICES: &[Need] = &[
    Need { name: "virtio_net", what: "its network", needed: true },
    Need { name: "virtio_blk", what: "its disk", needed: true },
    Need { name: "crc32c_generic", what: "ext4", needed: false },
    Need { name: "crc32c-intel", what: "ext4", needed: false },
    Need { name: "ext4", what: "its data", needed: true },
];

/// Why there is no guest.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    #[error("there is no monitor {name:?}; write vm:qemu")]
    Monitor { name: String },
    #[error("cannot use {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("accelerator = \"kvm\" cannot be had: {why}")]
    NoKvm { why: String },
    #[error("cannot start QEMU")]
    Start(#[from] exec::ExecError),
    #[error("QEMU (process {pid}) does not end when killed")]
    Unkillable { pid: u32 },
    #[error("the guest did not come up within {} s", .limit.as_secs())]
    Boot { limit: Duration, source: io::Error },
    #[error("the guest does not answer the order {order}")]
    Order { order: &'static str, source: io::Error },
    #[error("the guest cannot carry out the order {order}: {error}")]
    Refused { order: &'static str, error: String },
    #[error("the guest answers the order {order} with something else")]
    Answer { order: &'static str },
    #[error("environment {environment:?} is not started")]
    NotStarted { environment: String },
    #[error("cannot pin vCPU thread {thread}")]
    Pin { thread: u32, source: io::Error },
}

fn needs(argument: Option<&str>) -> Result<(), Unavailable> {
    let missing = |why: String, remedy: &str| Unavailable {
        what: format!("vm:{}", argument.unwrap_or_default()),
        why,
        remedy: remedy.into(),
    };
    if argument != Some("qemu") {
        return Err(missing("there is no such monitor".into(), "write vm:qemu"));
    }
    if exec::find(PROGRAM).is_none() {
        let remedy = "apt-get install --no-install-recommends qemu-system-x86";
        return Err(missing(format!("there is no program {PROGRAM}"), remedy));
    }
    if exec::find("mkfs.ext4").is_none() {
        let why = "there is no program mkfs.ext4 for the guest's disk".to_string();
        return Err(missing(why, "apt-get install e2fsprogs"));
    }
    match Kernel::find(None) {
        Ok(_) => Ok(()),
        Err(KernelError::None) => {
            Err(missing("there is no kernel for guests".into(), kernel::REMEDY))
        }
        Err(error) => Err(missing(error.to_string(), kernel::REMEDY)),
    }
}

/// The kernel that a guest gets unless another is asked for: (image, release).
///
/// # Errors
/// When there is none, and how to get one.
pub fn default_kernel() -> Result<(PathBuf, String), KernelError> {
    Kernel::find(None).map(|kernel| (kernel.image, kernel.release))
}

/// Checks the options against the runtime and the other layers.
pub(super) fn check(
    spec: &EnvironmentSpec,
    layers: &Layers,
    name: &str,
) -> Result<(), OptionError> {
    if name == RUNTIME.name {
        return Options::parse(spec, layers).map(|_| ());
    }
    match spec.vm.is_empty() {
        true => Ok(()),
        false => Err(OptionError::NoMachine { environment: spec.name.clone() }),
    }
}

fn make(
    ground: &Arc<Ground>,
    spec: EnvironmentSpec,
    layers: Layers,
    _argument: Option<&str>,
) -> Result<Box<dyn Environment>, PartError> {
    let options = Options::parse(&spec, &layers)?;
    let ground = Arc::clone(ground);
    Ok(Box::new(Vm {
        ground,
        spec,
        layers,
        options,
        number: 0,
        entries: Vec::new(),
        log: String::new(),
        config: None,
        running: None,
    }))
}

struct Vm {
    ground: Arc<Ground>,
    spec: EnvironmentSpec,
    layers: Layers,
    options: Options,
    /// Of the last start.
    number: u32,
    entries: Vec<EntryId>,
    /// What the last guest printed last.
    log: String,
    config: Option<String>,
    running: Option<Running>,
}

struct Running {
    child: Child,
    system: System,
    place: Place,
    qmp: Qmp,
    guest: Lines,
    kernel: Kernel,
    /// The accelerator that was chosen, and why.
    accelerator: (Accelerator, String),
    vhost: bool,
    vcpus: Vec<u32>,
    /// QEMU, and the kernel's threads that work for it.
    pids: Vec<u32>,
    vcpu_account: Account,
    other_account: Account,
    frozen: bool,
}

impl Vm {
    fn files(&self) -> Files {
        Files::new(&self.ground.work().join(format!("e{}", self.number)))
    }

    fn running(&mut self) -> Result<&mut Running, VmError> {
        let environment = || self.spec.name.clone();
        self.running.as_mut().ok_or_else(|| VmError::NotStarted { environment: environment() })
    }

    fn begin(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        let ground = Arc::clone(&self.ground);
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
        let later = modules.choose(DEVICES)?;
        initramfs::write(&files.initramfs(), ground.program(), modules.chosen(), &boot)
            .map_err(file(files.initramfs()))?;
        self.make_disk(&files)?;
        let accelerator = accelerator::choose(&ground, &self.options, &kernel, &files)?;
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
        let own_cpus = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
        let vhost = fs::exists("/dev/vhost-net").unwrap_or(false);
        let machine = Machine {
            name: format!("{}-e{}", ground.prefix(), self.number),
            accelerator: accelerator.0,
            vcpus: self.options.vcpus.unwrap_or(own_cpus).max(1),
            kernel: &kernel.image,
            files: &files,
            options: &self.options,
            devices: true,
            vhost,
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
        let mut child = Kept(Some(child));
        let pid = child.pid();
        if let Some(group) = &group {
            group.add(pid)?;
            process::pin(pid, &cpus)?;
            let gate = child.get().stdin.take();
            gate.map_or(Ok(()), |mut gate| gate.write_all(b"go\n"))
                .map_err(file("/bin/sh".into()))?;
        }
        let deadline = Instant::now() + BOOT_LIMIT;
        let guest = Lines::connect(&files.orders(), deadline, || child.alive())
            .map_err(|source| VmError::Boot { limit: BOOT_LIMIT, source })?;
        let mut qmp = Qmp::connect(&files.qmp(), deadline, || child.alive())?;
        let vcpus = qmp.vcpu_threads()?;
        if self.layers.cpu == CpuLayer::Pinned {
            pin_vcpus(&vcpus, &cpus)?;
        }
        let proxy = place.router.as_ref().and_then(|router| router.proxy_pid());
        let system = System::new(pid, group, proxy, &self.layers);
        let mut pids = vec![pid];
        pids.extend(vhost_threads(pid));
        // From here on `stop` ends the process, also when one of the next steps fails.
        let running = self.running.insert(Running {
            child: child.keep(),
            system,
            place,
            qmp,
            guest,
            kernel,
            accelerator,
            vhost,
            vcpus,
            pids,
            vcpu_account: Account::new(),
            other_account: Account::new(),
            frozen: false,
        });
        match running.guest.receive(deadline) {
            Ok(Answer::Hello { .. }) => {}
            Ok(_) => return Err(VmError::Answer { order: "hello" }.into()),
            Err(source) => return Err(VmError::Boot { limit: BOOT_LIMIT, source }.into()),
        }
        let listen = running.place.listen;
        let arguments = system::arguments(launch, listen, DATA);
        running.done("load", &Order::Load { modules: later })?;
        let (address, gateway) = (SYSTEM_ADDRESS, BRIDGE_ADDRESS);
        running.done("network", &Order::Network { address, prefix: 24, gateway })?;
        let source = Source::Disk(protocol::DATA_SERIAL.into());
        let (filesystem, options) = ("ext4".into(), String::new());
        running.done("mount", &Order::Mount { source, filesystem, options })?;
        match running.order("start", &Order::Start { arguments })? {
            Answer::Started { .. } => {}
            _ => return Err(VmError::Answer { order: "start" }.into()),
        }
        Ok(Endpoint { address: running.place.address, data: Some(shown) })
    }

    /// The guest's disk: a sparse file with an ext4 that is laid out in full, so that the guest
    /// does not go on making it while it is measured.
    fn make_disk(&self, files: &Files) -> Result<(), VmError> {
        let path = files.disk();
        let made = File::create(&path).and_then(|file| file.set_len(self.options.disk_bytes));
        made.map_err(|source| VmError::File { path: path.clone(), source })?;
        let laid_out = "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0";
        Command::new("mkfs.ext4")
            .args(["-q", "-F", "-E", laid_out])
            .arg(&path)
            .variable(RUN_VARIABLE, self.ground.run())
            .run()?;
        Ok(())
    }
}

/// A child that is killed unless it is kept: between its start and the moment when the environment
/// owns it, a step may fail.
struct Kept(Option<Child>);

impl Kept {
    #[expect(clippy::expect_used, reason = "only `keep`, which consumes it, takes the child out")]
    fn get(&mut self) -> &mut Child {
        self.0.as_mut().expect("it is there until it is kept")
    }

    fn pid(&mut self) -> u32 {
        self.get().id()
    }

    fn alive(&mut self) -> bool {
        matches!(self.get().try_wait(), Ok(None))
    }

    #[expect(clippy::expect_used, reason = "it is consumed")]
    fn keep(mut self) -> Child {
        self.0.take().expect("it is there until it is kept")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // The journal kills what survives this.
            let _ = kill(child);
        }
    }
}

/// Kills a QEMU and waits for its end.
fn kill(child: &mut Child) -> Result<(), VmError> {
    let pid = child.id();
    let file = |source| VmError::File { path: format!("/proc/{pid}").into(), source };
    let alive = process::kill(&[pid], super::KILL_LIMIT).map_err(file)?;
    if !alive.is_empty() {
        return Err(VmError::Unkillable { pid });
    }
    child.wait().map_err(file)?;
    Ok(())
}

/// Gives each vCPU a CPU of its own, as far as they go.
fn pin_vcpus(vcpus: &[u32], cpus: &CpuSet) -> Result<(), VmError> {
    let each: Vec<u32> = cpus.iter().collect();
    for (thread, cpu) in vcpus.iter().zip(each.iter().cycle()) {
        let mut one = CpuSet::new();
        one.insert(*cpu);
        process::pin_thread(*thread, &one)
            .map_err(|source| VmError::Pin { thread: *thread, source })?;
    }
    Ok(())
}

/// The kernel's own threads that carry packets for a process, where they are not threads of that
/// process (before Linux 6.4).
fn vhost_threads(pid: u32) -> Vec<u32> {
    let name = format!("vhost-{pid}");
    let ours = |thread: &u32| process::name(*thread).is_some_and(|found| found == name);
    process::all().into_iter().filter(ours).collect()
}

impl Running {
    fn order(&mut self, name: &'static str, order: &Order) -> Result<Answer, VmError> {
        let fail = |source| VmError::Order { order: name, source };
        self.guest.send(order).map_err(fail)?;
        match self.guest.receive(Instant::now() + ORDER_LIMIT).map_err(fail)? {
            Answer::Failed { error } => Err(VmError::Refused { order: name, error }),
            answer => Ok(answer),
        }
    }

    fn done(&mut self, name: &'static str, order: &Order) -> Result<(), VmError> {
        match self.order(name, order)? {
            Answer::Done => Ok(()),
            _ => Err(VmError::Answer { order: name }),
        }
    }

    /// Asks for the guest's accounts and writes what the system says of itself where the host reads
    /// it.
    fn show(&mut self, files: &Files) -> Result<(), VmError> {
        let order = "account";
        let Answer::Account(account) = self.order(order, &Order::Account)? else {
            return Err(VmError::Answer { order });
        };
        for (name, content) in account.files {
            // A name from the guest is a name, not a path.
            if name.contains('/') || name.starts_with('.') {
                continue;
            }
            let path = files.shown().join(name);
            fs::write(&path, content).map_err(|source| VmError::File { path, source })?;
        }
        Ok(())
    }
}

impl Environment for Vm {
    fn spec(&self) -> &EnvironmentSpec {
        &self.spec
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        self.stop()?;
        let started = self.begin(launch);
        if started.is_err() {
            // The first error is the one that tells; what is left is in the journal.
            let _ = self.stop();
        }
        started
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        let files = self.files();
        let (ground, spec, layers) =
            (Arc::clone(&self.ground), self.spec.clone(), self.layers.clone());
        let options = self.options.clone();
        let running = self.running()?;
        running.show(&files)?;
        read_back::read(running, &ground, &spec, &layers, &options)
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        let running = self.running()?;
        running.qmp.stop()?;
        running.frozen = true;
        Ok(())
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        let running = self.running()?;
        running.qmp.cont()?;
        running.frozen = false;
        Ok(())
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        let files = self.files();
        let running = self.running()?;
        if !running.frozen {
            running.show(&files)?;
        }
        let mut usage = running.system.usage()?;
        let Running { pids, vcpus, vcpu_account, other_account, .. } = running;
        usage.system_cpu_ns = vcpu_account.read_threads(pids, |thread| vcpus.contains(&thread));
        let other = other_account.read_threads(pids, |thread| !vcpus.contains(&thread));
        usage.layer_cpu_ns.push(("monitor".into(), other));
        Ok(usage)
    }

    fn processes(&mut self) -> Processes {
        let Some(running) = &self.running else { return Processes::default() };
        let mut processes = running.system.processes();
        processes.layer.extend(running.pids.iter().skip(1));
        processes
    }

    fn config(&self) -> Option<String> {
        self.config.clone()
    }

    fn log_tail(&self) -> String {
        if self.entries.is_empty() {
            return self.log.clone();
        }
        let files = self.files();
        system::log_tail(&[&files.stderr(), &files.console(), &files.log()])
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.log = self.log_tail();
        if let Some(mut running) = self.running.take() {
            let killed = kill(&mut running.child);
            if let Some(router) = &mut running.place.router {
                router.end_proxy()?;
            }
            killed?;
        }
        Ok(super::undo(&self.ground, &self.spec.name, &mut self.entries)?)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`; the journal keeps what is left.
        let _ = self.stop();
    }
}
