//! A simulated host with known costs: environments, a system, a driver, a probe and a virtual
//! clock. Tests of the lab use it, and so can studies without a container or a database (`runtime =
//! "fake:cpu=1.3"`). It is deterministic: equal seeds and equal calls give equal figures. It starts
//! no process, opens no socket and accesses no file.
//!
//! The name of the runtime sets the costs of an environment: `fake`, or `fake:KEY=VALUE,...` with
//!
//! - `cpu=F`, `throughput=F`: factors on CPU per operation and on capacity (1);
//! - `noise=F`: standard deviation of the logarithm of both, per slice (0.01);
//! - `polling=1`: the system always uses its whole CPU, and measures its busy time;
//! - `start=fail`: the start fails; `layer=off`: the network layer is not in force;
//! - `fail_after=N`, `layer_after=N`, `thaw_after=N`: after N slices the load fails, the network
//!   layer is no longer in force, or freezing fails;
//! - `empty_after=N`, `empty=M`: after N slices no operation ends in the next M (1).

mod parts;
mod sampler;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tare_std::rng::Rng;

use crate::PartError;
use crate::campaign::Clock;
use crate::environment::{Environment, EnvironmentSpec, Limits, StorageSpec};
use crate::layer::{
    Apparmor, Capabilities, Cgroup, Confinement, Cpu, Host, Inject, Layer, Neighbour,
    NeighbourKind, Network, Pages, Placement, Quota, Rootfs, Security, Sidecar, User,
};
use crate::stacks::StackKind;

pub use parts::{FakeDriver, FakeEnvironment, FakeProbe, FakeSystem};
pub use sampler::FakeSampler;

/// Runtimes of the fake host, for a vocabulary.
pub const RUNTIMES: &[&str] = &["fake", "fake:*"];
/// Name of the fake system and of the fake driver.
pub const NAME: &str = "fake";

/// Operations/s, and CPU per operation of the server and of the client, in an environment without
/// costs.
pub const CAPACITY_PER_S: f64 = 100_000.0;
pub const SERVER_NS: f64 = 8_000.0;
pub const CLIENT_NS: f64 = 4_000.0;
/// CPU per operation of a userland proxy in the path.
pub const PROXY_NS: f64 = 5_000.0;

const START: Duration = Duration::from_millis(50);
const STOP: Duration = Duration::from_millis(20);
const POPULATE: Duration = Duration::from_millis(200);
const FREEZE: Duration = Duration::from_micros(100);

/// An error of the fake host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FakeError {
    #[error(
        "\"{text}\" is not a fake runtime: {part:?} is not a valid KEY=VALUE; keys: cpu, throughput, noise, knee, polling, start, layer, fail_after, layer_after, thaw_after, empty_after, empty"
    )]
    Runtime { text: String, part: String },
    #[error("configured to fail at its start")]
    Start,
    #[error("configured to fail under load")]
    Load,
    #[error("configured to stay thawed")]
    Thawed,
    #[error("no such target")]
    NoTarget,
    #[error("the target is frozen")]
    Frozen,
}

/// The costs and failures of a fake environment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FakeOptions {
    cpu: f64,
    throughput: f64,
    noise: f64,
    /// Requests in flight from which on throughput does not grow.
    knee: u32,
    polling: bool,
    start_fails: bool,
    layer_off: bool,
    fail_after: Option<u32>,
    layer_after: Option<u32>,
    thaw_after: Option<u32>,
    empty_after: Option<u32>,
    empty: u32,
}

