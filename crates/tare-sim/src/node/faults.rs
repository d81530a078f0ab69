//! The faults that strike a whole server, one or two at once. The continuous faults of the disks
//! are those of `crate::faults`.

use crate::device::Crash;
use crate::faults::{Faults, strikes};
use crate::node::NodeSimulation;
use crate::violation::Violation;

/// A fault. Those that end the run of the server come last, so that they strike after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A connection is lost, with everything on its way. Networks and clients fail; no other
    /// connection may notice, and writes that were acknowledged stay.
    LostConnection,
    /// No client reads for a while. Their requests have to wait, within the server's memory, and
    /// nobody else's.
    StalledClients,
    /// Many connections come at once, so that handshakes are under way.
    ManyConnections,
    /// The disks are full for a while: writes are refused, reads go on.
    FullDisk,
    /// The next syncs and writes of the disks fail.
    FailingDisk,
    /// The disks answer late.
    SlowDisk,
    /// The server stops cleanly and answers the requests that it has.
    Stop,
    /// The server dies (`kill -9`). What it has sent still arrives.
    Kill,
    PowerLoss,
}

const ALL: [Fault; 9] = [
    Fault::LostConnection,
    Fault::StalledClients,
    Fault::ManyConnections,
    Fault::FullDisk,
    Fault::FailingDisk,
    Fault::SlowDisk,
    Fault::Stop,
    Fault::Kill,
    Fault::PowerLoss,
];

impl Fault {
    /// Number of pairs of different faults.
    pub(crate) const PAIRS: usize = ALL.len() * (ALL.len() - 1) / 2;
}

/// How long clients and disks stay as a fault has made them, in ns.
const SPELL_NS: u64 = 400_000_000;

impl NodeSimulation {
    /// Draws one fault or two, and ends those that have lasted.
    pub(super) fn strike(&mut self) -> Result<(), Violation> {
        if self.is_full && self.rng.below(30) == 0 {
            self.set_full(false);
        }
        let is_poisoned = self.node.as_ref().is_some_and(|node| node.is_poisoned());
        if is_poisoned && self.rng.below(20) == 0 {
            return self.apply(Fault::Kill);
        }
        if !strikes(&mut self.rng, self.shape.faults) {
            return Ok(());
        }
        let mut faults = vec![ALL[self.index(ALL.len())]];
        if self.rng.below(2) == 0 {
            let second = ALL[self.index(ALL.len())];
            if second != faults[0] {
                faults.push(second);
                faults.sort_unstable();
                *self.coverage.pairs.entry((faults[0], faults[1])).or_default() += 1;
            }
        }
        let is_pair = faults.len() > 1;
        for (number, fault) in faults.into_iter().enumerate() {
            if is_pair && number == 1 && self.rng.below(2) == 0 {
                // The first fault has had its effect on some shards when the second comes.
                self.run_shards()?;
                self.exchange()?;
            }
            self.apply(fault)?;
        }
        Ok(())
    }

    fn apply(&mut self, fault: Fault) -> Result<(), Violation> {
        self.world.borrow_mut().trace.event(60, &[fault as u64], format_args!("{fault:?}"));
        match fault {
            Fault::LostConnection => self.lose_connection(),
            Fault::StalledClients => {
                let until_ns = self.now_ns() + self.rng.below(SPELL_NS);
                self.clients.iter_mut().for_each(|client| client.reads_from_ns = until_ns);
            }
            Fault::ManyConnections => {
                (0..2 + self.rng.below(6)).for_each(|_| self.connect());
                for _ in 0..self.rng.below(4) {
                    self.run_shards()?;
                    self.exchange()?;
                }
            }
            Fault::FullDisk => self.set_full(true),
            Fault::FailingDisk => {
                let (failed_sync, failed_write) = (1 + self.rng.below(3), 1 + self.rng.below(6));
                self.change_disks(|faults| {
                    (faults.failed_sync, faults.failed_write) = (failed_sync, failed_write);
                });
            }
            Fault::SlowDisk => self.change_disks(|faults| faults.slow_disk = 1),
            Fault::Stop => {
                self.stop()?;
                return self.start();
            }
            Fault::Kill => {
                self.crash(Crash::Kill)?;
                return self.start();
            }
            Fault::PowerLoss => {
                self.crash(Crash::Power)?;
                return self.start();
            }
        }
        let now_ns = self.now_ns();
        let is_stalled = self.clients.iter().any(|client| client.reads_from_ns > now_ns);
        self.coverage.full_and_stalled += u64::from(self.is_full && is_stalled);
        Ok(())
    }

    fn lose_connection(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let at = self.index(self.clients.len());
        let client = self.clients.swap_remove(at);
        self.world.borrow_mut().network.break_off(client.socket);
    }

    pub(super) fn set_full(&mut self, full: bool) {
        self.is_full = full;
        let mut world = self.world.borrow_mut();
        world.devices.iter_mut().for_each(|device| device.set_full(full));
        world.trace.event(61, &[u64::from(full)], format_args!("disk full: {full}"));
    }

    /// Changes the faults of the disks until the next start.
    pub(super) fn change_disks(&mut self, change: impl Fn(&mut Faults)) {
        let mut world = self.world.borrow_mut();
        world.devices.iter_mut().for_each(|device| change(&mut device.faults));
    }
}
