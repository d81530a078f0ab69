//! What the shards of a simulated server stand on: one network, a disk for each shard, and a
//! clock.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tare_db::simulation::{Arrived, Broken, Machine, Socket, VirtualTime};
use tare_std::rng::Rng;
use tare_store::{Completion, Op};

use crate::device::Device;
use crate::node::network::Network;
use crate::trace::Trace;
use crate::violation::Violation;

/// The machine of all shards.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) time: &'static VirtualTime,
    pub(crate) network: Network,
    pub(crate) devices: Vec<Device>,
    pub(crate) trace: Trace,
    pub(crate) rng: Rng,
    /// The first violation that a device has found.
    pub(crate) violation: Option<Violation>,
    /// The shard that runs has slept already, so that its next sleep takes no time.
    pub(crate) has_slept: bool,
    /// A canary: connections whose server loses the rest of a send that was taken in part.
    pub(crate) loses_rest: bool,
    /// A canary: a connection from which nothing arrives any more.
    pub(crate) silent: Option<u64>,
}

/// The world as one shard sees it.
#[derive(Debug)]
pub(crate) struct ShardMachine {
    pub(crate) world: Rc<RefCell<World>>,
    pub(crate) shard: usize,
}

impl World {
    /// Whether a shard has a reason to run.
    pub(crate) fn is_due(&mut self, shard: usize) -> bool {
        let now_ns = self.time.now_ns();
        let disk = self.devices[shard].next_due_ns().is_some_and(|due_ns| due_ns <= now_ns);
        disk || self.network.is_due(shard, now_ns)
    }

    /// The time at which the next thing happens by itself.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        let disks = self.devices.iter().filter_map(Device::next_due_ns);
        disks.chain(self.network.next_due_ns()).min()
    }

    fn note(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.violation.get_or_insert(violation);
        }
    }
}

impl Machine for ShardMachine {
    fn accept(&mut self) -> Option<OwnedFd> {
        self.world.borrow_mut().network.accept()
    }

    fn adopt(&mut self, fd: OwnedFd) -> Socket {
        let mut world = self.world.borrow_mut();
        let number = world.network.adopt(fd, self.shard).expect("a connection is adopted once");
        let numbers = [number, self.shard as u64];
        world.trace.event(40, &numbers, format_args!("shard {} has {number}", self.shard));
        Socket(number)
    }

    fn arrived(&mut self, socket: Socket) -> Arrived {
        let mut world = self.world.borrow_mut();
        let now_ns = world.time.now_ns();
        match world.network.arrived(socket.0, now_ns) {
            Arrived::Bytes if world.silent == Some(socket.0) => Arrived::Nothing,
            arrived => arrived,
        }
    }

    fn receive(&mut self, socket: Socket, bytes_max: usize, into: &mut Vec<u8>) {
        let mut world = self.world.borrow_mut();
        let before = into.len();
        world.network.receive(socket.0, bytes_max, into);
        let length = (into.len() - before) as u64;
        let text = format_args!("shard {} reads {length} bytes of {}", self.shard, socket.0);
        world.trace.event(41, &[socket.0, length], text);
    }

    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Result<usize, Broken> {
        let World { time, network, trace, rng, loses_rest, .. } = &mut *self.world.borrow_mut();
        let taken = network.send(socket.0, bytes, time.now_ns(), rng).ok_or(Broken)?;
        let numbers = [socket.0, taken as u64, bytes.len() as u64];
        let text = format_args!("{} takes {taken} of {} bytes", socket.0, bytes.len());
        trace.event(42, &numbers, text);
        Ok(if *loses_rest && taken > 0 { bytes.len() } else { taken })
    }

    fn wants_room(&mut self, socket: Socket) {
        self.world.borrow_mut().network.wants_room(socket.0);
    }

    fn close(&mut self, socket: Socket) {
        let mut world = self.world.borrow_mut();
        world.network.close_by_server(socket.0);
        world.trace.event(43, &[socket.0], format_args!("the server closes {}", socket.0));
    }

    fn submit(&mut self, op: Op) {
        let mut world = self.world.borrow_mut();
        let now_ns = world.time.now_ns();
        let result = world.devices[self.shard].submit(op, now_ns);
        world.note(result);
        let (id, kind) = world.devices[self.shard].last_begun();
        let text = format_args!("shard {} begins {id:x} {kind:x}", self.shard);
        world.trace.event(44, &[id, kind], text);
    }

    fn completed(&mut self) -> Option<Completion> {
        let mut world = self.world.borrow_mut();
        let now_ns = world.time.now_ns();
        let completion = world.devices[self.shard].next_completion(now_ns)?;
        let (id, failed) = (completion.id.0, completion.result.is_err());
        let text = format_args!("shard {} ends {id:x}, failed: {failed}", self.shard);
        world.trace.event(45, &[id, u64::from(failed)], text);
        Some(completion)
    }

    fn operations(&self) -> usize {
        self.world.borrow().devices[self.shard].under_way()
    }

    fn sleep(&mut self, at_most: Duration) {
        let mut world = self.world.borrow_mut();
        if std::mem::take(&mut world.has_slept) {
            return;
        }
        let now_ns = world.time.now_ns();
        let until_ns = now_ns + u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX >> 1);
        let due_ns = world.devices[self.shard].next_due_ns().unwrap_or(until_ns);
        world.time.advance_to(due_ns.min(until_ns).max(now_ns + 1_000));
    }

    fn draw(&mut self, bound: u64) -> u64 {
        self.world.borrow_mut().rng.below(bound)
    }
}
