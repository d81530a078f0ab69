//! Runs the shards of a server on one thread, over a simulated machine: sessions, connections,
//! transport, logins, messages and the loop are those of a server. The caller decides which shard
//! runs when, and has the network, the disks and the clock.
//!
//! Limits: the schema's journal is a real file, which the caller provides, and the parts of
//! `server` that start threads and open sockets are left out.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tare_store::{Limits, Store, TableOptions};

use crate::net::auth::{self, AuthError, Users};
use crate::net::balancer::ConnectionBalancer;
use crate::net::reactor::{Engine, Event, ReactorError, Simulated, Wait};
use crate::net::tls::TlsAccess;
use crate::node::clock::Clock;
use crate::node::config::Durability;
use crate::node::directory::ShardFiles;
use crate::node::memory::{Budget, Resident};
use crate::node::metrics::SharedCounters;
use crate::query::catalog::SharedCatalog;
use crate::query::catalog::journal::JournalError;
use crate::query::system::Node as NodeIdentity;
use crate::shard::login::{self, Login};
use crate::shard::mailbox::Mailbox;
use crate::shard::{Shard, ShardSettings, ShardStart, SharedState, stall};

pub use crate::net::reactor::{Arrived, Broken, Delivery, Machine, Socket};
pub use crate::node::clock::simulated::VirtualTime;

/// The port of the simulated server, which nothing listens on.
const PORT: u16 = 9042;

thread_local! {
    /// The counters of the shards that run on this thread. They are never freed, so that a thread
    /// uses them again for the next simulation.
    static COUNTERS: RefCell<Vec<SharedCounters>> = const { RefCell::new(Vec::new()) };
}

/// The memory of one shard, in bytes, and its other limits.
#[derive(Clone, Copy, Debug)]
pub struct ShardMemory {
    pub memtable_bytes: usize,
    pub cache_bytes: usize,
    pub log_bytes: usize,
    pub connection_bytes: usize,
    pub waiting_reads_max: usize,
    pub queued_reads_max: usize,
    pub connections_max: usize,
    pub segment_bytes: u64,
}

/// The settings of a simulated server.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    pub shards: usize,
    pub memory: ShardMemory,
    pub durability: Durability,
    pub delivery: Delivery,
    /// Whether idle shards poll instead of sleeping.
    pub polling: bool,
    /// Lines of [`user_line`]; without them clients need no password.
    pub users: Option<String>,
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

/// The line of a user whose password costs little to check.
///
/// # Errors
/// Fails if the user cannot have this name or password.
pub fn user_line(user: &str, password: &str) -> Result<String, AuthError> {
    auth::cheap_entry(user, password)
}

/// A server that has read its schema, and whose stores are not open yet.
#[derive(Debug)]
pub struct NodeStart {
    settings: NodeSettings,
    budget: Budget,
    catalog: SharedCatalog,
    time: &'static VirtualTime,
}

impl NodeStart {
    /// Reads the schema from the journal at `schema`, which is created if it does not exist.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn new(
        settings: NodeSettings,
        schema: &Path,
        time: &'static VirtualTime,
    ) -> Result<Self, JournalError> {
        let memory = settings.memory;
        let budget = Budget {
            total_bytes: memory.memtable_bytes + memory.cache_bytes + memory.log_bytes,
            memtable_bytes: memory.memtable_bytes,
            cache_bytes: memory.cache_bytes,
            log_bytes: memory.log_bytes,
            connection_bytes: memory.connection_bytes,
            waiting_reads_max: memory.waiting_reads_max,
            queued_reads_max: memory.queued_reads_max,
            connections_max: memory.connections_max,
        };
        Ok(Self { settings, budget, catalog: SharedCatalog::open(schema)?, time })
    }

    /// The limits of each store.
    pub fn limits(&self) -> Limits {
        self.budget.limits(self.settings.durability, self.settings.memory.segment_bytes)
    }

    /// The options of the tables, by the store's number of the table.
    pub fn table_options(&self) -> BTreeMap<u32, TableOptions> {
        self.catalog.current().options()
    }

    /// Starts a shard for each store, on its machine.
    ///
    /// # Errors
    /// Fails if a mailbox cannot be made, or the users cannot be parsed.
    ///
    /// # Panics
    /// If there is not one store and one machine for each shard.
    pub fn start(
        self,
        stores: Vec<Store>,
        machines: Vec<Box<dyn Machine>>,
    ) -> Result<Node, NodeError> {
        let Self { settings, budget, catalog, time } = self;
        let shards = settings.shards;
        assert!(stores.len() == shards && machines.len() == shards, "one for each shard");
        let mailboxes = (0..shards).map(|_| Mailbox::new()).collect::<std::io::Result<Vec<_>>>();
        let mailboxes = mailboxes.map_err(|source| NodeError::Mailbox { source })?;
        let (mailboxes, messages): (Vec<_>, Vec<_>) = mailboxes.into_iter().unzip();
        let users = settings.users.as_deref();
        let users = users.map(|text| Users::parse(text, PathBuf::from("users"))).transpose()?;
        let (queue, logins) = login::queue();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let shared = Arc::new(SharedState {
            catalog,
            prepared: Mutex::default(),
            mailboxes,
            node: NodeIdentity { address, host_id: [7; 16] },
            balancer: ConnectionBalancer::new(shards, None),
            logins: users.is_some().then_some(queue),
            tls: settings.tls.clone().map(|config| TlsAccess { config, is_optional: false }),
            // A shard's loop reads it for as long as its thread may live.
            stop: Box::leak(Box::new(AtomicBool::new(false))),
            resident: Resident::default(),
            drained: AtomicUsize::new(0),
        });
        let (detectors, _) = stall::detectors(shards, Duration::MAX);
        let parts = stores.into_iter().zip(machines).zip(messages).zip(detectors);
        let running = parts.enumerate().map(|(number, (((store, machine), messages), stalls))| {
            let wakeup = shared.mailboxes[number].wakeup();
            let engine = Simulated::new(machine, settings.delivery, wakeup, number == 0);
            let durability = settings.durability;
            let mut shard = Box::new(Shard::new(ShardStart {
                number,
                shared: Arc::clone(&shared),
                settings: ShardSettings { durability, polling: settings.polling, budget },
                store,
                files: ShardFiles::simulated(),
                engine: Engine::Simulated(Box::new(engine)),
                clock: Clock::simulated(time),
                counters: counters(number),
                stalls,
                messages,
                busy: None,
            }));
            let mark = shard.begin();
            Running { shard, mark, wait: None, has_ended: false, events: Vec::new() }
        });
        let running = running.collect();
        let logins = users.map(|users| (users, logins));
        Ok(Node { running, logins, shared, connection_bytes: budget.connection_bytes })
    }
}