impl FakeOptions {
    pub(crate) fn parse(text: &str) -> Result<Self, FakeError> {
        let mut behaviour = Self {
            cpu: 1.0,
            throughput: 1.0,
            noise: 0.01,
            knee: 1,
            polling: false,
            start_fails: false,
            layer_off: false,
            fail_after: None,
            layer_after: None,
            thaw_after: None,
            empty_after: None,
            empty: 1,
        };
        let options = text.strip_prefix("fake").unwrap_or(text);
        for part in options.trim_start_matches(':').split(',').filter(|part| !part.is_empty()) {
            let bad = || FakeError::Runtime { text: text.to_string(), part: part.to_string() };
            let (key, value) = part.split_once('=').ok_or_else(bad)?;
            let factor = || value.parse::<f64>().ok().filter(|f| f.is_finite() && *f >= 0.0);
            let count = || value.parse::<u32>().map_err(|_| bad());
            match (key, value) {
                ("cpu", _) => behaviour.cpu = factor().ok_or_else(bad)?,
                ("throughput", _) => behaviour.throughput = factor().ok_or_else(bad)?,
                ("noise", _) => behaviour.noise = factor().ok_or_else(bad)?,
                ("knee", _) => behaviour.knee = count()?.max(1),
                ("polling", "1") => behaviour.polling = true,
                ("start", "fail") => behaviour.start_fails = true,
                ("layer", "off") => behaviour.layer_off = true,
                ("fail_after", _) => behaviour.fail_after = Some(count()?),
                ("layer_after", _) => behaviour.layer_after = Some(count()?),
                ("thaw_after", _) => behaviour.thaw_after = Some(count()?),
                ("empty_after", _) => behaviour.empty_after = Some(count()?),
                ("empty", _) => behaviour.empty = count()?,
                _ => return Err(bad()),
            }
        }
        Ok(behaviour)
    }
}

/// One started environment.
#[derive(Debug)]
struct Instance {
    name: String,
    behaviour: FakeOptions,
    proxy: bool,
    frozen: bool,
    slices: u32,
    system_cpu_ns: f64,
    proxy_cpu_ns: f64,
    busy_ns: f64,
}

#[derive(Debug)]
struct State {
    now: Duration,
    /// Whether virtual time passes at the speed of real time.
    real_time: bool,
    rng: Rng,
    next_port: u16,
    instances: BTreeMap<u16, Instance>,
    client_cpu_ns: f64,
    other_cpu_ns: f64,
    steal_ns: f64,
    strangers_share: f64,
    steal_share: f64,
    log: Vec<String>,
}

/// The simulated host. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct FakeHost(Rc<RefCell<State>>);

impl FakeHost {
    pub fn new(seed: u64) -> Self {
        Self(Rc::new(RefCell::new(State {
            now: Duration::ZERO,
            real_time: false,
            rng: Rng::new(seed),
            next_port: 10_000,
            instances: BTreeMap::new(),
            client_cpu_ns: 0.0,
            other_cpu_ns: 0.0,
            steal_ns: 0.0,
            strangers_share: 0.0,
            steal_share: 0.0,
            log: Vec::new(),
        })))
    }

    /// Makes virtual time pass at the speed of real time from now on.
    pub fn run_in_real_time(&self) {
        self.0.borrow_mut().real_time = true;
    }

    /// Sets the shares of one CPU that other processes use and that the hypervisor steals, from now
    /// on.
    pub fn disturb(&self, strangers_share: f64, steal_share: f64) {
        let mut state = self.0.borrow_mut();
        state.strangers_share = strangers_share;
        state.steal_share = steal_share;
    }

    /// Creates an environment of the fake host.
    ///
    /// # Errors
    /// If the runtime is not a fake one.
    pub fn environment(&self, spec: &EnvironmentSpec) -> Result<Box<dyn Environment>, PartError> {
        let behaviour = FakeOptions::parse(spec.runtime.as_str())?;
        Ok(Box::new(FakeEnvironment::new(self.clone(), spec.clone(), behaviour)))
    }

    pub fn system(&self) -> FakeSystem {
        FakeSystem::new(self.clone())
    }

    pub fn driver(&self) -> FakeDriver {
        FakeDriver::new(self.clone())
    }

    pub fn sampler(&self, kind: StackKind) -> FakeSampler {
        FakeSampler::new(self.clone(), kind)
    }

    pub fn probe(&self) -> FakeProbe {
        FakeProbe::new(self.clone())
    }

    /// Returns the log of calls: `start NAME`, `run NAME closed`, `stop NAME` ...
    pub fn log(&self) -> Vec<String> {
        self.0.borrow().log.clone()
    }

