//! The parts of the fake host: implementations of the lab's traits.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use super::{
    CAPACITY_PER_S, CLIENT_NS, FREEZE, FakeError, FakeHost, FakeOptions, Instance, NAME, POPULATE,
    PROXY_NS, SERVER_NS, START, STOP,
};
use crate::PartError;
use crate::driver::{Driver, Edge, Pacing, SliceLoad, SliceOrder, TargetId, first_address};
use crate::environment::{Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Usage};
use crate::probe::{Counter, Probe, names};
use crate::seconds::{LoadSecond, WINDOW_MIN};
use crate::study::WorkloadSpec;
use crate::system::{BusyTime, System};

/// Rounds a figure to whole ns.
fn whole(ns: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let ns = ns.max(0.0) as u64;
    ns
}

fn port_of(data: &Path) -> Option<u16> {
    data.file_name()?.to_str()?.parse().ok()
}

/// An environment that exists only in the fake host.
#[derive(Debug)]
pub struct FakeEnvironment {
    world: FakeHost,
    spec: EnvironmentSpec,
    behaviour: FakeOptions,
    port: Option<u16>,
}

impl FakeEnvironment {
    pub(super) fn new(world: FakeHost, spec: EnvironmentSpec, behaviour: FakeOptions) -> Self {
        Self { world, spec, behaviour, port: None }
    }

    fn with<T>(&self, read: impl FnOnce(&mut Instance) -> T) -> Result<T, PartError> {
        let mut state = self.world.0.borrow_mut();
        let instance = self.port.and_then(|port| state.instances.get_mut(&port));
        Ok(read(instance.ok_or(FakeError::NoTarget)?))
    }
}

impl Environment for FakeEnvironment {
    fn spec(&self) -> &EnvironmentSpec {
        &self.spec
    }

    fn start(&mut self, _launch: &Launch) -> Result<Endpoint, PartError> {
        self.world.note(format!("start {}", self.spec.name));
        self.world.pass(START);
        if self.behaviour.start_fails {
            return Err(FakeError::Start.into());
        }
        let mut state = self.world.0.borrow_mut();
        let port = state.next_port;
        state.next_port += 1;
        let instance = Instance {
            name: self.spec.name.clone(),
            behaviour: self.behaviour.clone(),
            proxy: self.spec.network.has_proxy(),
            frozen: false,
            slices: 0,
            system_cpu_ns: 0.0,
            proxy_cpu_ns: 0.0,
            busy_ns: 0.0,
        };
        state.instances.insert(port, instance);
        self.port = Some(port);
        Ok(Endpoint {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            data: Some(PathBuf::from(format!("fake/{port}"))),
            inside: None,
        })
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        let slices = self.with(|instance| instance.slices)?;
        let lost = self.behaviour.layer_after.is_some_and(|after| slices > after);
        let in_force = !self.behaviour.layer_off && !lost;
        Ok(vec![LayerState {
            layer: "network".into(),
            wanted: self.spec.network.to_string(),
            found: if in_force { self.spec.network.to_string() } else { "nothing".into() },
            in_force,
        }])
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.world.pass(FREEZE);
        let thaw_after = self.behaviour.thaw_after;
        self.with(|instance| {
            instance.frozen = thaw_after.is_none_or(|after| instance.slices <= after);
            instance.frozen.then_some(()).ok_or(FakeError::Thawed)
        })??;
        Ok(())
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.world.pass(FREEZE);
        self.with(|instance| instance.frozen = false)
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        self.with(|instance| Usage {
            system_cpu_ns: whole(instance.system_cpu_ns),
            layer_cpu_ns: match instance.proxy {
                true => vec![("userland proxy".into(), whole(instance.proxy_cpu_ns))],
                false => vec![],
            },
            throttled_ns: None,
            instance_cpu_ns: Vec::new(),
            neighbour_cpu_ns: Vec::new(),
            nodes: Vec::new(),
        })
    }

    fn config(&self) -> Option<String> {
        None
    }

