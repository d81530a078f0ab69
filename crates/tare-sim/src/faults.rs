//! The faults of one simulation. Every seed draws its own set, so that some runs are quiet, and two
//! faults that hide each other do not always occur together ("swarm testing": Groce et al., ISSTA
//! 2012).
//!
//! The doc line of each fault gives the reason why a store must survive it, and what "survive"
//! means.

use tare_std::rng::Rng;

/// The fate of unsynced writes in a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PowerLoss {
    /// All of them are lost.
    All,
    /// None is lost: the disk's cache was written out in time.
    Nothing,
    /// Each write survives as a whole or not at all, in any order.
    Writes,
    /// Any of their sectors survive: a write is only as atomic as a sector.
    Sectors,
}

/// The faults of a simulation. A chance is one in so many occasions; 0 means never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Faults {
    /// The power fails, at any moment, also during recovery. Machines lose power; no acknowledged
    /// write may be missing afterwards, and no data may appear that was never written.
    pub(crate) power_loss: u64,
    /// The process dies and the machine keeps running (`kill -9`): written data stays, and writes
    /// under way may be torn.
    pub(crate) kill: u64,
    /// The process stops cleanly and starts again. All writes must survive, acknowledged or not.
    pub(crate) clean_stop: u64,
    /// A sync fails. The kernel may have dropped the pages, so that a later successful sync proves
    /// nothing ("Can Applications Recover from fsync Failures?", USENIX ATC 2020): nothing later
    /// may be acknowledged until a restart.
    pub(crate) failed_sync: u64,
    /// A write fails (a bad sector, a lost path). Nothing that depends on it may be acknowledged.
    pub(crate) failed_write: u64,
    /// A read fails. The answer is an error, never "there is no such row".
    pub(crate) failed_read: u64,
    /// A stored bit flips. A checksum must find it, the error must name its file, and no read may
    /// return it; once it is restored, all data must be there again.
    pub(crate) bit_flip: u64,
    /// Recovery reads fewer bytes than it asked for, as `read(2)` may at any time.
    pub(crate) short_read: u64,
    /// The disk is full for a while. Writes are refused, reads go on, and everything works again
    /// once there is room.
    pub(crate) full_disk: u64,
    /// The disk sometimes answers this much later, so that operations overtake one another.
    pub(crate) slow_disk: u64,
}

/// Faults of the instrument that no store can survive, or that a faulty store would show. A checker
/// that does not detect them detects nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Syncs succeed without effect: a power loss takes acknowledged writes.
    LostSync,
    /// A bit of a value flips and its checksums are recomputed: only the model can detect that.
    ForgedValue,
    /// A write that was refused, or never requested, is in the log anyway.
    InventedWrite,
    /// A failed sync is reported as a success.
    ForgivenSync,
    /// In the simulation of a server: when the network takes a part of a send, the rest is lost.
    LostRest,
    /// In the simulation of a server: an answer comes on the stream of another request.
    SwappedStreams,
    /// In the simulation of a server: the shard never learns that bytes have come.
    SilentSocket,
}

impl Canary {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::LostSync,
        Self::ForgedValue,
        Self::InventedWrite,
        Self::ForgivenSync,
        Self::LostRest,
        Self::SwappedStreams,
        Self::SilentSocket,
    ];
}

impl Faults {
    /// The faults of a seed.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut chance = |wanted: u64, often: u64, seldom: u64| {
            let drawn = often + rng.below(seldom - often);
            if rng.below(4) < wanted { drawn } else { 0 }
        };
        Self {
            power_loss: chance(3, 40, 400),
            kill: chance(2, 40, 400),
            clean_stop: chance(2, 60, 400),
            failed_sync: chance(1, 20, 300),
            failed_write: chance(1, 30, 500),
            failed_read: chance(1, 10, 300),
            bit_flip: chance(1, 20, 200),
            short_read: chance(2, 2, 20),
            full_disk: chance(1, 50, 400),
            slow_disk: chance(2, 3, 60),
        }
    }

    /// No faults at all.
    pub(crate) fn none() -> Self {
        Self {
            power_loss: 0,
            kill: 0,
            clean_stop: 0,
            failed_sync: 0,
            failed_write: 0,
            failed_read: 0,
            bit_flip: 0,
            short_read: 0,
            full_disk: 0,
            slow_disk: 0,
        }
    }
}

/// Whether an event with a chance of one in `chance` happens now.
pub(crate) fn strikes(rng: &mut Rng, chance: u64) -> bool {
    chance > 0 && rng.below(chance) == 0
}
