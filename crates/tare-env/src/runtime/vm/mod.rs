//! Virtual machines, whose guests have their own kernel. QEMU runs a guest with KVM if one boots
//! with it, else with TCG, which emulates the CPU and so only shows that things work. User-mode
//! Linux (`uml`) is a kernel that runs as a program of the host.
//!
//! Method: the guest is Tare's own program in an initramfs (`crate::guest`), so nothing is
//! installed and the same binary runs everywhere. A tap device on the bridge replaces a container's
//! veth; the data is on its own disk image. The monitor runs in the environment's cgroup like any
//! system. QEMU guests are stopped through the monitor and not by the freezer, so their clocks stop
//! too; a guest of user-mode Linux has the host's clock.
//!
//! Accounts: the vCPU threads, including the guest's kernel, count as the system; other threads of
//! QEMU and vhost count as the layer. All of user-mode Linux counts as the system.
//!
//! Limits: one disk and one network device; x86-64.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tare_host::exec;
use tare_host::journal::EntryId;
use tare_lab::PartError;
use tare_lab::environment::{
    Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes, Usage,
};

use super::contract::{self, Argument, Runtime};
use crate::layer::{Layers, limits};
use crate::run_context::RunContext;
use crate::unavailable::Unavailable;
use crate::{storage, system};

mod accelerator;
mod container;
mod data;
pub(crate) mod doctor;
mod engine;
mod error;
pub(crate) mod initramfs;
mod kernel;
mod lines;
mod monitor;
mod options;
mod qemu;
mod qmp;
mod read_back;
mod running;
mod start;
pub(crate) mod uml;
mod virtiofsd;

use data::Data;
use options::Options;
use running::Running;

pub use error::VmError;
pub use kernel::KernelError;
pub use options::{OPTIONS, OptionError};
pub use qmp::QmpError;

// The parts that `crate::inside` boots its guest with.
pub(crate) use accelerator::choose as choose_accelerator;
pub(crate) use accelerator::obstacle as kvm_obstacle;
pub(crate) use kernel::{Kernel, Modules, Need};
pub(crate) use lines::Lines;
pub(crate) use monitor::{Monitor, MonitorKind};
pub(crate) use options::AcceleratorChoice;
pub(crate) use qemu::PROGRAM as QEMU;
pub(crate) use qemu::{Accelerator, DISK_FILE, Files, Machine, Memory, Shape, escaped};
pub(crate) use start::{BOOT, BOOT_LIMIT};

pub const RUNTIME: Runtime = Runtime {
    name: "vm",
    help: "a guest with its own kernel, and Tare's program as its only process",
    argument: Argument::Required("MONITOR: qemu or uml"),
    options: OPTIONS,
    needs,
    cleanup: "the monitor is killed; disk image, sockets and initramfs go with the directory",
    read_back: "the monitor's status and accelerator, and the facts that the guest reports",
    found,
    make,
};

/// Returns the monitors that work on this host, as studies write them.
fn found() -> Vec<String> {
    let words = MonitorKind::ALL.into_iter().map(MonitorKind::word);
    words.filter(|word| needs(Some(word)).is_ok()).map(|word| format!("vm:{word}")).collect()
}

/// Returns the memory of a guest, or `None` if its options are invalid.
pub(super) fn memory_bytes(spec: &EnvironmentSpec, argument: Option<&str>) -> Option<u64> {
    let (layers, monitor) = (Layers::checked(spec).ok()?, MonitorKind::parse(argument?)?);
    Options::parse(spec, &layers, monitor).ok().map(|options| options.memory_bytes)
}