    /// Returns the names of the running environments.
    pub fn up(&self) -> Vec<String> {
        self.0.borrow().instances.values().map(|one| one.name.clone()).collect()
    }

    fn note(&self, text: String) {
        self.0.borrow_mut().log.push(text);
    }

    /// Advances the time, and with it the CPU time of other processes.
    fn pass(&self, time: Duration) {
        let real = {
            let mut state = self.0.borrow_mut();
            let ns = time.as_secs_f64() * 1e9;
            state.now += time;
            state.other_cpu_ns += ns * state.strangers_share;
            state.steal_ns += ns * state.steal_share;
            state.real_time
        };
        if real {
            std::thread::sleep(time);
        }
    }
}

impl Clock for FakeHost {
    fn now(&self) -> Duration {
        self.0.borrow().now
    }

    fn unix_ms(&self) -> u64 {
        1_800_000_000_000 + u64::try_from(self.now().as_millis()).unwrap_or(0)
    }

    fn wait(&self, time: Duration) {
        self.pass(time);
    }
}

/// Returns an environment without isolation, for studies built in code.
pub fn spec(name: &str, runtime: &str) -> EnvironmentSpec {
    EnvironmentSpec {
        name: name.to_string(),
        runtime: runtime.into(),
        attach: None,
        network: Network::Host,
        cpu: Cpu::Pinned,
        security: Security::None,
        confinement: Confinement::default(),
        cgroup: Cgroup::None,
        host: Host::AsIs,
        storage: StorageSpec::default(),
        vm: Vec::new(),
        sandbox: Vec::new(),
        rootfs: Rootfs::None,
        system: Vec::new(),
        inject: Inject::default(),
        limits: Limits::default(),
        instances: None,
        neighbours: Vec::new(),
        sidecar: Sidecar::None,
        optional: false,
    }
}

/// Returns `plain` with another value of one layer, for tests that cover all layers.
pub fn changed(layer: Layer, plain: &EnvironmentSpec) -> EnvironmentSpec {
    let mut spec = plain.clone();
    let option = |name: &str, value: &str| vec![(name.to_string(), value.to_string())];
    match layer {
        Layer::Runtime => spec.runtime = "oci:runc".into(),
        Layer::Network => spec.network = Network::Bridge { proxy: true },
        Layer::Cpu => spec.cpu = Cpu::Quota(Quota::of(1.5)),
        Layer::Security => spec.security = Security::DefaultWithIoUring,
        Layer::Capabilities => spec.confinement.capabilities = Capabilities::None,
        Layer::User => spec.confinement.user = User::Namespace,
        Layer::Apparmor => spec.confinement.apparmor = Apparmor::Default,
        Layer::Pages => spec.confinement.pages = Pages::Always,
        Layer::Node => spec.confinement.node = Some(1),
        Layer::Cgroup => spec.cgroup = Cgroup::Own,
        Layer::Host => spec.host = Host::TunedGroups(vec!["disk".into(), "network".into()]),
        Layer::Storage => {
            spec.storage = StorageSpec { kind: "ext4".into(), options: option("size", "2G") };
        }
        Layer::Vm => spec.vm = option("vcpus", "2"),
        Layer::Sandbox => spec.sandbox = option("platform", "kvm"),
        Layer::Rootfs => spec.rootfs = Rootfs::Packages("redis-server".into()),
        Layer::System => spec.system = option("overprovisioned", "yes"),
        Layer::Inject => spec.inject.busy = Some(Duration::from_micros(2)),
        Layer::Limits => spec.limits.memory_bytes = Some(1 << 30),
        Layer::Instances => spec.instances = Some(4),
        Layer::Sidecar => spec.sidecar = Sidecar::Proxy,
        Layer::Neighbours => {
            spec.neighbours = vec![Neighbour {
                name: "burner".into(),
                kind: NeighbourKind::Cpu,
                command: Vec::new(),
                placement: Placement::SameCpus,
                workers: None,
                load_percent: None,
                system: None,
                size_bytes: None,
                rate_bytes: None,
            }];
        }
    }
    spec
}
