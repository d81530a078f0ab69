//! The slot of one instance among the instances of a system in one environment. Each instance has
//! its own processes, cgroup, data directory and addresses. All share one port and one bridge, like
//! containers on one host. Where loaders on other hosts reach all of them at one address, each has
//! a port of its own.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use tare_lab::environment::{CpuPlan, EnvironmentSpec};

use tare_lab::layer::Cpu;

/// The position of one instance among the instances of its environment.
#[derive(Clone, Debug)]
pub(crate) struct InstanceSlot {
    /// From 0.
    number: u32,
    count: u32,
    shared: Arc<Shared>,
    /// Set if the other instances are on other hosts.
    peers: Option<Arc<Peers>>,
}

/// The addresses of the instances of a system on several hosts, one on each, and the ports that all
/// of them have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peers {
    /// The address of this host, at which clients and the other instances reach its instance.
    pub own: Ipv4Addr,
    /// The addresses of all hosts, in the order of the instances.
    pub all: Vec<Ipv4Addr>,
    /// The port for clients.
    pub port: u16,
    /// The port for the other instances.
    pub node_port: u16,
}

/// The addresses of the pods that have started, in the order of the instances.
#[derive(Clone, Debug, Default)]
pub struct StartedPods(Arc<Mutex<Vec<Ipv4Addr>>>);

impl StartedPods {
    /// Replaces the addresses.
    pub fn set(&self, addresses: Vec<Ipv4Addr>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    fn get(&self) -> Vec<Ipv4Addr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, address: Ipv4Addr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(address);
    }
}

/// The nft table of all instances behind a bridge of the host.
#[derive(Debug, Default)]
pub(crate) struct HostRules {
    pub(crate) table: String,
    /// The text that adds the rules of each instance; the first one's creates the table.
    pub(crate) parts: Vec<String>,
    /// How many of them are in force.
    pub(crate) standing: usize,
}

/// Values that the first instance chooses for all.
#[derive(Debug, Default)]
struct Shared {
    port: OnceLock<u16>,
    /// The number of the start that created the router of all instances.
    router: OnceLock<u32>,
    /// The first address of the network of all instances.
    subnet: OnceLock<Ipv4Addr>,
    /// What publishes the instances at an address of the host.
    host_rules: OnceLock<Arc<Mutex<HostRules>>>,
    pods: StartedPods,
}

impl InstanceSlot {
    /// Returns the slot of a single instance.
    pub(crate) fn single() -> Self {
        Self { number: 0, count: 1, shared: Arc::default(), peers: None }
    }

    /// Returns the slots of `count` instances that start together, in order.
    pub(crate) fn slots(count: u32) -> impl Iterator<Item = Self> {
        let shared = Arc::<Shared>::default();
        (0..count).map(move |number| {
            let shared = Arc::clone(&shared);
            Self { number, count, shared, peers: None }
        })
    }

    /// Returns the slot of the only instance on this host, whose peers are on other hosts. It has
    /// all of the host's CPUs and of the environment's limits. `pods` are those of the peers.
    pub(crate) fn among(peers: Peers, pods: StartedPods) -> Self {
        let shared = Arc::new(Shared { pods, ..Shared::default() });
        Self { number: 0, count: 1, shared, peers: Some(Arc::new(peers)) }
    }

