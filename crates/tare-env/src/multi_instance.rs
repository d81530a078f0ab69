//! An environment that runs several instances of a system. It holds one environment of the same
//! runtime per instance, each with its slot. Its CPU time is their sum per layer. A layer is in
//! force if it is in force around every instance.
//!
//! Limits: one host. Containers of an engine behind a bridge get a network of the engine's for the
//! environment, because only there the engine gives a container the address that the others know.

use std::rc::Rc;
use std::sync::Arc;

use tare_lab::PartError;
use tare_lab::environment::{
    DataSnapshot, Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes,
    RestoreStats, SingleInstanceOnly, Usage,
};

use tare_lab::layer::Network;

use crate::instance_slot::InstanceSlot;
use crate::layer::network;
use crate::run_context::RunContext;
use crate::{runtime, storage};

/// Why an environment cannot run several instances of a system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultiInstanceError {
    #[error(
        "environment {environment:?}: storage {kind:?} has one device, and several instances would overwrite each other's data; use storage that is created for each"
    )]
    Device { environment: String, kind: String },
    #[error(
        "environment {environment:?}: behind pasta several instances do not reach each other; set \
         network = \"macvlan\", \"vxlan\" or \"bridge\""
    )]
    Pasta { environment: String },
    #[error(
        "environment {environment:?}: inject = {value:?} is for one instance; set inject = \"none\""
    )]
    Inject { environment: String, value: String },
    #[error(
        "environment {environment:?} can run at most {} instances, not {requested}",
        network::INSTANCES_MAX
    )]
    Many { environment: String, requested: u32 },
    #[error("environment {environment:?}: {cpu:?} is too small to divide among {count} instances")]
    Quota { environment: String, cpu: String, count: u32 },
    #[error(
        "environment {environment:?}: limits.{limit} is too small to divide among {count} instances"
    )]
    Limit { environment: String, limit: &'static str, count: u32 },
}

/// Checks whether an environment can run this many instances.
///
/// # Errors
/// Names the part of the environment that does not allow it.
pub fn check(spec: &EnvironmentSpec, count: u32) -> Result<(), MultiInstanceError> {
    let environment = || spec.name.clone();
    if count <= 1 {
        return Ok(());
    }
    if storage::is_shared(spec) {
        let kind = spec.storage.kind.clone();
        return Err(MultiInstanceError::Device { environment: environment(), kind });
    }
    if spec.network == Network::Pasta {
        return Err(MultiInstanceError::Pasta { environment: environment() });
    }
    if !spec.inject.is_nothing() {
        let value = spec.inject.to_string();
        return Err(MultiInstanceError::Inject { environment: environment(), value });
    }
    if count > network::INSTANCES_MAX {
        return Err(MultiInstanceError::Many { environment: environment(), requested: count });
    }
    // A quota may be too small for the kernel once it is divided.
    if let Some(quota) = spec.cpu.quota()
        && quota.part(count).accepted().is_none()
    {
        let cpu = spec.cpu.to_string();
        return Err(MultiInstanceError::Quota { environment: environment(), cpu, count });
    }
    let part = spec.limits.part(count);
    if let Some((limit, _)) = part.all().find(|(limit, value)| !limit.range().contains(value)) {
        let (environment, limit) = (environment(), limit.name());
        return Err(MultiInstanceError::Limit { environment, limit, count });
    }
    Ok(())
}

/// One environment per instance, used as one.
pub(crate) struct MultiInstance {
    context: Arc<RunContext>,
    spec: EnvironmentSpec,
    /// In the order of their slots; empty before the start.
    parts: Vec<Box<dyn Environment>>,
    /// What every instance starts from, because all of them have the same rows.
    data: Option<Rc<dyn DataSnapshot>>,
}

impl MultiInstance {
    pub(crate) fn new(context: &Arc<RunContext>, spec: &EnvironmentSpec) -> Self {
        Self { context: Arc::clone(context), spec: spec.clone(), parts: Vec::new(), data: None }
    }

