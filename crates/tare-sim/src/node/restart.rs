//! How a simulated server starts, stops and crashes.

use std::collections::BTreeMap;
use std::rc::Rc;

use tare_db::simulation::{Delivery, Machine, NodeStart};
use tare_std::rng::Rng;
use tare_store::Store;

use crate::device::Crash;
use crate::faults::Faults;
use crate::files::DeviceFiles;
use crate::node::client::Client;
use crate::node::world::ShardMachine;
use crate::node::{NodeSimulation, ROUNDS_MAX};
use crate::violation::Violation;

/// Times that a store is opened on a failing disk before the disk is repaired.
const ATTEMPTS_MAX: usize = 5;
/// How long a stop may take: two seconds for the answers, and twenty to close each store.
const STOP_NS_MAX: u64 = 70_000_000_000;
/// A stop that took longer may have given up on clients that do not read.
const DRAIN_NS_MAX: u64 = 1_900_000_000;

impl NodeSimulation {
    /// Starts the server.
    pub(super) fn start(&mut self) -> Result<(), Violation> {
        let faults = self.shape.disk_faults.clone();
        self.change_disks(|of_disk| of_disk.clone_from(&faults));
        let not_opened =
            |why: &dyn std::error::Error| Violation::NotOpened { why: tare_std::error_line(why) };
        let time = self.world.borrow().time;
        let start = NodeStart::new(self.shape.settings.clone(), &self.schema_path(), time);
        let start = start.map_err(|error| not_opened(&error))?;
        let shards = self.shape.settings.shards;
        let stores = (0..shards).map(|shard| self.open(&start, shard)).collect::<Result<_, _>>()?;
        let machine = |shard| {
            Box::new(ShardMachine { world: Rc::clone(&self.world), shard }) as Box<dyn Machine>
        };
        let node = start.start(stores, (0..shards).map(machine).collect());
        let node = node.map_err(|error| not_opened(&error))?;
        self.wakeups = (0..shards).map(|shard| node.wakeup(shard)).collect();
        self.asleep_until_ns = vec![None; shards];
        self.node = Some(node);
        self.coverage.starts += 1;
        self.world.borrow_mut().trace.event(62, &[], format_args!("the server starts"));
        Ok(())
    }

    /// Opens the store of a shard, whose disk may fail and whose power may be cut.
    fn open(&mut self, start: &NodeStart, shard: usize) -> Result<Store, Violation> {
        let mut world = self.world.borrow_mut();
        let now = world.time.now();
        let world = &mut *world;
        let device = &mut world.devices[shard];
        let faults = device.faults.clone();
        for attempt in 0..2 * ATTEMPTS_MAX {
            if attempt == ATTEMPTS_MAX {
                device.faults = Faults::none();
                device.set_full(false);
            }
            let may_be_cut_off = attempt < ATTEMPTS_MAX && device.faults.power_loss > 0;
            let is_cut_off = may_be_cut_off && self.rng.below(10) == 0;
            let changes_left = is_cut_off.then(|| self.rng.below(6));
            let rng = Rng::new(self.rng.next_u64());
            let mut files = DeviceFiles::new(device, rng, changes_left);
            let opened = Store::open(&mut files, start.limits(), start.table_options(), now);
            let (crashed, failed) = (files.crashed(), files.failed());
            match opened {
                _ if crashed => {
                    world.trace.event(63, &[], format_args!("the power failed during recovery"));
                    device.crash(Crash::Power);
                }
                Ok((store, recovered)) => {
                    device.faults = faults;
                    let entries = recovered.entries;
                    let text = format_args!("shard {shard} has replayed {entries} entries");
                    world.trace.event(64, &[shard as u64, entries], text);
                    return Ok(store);
                }
                Err(error) if failed => {
                    let why = tare_std::error_line(&error);
                    world.trace.event(65, &[], format_args!("not opened: {why}"));
                }
                Err(error) => {
                    return Err(Violation::NotOpened { why: tare_std::error_line(&error) });
                }
            }
        }
        Err(Violation::NotOpened { why: "the last try failed too".into() })
    }

    /// Crashes the server.
    pub(super) fn crash(&mut self, crash: Crash) -> Result<(), Violation> {
        let handshakes = self.clients.iter().filter(|client| client.is_handshaking()).count();
        let is_loaded = self.has_load();
        self.coverage.crashes_in_handshake += u64::from(handshakes > 0);
        self.coverage.crashes_under_load += u64::from(is_loaded);
        self.node = None;
        if crash == Crash::Kill {
            self.receive_last()?;
        }
        self.forget(crash);
        self.rows.crashed(self.is_synced());
        Ok(())
    }