    fn log_tail(&self) -> String {
        String::new()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        if let Some(port) = self.port.take() {
            self.world.0.borrow_mut().instances.remove(&port);
            self.world.note(format!("stop {}", self.spec.name));
            self.world.pass(STOP);
        }
        Ok(())
    }
}

/// A system without a process.
#[derive(Debug)]
pub struct FakeSystem {
    world: FakeHost,
}

impl FakeSystem {
    pub(super) fn new(world: FakeHost) -> Self {
        Self { world }
    }
}

impl System for FakeSystem {
    fn name(&self) -> &str {
        NAME
    }

    fn launch(&self, cpus: usize) -> Launch {
        Launch { arguments: vec!["fake".into(), cpus.to_string()], ..Launch::default() }
    }

    fn settings(&self, _at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        Ok(vec![(crate::judge::IO_ENGINE.into(), "none".into())])
    }

    fn busy_time(&self, data: &Path) -> Result<Option<BusyTime>, PartError> {
        let state = self.world.0.borrow();
        let instance = port_of(data).and_then(|port| state.instances.get(&port));
        let instance = instance.ok_or(FakeError::NoTarget)?;
        Ok(instance.behaviour.polling.then(|| BusyTime {
            busy_ns: whole(instance.busy_ns),
            idle_poll_ns: whole(instance.system_cpu_ns - instance.busy_ns),
        }))
    }
}

/// A driver whose operations take virtual time only.
#[derive(Debug)]
pub struct FakeDriver {
    world: FakeHost,
    open: Vec<Option<u16>>,
}

impl FakeDriver {
    pub(super) fn new(world: FakeHost) -> Self {
        Self { world, open: Vec::new() }
    }

    fn port(&self, target: TargetId) -> Result<u16, FakeError> {
        self.open.get(target.0 as usize).copied().flatten().ok_or(FakeError::NoTarget)
    }
}

impl Driver for FakeDriver {
    fn loads_at_edges(&self) -> bool {
        true
    }

    fn open(
        &mut self,
        addresses: &[SocketAddr],
        _deadline: Duration,
    ) -> Result<TargetId, PartError> {
        let address = first_address(addresses)?;
        if !self.world.0.borrow().instances.contains_key(&address.port()) {
            return Err(FakeError::NoTarget.into());
        }
        self.open.push(Some(address.port()));
        Ok(TargetId(u32::try_from(self.open.len() - 1)?))
    }

