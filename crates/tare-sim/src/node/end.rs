//! The begin and the end of a simulation: the schema, and the proof that without faults everything
//! is answered, released, and still there after a restart.

use crate::device::Crash;
use crate::faults::Faults;
use crate::node::client::{Client, ClientShape, Phase};
use crate::node::{NodeSimulation, ROUNDS_MAX};
use crate::violation::Violation;
use tare_cql::frame::Version;

const SCHEMA: [&str; 2] = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE ks.t (k int, c int, v blob, PRIMARY KEY (k, c))",
];
/// How long requests may take without faults, in ns.
const ANSWER_NS_MAX: u64 = 30_000_000_000;
/// The most rounds in which all answers come. Idle shards that poll take some µs for one, and a
/// request of 50 KB takes hundreds of ms over the slowest network.
const ANSWER_ROUNDS_MAX: usize = 20 * ROUNDS_MAX;

impl NodeSimulation {
    /// Creates the tables, without faults.
    pub(super) fn create_schema(&mut self) -> Result<(), Violation> {
        self.change_disks(|faults| *faults = Faults::none());
        self.connect_as(false);
        self.settle()?;
        for statement in SCHEMA {
            let now_ns = self.now_ns();
            match self.clients.first_mut() {
                Some(client) if client.phase == Phase::Ready => client.query(statement, now_ns),
                _ => return Err(Violation::NoAnswer { waiting: 1 }),
            }
            self.settle()?;
        }
        let faults = self.shape.disk_faults.clone();
        self.change_disks(|of_disk| of_disk.clone_from(&faults));
        self.leave_all()
    }

    /// Ends the run.
    pub(super) fn end(&mut self) -> Result<(), Violation> {
        self.shape.disk_faults = Faults::none();
        self.change_disks(|faults| *faults = Faults::none());
        self.set_full(false);
        if self.node.as_ref().is_some_and(|node| node.is_poisoned()) {
            self.crash(Crash::Kill)?;
            self.start()?;
        }
        self.settle()?;
        self.leave_all()?;
        self.verify()?;
        self.stop()?;
        self.start()?;
        self.verify()?;
        self.crash(Crash::Power)?;
        self.start()?;
        self.verify()
    }

    /// Goes on without new requests until all have an answer.
    fn settle(&mut self) -> Result<(), Violation> {
        let until_ns = self.now_ns() + ANSWER_NS_MAX;
        for _ in 0..ANSWER_ROUNDS_MAX {
            for client in &mut self.clients {
                client.reads_from_ns = 0;
            }
            let is_settled = |client: &Client| client.outstanding.is_empty();
            if self.clients.iter().all(is_settled) {
                return Ok(());
            }
            self.run_shards()?;
            self.exchange()?;
            self.wait();
            if self.now_ns() > until_ns {
                break;
            }
        }
        let waiting = self.clients.iter().map(|client| client.outstanding.len()).sum();
        Err(Violation::NoAnswer { waiting })
    }

    /// Lets all clients leave, and checks that the server keeps nothing of them.
    fn leave_all(&mut self) -> Result<(), Violation> {
        (0..self.clients.len()).for_each(|at| self.leave(at));
        let until_ns = self.now_ns() + ANSWER_NS_MAX;
        let shards = self.shape.settings.shards;
        loop {
            self.run_shards()?;
            self.exchange()?;
            self.wait();
            let Some(node) = &mut self.node else { return Ok(()) };
            let loads: Vec<_> = (0..shards).map(|shard| node.load(shard)).collect();
            let left = loads.iter().find(|l| l.connections > 0 || l.bytes > 0 || l.unanswered > 0);
            let Some(left) = left else { break };
            if self.now_ns() > until_ns {
                let (connections, bytes) = (left.connections, left.bytes);
                return Err(Violation::LeftOver { connections, bytes });
            }
        }
        self.clients.clear();
        Ok(())
    }

    /// Opens a connection that asks for nothing that a server may refuse.
    fn connect_as(&mut self, prepares: bool) {
        self.connect();
        let Some(client) = self.clients.pop() else { return };
        let shape = ClientShape {
            version: Version::V5,
            login: client.shape.login.map(|_| true),
            window: 1,
            prepares,
            ..client.shape
        };
        let now_ns = self.now_ns();
        self.clients.push(Client::new(client.socket, shape, now_ns));
    }

    /// Reads every row. A server whose memory is tight may refuse a read, which is sent again.
    fn verify(&mut self) -> Result<(), Violation> {
        let partitions = i32::try_from(self.shape.partitions).unwrap_or(0);
        for k in 0..partitions {
            let reads = self.coverage.reads;
            let mut tries = 0;
            while self.coverage.reads == reads {
                if self.clients.is_empty() {
                    self.connect_as(true);
                    self.settle()?;
                }
                if self.clients.first().is_some_and(Client::has_window) {
                    self.read_partition(0, k);
                }
                self.settle()?;
                self.pass_ns(150_000_000);
                self.run_shards()?;
                self.exchange()?;
                tries += 1;
                if tries > 200 {
                    return Err(Violation::NoAnswer { waiting: 1 });
                }
            }
        }
        self.leave_all()
    }
}
