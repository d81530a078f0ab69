//! One simulation of a whole server: clients that speak CQL over a network that fails, sessions,
//! TLS, logins and the loops of all shards, and their stores on disks that fail.
//!
//! Method: every step the clients act, perhaps one or two faults strike, and every shard that has a
//! reason to runs iterations of its loop, in any order. The model has the writes of each row; every
//! answer is checked when it arrives.

mod client;
mod coverage;
mod end;
mod faults;
mod identity;
mod network;
mod requests;
mod restart;
mod rows;
mod shape;
mod world;

use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use tare_db::config::Durability;
use tare_db::simulation::{Node, VirtualTime};
use tare_std::rng::Rng;

use crate::device::Device;
use crate::faults::Canary;
use crate::simulation::{Options, panic_message};
use crate::trace::Trace;
use crate::violation::{Failure, Violation};
use client::Client;
pub use coverage::Coverage;
use network::Network;
use rows::Rows;
use shape::Shape;
use world::World;

/// Microseconds since the Unix epoch at which a simulation begins.
const EPOCH_US: u64 = 1_700_000_000_000_000;
/// Iterations that a shard runs in one step.
const ITERATIONS_MAX: u64 = 3;
/// Calls of a part that has to end, after which it counts as endless.
const ROUNDS_MAX: usize = 100_000;

/// The result of a simulation without a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOutcome {
    /// A hash of everything that happened, but for the bytes of TLS records.
    pub hash: u64,
    pub events: u64,
    pub coverage: Coverage,
}

struct NodeSimulation {
    rng: Rng,
    shape: Shape,
    world: Rc<RefCell<World>>,
    node: Option<Node>,
    wakeups: Vec<Arc<OwnedFd>>,
    /// The time until which each shard sleeps.
    asleep_until_ns: Vec<Option<u64>>,
    clients: Vec<Client>,
    rows: Rows,
    /// The journal of the schema.
    schema: OwnedFd,
    /// The last time at which connections held more memory than they may.
    over_memory_ns: Option<u64>,
    is_full: bool,
    coverage: Coverage,
    options: Options,
    planted: bool,
    step: u64,
}

/// Runs the simulation of a seed over a whole server.
pub fn run_node(seed: u64, options: &Options) -> Result<NodeOutcome, Box<Failure>> {
    let mut simulation = NodeSimulation::new(seed, options);
    let lived = catch_unwind(AssertUnwindSafe(|| simulation.run()));
    let result =
        lived.unwrap_or_else(|panic| Err(Violation::Panicked { message: panic_message(&*panic) }));
    let NodeSimulation { world, coverage, step, node, .. } = simulation;
    // A shard that panicked holds the world, and its parts may not be dropped in order.
    drop(node);
    let trace = std::mem::take(&mut world.borrow_mut().trace);
    match result {
        Ok(()) => Ok(NodeOutcome { hash: trace.hash(), events: trace.events(), coverage }),
        Err(violation) => {
            let now_ns = world.borrow().time.now_ns();
            let trace = trace.into_lines();
            Err(Box::new(Failure { seed, step, shard: 0, now_ns, violation, trace }))
        }
    }
}