/// Why a simulated server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("cannot make a mailbox")]
    Mailbox { source: std::io::Error },
    #[error(transparent)]
    Users(#[from] AuthError),
}

/// The counters of a shard, set to zero.
fn counters(shard: usize) -> SharedCounters {
    COUNTERS.with_borrow_mut(|all| {
        while all.len() <= shard {
            all.push(SharedCounters::in_memory());
        }
        all[shard].clear();
        all[shard]
    })
}

/// A shard between two iterations of its loop.
struct Running {
    shard: Box<Shard>,
    /// End of the last iteration.
    mark: u64,
    /// How long the next iteration may wait, once that is decided.
    wait: Option<Wait>,
    has_ended: bool,
    events: Vec<Event>,
}

/// What the connections of a shard hold and wait for.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The most memory that connections have held since the last call, and their limit, in bytes.
    pub peak_bytes: usize,
    pub bytes_max: usize,
    /// Memory that connections hold now, in bytes.
    pub bytes: usize,
    /// Connections that are open.
    pub connections: u64,
    /// Requests for which a client waits.
    pub unanswered: u64,
}

/// A running server.
pub struct Node {
    running: Vec<Running>,
    logins: Option<(Users, Receiver<Login>)>,
    shared: Arc<SharedState>,
    /// The limit of the memory of each shard's connections.
    connection_bytes: usize,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("shards", &self.running.len()).finish_non_exhaustive()
    }
}

impl Node {
    /// How long a shard sleeps unless it is woken; `None` if it has to run now.
    pub fn sleeps(&mut self, shard: usize) -> Option<Duration> {
        let Running { shard, mark, wait, .. } = &mut self.running[shard];
        match *wait.get_or_insert_with(|| shard.wait(*mark)) {
            Wait::Poll => None,
            Wait::Sleep(at_most) => Some(at_most),
        }
    }

    /// Runs one iteration of a shard's loop. Returns whether the shard has ended, which it does
    /// after a [`stop`](Self::stop).
    ///
    /// # Errors
    /// Fails if the shard fails.
    pub fn iterate(&mut self, shard: usize) -> Result<bool, ReactorError> {
        self.sleeps(shard);
        let Running { shard, mark, wait, has_ended, events } = &mut self.running[shard];
        if *has_ended {
            return Ok(true);
        }
        *mark = shard.iterate(wait.take().unwrap_or(Wait::Poll), *mark, events)?;
        if shard.has_ended(*mark) {
            shard.finish()?;
            *has_ended = true;
        }
        Ok(*has_ended)
    }

    /// The descriptor that is readable when a sleeping shard has to run.
    pub fn wakeup(&self, shard: usize) -> Arc<OwnedFd> {
        self.shared.mailboxes[shard].wakeup()
    }

    /// Checks one login that waits. Returns whether there was one.
    pub fn check_login(&mut self) -> bool {
        let Some((users, waiting)) = &self.logins else { return false };
        let Ok(login) = waiting.try_recv() else { return false };
        let (shard, answer) = login.check(users);
        // A mailbox that is full stays full until its shard runs, and the login waits as long.
        assert!(self.shared.mailboxes[shard].post(answer).is_ok(), "a mailbox is full");
        true
    }

    /// Asks the shards to stop.
    pub fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.mailboxes.iter().for_each(Mailbox::wake);
    }

    /// Whether a store refuses writes until a restart.
    pub fn is_poisoned(&self) -> bool {
        self.running.iter().any(|running| running.shard.store.is_poisoned())
    }

    /// Whether the last shard closed its store in time, after all have ended.
    pub fn is_closed(&self) -> bool {
        self.running.iter().all(|running| running.shard.store.is_closed())
    }

    /// What a shard's connections hold and wait for.
    pub fn load(&mut self, shard: usize) -> Load {
        let shard = &mut self.running[shard].shard;
        let (bytes, peak_bytes) = shard.connections.take_peak_bytes();
        Load {
            peak_bytes,
            bytes_max: self.connection_bytes,
            bytes,
            connections: shard.telemetry.counters.connections,
            unanswered: shard.connections.unanswered,
        }
    }
}
