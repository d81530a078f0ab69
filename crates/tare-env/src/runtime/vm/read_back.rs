//! The read-back of a guest's layers: from the monitor, the host and the guest itself.

use tare_host::process;
use tare_lab::PartError;
use tare_lab::environment::{ACCELERATOR, EnvironmentSpec, LayerState};
use tare_lab::layer::Security;

use super::data::Data;
use super::engine::Engine;
use super::error::VmError;
use super::options::Options;
use super::qemu::Accelerator;
use super::running::Running;
use super::uml;
use crate::guest::protocol::{Answer, Facts, Order};
use crate::layer::Layers;
use crate::layer::security::status_mode;
use crate::run_context::RunContext;
use crate::system::state;
use tare_lab::layer::Network;

/// The smallest share of the guest's memory that `MemTotal` may show. The kernel reserves the rest.
const MEMORY_SHARE: f64 = 0.75;

pub(super) fn read(
    running: &mut Running,
    context: &RunContext,
    spec: &EnvironmentSpec,
    layers: &Layers,
    (options, data): (&Options, &Data),
) -> Result<Vec<LayerState>, PartError> {
    let order = "facts";
    let Answer::Facts(facts) = running.order(order, &Order::Facts)? else {
        return Err(VmError::Answer { order }.into());
    };
    let status = running.engine.status(&running.system)?;
    let accelerator = accelerator(running, options)?;
    let found = format!("{status}; guest kernel {}; its system is {}", facts.kernel, facts.system);
    let in_force =
        status == "running" && facts.kernel == running.kernel.release && facts.system == "running";
    let mut states = vec![
        state("runtime", &spec.runtime, found, in_force),
        accelerator,
        running.network.read_reach(context, network(running, &facts, layers)),
        cpu(running, context, layers),
        security(running, spec.security),
        running.system.read_cgroup(layers),
        running.system.read_weight(context, layers),
    ];
    states.extend(machine(running, &facts, options));
    if let Some(runtime) = &options.container {
        let mode = format!("Seccomp: {}", status_mode(layers.security));
        let in_force = facts.container.contains(&mode);
        let found = match facts.container.is_empty() {
            true => "the system is not in a container".to_string(),
            false => facts.container.clone(),
        };
        states.push(state("vm.container", runtime, found, in_force));
    }
    let mut storage = data.read_back(&facts, options);
    if *data == Data::Ubd {
        // User-mode Linux reports a write cache even if the host writes through.
        let through = uml::writes_through(&running.system);
        let how = if through == Some(true) { "" } else { "not " };
        storage.found += &format!(", {how}opened O_SYNC by the host");
        storage.in_force &= through == Some(!options.write_cache());
    }
    states.push(storage);
    Ok(states)
}

fn accelerator(running: &mut Running, options: &Options) -> Result<LayerState, PartError> {
    let Running { engine, system, .. } = running;
    match engine {
        Engine::Qemu(qemu) => {
            let kvm = qemu.qmp.kvm()?;
            let (chosen, why) = &qemu.accelerator;
            let found = format!("{}: {why}", if kvm { "kvm" } else { "tcg" });
            let in_force = kvm == (*chosen == Accelerator::Kvm);
            Ok(state(ACCELERATOR, options.accelerator.word(), found, in_force))
        }
        Engine::Uml => {
            let traced = uml::traced(system).len();
            let found = format!("{} of its {traced} address spaces", uml::ACCELERATOR);
            Ok(state(ACCELERATOR, "uml", found, traced > 0))
        }
    }
}

fn network(running: &Running, facts: &Facts, layers: &Layers) -> LayerState {
    // The monitor is where the tap is: in the router's namespace, or for loaders on other hosts in
    // the host's.
    let mut host = running.system.read_network(layers);
    if let Some(bridge) = running.network.host_bridge() {
        host.in_force = bridge.has_port();
    }
    let address = running.network.in_guest().0.to_string();
    let inside = facts.network.iter().any(|nic| nic.contains(&address));
    let vhost = match &running.engine {
        Engine::Qemu(qemu) if qemu.vhost => "; vhost",
        Engine::Qemu(_) => "; no vhost",
        Engine::Uml => "",
    };
    let found = format!("{}; inside {}{vhost}", host.found, facts.network.join(", "));
    let bridged = matches!(layers.network, Network::Bridge { .. });
    state("network", layers.network, found, host.in_force && inside && bridged)
}

/// Reads the affinity of the monitor's threads and of each vCPU.
fn cpu(running: &Running, context: &RunContext, layers: &Layers) -> LayerState {
    let mut whole = running.system.read_cpu(layers, context.cpus());
    let Engine::Qemu(qemu) = &running.engine else { return whole };
    let list = |thread: &u32| {
        process::status_field(*thread, "Cpus_allowed_list").unwrap_or_else(|| "gone".into())
    };
    let vcpus: Vec<String> = qemu.vcpus.iter().map(list).collect();
    whole.found += &format!("; vCPUs on {}", vcpus.join(" | "));
    whole
}

/// Reads the monitor's own filter: libvirt's if there is a security layer, else none.
fn security(running: &Running, wanted: Security) -> LayerState {
    let mode = running.system.read_seccomp();
    let want = if wanted == Security::None { 0 } else { 2 };
    let found = mode.map_or("unreadable".into(), |mode| format!("Seccomp: {mode} of the monitor"));
    state("security", wanted, found, mode == Some(want))
}

/// Reads the vCPUs and the memory of the machine.
fn machine(running: &Running, facts: &Facts, options: &Options) -> Vec<LayerState> {
    let vcpus = match &running.engine {
        Engine::Qemu(qemu) => qemu.vcpus.len(),
        Engine::Uml => 1,
    };
    let online = tare_std::cpus::CpuSet::parse_list(&facts.cpus).map_or(0, |cpus| cpus.len());
    let memory = options.memory_bytes;
    let enough =
        facts.memory_bytes <= memory && facts.memory_bytes as f64 >= memory as f64 * MEMORY_SHARE;
    let mut states = vec![
        state(
            "vm.vcpus",
            vcpus.to_string(),
            format!("online inside: {}", facts.cpus),
            online == vcpus,
        ),
        state(
            "vm.memory",
            memory.to_string(),
            format!("MemTotal inside: {} bytes", facts.memory_bytes),
            enough,
        ),
    ];
    if options.huge_pages {
        let field = process::status_field(running.system.pid, "HugetlbPages").unwrap_or_default();
        let kib: u64 = field.trim_end_matches(" kB").trim().parse().unwrap_or(0);
        let found = format!("HugetlbPages of the monitor: {field}");
        states.push(state("vm.huge_pages", "yes", found, kib * 1024 >= memory));
    }
    states
}