/// Checks that this host has the programs and the kernel of a monitor, and reports what is missing.
pub(crate) fn needs(argument: Option<&str>) -> Result<(), Unavailable> {
    let missing = |why: String, remedy: &str| Unavailable {
        what: format!("vm:{}", argument.unwrap_or_default()),
        why,
        remedy: remedy.into(),
    };
    let Some(monitor) = argument.and_then(MonitorKind::parse) else {
        return Err(missing("there is no such monitor".into(), "write vm:qemu or vm:uml"));
    };
    let (program, remedy) = match monitor {
        MonitorKind::Qemu => (QEMU, "apt-get install --no-install-recommends qemu-system-x86"),
        MonitorKind::Uml => (kernel::USER_MODE_PROGRAM, kernel::USER_MODE_REMEDY),
    };
    let others =
        [("mkfs.ext4", "apt-get install e2fsprogs"), (uml::STARTER, "apt-get install util-linux")];
    for (program, remedy) in std::iter::once((program, remedy)).chain(others) {
        if exec::find(program).is_none() {
            return Err(missing(format!("there is no program {program}"), remedy));
        }
    }
    let kernel = match monitor {
        MonitorKind::Qemu => Kernel::find(None),
        MonitorKind::Uml => Kernel::user_mode(None),
    };
    match kernel {
        Ok(_) => Ok(()),
        Err(KernelError::None) => {
            Err(missing("there is no kernel for guests".into(), kernel::REMEDY))
        }
        Err(error) => Err(missing(error.to_string(), kernel::REMEDY)),
    }
}

/// Checks that the kernel of a `vm:uml` guest boots on this host, which only a boot can show
/// (`uml::trial`).
pub(super) fn check_boot(
    spec: &EnvironmentSpec,
    argument: Option<&str>,
    state: &Path,
) -> Result<(), PartError> {
    if argument.and_then(MonitorKind::parse) != Some(MonitorKind::Uml) {
        return Ok(());
    }
    let image = spec.vm.iter().find(|(name, _)| name == "kernel");
    let kernel = Kernel::user_mode(image.map(|(_, path)| Path::new(path)))?;
    Ok(uml::trial::check(&kernel, state)?)
}

/// Checks that a user-mode kernel boots on this host: the one at `image`, or else the installed
/// one. Without root there is no trial boot, and a kernel without a cached outcome passes.
///
/// # Errors
/// Reports why the kernel does not boot, and what to do about it.
pub fn check_user_mode(image: Option<&Path>, state: &Path) -> Result<(), Unavailable> {
    needs(Some(MonitorKind::Uml.word()))?;
    match Kernel::user_mode(image) {
        Ok(kernel) => Ok(uml::trial::check(&kernel, state)?),
        Err(error) => Err(Unavailable {
            what: "vm:uml".into(),
            why: tare_host::error_line(&error),
            remedy: kernel::USER_MODE_REMEDY.into(),
        }),
    }
}

/// Returns why guests of QEMU run on an emulated CPU here, as far as that is known without booting
/// one.
pub fn emulation_reason() -> Option<String> {
    let tried = || accelerator::cached().filter(|outcome| !outcome.usable);
    accelerator::obstacle().or_else(|| tried().map(|outcome| outcome.detail))
}

/// Returns the image and the release of the kernel that guests use by default.
///
/// # Errors
/// Fails if there is none, and reports how to get one.
pub fn default_kernel() -> Result<(PathBuf, String), KernelError> {
    Kernel::find(None).map(|kernel| (kernel.image, kernel.release))
}

/// Checks the options against the runtime, with its argument, and the other layers.
pub(super) fn check(
    spec: &EnvironmentSpec,
    layers: &Layers,
    (name, argument): (&str, Option<&str>),
) -> Result<(), OptionError> {
    if name == RUNTIME.name {
        // `needs` reports an unknown monitor.
        let Some(monitor) = argument.and_then(MonitorKind::parse) else { return Ok(()) };
        Data::parse(spec, monitor)?;
        return Options::parse(spec, layers, monitor).map(|_| ());
    }
    let (environment, kind) = (spec.name.clone(), &spec.storage.kind);
    if !spec.vm.is_empty() {
        return Err(OptionError::NoMachine { environment });
    }
    let has = |kinds: &[storage::Kind]| kinds.iter().any(|one| one.name == *kind);
    let runtime = match (has(storage::guest::OF_QEMU), has(storage::guest::OF_UML)) {
        (true, _) => "vm:qemu",
        (_, true) => "vm:uml",
        _ => return Ok(()),
    };
    Err(OptionError::NoMachineForStorage { environment, kind: kind.clone(), runtime })
}

