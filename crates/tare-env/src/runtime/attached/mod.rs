//! Systems that run already: nothing is started, stopped, frozen or changed.
//!
//! Method: `target` finds the processes of the system on this host (`pod` by what the API says of a
//! pod), `socket` checks that they answer on the address, `read_back` reads their layers. The CPU
//! accounts are those of all processes of the cgroup, or of the process and its descendants. The
//! client of a study with an attached system is in the network namespace of the host, because the
//! address means something only there, and a link to a namespace of its own would change the
//! network of the system.
//!
//! The first process of the system is held by a descriptor: once it has ended, the system is lost,
//! also when the same pid or the same address belongs to another process by then.
//!
//! Limits: one instance, on the host of this program. A system that runs on while another one is
//! measured is a doubt of the study.

use std::sync::Arc;

use tare_host::account::Account;
use tare_host::process::{self, ProcessHandle};
use tare_lab::PartError;
use tare_lab::attach::{Attach, AttachTarget};
use tare_lab::environment::{
    Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes, Usage,
};

use self::pod::AttachedPod;
use self::target::Target;
use super::contract::{Argument, Runtime};
use crate::layer::Layers;
use crate::run_context::RunContext;

mod around;
mod place;
mod pod;
mod read_back;
mod socket;
mod target;

pub use around::{Around, AroundKind, FoundSystem, around};
pub use pod::place_pods;

pub const RUNTIME: Runtime = Runtime {
    name: tare_lab::layer::Runtime::ATTACHED,
    help: "a system that runs already, written as attach = { ... } in place of runtime and layers",
    argument: Argument::None,
    options: &[
        ("unit", "a unit of systemd, such as redis.service: the processes of its cgroup"),
        ("container", "docker:NAME or podman:NAME: the processes of its cgroup"),
        ("compose", "FILE:SERVICE: the running container of a service of a compose file"),
        ("pid", "a process and its descendants"),
        ("cgroup", "path of a cgroup: its processes"),
        (
            "pod",
            "NAMESPACE/NAME of a pod on this node: the processes of its container, or of the one that container names",
        ),
        (
            "port",
            "port of the pod's own address, in place of address (default: the only port of its container)",
        ),
        ("address", "IP:PORT, at which the client dials it from the host's network namespace"),
        ("data", "directory of its data, as it sees it (default: its working directory)"),
        ("read_only", "true: nothing is written into it"),
    ],
    needs: |_| Ok(()),
    cleanup: "none needed: nothing is created; the rows of the load are removed at the end",
    read_back: "every layer as found in /proc/PID and the cgroup; later, that it is the same",
    found: || vec![tare_lab::layer::Runtime::ATTACHED.to_string()],
    make,
};

/// Why an environment cannot be attached, or is no longer.
#[derive(Debug, thiserror::Error)]
pub enum AttachedError {
    #[error("{why}")]
    Target { why: String },
    #[error("environment {environment:?} is not attached")]
    NotStarted { environment: String },
}

impl AttachedError {
    fn target(why: String) -> Self {
        Self::Target { why }
    }
}

fn make(
    context: &Arc<RunContext>,
    spec: EnvironmentSpec,
    _layers: Layers,
    _argument: Option<&str>,
) -> Result<Box<dyn Environment>, PartError> {
    let attach = spec.attach.clone().ok_or(AttachedError::Target {
        why: "runtime = \"attached\" is written as attach = { ... }".into(),
    })?;
    Ok(Box::new(Attached { context: Arc::clone(context), spec, attach, running: None }))
}

struct Attached {
    context: Arc<RunContext>,
    spec: EnvironmentSpec,
    attach: Attach,
    running: Option<Running>,
}

/// The system as it was found.
struct Running {
    target: Target,
    /// The first process of the system.
    hold: ProcessHandle,
    /// A process of another program that listens on the address and passes connections on.
    proxy: Option<u32>,
    account: Account,
    proxy_account: Account,
    /// That of the other containers of a pod.
    sidecar_account: Account,
    /// The layers of the first reading.
    layers: Vec<LayerState>,
}

