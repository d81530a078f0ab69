//! What a seed chooses once: the server's settings, the network, the clients and the faults.

use std::time::Duration;

use tare_cql::frame::Version;
use tare_db::config::Durability;
use tare_db::simulation::{Delivery, NodeSettings, ShardMemory};
use tare_std::rng::Rng;

use crate::faults::{Canary, Faults, strikes};
use crate::node::client::ClientShape;
use crate::node::identity;
use crate::node::network::NetworkShape;

/// The choices of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) settings: NodeSettings,
    /// Whether no limit can be reached, so that nothing may be refused as overloaded.
    pub(crate) is_ample: bool,
    pub(crate) network: NetworkShape,
    pub(crate) disk_bytes: u64,
    pub(crate) disk_faults: Faults,
    /// Nanoseconds that one reading of the clock takes.
    pub(crate) reading_ns: u64,
    pub(crate) clients_max: u64,
    windows: [u64; 3],
    /// One client in so many has the wrong password.
    wrong_passwords: u64,
    pub(crate) partitions: u64,
    pub(crate) rows: u64,
    /// One value in so many is large, and its greatest length.
    pub(crate) large_values: u64,
    pub(crate) large_bytes: u64,
    /// One step in so many has a fault.
    pub(crate) faults: u64,
}

impl Shape {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let is_ample = rng.below(3) == 0;
        let mut memory = if is_ample { ample() } else { tight(rng) };
        let durability = match rng.below(4) {
            0 => Durability::Periodic(Duration::from_millis(1 + rng.below(50))),
            _ => Durability::Sync,
        };
        let delivery = if rng.below(2) == 0 { Delivery::Sockets } else { Delivery::Buffers };
        let tls = (rng.below(3) == 0).then(identity::server);
        if tls.is_some() {
            // A session alone counts as 48 KiB.
            memory.connection_bytes *= 8;
        }
        let settings = NodeSettings {
            shards: 1 + pick(rng, &[0, 1, 2]),
            memory,
            durability,
            delivery,
            polling: rng.below(4) == 0,
            users: (rng.below(2) == 0).then(identity::users),
            tls,
        };
        let network = NetworkShape {
            to_server_bytes: pick(rng, &[2 << 10, 64 << 10, 1 << 20]),
            to_client_bytes: pick(rng, &[2 << 10, 32 << 10, 512 << 10]),
            piece_bytes: pick(rng, &[40, 1_500, 64 << 10]),
            delay_ns: pick(rng, &[10_000, 200_000, 5_000_000]),
        };
        let mut disk_faults = Faults::draw(rng);
        (disk_faults.bit_flip, disk_faults.failed_write) = (0, disk_faults.failed_write * 4);
        disk_faults.failed_sync *= 4;
        Self {
            settings,
            is_ample,
            network,
            disk_bytes: 64 << 20,
            disk_faults,
            reading_ns: pick(rng, &[100, 1_000, 10_000]),
            clients_max: pick(rng, &[2, 6, 14]),
            windows: pick(rng, &[[1, 4, 16], [16, 32, 64], [1, 64, 200]]),
            wrong_passwords: pick(rng, &[0, 8, 3]),
            partitions: pick(rng, &[2, 8, 30]),
            rows: pick(rng, &[1, 2, 4]),
            large_values: pick(rng, &[0, 20, 4]),
            large_bytes: pick(rng, &[3_000, 20_000, 60_000]),
            faults: pick(rng, &[0, 12, 25, 60]),
        }
    }

    /// Makes the fault that shows a canary frequent.
    pub(crate) fn prepare_for(&mut self, canary: Canary) {
        match canary {
            Canary::LostSync => self.disk_faults.power_loss = 60,
            Canary::ForgivenSync => self.disk_faults.failed_sync = 30,
            _ => {}
        }
        self.settings.durability = Durability::Sync;
        // A restart would end the connection from which nothing arrives.
        self.faults = if canary == Canary::SilentSocket { 0 } else { 12 };
    }

    /// The properties of a new client.
    pub(crate) fn client(&self, rng: &mut Rng) -> ClientShape {
        let version = if rng.below(2) == 0 { Version::V4 } else { Version::V5 };
        let is_wrong = strikes(rng, self.wrong_passwords);
        let window = pick(rng, &self.windows);
        ClientShape {
            version,
            lz4: rng.below(3) == 0,
            tls: self.settings.tls.as_ref().map(|_| rng.below(2) == 0),
            login: self.settings.users.as_ref().map(|_| !is_wrong),
            window: usize::try_from(window).unwrap_or(1),
            prepares: true,
        }
    }
}

/// Limits that nothing reaches.
fn ample() -> ShardMemory {
    ShardMemory {
        memtable_bytes: 256 << 20,
        cache_bytes: 4 << 20,
        log_bytes: 256 << 20,
        connection_bytes: 1 << 30,
        waiting_reads_max: 100_000,
        queued_reads_max: 100_000,
        connections_max: 100_000,
        segment_bytes: 2 << 20,
    }
}

fn tight(rng: &mut Rng) -> ShardMemory {
    ShardMemory {
        memtable_bytes: pick(rng, &[256 << 10, 1 << 20, 4 << 20]),
        cache_bytes: pick(rng, &[64 << 10, 1 << 20]),
        log_bytes: pick(rng, &[512 << 10, 4 << 20]),
        connection_bytes: pick(rng, &[48 << 10, 300 << 10, 2 << 20]),
        waiting_reads_max: pick(rng, &[2, 16, 256]),
        queued_reads_max: pick(rng, &[1, 16, 256]),
        connections_max: pick(rng, &[2, 5, 100]),
        segment_bytes: 512 << 10,
    }
}

fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    let at = usize::try_from(rng.below(choices.len() as u64)).unwrap_or(0);
    choices[at]
}
