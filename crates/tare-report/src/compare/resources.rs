//! What a machine has and costs, and what the layers of an environment keep of it.
//!
//! Method: a price buys the whole machine, so it is divided by its CPUs and by its memory, each
//! alone. A layer keeps the CPU time of its own processes (proxy, vhost, monitor) and the memory
//! that a guest was given and does not have inside (`MemTotal`). Their money is the price times the
//! larger of the two shares of the machine: the other resource is sold with it.

use serde::Serialize;
use tare_lab::analysis::Interval;
use tare_lab::record::{EnvironmentRecord, Phase, Record};
use tare_stats::estimate;

use super::Side;
use super::costs::common;
use crate::fleet::Price;

pub(super) const GIB: f64 = (1u64 << 30) as f64;

/// The machine of one record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineResources {
    /// CPUs that the run could use.
    pub cpus: usize,
    pub system_cpus: usize,
    /// CPUs kept for interrupts, for every environment alike.
    pub interrupt_cpus: usize,
    /// `None` if the record does not have it.
    pub memory_bytes: Option<u64>,
    pub price_per_hour: Option<f64>,
    pub price_per_cpu_hour: Option<f64>,
    pub price_per_gib_hour: Option<f64>,
}

/// What the layers of one environment keep under one workload, in each record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeptRow<'r> {
    pub workload: &'r str,
    pub environment: &'r str,
    /// One per record.
    pub records: Vec<Option<Kept>>,
}

/// What the layers of an environment keep for themselves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kept {
    /// CPU time of the layer's processes at capacity, in CPUs. `None` if it had none.
    pub layer_cpus: Option<Interval>,
    /// Memory given to a guest minus `MemTotal` inside.
    pub memory_bytes: Option<u64>,
    /// The larger of the shares of the machine's CPUs and memory, 0 to 1.
    pub share: f64,
    /// That share of the price.
    pub money_per_hour: Option<f64>,
}

pub(super) fn machines(sides: &[Side<'_>], prices: &[Option<Price>]) -> Vec<MachineResources> {
    let one = |(side, price): (&Side<'_>, &Option<Price>)| {
        let plan = &side.record.cpu_plan;
        let cpus = plan.all.union(&plan.interrupts).len();
        let memory_bytes = memory_of(side.record);
        let price_per_hour = price.as_ref().map(Price::per_hour);
        let gib = memory_bytes.map(|bytes| as_f64(bytes) / GIB).filter(|gib| *gib > 0.0);
        MachineResources {
            cpus,
            system_cpus: plan.system.len(),
            interrupt_cpus: plan.interrupts.len(),
            memory_bytes,
            price_per_hour,
            price_per_cpu_hour: price_per_hour.filter(|_| cpus > 0).map(|p| p / count(cpus)),
            price_per_gib_hour: price_per_hour.zip(gib).map(|(price, gib)| price / gib),
        }
    };
    sides.iter().zip(prices).map(one).collect()
}

/// The rows in which some record keeps something.
pub(super) fn kept<'r>(sides: &[Side<'r>], machines: &[MachineResources]) -> Vec<KeptRow<'r>> {
    let row = |(workload, environment): (&'r str, &'r str)| {
        let of = |(side, machine): (&Side<'r>, &MachineResources)| {
            let found = side.record.environments.iter().find(|e| e.spec.name == environment)?;
            let layer_cpus = layer_cpus(side.record, workload, environment);
            let memory_bytes = memory_kept(found);
            if layer_cpus.is_none() && memory_bytes.is_none() {
                return None;
            }
            let cpus = layer_cpus.map_or(0.0, |i| i.value / count(machine.cpus.max(1)));
            let memory = machine.memory_bytes.zip(memory_bytes);
            let memory = memory.map_or(0.0, |(all, kept)| as_f64(kept) / as_f64(all.max(1)));
            let share = cpus.max(memory);
            let money_per_hour = machine.price_per_hour.map(|price| price * share);
            Some(Kept { layer_cpus, memory_bytes, share, money_per_hour })
        };
        let records: Vec<Option<Kept>> = sides.iter().zip(machines).map(of).collect();
        KeptRow { workload, environment, records }
    };
    let rows = common(sides).into_iter().map(row);
    rows.filter(|row| row.records.iter().any(Option::is_some)).collect()
}

/// `MemTotal` of the host, which the record has as `24684092 kB`.
fn memory_of(record: &Record) -> Option<u64> {
    let fact = record.host.iter().find(|f| f.section == "memory" && f.key == "total")?;
    let kib: u64 = fact.value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What a guest was given minus what it has, from the layer that was read back inside it.
fn memory_kept(environment: &EnvironmentRecord) -> Option<u64> {
    environment.layers.iter().find_map(|layer| {
        let inside = layer.found.strip_prefix("MemTotal inside: ")?.strip_suffix(" bytes")?;
        let (given, inside): (u64, u64) = (layer.wanted.parse().ok()?, inside.parse().ok()?);
        given.checked_sub(inside)
    })
}

/// The CPU time of the layer's processes at capacity, in CPUs, over the rounds.
fn layer_cpus(record: &Record, workload: &str, environment: &str) -> Option<Interval> {
    let slices = record.slices.iter().filter(|slice| {
        slice.workload == workload
            && slice.environment == environment
            && slice.phase == Phase::Capacity
            && slice.void.is_none()
            && slice.window_ns > 0
    });
    let cpus: Vec<f64> = slices
        .map(|slice| {
            let spent: u64 = slice.layer_cpu_ns.iter().map(|(_, ns)| ns).sum();
            as_f64(spent) / as_f64(slice.window_ns)
        })
        .collect();
    let found: Interval = estimate(&cpus)?.into();
    (found.value > 0.0).then_some(found)
}

#[expect(clippy::cast_precision_loss, reason = "bytes and ns, shown with three digits")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "CPUs of a machine")]
fn count(cpus: usize) -> f64 {
    cpus as f64
}