    pub(crate) fn peers(&self) -> Option<&Peers> {
        self.peers.as_deref()
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the port that the first instance chooses for all; a single instance chooses one at
    /// every start.
    pub(crate) fn port<E>(&self, choose: impl FnOnce() -> Result<u16, E>) -> Result<u16, E> {
        match self.shared.port.get() {
            _ if self.count == 1 => choose(),
            Some(port) => Ok(*port),
            None => choose().map(|port| *self.shared.port.get_or_init(|| port)),
        }
    }

    /// Returns the first address of the network of all instances, which the first instance chooses.
    pub(crate) fn subnet<E>(
        &self,
        choose: impl FnOnce() -> Result<Ipv4Addr, E>,
    ) -> Result<Ipv4Addr, E> {
        match self.shared.subnet.get() {
            Some(subnet) => Ok(*subnet),
            None => choose().map(|subnet| *self.shared.subnet.get_or_init(|| subnet)),
        }
    }

    /// Returns the rules that publish all instances, for a table of this name.
    pub(crate) fn host_rules(&self, table: String) -> Arc<Mutex<HostRules>> {
        let new = || Arc::new(Mutex::new(HostRules { table, ..HostRules::default() }));
        match self.count {
            1 => new(),
            _ => Arc::clone(self.shared.host_rules.get_or_init(new)),
        }
    }

    /// Returns the addresses of the pods that have started before this one.
    pub(crate) fn pods(&self) -> Vec<Ipv4Addr> {
        self.shared.pods.get()
    }

    /// Tells the instances that start later the address of this one's pod.
    pub(crate) fn add_pod(&self, address: Ipv4Addr) {
        if self.count > 1 {
            self.shared.pods.add(address);
        }
    }

    /// Returns the number of the start that created the router, which is the first instance's.
    pub(crate) fn router(&self, number: u32) -> u32 {
        if self.count == 1 {
            return number;
        }
        *self.shared.router.get_or_init(|| number)
    }

    /// Returns the environment with this instance's share of the CPU quota and of the limits.
    pub(crate) fn part(&self, spec: &EnvironmentSpec) -> EnvironmentSpec {
        let mut part = spec.clone();
        if let Cpu::Quota(quota) = spec.cpu {
            part.cpu = Cpu::Quota(quota.part(self.count));
        }
        part.limits = spec.limits.part(self.count);
        part
    }

    /// Returns the CPUs of this instance: of those that the cpu layer leaves to all instances its
    /// own whole cores, or, with more instances than cores, all of them, shared with the others.
    pub(crate) fn cpus(&self, plan: &CpuPlan, layer: Cpu) -> CpuPlan {
        let limited = match layer {
            Cpu::Cpus(count) => plan.limited_to(count),
            Cpu::Shared | Cpu::Pinned | Cpu::Quota(_) | Cpu::Request(_) => plan.clone(),
        };
        let plan = &limited;
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let number = usize::try_from(self.number).unwrap_or(usize::MAX);
        let mut own = plan.clone();
        if let Some(cpus) = plan.of_instances(count).and_then(|all| all.into_iter().nth(number)) {
            own.system = cpus;
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_std::cpus::CpuSet;

    fn plan(system: &str) -> CpuPlan {
        let list = |text: &str| CpuSet::parse_list(text).unwrap();
        let cores = vec![list("2,6"), list("3,7")];
        let (all, system, client) = (list("0-7"), list(system), list("0"));
        CpuPlan { all, system, client, cores, ..CpuPlan::default() }
    }

    #[test]
    fn instances_share_no_core() {
        let check_with = |count, system: &str, cpu: Cpu, expect: &[&str]| {
            let cpus = |slot: InstanceSlot| slot.cpus(&plan(system), cpu).system.to_string();
            let slots = InstanceSlot::slots(count).map(cpus);
            assert_eq!(slots.collect::<Vec<_>>(), expect, "{count} on {system} with {cpu}");
        };
        let check =
            |count, system: &str, expect: &[&str]| check_with(count, system, Cpu::Pinned, expect);
        check(1, "4-7", &["4-7"]);
        check(2, "4-7", &["4-5", "6-7"]);
        check(2, "2-3,6-7", &["2,6", "3,7"]);
        check(3, "4-7", &["4-5", "6", "7"]);
        check(3, "2-3,6-7", &["2-3,6-7", "2-3,6-7", "2-3,6-7"]);
        check(2, "1", &["1", "1"]);
        check_with(2, "4-7", Cpu::Cpus(2), &["4", "5"]);
        check_with(2, "4-7", Cpu::Cpus(3), &["4-5", "6"]);
        check_with(1, "2-3,6-7", Cpu::Cpus(3), &["2-3,6"]);
        check_with(2, "4-7", Cpu::Cpus(1), &["4", "4"]);
    }

    #[test]
    fn first_instance_chooses_port_and_router() {
        let slots: Vec<InstanceSlot> = InstanceSlot::slots(2).collect();
        assert_eq!(slots[0].port(|| Err(())), Err(()));
        assert_eq!(slots[0].port(|| Ok::<_, ()>(7)), Ok(7));
        assert_eq!(slots[1].port(|| Ok::<_, ()>(8)), Ok(7));
        assert_eq!((slots[0].router(3), slots[1].router(4)), (3, 3));
    }

    #[test]
    fn single_instance_chooses_at_every_start() {
        // All environments of a run share this slot, and each starts more than once.
        let only = InstanceSlot::single();
        for number in [5_u16, 6] {
            assert_eq!(only.router(number.into()), u32::from(number));
            assert_eq!(only.port(|| Ok::<_, ()>(number)), Ok(number));
        }
    }
}
