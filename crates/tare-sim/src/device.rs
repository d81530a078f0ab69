//! The device of a store: carries out operations over virtual time, in any order, and makes them
//! fail as [`Faults`] demands. Operations take effect when they end; those that a crash interrupts
//! have happened in part, or not at all.

use std::io;

use tare_std::rng::Rng;
use tare_store::chunk::{ALIGNMENT, Chunk};

use crate::disk::{Disk, Flip};
use crate::faults::{Canary, Faults, PowerLoss, strikes};
use crate::violation::Violation;
use tare_store::{Completion, FileId, Op, OpId, OpKind};

/// The longest duration of an operation, in ns, and the additional one of a slow disk.
const LATENCY_NS_MAX: u64 = 100_000;
const SLOW_NS_MAX: u64 = 20_000_000;

/// The state that a restart finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process died; the machine kept running.
    Kill,
    Power,
}

/// A file in which bits were restored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repaired {
    pub(crate) file: FileId,
    pub(crate) at_ns: u64,
}

impl Repaired {
    /// The time until which operations that saw the wrong bits may still end.
    pub(crate) fn until_ns(&self) -> u64 {
        self.at_ns + LATENCY_NS_MAX + SLOW_NS_MAX
    }
}

/// An operation under way.
#[derive(Debug)]
struct Pending {
    due_ns: u64,
    op: Op,
    /// Number of writes to the file when a sync started: it covers no later ones.
    covers: u64,
}

/// A disk with operations under way.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) disk: Disk,
    pub(crate) faults: Faults,
    pub(crate) canary: Option<Canary>,
    /// Bits that were flipped and are still wrong.
    pub(crate) flips: Vec<Flip>,
    /// Files in which bits were restored since the last crash.
    pub(crate) repaired: Vec<Repaired>,
    /// Whether a sync or a write has failed since the last start.
    pub(crate) failed: bool,
    /// Whether one of the log has failed.
    pub(crate) failed_log: bool,
    /// Number of reads that have failed since the last start.
    pub(crate) failed_reads: u64,
    /// Whether the disk was full since the last start, and the store may not have noticed yet that
    /// there is room again.
    pub(crate) was_full: bool,
    rng: Rng,
    begun: (u64, u64),
    pending: Vec<Pending>,
    capacity_bytes: u64,
}

impl Device {
    pub(crate) fn new(
        rng: Rng,
        faults: Faults,
        canary: Option<Canary>,
        capacity_bytes: u64,
    ) -> Self {
        Self {
            disk: Disk::new(capacity_bytes),
            faults,
            canary,
            flips: Vec::new(),
            repaired: Vec::new(),
            failed: false,
            failed_log: false,
            was_full: false,
            failed_reads: 0,
            begun: (0, 0),
            rng,
            pending: Vec::new(),
            capacity_bytes,
        }
    }

    /// Takes an operation, which ends some time after `now_ns`.
    pub(crate) fn submit(&mut self, op: Op, now_ns: u64) -> Result<(), Violation> {
        self.check(&op)?;
        let mut latency_ns = 5_000 + self.rng.below(LATENCY_NS_MAX);
        if strikes(&mut self.rng, self.faults.slow_disk) {
            latency_ns += self.rng.below(SLOW_NS_MAX);
        }
        let covers = self.disk.writes(op.file);
        self.begun = (op.id.0, kind_number(&op.kind));
        self.pending.push(Pending { due_ns: now_ns + latency_ns, op, covers });
        Ok(())
    }

    /// The operation that started last: its number, and a number for its kind and file.
    pub(crate) fn last_begun(&self) -> (u64, u64) {
        self.begun
    }

