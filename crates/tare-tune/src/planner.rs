//! The planner: makes a plan from a snapshot and options. Pure.

use crate::knobs::{self, Context, Knob};
use crate::machine::nics::NicError;
use crate::machine::{self, Kubelet, Machine, TopologyError};
use crate::plan::{self, CpuSets, KubeletAdvice, Mode, Options, Plan, PlanError, cpus, guard};
use crate::snapshot::Snapshot;

/// Makes the plan of a host.
///
/// Channels come first, because a device that changes its number of queues recreates its
/// interrupts. The rest is planned for the queues after that change; where queues are added, it is
/// planned again once they exist (`Change::stage`).
///
/// # Errors
/// When a device does not exist, the CPUs cannot be divided, or the plan would overload an
/// interrupt CPU.
pub fn plan(snapshot: &Snapshot, options: &Options) -> Result<Plan, PlanError> {
    let chosen = chosen(options)?;
    let machine = read_machine(snapshot, options)?;
    let cpus = cpus::choose(&machine, options)?;
    let mut notes = cpus::notes(&machine, options, &cpus);
    let disks_asked = !options.directories.is_empty() || !options.devices.is_empty();
    notes.extend(machine::disks::notes(disks_asked, &machine.disks));
    guard::check(&machine, options, &cpus, &mut notes)?;
    notes.extend(machine::owners::notes(snapshot, &machine, &cpus.irq, &cpus.compute));
    let mut items = Vec::new();
    let context = Context { snapshot, options, machine: &machine, cpus: &cpus };
    for knob in chosen {
        items.extend(knob.plan(&context));
    }
    if !options.like_perftune {
        notes.extend(plan::leave_to_operators(&mut items, &machine.owners, options));
    }
    // The sort is stable: within a stage the order of the knobs does not change.
    items.sort_by_key(|item| item.change().map_or(u8::MAX, |change| change.stage));
    let kubelet = (!options.like_perftune).then(|| advice(snapshot, &machine, &cpus)).flatten();
    Ok(Plan { cpus, items, notes, kubelet })
}

/// Returns the advice about the kubelet of a host, as a plan with these options has it; `None`
/// where no kubelet runs.
///
/// # Errors
/// When the topology cannot be read or the CPUs cannot be divided.
pub fn kubelet_advice(
    snapshot: &Snapshot,
    options: &Options,
) -> Result<Option<KubeletAdvice>, PlanError> {
    if Kubelet::read(snapshot).is_none() {
        return Ok(None);
    }
    let machine = read_machine(snapshot, options)?;
    let cpus = cpus::choose(&machine, options)?;
    Ok(advice(snapshot, &machine, &cpus))
}

fn advice(snapshot: &Snapshot, machine: &Machine, cpus: &CpuSets) -> Option<KubeletAdvice> {
    let mut advice = plan::advise(&Kubelet::read(snapshot)?, &machine.topology, cpus);
    if machine::owners::is_openshift(snapshot) && !advice.fragment.is_empty() {
        advice.notes.push(
            "on OpenShift the Machine Config Operator writes the kubelet's file: set this in a \
             PerformanceProfile (cpu.reserved, cpu.isolated, numa.topologyPolicy) or a KubeletConfig \
             object, not on the node"
                .into(),
        );
    }
    Some(advice)
}

/// Returns the machine of a snapshot with the devices that the options name.
///
/// # Errors
/// When a device does not exist or the topology cannot be read.
pub fn read_machine(snapshot: &Snapshot, options: &Options) -> Result<Machine, PlanError> {
    let interrupts = machine::Interrupts::read(snapshot);
    // CPUs named by the user can be used without a topology (scylladb #11639).
    let by_hand = options.irq_cpus.is_some() || matches!(options.mode, Mode::Mq | Mode::None);
    let topology = match machine::Topology::read(snapshot) {
        Err(TopologyError::Missing { .. }) if by_hand => machine::Topology::flat(snapshot)?,
        topology => topology?,
    };
    let nics = machine::nics::find(snapshot, &interrupts, &options.nics)?;
    // perftune.py refuses devices without hardware; Tare tunes them if they are named.
    let without = nics.iter().find(|nic| !machine::nics::has_hardware(snapshot, &nic.name));
    if let Some(nic) = without.filter(|_| options.like_perftune) {
        return Err(NicError::VirtualForPerftune { name: nic.name.clone() }.into());
    }
    let disks =
        machine::disks::find(snapshot, &interrupts, &options.directories, &options.devices)?;
    let interrupt_share = machine::interrupt_share(snapshot);
    let owners = machine::Owners::read(snapshot);
    Ok(Machine { topology, interrupts, nics, disks, owners, interrupt_share })
}

/// Returns the knobs that `only` and `except` select.
fn chosen(options: &Options) -> Result<Vec<&'static dyn Knob>, PlanError> {
    let by_name = |knob: &dyn Knob, list: &[String]| list.iter().any(|name| name == knob.name());
    let names = |knob: &dyn Knob, list: &[String]| {
        list.iter().any(|name| name == knob.group().name()) || by_name(knob, list)
    };
    let known = knobs::names();
    for name in options.only.iter().chain(&options.except).chain(&options.request) {
        if !known.contains(&name.as_str()) {
            return Err(PlanError::UnknownKnob { name: name.clone(), known: known.join(", ") });
        }
    }
    let wanted = |knob: &dyn Knob| match knob.on_request() {
        true => by_name(knob, &options.only) || by_name(knob, &options.request),
        false => {
            (options.only.is_empty() || names(knob, &options.only)) && !names(knob, &options.except)
        }
    };
    let of_perftune = |knob: &dyn Knob| !options.like_perftune || knob.in_perftune();
    Ok(knobs::ALL.iter().copied().filter(|k| wanted(*k) && of_perftune(*k)).collect())
}