    fn has_load(&self) -> bool {
        self.clients.iter().any(|client| !client.outstanding.is_empty())
    }

    /// Lets what the server has sent arrive at its clients.
    fn receive_last(&mut self) -> Result<(), Violation> {
        self.world.borrow_mut().network.lose_server();
        for client in &mut self.clients {
            client.reads_from_ns = 0;
            client.outgoing.clear();
        }
        while !self.clients.is_empty() {
            self.exchange()?;
            self.wait();
        }
        Ok(())
    }

    /// Forgets everything that a crash takes.
    fn forget(&mut self, crash: Crash) {
        self.clients.clear();
        let mut world = self.world.borrow_mut();
        world.network.clear();
        world.devices.iter_mut().for_each(|device| device.crash(crash));
        world.silent = None;
    }

    /// Stops the server cleanly, under whatever load it has.
    pub(super) fn stop(&mut self) -> Result<(), Violation> {
        self.coverage.stops_under_load += u64::from(self.has_load());
        let Some(node) = &mut self.node else { return Ok(()) };
        node.stop();
        let begun_ns = self.now_ns();
        let shards = self.shape.settings.shards;
        let mut running: Vec<usize> = (0..shards).collect();
        while !running.is_empty() {
            let mut left = Vec::new();
            for shard in running {
                if !self.iterate(shard)? {
                    left.push(shard);
                }
            }
            running = left;
            self.check_login();
            self.exchange_without_ends()?;
            self.wait();
            if self.now_ns() - begun_ns > STOP_NS_MAX {
                return Err(Violation::NotStopped { shards: running.len() });
            }
        }
        let is_late = self.now_ns() - begun_ns > DRAIN_NS_MAX;
        let is_closed = self.node.take().is_some_and(|node| node.is_closed());
        let waiting = self.answerable();
        self.world.borrow_mut().network.lose_server();
        self.receive_rest(&waiting, is_late)?;
        self.forget(Crash::Kill);
        if is_closed {
            self.rows.stopped();
        } else {
            self.rows.crashed(self.is_synced());
        }
        Ok(())
    }

    /// Clients that read, and of which the server has read every byte, with the streams of their
    /// requests. A shard that receives into buffers may end with some that it has not looked at, as
    /// it may with io_uring, so nothing is known of its clients.
    fn answerable(&self) -> BTreeMap<u64, Vec<i16>> {
        let now_ns = self.now_ns();
        let world = self.world.borrow();
        let is_heard = |client: &&Client| {
            self.shape.settings.delivery == Delivery::Sockets
                && !client.has_ended
                && !client.is_handshaking()
                && client.reads_from_ns <= now_ns
                && client.outgoing.is_empty()
                && world.network.is_adopted(client.socket)
                && world.network.is_all_read(client.socket)
        };
        let streams = |client: &Client| client.outstanding.keys().copied().collect();
        let heard = self.clients.iter().filter(is_heard);
        heard.map(|client| (client.socket, streams(client))).collect()
    }

    /// Lets the last answers arrive after a stop, and checks that a client that reads has every
    /// answer that it can have, and no part of one.
    fn receive_rest(
        &mut self,
        waiting: &BTreeMap<u64, Vec<i16>>,
        is_late: bool,
    ) -> Result<(), Violation> {
        for _ in 0..ROUNDS_MAX {
            let now_ns = self.now_ns();
            let mut at = 0;
            while at < self.clients.len() {
                if self.clients[at].reads_from_ns <= now_ns && self.exchange_one(at)? {
                    at += 1;
                    continue;
                }
                let client = self.clients.swap_remove(at);
                let is_whole = !client.has_part() || client.shape.tls.is_some();
                let Some(streams) = waiting.get(&client.socket).filter(|_| !is_late) else {
                    continue;
                };
                let unanswered = streams.iter().filter(|s| client.outstanding.contains_key(s));
                let waiting = unanswered.count();
                if waiting > 0 || !is_whole {
                    return Err(Violation::NoAnswer { waiting });
                }
            }
            if self.clients.is_empty() {
                return Ok(());
            }
            self.wait();
        }
        Err(Violation::NoAnswer { waiting: self.clients.len() })
    }

    /// Moves bytes while the server stops: connections that end are kept, with what they wait for.
    fn exchange_without_ends(&mut self) -> Result<(), Violation> {
        for at in 0..self.clients.len() {
            if !self.clients[at].has_ended {
                self.exchange_open(at)?;
            }
        }
        Ok(())
    }
}