    /// Number of operations under way.
    pub(crate) fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// The time at which the next operation ends.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.pending.iter().map(|pending| pending.due_ns).min()
    }

    /// The next operation that has ended by now.
    pub(crate) fn next_completion(&mut self, now_ns: u64) -> Option<Completion> {
        let due = self.pending.iter().enumerate().min_by_key(|(_, pending)| pending.due_ns);
        let (at, _) = due.filter(|(_, pending)| pending.due_ns <= now_ns)?;
        let Pending { op, covers, .. } = self.pending.remove(at);
        Some(self.end(op, covers))
    }

    /// Carries an operation out at once, as recovery does.
    pub(crate) fn carry_out(&mut self, op: Op) -> Completion {
        let covers = self.disk.writes(op.file);
        self.end(op, covers)
    }

    /// Interrupts everything under way as a crash does.
    pub(crate) fn crash(&mut self, crash: Crash) {
        for Pending { op, covers, .. } in std::mem::take(&mut self.pending) {
            self.interrupt(op, covers);
        }
        if crash == Crash::Power {
            let how = [PowerLoss::All, PowerLoss::Nothing, PowerLoss::Writes, PowerLoss::Sectors];
            let how = how[usize::try_from(self.rng.below(4)).unwrap_or(0)];
            self.disk.lose_power(&mut self.rng, how);
        }
        self.failed = false;
        self.failed_log = false;
        self.was_full = false;
        self.failed_reads = 0;
        self.repaired.clear();
    }

    /// Notes that a store has started: what failed before, also while it was being opened, is not
    /// what it reports later.
    pub(crate) fn started(&mut self) {
        self.failed = false;
        self.failed_log = false;
    }

    /// Carries out an operation as far as a crash let it.
    pub(crate) fn interrupt(&mut self, op: Op, covers: u64) {
        let outcome = self.rng.below(3);
        match (&op.kind, outcome) {
            (_, 0) | (OpKind::Read { .. }, _) => {}
            (OpKind::Write { offset, chunk, .. }, 1) => {
                self.unflip(op.file, *offset..offset + chunk.len() as u64);
                self.disk.tear_write(op.file, *offset, chunk.bytes(), &mut self.rng);
            }
            // The name may exist although the space is not reserved yet.
            (OpKind::Create { .. }, 1) => {
                self.unflip(op.file, 0..u64::MAX);
                self.disk.create(op.file, 0);
            }
            _ => drop(self.end(op, covers)),
        }
    }

    /// Makes the disk full, or gives it room again.
    pub(crate) fn set_full(&mut self, full: bool) {
        let room = if full { self.disk.used_bytes() } else { self.capacity_bytes };
        self.disk.set_capacity(room);
    }

    /// Flips a bit of a file.
    pub(crate) fn flip(&mut self) -> Option<Flip> {
        let flip = self.disk.flip(&mut self.rng)?;
        // A second flip of the same bit restores it.
        match self.flips.iter().position(|other| *other == flip) {
            Some(at) => {
                self.flips.remove(at);
                None
            }
            None => {
                self.flips.push(flip);
                Some(flip)
            }
        }
    }

    /// Restores every flipped bit.
    pub(crate) fn repair(&mut self, now_ns: u64) {
        for flip in std::mem::take(&mut self.flips) {
            self.disk.repair(&flip);
            self.repaired.push(Repaired { file: flip.file, at_ns: now_ns });
        }
    }

    /// Forgets flips in data that is overwritten, cut off or removed.
    fn unflip(&mut self, file: FileId, range: std::ops::Range<u64>) {
        let flips = std::mem::take(&mut self.flips);
        for flip in flips {
            if flip.file == file && range.contains(&flip.offset) {
                self.disk.repair(&flip);
            } else {
                self.flips.push(flip);
            }
        }
    }

    /// Checks that an operation keeps the contract of the store.
    fn check(&self, op: &Op) -> Result<(), Violation> {
        let wrong = |why| Err(Violation::Contract { file: op.file, why });
        // A file of an aborted compaction may be removed before it was created.
        let makes_or_removes = matches!(op.kind, OpKind::Create { .. } | OpKind::Remove);
        if !makes_or_removes && !self.disk.exists(op.file) {
            return wrong("the file does not exist");
        }
        let span = span(&op.kind);
        if let Some((offset, length, address)) = span {
            let aligned = |number: u64| number.is_multiple_of(ALIGNMENT as u64);
            if !aligned(offset) || !aligned(length as u64) || address != 0 {
                return wrong("offset, length or address is not aligned");
            }
        }
        let same = self.pending.iter().filter(|pending| pending.op.file == op.file);
        for pending in same {
            let both_read =
                matches!((&pending.op.kind, &op.kind), (OpKind::Read { .. }, OpKind::Read { .. }));
            let apart = match (self::span(&pending.op.kind), span) {
                (Some((a, a_length, _)), Some((b, b_length, _))) => {
                    a + a_length as u64 <= b || b + b_length as u64 <= a
                }
                // A sync may run concurrently with writes: it covers the writes that had ended.
                (Some(_), None) => matches!(op.kind, OpKind::Sync),
                (None, Some(_)) => matches!(pending.op.kind, OpKind::Sync),
                (None, None) => false,
            };
            if !both_read && !apart {
                return wrong("it conflicts with an operation that is under way");
            }
        }
        Ok(())
    }

    fn end(&mut self, op: Op, covers: u64) -> Completion {
        let Op { id, file, kind } = op;
        match kind {
            OpKind::Read { offset, mut chunk } => {
                let result = self.read(file, offset, chunk.bytes_mut());
                ended(id, Some(chunk), result)
            }
            OpKind::Write { offset, chunk, sync } => {
                let mut result = self.write(file, offset, &chunk);
                if sync && result.is_ok() {
                    let covers = covers.max(self.disk.writes(file));
                    result = self.sync_or_fail(file, covers).and(result);
                }
                ended(id, Some(chunk), result)
            }
            OpKind::Sync => {
                let result = self.sync_or_fail(file, covers).map(|()| 0);
                ended(id, None, result)
            }
            OpKind::Create { size_bytes } => {
                let old = self.disk.length(file).unwrap_or(0);
                let fits = self.disk.has_room(size_bytes.saturating_sub(old));
                if fits {
                    self.unflip(file, 0..u64::MAX);
                    self.disk.create(file, size_bytes);
                }
                self.was_full |= !fits;
                let full = || io::Error::from(io::ErrorKind::StorageFull);
                ended(id, None, fits.then_some(0).ok_or_else(full))
            }
            OpKind::Truncate { length } => {
                self.unflip(file, length..u64::MAX);
                let sync = self.canary != Some(Canary::LostSync);
                let there = self.disk.truncate(file, length, sync);
                ended(id, None, found(there))
            }
            OpKind::Remove => {
                self.unflip(file, 0..u64::MAX);
                let there = self.disk.remove(file);
                ended(id, None, found(there))
            }
            OpKind::Rename { to } => {
                self.unflip(to, 0..u64::MAX);
                let there = self.disk.rename(file, to);
                for flip in self.flips.iter_mut().filter(|flip| flip.file == file) {
                    flip.file = to;
                }
                ended(id, None, found(there))
            }
        }
    }

    fn read(&mut self, file: FileId, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        if strikes(&mut self.rng, self.faults.failed_read) {
            self.failed_reads += 1;
            return Err(io::Error::other("the medium cannot be read"));
        }
        self.disk.read(file, offset, out).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&mut self, file: FileId, offset: u64, chunk: &Chunk) -> io::Result<usize> {
        let bytes = chunk.bytes();
        let end = offset + bytes.len() as u64;
        let grown = end.saturating_sub(self.disk.length(file).unwrap_or(0));
        if grown > 0 && !self.disk.has_room(grown) {
            self.was_full = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.unflip(file, offset..end);
        if strikes(&mut self.rng, self.faults.failed_write) {
            self.disk.tear_write(file, offset, bytes, &mut self.rng);
            self.fail(file);
            return Err(io::Error::other("the medium cannot be written"));
        }
        let written = self.disk.write(file, offset, bytes);
        written.map(|_| bytes.len()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_or_fail(&mut self, file: FileId, covers: u64) -> io::Result<()> {
        if strikes(&mut self.rng, self.faults.failed_sync) {
            self.disk.fail_sync(file, covers);
            self.fail(file);
            return match self.canary {
                Some(Canary::ForgivenSync) => Ok(()),
                _ => Err(io::Error::other("the device could not flush its cache")),
            };
        }
        self.sync(file, covers);
        Ok(())
    }

    fn fail(&mut self, file: FileId) {
        self.failed = true;
        self.failed_log |= matches!(file, FileId::Log(_));
    }

    fn sync(&mut self, file: FileId, covers: u64) {
        if self.canary != Some(Canary::LostSync) {
            self.disk.sync(file, covers);
        }
    }
}

/// Offset, length and misalignment of the data of an operation.
fn span(kind: &OpKind) -> Option<(u64, usize, usize)> {
    match kind {
        OpKind::Read { offset, chunk } | OpKind::Write { offset, chunk, .. } => {
            let bytes = chunk.bytes();
            Some((*offset, bytes.len(), bytes.as_ptr().align_offset(ALIGNMENT)))
        }
        _ => None,
    }
}

/// A number for the kind of an operation, for the trace.
fn kind_number(kind: &OpKind) -> u64 {
    match kind {
        OpKind::Read { offset, .. } => 1 | offset << 4,
        OpKind::Write { offset, chunk, sync } => {
            2 | offset << 4 | u64::from(*sync) | u64::from(crc32c::crc32c(chunk.bytes())) << 32
        }
        OpKind::Sync => 4,
        OpKind::Create { size_bytes } => 5 | size_bytes << 4,
        OpKind::Truncate { length } => 6 | length << 4,
        OpKind::Remove => 7,
        OpKind::Rename { .. } => 8,
    }
}

fn ended(id: OpId, chunk: Option<Chunk>, result: io::Result<usize>) -> Completion {
    Completion { id, chunk, result }
}

fn found(there: bool) -> io::Result<usize> {
    there.then_some(0).ok_or_else(|| io::ErrorKind::NotFound.into())
}