impl Attached {
    fn find(&self) -> Result<Running, AttachedError> {
        let error = AttachedError::target;
        let target = Target::find(&self.attach.target, self.context.cgroups()).map_err(error)?;
        let hold = ProcessHandle::open(target.pid)
            .ok_or_else(|| error(format!("process {} has ended", target.pid)))?;
        let proxy = socket::check(&self.attach, &target).map_err(error)?;
        Ok(Running {
            target,
            hold,
            proxy,
            account: Account::new(),
            proxy_account: Account::new(),
            sidecar_account: Account::new(),
            layers: Vec::new(),
        })
    }

    fn running(&mut self) -> Result<&mut Running, AttachedError> {
        let environment = self.spec.name.clone();
        self.running.as_mut().ok_or(AttachedError::NotStarted { environment })
    }
}

impl Environment for Attached {
    fn spec(&self) -> &EnvironmentSpec {
        &self.spec
    }

    fn start(&mut self, _launch: &Launch) -> Result<Endpoint, PartError> {
        let running = self.running.insert(self.find()?);
        // As the host reaches it through the root of the process.
        let data = self.attach.data.as_ref().map(|data| running.target.path_of(data));
        let inside = Some(process::network_namespace(running.target.pid));
        Ok(Endpoint { address: self.attach.address, data, inside })
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        let attach = self.attach.clone();
        let running = self.running()?;
        let now = read_back::read(&running.target, attach.data.as_deref());
        if running.layers.is_empty() {
            running.layers.clone_from(&now);
        }
        let first = &running.layers;
        let is_same = |state: &LayerState| first.iter().any(|one| one == state);
        Ok(now.into_iter().map(|one| LayerState { in_force: is_same(&one), ..one }).collect())
    }

    fn lost(&self) -> Option<String> {
        let running = self.running.as_ref().filter(|running| running.hold.has_ended())?;
        let (target, pid) = (&self.attach.target, running.target.pid);
        let of_pod = running.target.pod.as_ref().and_then(AttachedPod::end);
        let end = of_pod.unwrap_or_else(|| format!("its process {pid} has ended"));
        let advice = match target {
            AttachTarget::Pid(_) => "start it, and write its new pid into the study",
            _ => "once it runs again, tare weigh --resume goes on with it",
        };
        Some(format!("{target}: {end} while it was measured; {advice}"))
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        Ok(())
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        Ok(())
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        let running = self.running()?;
        let system_cpu_ns = running.account.read(&running.target.pids());
        let proxy = running.proxy.map(|pid| running.proxy_account.read(&[pid]));
        let throttled_ns = running.target.throttled_ns();
        let sidecars = running.target.sidecar_pids();
        let sidecars = sidecars.map(|pids| running.sidecar_account.read(&pids));
        let parts = [("userland proxy", proxy), ("sidecar", sidecars)];
        let layer_cpu_ns =
            parts.into_iter().filter_map(|(name, ns)| Some((name.to_string(), ns?))).collect();
        Ok(Usage { system_cpu_ns, layer_cpu_ns, throttled_ns, ..Usage::default() })
    }

    fn processes(&mut self) -> Processes {
        let Some(running) = &self.running else { return Processes::default() };
        let mut system = running.target.pids();
        system.sort_by_key(|pid| *pid != running.target.pid);
        let sidecars = running.target.sidecar_pids().unwrap_or_default();
        Processes { system, layer: running.proxy.into_iter().chain(sidecars).collect() }
    }

    fn config(&self) -> Option<String> {
        None
    }

    fn log_tail(&self) -> String {
        String::new()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.running = None;
        Ok(())
    }
}

/// Returns the name of a process, for messages.
fn named(pid: u32) -> String {
    format!("process {pid} ({})", process::name(pid).unwrap_or_default())
}