impl NodeSimulation {
    fn new(seed: u64, options: &Options) -> Self {
        let mut rng = Rng::stream(seed, 1_000);
        let mut shape = Shape::draw(&mut rng);
        if let Some(canary) = options.canary {
            shape.prepare_for(canary);
        }
        let shards = shape.settings.shards;
        let device = |number: u64| {
            let rng = Rng::stream(seed, 1_010 + number);
            Device::new(rng, shape.disk_faults.clone(), options.canary, shape.disk_bytes)
        };
        let world = World {
            time: VirtualTime::begin(EPOCH_US, shape.reading_ns),
            network: Network::new(shape.network),
            devices: (0..).take(shards).map(device).collect(),
            trace: Trace::new(options.lines),
            rng: Rng::stream(seed, 1_001),
            violation: None,
            has_slept: false,
            loses_rest: false,
            silent: None,
        };
        Self {
            shape,
            world: Rc::new(RefCell::new(world)),
            node: None,
            wakeups: Vec::new(),
            asleep_until_ns: vec![None; shards],
            clients: Vec::new(),
            rows: Rows::default(),
            schema: memfd_create("schema", MemfdFlags::CLOEXEC).expect("memory has room for it"),
            over_memory_ns: None,
            is_full: false,
            coverage: Coverage::default(),
            options: options.clone(),
            planted: false,
            step: 0,
            rng,
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        self.start()?;
        self.create_schema()?;
        for step in 0..self.options.steps {
            self.step = step;
            self.tick();
            self.act();
            self.plant();
            self.strike()?;
            self.run_shards()?;
            self.exchange()?;
        }
        self.end()
    }

    fn now_ns(&self) -> u64 {
        self.world.borrow().time.now_ns()
    }

    /// The path at which the schema's journal can be opened.
    fn schema_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.schema.as_raw_fd()))
    }

    fn is_synced(&self) -> bool {
        self.shape.settings.durability == Durability::Sync
    }

    /// Advances the clock: mostly by little, rarely by much.
    fn tick(&mut self) {
        let passed_ns = match self.rng.below(400) {
            0 => self.rng.below(3_000_000_000),
            1..6 => self.rng.below(150_000_000),
            6..60 => self.rng.below(2_000_000),
            _ => self.rng.below(60_000),
        };
        self.pass_ns(passed_ns);
    }

    fn pass_ns(&self, passed_ns: u64) {
        let world = self.world.borrow();
        world.time.advance_to(world.time.now_ns() + passed_ns);
    }

    /// Lets time pass until something happens, for at most a millisecond.
    fn wait(&mut self) {
        let world = self.world.borrow();
        let now_ns = world.time.now_ns();
        let due_ns = world.next_due_ns().unwrap_or(u64::MAX).max(now_ns + 1_000);
        world.time.advance_to(due_ns.min(now_ns + 1_000_000));
    }

    /// Runs the shards that have a reason to, in any order, and checks a login.
    fn run_shards(&mut self) -> Result<(), Violation> {
        let mut order: Vec<usize> = (0..self.shape.settings.shards).collect();
        self.rng.shuffle(&mut order);
        for shard in order {
            for _ in 0..=self.rng.below(ITERATIONS_MAX) {
                if self.is_awake(shard) {
                    self.iterate(shard)?;
                }
            }
        }
        if self.rng.below(3) > 0 {
            self.check_login();
        }
        Ok(())
    }

    fn check_login(&mut self) {
        if self.node.as_mut().is_some_and(Node::check_login) {
            self.coverage.logins += 1;
            self.world.borrow_mut().trace.event(46, &[], format_args!("a login is checked"));
        }
    }

    /// Whether a shard has a reason to run. A kernel may also wake it without any.
    fn is_awake(&mut self, shard: usize) -> bool {
        let now_ns = self.now_ns();
        let Some(node) = &mut self.node else { return false };
        let Some(at_most) = node.sleeps(shard) else { return true };
        let at_most_ns = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX >> 1);
        let until_ns = *self.asleep_until_ns[shard].get_or_insert(now_ns + at_most_ns);
        now_ns >= until_ns
            || self.world.borrow_mut().is_due(shard)
            || is_readable(&self.wakeups[shard])
            || self.rng.below(16) == 0
    }

    /// Runs one iteration of a shard. Returns whether the shard has ended.
    fn iterate(&mut self, shard: usize) -> Result<bool, Violation> {
        let Some(node) = &mut self.node else { return Ok(true) };
        self.world.borrow_mut().has_slept = true;
        self.asleep_until_ns[shard] = None;
        let ended = node.iterate(shard);
        let ended =
            ended.map_err(|error| Violation::Ended { why: tare_std::error_line(&error) })?;
        let load = node.load(shard);
        let mut world = self.world.borrow_mut();
        world.has_slept = false;
        if load.peak_bytes > load.bytes_max {
            self.over_memory_ns = Some(world.time.now_ns());
        }
        let numbers = [shard as u64, load.connections, load.unanswered];
        let text = format_args!(
            "shard {shard}: {} connections hold {} bytes, {} unanswered",
            load.connections, load.bytes, load.unanswered
        );
        world.trace.event(47, &numbers, text);
        world.violation.take().map_or(Ok(ended), Err)
    }

    /// The canary to plant, once it is time for it.
    fn plant(&mut self) {
        let is_due = !self.planted && self.step > self.options.steps / 4;
        let canary = self.options.canary.filter(|_| is_due);
        let mut world = self.world.borrow_mut();
        match canary {
            Some(Canary::LostRest) => (world.loses_rest, self.planted) = (true, true),
            Some(Canary::SilentSocket) => {
                let waiting = self.clients.iter().find(|client| !client.outstanding.is_empty());
                world.silent = waiting.map(|client| client.socket);
                self.planted = world.silent.is_some();
            }
            Some(Canary::SwappedStreams) => {
                let loaded = self.clients.iter_mut().find(|client| client.outstanding.len() > 2);
                self.planted = loaded.is_some();
                loaded.into_iter().for_each(|client| client.swaps_streams = true);
            }
            _ => {}
        }
    }
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
}
