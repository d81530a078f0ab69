//! The agents of all hosts, and orders to all of them at once.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use tare_lab::study::SystemSpec;

use crate::error::ClusterError;
use crate::link::Link;
use crate::protocol::{Answer, Opened, Order};

/// The ports from which those of an environment are chosen: below those that kernels give to
/// clients (`ip_local_port_range`).
const PORT_FIRST: u16 = 20_000;
pub(crate) const PORTS: u16 = 10_000;
/// How many pairs of ports are tried.
const PORT_TRIES: u16 = 100;

/// What is known about a host.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// `ssh:db1`, `kubernetes:node1`
    pub name: String,
    /// The address of its instances.
    pub address: Ipv4Addr,
    /// Whether it is the host of the harness.
    pub is_here: bool,
    pub opened: Opened,
}

/// The agents of the hosts.
pub(crate) struct Shared {
    pub(crate) links: RefCell<Vec<Link>>,
    pub(crate) hosts: Vec<HostFacts>,
    pub(crate) system: SystemSpec,
    pub(crate) instance_cpus: usize,
    pub(crate) next_environment: Cell<u32>,
    pub(crate) next_port: Cell<u16>,
}

impl Shared {
    pub(crate) fn instance_cpus(&self) -> usize {
        self.instance_cpus
    }

    /// Returns the number of hosts.
    pub(crate) fn count(&self) -> usize {
        self.hosts.len()
    }

    /// Sends one order to all hosts, then waits for all answers.
    pub(crate) fn all(&self, order: &Order) -> Result<Vec<(Duration, Answer)>, ClusterError> {
        self.each(&vec![order.clone(); self.count()])
    }

    /// Sends each host its order, then waits for all answers. Returns how long each took.
    pub(crate) fn each(&self, orders: &[Order]) -> Result<Vec<(Duration, Answer)>, ClusterError> {
        exchange(&mut self.links.borrow_mut(), orders)
    }

    /// Sends one host an order and waits for its answer.
    pub(crate) fn one(&self, host: usize, order: &Order) -> Result<Answer, ClusterError> {
        let link = &mut self.links.borrow_mut()[host];
        link.send(order)?;
        Ok(link.answer(order)?.1)
    }

    pub(crate) fn unexpected(&self, host: usize, order: &Order, answer: &Answer) -> ClusterError {
        self.links.borrow()[host].unexpected(order, answer)
    }

    pub(crate) fn name(&self, host: usize) -> &str {
        &self.hosts[host].name
    }

    /// Returns two neighbouring ports that are free on all hosts.
    pub(crate) fn free_ports(&self) -> Result<(u16, u16), ClusterError> {
        for _ in 0..PORT_TRIES {
            let offset = self.next_port.get();
            self.next_port.set((offset + 2) % PORTS);
            let ports = vec![PORT_FIRST + offset, PORT_FIRST + offset + 1];
            let order = |host: &HostFacts| {
                let (address, ports) = (host.address, ports.clone());
                Order::PortsFree { address, ports }
            };
            let orders: Vec<Order> = self.hosts.iter().map(order).collect();
            let free = |(_, answer): &(Duration, Answer)| *answer == Answer::Free { free: true };
            if self.each(&orders)?.iter().all(free) {
                return Ok((ports[0], ports[1]));
            }
        }
        Err(ClusterError::NoPorts)
    }
}

/// Sends each agent its order, then waits for all answers, also after an error: an answer must not
/// be taken for that of the next order.
pub(crate) fn exchange(
    links: &mut [Link],
    orders: &[Order],
) -> Result<Vec<(Duration, Answer)>, ClusterError> {
    let mut sent = Vec::new();
    for (link, order) in links.iter_mut().zip(orders) {
        let result = link.send(order);
        sent.push(result.map(|()| Instant::now()));
    }
    let mut answers = Vec::new();
    for ((link, order), sent) in links.iter_mut().zip(orders).zip(sent) {
        answers.push(sent.and_then(|sent| {
            let (at, answer) = link.answer(order)?;
            Ok((at.saturating_duration_since(sent), answer))
        }));
    }
    answers.into_iter().collect()
}
