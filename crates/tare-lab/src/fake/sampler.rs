//! Stacks of the fake host: the thawed instance is sampled in proportion to its cost.

use super::{FakeError, FakeHost};
use crate::PartError;
use crate::driver::Edge;
use crate::probe::Scope;
use crate::stacks::{CLIENT, LAYER, SYSTEM, SampledStack, StackKind, StackSampler};

/// A sampler that returns the fake host's stacks.
#[derive(Debug)]
pub struct FakeSampler {
    world: FakeHost,
    kind: StackKind,
    /// Edges seen since `begin`.
    edges: Option<Vec<Edge>>,
}

impl FakeSampler {
    pub(super) fn new(world: FakeHost, kind: StackKind) -> Self {
        Self { world, kind, edges: None }
    }
}

fn stack(part: &str, subsystem: &str, folded: &str, samples: u64) -> SampledStack {
    let (part, subsystem, folded) = (part.into(), subsystem.into(), folded.into());
    SampledStack { part, subsystem, folded, samples }
}

impl StackSampler for FakeSampler {
    fn kind(&self) -> StackKind {
        self.kind
    }

    fn event(&self) -> String {
        "the world's clock".into()
    }

    fn begin(&mut self, _scope: &Scope) -> Result<(), PartError> {
        self.edges = Some(Vec::new());
        Ok(())
    }

    fn edge(&mut self, edge: Edge) -> Result<(), PartError> {
        self.edges.as_mut().ok_or(FakeError::NoTarget)?.push(edge);
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<SampledStack>, PartError> {
        let edges = self.edges.take().ok_or(FakeError::NoTarget)?;
        if edges != [Edge::Begin, Edge::End] {
            return Ok(Vec::new());
        }
        self.world.note("sampled".to_string());
        let state = self.world.0.borrow();
        let proxy = state.log.iter().rev().find_map(|line| {
            let name = line.strip_prefix("run ")?.split_once(" open")?.0;
            state.instances.values().find(|one| one.name == name).map(|one| one.proxy)
        });
        let mut stacks = vec![
            stack(SYSTEM, "database", "server;work", 60),
            stack(SYSTEM, "network stack", "server;send;tcp_sendmsg_[k]", 40),
            stack(CLIENT, "client", "client;ask", 50),
        ];
        if proxy == Some(true) {
            stacks.push(stack(LAYER, "userland proxy", "proxy;relay", 20));
        }
        Ok(stacks)
    }
}