    fn start_instances(&mut self, launches: &[Launch]) -> Result<Vec<Endpoint>, PartError> {
        let count = u32::try_from(launches.len()).unwrap_or(u32::MAX);
        let mut endpoints = Vec::new();
        self.parts.clear();
        for (slot, launch) in InstanceSlot::slots(count).zip(launches) {
            let part = slot.part(&self.spec);
            let mut environment =
                runtime::make(&self.context.with_slot(slot, self.spec.cpu), &part)?;
            if let Some(data) = &self.data {
                environment.start_from(data);
            }
            let started = environment.start(launch);
            // A failed start may have created objects that `stop` removes.
            self.parts.push(environment);
            endpoints.push(started?);
        }
        Ok(endpoints)
    }

    fn each(
        &mut self,
        mut act: impl FnMut(&mut dyn Environment) -> Result<(), PartError>,
    ) -> Result<(), PartError> {
        // A failure of one instance does not keep the others from the same call.
        let results: Vec<_> = self.parts.iter_mut().map(|part| act(&mut **part)).collect();
        results.into_iter().collect()
    }
}

impl Environment for MultiInstance {
    fn spec(&self) -> &EnvironmentSpec {
        &self.spec
    }

    fn start_from(&mut self, data: &Rc<dyn DataSnapshot>) {
        self.data = Some(Rc::clone(data));
    }

    /// Returns the sums of all instances; `None` if one of them has started empty.
    fn restored(&self) -> Option<RestoreStats> {
        let each: Option<Vec<RestoreStats>> =
            self.parts.iter().map(|part| part.restored()).collect();
        let each = each.filter(|each| !each.is_empty())?;
        let mut sum = RestoreStats::default();
        for one in each {
            sum.linked_bytes += one.linked_bytes;
            sum.cloned_bytes += one.cloned_bytes;
            sum.copied_bytes += one.copied_bytes;
            sum.took += one.took;
        }
        Some(sum)
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        let single_only = SingleInstanceOnly { environment: self.spec.name.clone(), asked: 0 };
        let started = self.start_all(std::slice::from_ref(launch))?;
        Ok(started.into_iter().next().ok_or(single_only)?)
    }

    fn start_all(&mut self, launches: &[Launch]) -> Result<Vec<Endpoint>, PartError> {
        self.stop()?;
        let started = self.start_instances(launches);
        if started.is_err() {
            // The first error names the cause. The journal keeps what cannot be removed.
            let _ = self.stop();
        }
        started
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        let all = self.parts.iter_mut().map(|part| part.read_back());
        Ok(join(all.collect::<Result<_, _>>()?))
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.each(|part| part.freeze())
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.each(|part| part.thaw())
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        let mut sum = Usage::default();
        for part in &mut self.parts {
            let one = part.usage()?;
            sum.instance_cpu_ns.push(one.system_cpu_ns);
            add(&mut sum, one);
        }
        let count = u64::try_from(self.parts.len()).unwrap_or(1).max(1);
        sum.throttled_ns = sum.throttled_ns.map(|ns| ns / count);
        Ok(sum)
    }

    /// Returns no processes if one instance has none: the others alone are not the requested
    /// system.
    fn processes(&mut self) -> Processes {
        let parts: Vec<Processes> = self.parts.iter_mut().map(|part| part.processes()).collect();
        if parts.iter().any(|part| part.system.is_empty()) {
            return Processes::default();
        }
        let mut all = Processes::default();
        for part in parts {
            all.system.extend(part.system);
            all.layer.extend(part.layer);
        }
        all
    }

    fn config(&self) -> Option<String> {
        let texts: Option<Vec<String>> = self.parts.iter().map(|part| part.config()).collect();
        texts.filter(|texts| !texts.is_empty()).map(|texts| texts.join("\n"))
    }

    fn log_tail(&self) -> String {
        let tails = self.parts.iter().enumerate().filter_map(|(number, part)| {
            let text = part.log_tail();
            (!text.is_empty()).then(|| format!("instance {}: {text}", number + 1))
        });
        tails.collect::<Vec<String>>().join("\n")
    }

    fn stop(&mut self) -> Result<(), PartError> {
        // The first instance owns the router of all, so it stops last.
        let stopped: Vec<_> = self.parts.iter_mut().rev().map(|part| part.stop()).collect();
        stopped.into_iter().collect()
    }
}