    fn populate(
        &mut self,
        target: TargetId,
        workload: &WorkloadSpec,
        _seed: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError> {
        self.port(target)?;
        self.world.pass(POPULATE);
        progress(workload.rows, workload.rows);
        Ok(())
    }

    fn run(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        edge: &mut dyn FnMut(Edge),
    ) -> Result<SliceLoad, PartError> {
        let port = self.port(target)?;
        self.world.pass(order.lead_in);
        edge(Edge::Begin);
        let load = {
            let mut guard = self.world.0.borrow_mut();
            let state = &mut *guard;
            let thawed = state.instances.values().filter(|one| !one.frozen).count();
            let instance = state.instances.get_mut(&port).ok_or(FakeError::NoTarget)?;
            if instance.frozen {
                return Err(FakeError::Frozen.into());
            }
            let pacing = match order.pacing {
                Pacing::Closed => "closed",
                Pacing::Open { .. } => "open",
            };
            let others = if thawed > 1 { " with others thawed" } else { "" };
            state.log.push(format!("run {} {pacing}{others}", instance.name));
            instance.slices += 1;
            if instance.behaviour.fail_after.is_some_and(|after| instance.slices > after) {
                return Err(FakeError::Load.into());
            }
            let FakeOptions { cpu, throughput, noise, knee, .. } = instance.behaviour;
            let seconds = order.window.as_secs_f64();
            let fill = (f64::from(order.workload.in_flight) / f64::from(knee)).min(1.0);
            let capacity = fill * CAPACITY_PER_S * throughput * (noise * state.rng.normal()).exp();
            let server_ns = SERVER_NS * cpu * (noise * state.rng.normal()).exp();
            let due = match order.pacing {
                Pacing::Closed => f64::INFINITY,
                Pacing::Open { rate_per_s } => rate_per_s * seconds,
            };
            let is_empty = instance.behaviour.empty_after.is_some_and(|after| {
                (after..after + instance.behaviour.empty).contains(&(instance.slices - 1))
            });
            let operations = if is_empty { 0.0 } else { due.min(capacity * seconds).floor() };
            let window_ns = seconds * 1e9;
            instance.busy_ns += operations * server_ns;
            instance.system_cpu_ns += match instance.behaviour.polling {
                true => window_ns.max(operations * server_ns),
                false => operations * server_ns,
            };
            instance.proxy_cpu_ns += operations * if instance.proxy { PROXY_NS } else { 0.0 };
            state.client_cpu_ns += operations * CLIENT_NS;
            let latency_ns = 1e9 / capacity * f64::from(order.workload.in_flight);
            let service = histogram(latency_ns, &mut state.rng)?;
            SliceLoad {
                window_ns: whole(window_ns),
                operations: whole(operations),
                errors: vec![],
                unsent: if due.is_finite() { whole(due - operations) } else { 0 },
                sent_late: None,
                client_cpu_ns: whole(operations * CLIENT_NS),
                busiest_thread_ns: 0,
                response: if due.is_finite() { service.clone() } else { vec![] },
                service,
                loaders: Vec::new(),
                instances: Vec::new(),
                paths: Vec::new(),
                seconds: by_second(order.window, operations, latency_ns),
            }
        };
        self.world.pass(order.window);
        edge(Edge::End);
        Ok(load)
    }

    fn close(&mut self, target: TargetId) -> Result<(), PartError> {
        if let Some(port) = self.open.get_mut(target.0 as usize) {
            *port = None;
        }
        Ok(())
    }

    fn pids(&self) -> Vec<u32> {
        vec![std::process::id()]
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.open.clear();
        Ok(())
    }
}

/// Returns equal seconds of a long window.
fn by_second(window: Duration, operations: f64, mean_ns: f64) -> Vec<LoadSecond> {
    let count = if window < WINDOW_MIN { 0 } else { window.as_secs() };
    let operations = whole(operations) / count.max(1);
    let second = LoadSecond { operations, mean_ns: whole(mean_ns), max_ns: whole(3.0 * mean_ns) };
    (0..count).map(|_| second).collect()
}

/// Returns a serialized histogram of 100 latencies around a mean.
fn histogram(mean_ns: f64, rng: &mut tare_std::rng::Rng) -> Result<Vec<u8>, PartError> {
    let mut histogram = Histogram::<u64>::new(3)?;
    for _ in 0..100 {
        histogram.record(whole(mean_ns * (0.3 * rng.normal()).exp()).max(1))?;
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&histogram, &mut bytes)?;
    Ok(bytes)
}

/// A probe that reads the CPU time of the whole fake host.
#[derive(Debug)]
pub struct FakeProbe {
    world: FakeHost,
    before: [f64; 3],
}

impl FakeProbe {
    pub(super) fn new(world: FakeHost) -> Self {
        Self { world, before: [0.0; 3] }
    }

    /// Returns all CPU time, that of the harness (including the client), and steal time, in ns.
    fn read(&self) -> [f64; 3] {
        let state = self.world.0.borrow();
        let servers = state.instances.values().map(|one| one.system_cpu_ns + one.proxy_cpu_ns);
        let all = servers.sum::<f64>() + state.client_cpu_ns + state.other_cpu_ns;
        [all, state.client_cpu_ns, state.steal_ns]
    }
}

impl Probe for FakeProbe {
    fn name(&self) -> &str {
        NAME
    }

    fn begin(&mut self) -> Result<(), PartError> {
        self.before = self.read();
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Counter>, PartError> {
        let now = self.read();
        let counter = |at: usize, name: &str| Counter {
            name: name.to_string(),
            value: now[at] - self.before[at],
        };
        Ok(vec![
            counter(0, names::HOST_CPU_NS),
            counter(1, names::HARNESS_CPU_NS),
            counter(2, names::STEAL_NS),
        ])
    }
}
