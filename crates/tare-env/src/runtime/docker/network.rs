//! The network of an environment with several instances behind an engine's bridge. Only in a
//! network of its own the engine gives a container an address of our choice, which the other
//! instances have to know before it starts. The path of a packet is that of the engine's default
//! bridge.

use std::net::Ipv4Addr;
use std::path::Path;

use tare_host::journal::Entry;
use tare_host::netns;

use super::engine::{Engine, EngineError};
use crate::client::NetworkError;
use crate::run_context::RunContext;
use crate::undo::ContainerEntry;

/// The networks are 198.19.N.0/24 in the engine's namespace, where Tare has no other addresses of
/// 198.19.0.0/16.
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);
const SUBNETS: u32 = 256;

/// A network with a bridge of its own, shared by the instances of one start.
#[derive(Debug)]
pub(super) struct InstanceNetwork {
    name: String,
    /// Its first address.
    base: Ipv4Addr,
    is_first: bool,
}

impl InstanceNetwork {
    /// Returns the network of an instance, before it exists. The first instance chooses it.
    ///
    /// # Errors
    /// When every subnet is taken.
    pub(super) fn plan(
        context: &RunContext,
        number: u32,
        engine: &Engine,
    ) -> Result<Self, NetworkError> {
        let of = context.slot().router(number);
        let base = context.slot().subnet(|| free_subnet(number, &engine.namespace()))?;
        Ok(Self { name: format!("{}-n{of}", context.prefix()), base, is_first: of == number })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the entry that must be in the journal before `make`.
    pub(super) fn entry(&self, engine: &Engine) -> Option<Entry> {
        let entry = || ContainerEntry::EngineNetwork {
            engine: engine.kind().name().into(),
            socket: engine.socket().into(),
            name: self.name.clone(),
        };
        self.is_first.then(|| entry().into())
    }

    /// Creates the network, if this is the first instance.
    ///
    /// # Errors
    /// When the engine refuses it.
    pub(super) fn make(&self, engine: &Engine) -> Result<(), EngineError> {
        match self.is_first {
            true => engine.create_network(&self.name, &format!("{}/24", self.base), self.at(1)),
            false => Ok(()),
        }
    }

    /// Returns the address of an instance, counted from 0.
    pub(super) fn address(&self, instance: u32) -> Ipv4Addr {
        self.at(2 + instance)
    }

    fn at(&self, last: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base) + last)
    }
}

/// Returns the first address of a subnet that no route of a namespace has.
fn free_subnet(number: u32, namespace: &Path) -> Result<Ipv4Addr, NetworkError> {
    let read = || std::fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap_or_default();
    let routes = netns::within(namespace, read)?;
    let words = routes.split(|c: char| c.is_whitespace() || c == '/');
    let taken: Vec<u32> =
        words.filter_map(|word| word.parse::<Ipv4Addr>().ok()).map(u32::from).collect();
    let mut bases = (0..SUBNETS).map(|step| u32::from(FIRST) + ((number + step) % SUBNETS) * 256);
    let free =
        bases.find(|base| !taken.iter().any(|address| (*base..base + 256).contains(address)));
    free.map(Ipv4Addr::from).ok_or(NetworkError::NoAddress)
}