fn make(
    context: &Arc<RunContext>,
    spec: EnvironmentSpec,
    layers: Layers,
    argument: Option<&str>,
) -> Result<Box<dyn Environment>, PartError> {
    let name = argument.unwrap_or_default();
    let kind = MonitorKind::parse(name).ok_or_else(|| VmError::Monitor { name: name.into() })?;
    let (options, data) = (Options::parse(&spec, &layers, kind)?, Data::parse(&spec, kind)?);
    let context = Arc::clone(context);
    Ok(Box::new(Vm {
        context,
        spec,
        layers,
        kind,
        options,
        data,
        number: 0,
        entries: Vec::new(),
        log: String::new(),
        config: None,
        running: None,
    }))
}

struct Vm {
    context: Arc<RunContext>,
    spec: EnvironmentSpec,
    layers: Layers,
    kind: MonitorKind,
    options: Options,
    data: Data,
    /// The number of the last start.
    number: u32,
    entries: Vec<EntryId>,
    /// The last lines that the previous guest printed.
    log: String,
    config: Option<String>,
    running: Option<Running>,
}

impl Vm {
    fn files(&self) -> Files {
        Files::new(&self.context.work().join(format!("e{}", self.number)))
    }

    fn running(&mut self) -> Result<&mut Running, VmError> {
        let environment = || self.spec.name.clone();
        self.running.as_mut().ok_or_else(|| VmError::NotStarted { environment: environment() })
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
            // The first error names the cause; the journal keeps what `stop` cannot remove.
            let _ = self.stop();
        }
        started
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        let files = self.files();
        let (context, spec, layers) =
            (Arc::clone(&self.context), self.spec.clone(), self.layers.clone());
        let (options, data) = (self.options.clone(), self.data.clone());
        let folder = context.work().join(format!("e{}", self.number));
        let running = self.running()?;
        running.copy_facts(&files)?;
        let mut states = read_back::read(running, &context, &spec, &layers, (&options, &data))?;
        states.extend(limits::read(running.system.group.as_ref(), &layers, &folder, None));
        states.extend(running.system.read_confinement(&layers));
        Ok(states)
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.running()?.freeze()?;
        match self.context.slot().peers() {
            Some(_) => Ok(()),
            None => self.withdraw(),
        }
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.publish()?;
        self.running()?.thaw()
    }

    fn withdraw(&mut self) -> Result<(), PartError> {
        let context = Arc::clone(&self.context);
        Ok(self.running()?.network.withdraw(&context)?)
    }

    fn publish(&mut self) -> Result<(), PartError> {
        let context = Arc::clone(&self.context);
        Ok(self.running()?.network.publish(&context)?)
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        let files = self.files();
        let running = self.running()?;
        if !running.frozen {
            running.copy_facts(&files)?;
        }
        running.usage()
    }

    fn processes(&mut self) -> Processes {
        let Some(running) = &self.running else { return Processes::default() };
        let mut processes = running.system.processes();
        processes.layer.extend(running.engine.helpers());
        processes.layer.extend(running.daemon.iter().map(monitor::Monitor::pid));
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
        system::log_tail(&[&files.share_log(), &files.stderr(), &files.console(), &files.log()])
    }

    fn stop(&mut self) -> Result<(), PartError> {
        if let Some(mut running) = self.running.take() {
            let withdrawn = running.network.withdraw(&self.context);
            let killed = running.kill();
            // The files have the guest's last words only after its end.
            self.log = self.log_tail();
            running.daemon.as_mut().map_or(Ok(()), |daemon| daemon.kill())?;
            if let Some(router) = &mut running.network.router {
                router.end_proxy()?;
            }
            killed?;
            withdrawn?;
        } else {
            self.log = self.log_tail();
        }
        Ok(contract::undo(&self.context, &self.spec.name, &mut self.entries)?)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // Callers that need the error call `stop`; the journal keeps what is left.
        let _ = self.stop();
    }
}