/// Joins the layer states of the instances into one state per layer.
pub fn join(parts: Vec<Vec<LayerState>>) -> Vec<LayerState> {
    let mut joined: Vec<LayerState> = Vec::new();
    for (number, states) in parts.into_iter().enumerate() {
        for state in states {
            match joined.iter_mut().find(|known| known.layer == state.layer) {
                None => joined.push(state),
                Some(known) => {
                    known.in_force &= state.in_force;
                    if known.found != state.found {
                        known.found += &format!("; instance {}: {}", number + 1, state.found);
                    }
                }
            }
        }
    }
    joined
}

/// Adds the CPU time of one instance to the sum.
pub fn add(sum: &mut Usage, one: Usage) {
    sum.system_cpu_ns += one.system_cpu_ns;
    for (name, ns) in one.layer_cpu_ns {
        match sum.layer_cpu_ns.iter_mut().find(|(known, _)| *known == name) {
            Some((_, all)) => *all += ns,
            None => sum.layer_cpu_ns.push((name, ns)),
        }
    }
    if let Some(ns) = one.throttled_ns {
        *sum.throttled_ns.get_or_insert(0) += ns;
    }
}

#[cfg(test)]
mod tests {
    use tare_lab::layer::{Cpu, Quota};
    use tare_testkit::EnvironmentBuilder;

    use super::*;

    fn spec(runtime: &str, cpu: &str) -> EnvironmentSpec {
        EnvironmentBuilder::new(runtime).cpu(cpu).memory_bytes(1 << 30).build()
    }

    #[test]
    fn refuses_what_instances_cannot_share() {
        let refused = |spec: &EnvironmentSpec, count| check(spec, count).unwrap_err().to_string();
        for runtime in ["oci:runc", "containerd", "docker", "podman", "vm:qemu"] {
            assert_eq!(check(&spec(runtime, "quota=1"), 2), Ok(()), "{runtime}");
        }
        assert!(refused(&spec("process", "quota=0.02"), 4).contains("among 4 instances"));
        assert!(refused(&spec("process", "quota=1/10ms+5ms"), 200).contains("among 200 instances"));
        assert!(refused(&spec("process", "shared"), 1000).contains("not 1000"));
        let mut slow = spec("process", "shared");
        slow.limits.writes_per_s = Some(30);
        assert_eq!(check(&slow, 3), Ok(()));
        assert!(refused(&slow, 4).contains("limits.write_iops is too small"));
        let mut injected = spec("process", "shared");
        injected.inject = "busy=1us".parse().unwrap();
        assert!(refused(&injected, 2).contains("inject"));
        injected.storage.kind = "raw".into();
        injected.storage.options = vec![("device".into(), "/dev/sdz".into())];
        assert!(refused(&injected, 2).contains("overwrite each other's data"));
    }

    #[test]
    fn divides_limits_among_instances() {
        let parts: Vec<EnvironmentSpec> =
            InstanceSlot::slots(2).map(|slot| slot.part(&spec("process", "quota=1.5"))).collect();
        assert_eq!(parts[0], parts[1]);
        assert_eq!(parts[0].cpu, Cpu::Quota(Quota::of(0.75)));
        assert_eq!(parts[0].limits.memory_bytes, Some(1 << 29));
        let pinned = spec("process", "pinned");
        assert_eq!(InstanceSlot::single().part(&pinned), pinned);
    }

    #[test]
    fn sums_cpu_time_per_layer() {
        let one = |system_cpu_ns, proxy, throttled_ns| Usage {
            system_cpu_ns,
            layer_cpu_ns: vec![("userland proxy".into(), proxy)],
            throttled_ns,
            ..Usage::default()
        };
        let mut sum = Usage::default();
        add(&mut sum, one(5, 1, None));
        assert_eq!(sum, one(5, 1, None));
        add(&mut sum, one(7, 2, Some(9)));
        assert_eq!(sum, one(12, 3, Some(9)));
    }

    #[test]
    fn layer_is_in_force_only_around_all_instances() {
        let state =
            |found: &str, in_force| crate::system::state("cpu", "x", found.into(), in_force);
        let joined = join(vec![vec![state("a", true)], vec![state("a", true)]]);
        assert_eq!(joined, [state("a", true)]);
        let joined = join(vec![vec![state("a", true)], vec![state("b", false)]]);
        assert_eq!(joined, [state("a; instance 2: b", false)]);
    }
}
