//! One shard of the simulated machine: a store, its device, and its client.

use std::collections::BTreeSet;

use tare_std::rng::Rng;
use tare_store::{Limits, Now};

use crate::device::{Crash, Device, Repaired};
use crate::disk::Flip;
use crate::engine::{Engine, GC_GRACE_S, PartialScan, Progress, Refusal};
use crate::faults::{Canary, Faults};
use crate::files::DeviceFiles;
use crate::history::{Contents, History};
use crate::log;
use crate::model::{Change, Mutation, PartitionId, Range, difference};
use crate::reads::Reads;
use crate::trace::Trace;
use crate::violation::Violation;
use crate::workload::{TABLES, Workload};
use tare_store::FileId;

/// Iterations after which an idle store must have no work left.
const TURNS_MAX: usize = 20_000;
/// Consecutive restarts that another crash may interrupt.
const CRASHES_MAX: usize = 3;
/// How long a store may take to notice that the disk has room again, in ns.
const ROOM_NS_MAX: u64 = 1_000_000_000;
/// Times that a store is opened on a failing disk.
const ATTEMPTS_MAX: usize = 5;
/// Rows and partitions that a scan visits in one call.
const SCAN_STEPS: u32 = 50;

/// A simulated shard.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) device: Device,
    pub(crate) workload: Workload,
    limits: Limits,
    /// Operations that the host of this shard may have under way.
    under_way_max: usize,
    engine: Option<Engine>,
    history: History,
    reads: Reads,
    rng: Rng,
    /// If the log has failed since the last restart: the tickets that were acknowledged then.
    failed: Option<u64>,
}

/// The time of the simulated machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now_ns: u64,
    /// Seconds since the Unix epoch at `now_ns` 0.
    pub(crate) epoch_s: u32,
}

impl Clock {
    /// Seconds since the Unix epoch.
    pub(crate) fn wall_s(&self) -> u32 {
        self.epoch_s.saturating_add(u32::try_from(self.now_ns / 1_000_000_000).unwrap_or(u32::MAX))
    }

    fn now(&self) -> Now {
        Now { monotonic_ns: self.now_ns, wall_s: self.wall_s() }
    }
}

impl Shard {
    pub(crate) fn new(
        device: Device,
        workload: Workload,
        limits: Limits,
        under_way_max: usize,
        rng: Rng,
    ) -> Self {
        Self {
            device,
            workload,
            limits,
            under_way_max,
            engine: None,
            history: History::default(),
            reads: Reads::default(),
            rng,
            failed: None,
        }
    }

    /// Writes the next mutations of the workload, or checks that a refusal was right.
    pub(crate) fn write(&mut self, clock: &Clock, trace: &mut Trace) -> Result<(), Violation> {
        let mutations = self.workload.write(clock.wall_s());
        self.send(mutations, trace).map(|_| ())
    }

    fn send(&mut self, mutations: Vec<Mutation>, trace: &mut Trace) -> Result<bool, Violation> {
        let Some(engine) = &mut self.engine else { return Ok(false) };
        match engine.write(&mutations) {
            Ok(ticket) => {
                let count = mutations.len() as u64;
                trace.event(1, &[ticket, count], format_args!("write {ticket}: {mutations:02x?}"));
                self.history.wrote(ticket, mutations.clone());
                self.reads.wrote(&mutations, &self.history);
                Ok(true)
            }
            Err(refusal) => {
                trace.event(3, &[refusal as u64], format_args!("refused: {refusal:?}"));
                let why = match refusal {
                    Refusal::Poisoned if !self.device.failed => {
                        "the store reports that the log failed"
                    }
                    Refusal::DiskFull if !self.device.was_full => {
                        "the store reports that the disk is full"
                    }
                    _ => return Ok(false),
                };
                Err(Violation::Refused { why: why.into() })
            }
        }
    }

    /// Starts the next read of the workload. The answer is checked when it arrives.
    pub(crate) fn read(&mut self, clock: &Clock) {
        let read = self.workload.read();
        if self.engine.is_some() && self.reads.has_room() {
            self.reads.begin(read, &self.history, (clock.wall_s(), clock.now_ns));
        }
    }

    /// Continues the reads under way.
    fn read_on(&mut self, clock: &Clock, trace: &mut Trace) -> Result<(), Violation> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        for ended in self.reads.step(engine, clock.wall_s())? {
            match ended {
                Ok(rows) => {
                    trace.event(4, &[rows.len() as u64], format_args!("read {} rows", rows.len()));
                    rows.iter().for_each(|(clustering, _)| trace.bytes(clustering));
                }
                Err((progress, begun_ns)) => self.excuse(&progress, begun_ns, clock, trace)?,
            }
        }
        Ok(())
    }

    /// Checks whether a read that has begun then may have failed in this way.
    fn excuse(
        &mut self,
        progress: &Progress,
        begun_ns: u64,
        clock: &Clock,
        trace: &mut Trace,
    ) -> Result<(), Violation> {
        trace.event(5, &[], format_args!("not read: {progress:?}"));
        match progress {
            Progress::Damaged(why) => self.repair(why, begun_ns, clock.now_ns),
            Progress::Io(_) if self.device.failed_reads > 0 => Ok(()),
            other => Err(Violation::FailedRead { why: format!("{other:?}") }),
        }
    }

    /// Restores flipped bits after an error that names their file, of work that has begun then.
    fn repair(&mut self, why: &str, begun_ns: u64, now_ns: u64) -> Result<(), Violation> {
        let is_named = |flip: &Flip| why.contains(&flip.file.file_name());
        // Several reads may have met the same bit. One keeps a block that came damaged until it
        // needs it.
        let was_named = |repaired: &Repaired| {
            let may_have_met = begun_ns <= repaired.at_ns || now_ns <= repaired.until_ns();
            may_have_met && why.contains(&repaired.file.file_name())
        };
        if self.device.repaired.iter().any(was_named) {
            return Ok(());
        }
        if !self.device.flips.iter().any(is_named) {
            let flips = self.device.flips.iter();
            let flipped = flips.map(|flip| format!("{} at {}", flip.file.file_name(), flip.offset));
            let flipped = flipped.collect::<Vec<_>>().join(", ");
            return Err(Violation::FalseAlarm { why: why.into(), flipped });
        }
        self.device.repair(now_ns);
        Ok(())
    }

    fn repair_or_tell(
        &mut self,
        why: &str,
        clock: &Clock,
        trace: &mut Trace,
    ) -> Result<(), Violation> {
        let repaired = self.repair(why, clock.now_ns, clock.now_ns);
        if repaired.is_err() {
            for group in log::describe(&self.device.disk) {
                trace.event(16, &[], format_args!("  {group}"));
            }
        }
        repaired
    }

    /// Reads everything and checks it, without writes meanwhile.
    pub(crate) fn scan(&mut self, clock: &mut Clock, trace: &mut Trace) -> Result<(), Violation> {
        let wall_s = clock.wall_s();
        let contents = self.contents(clock, trace)?;
        trace.event(6, &[contents.len() as u64], format_args!("scan: {}", contents.len()));
        let model = self.history.now();
        let empty = Vec::new();
        for partition_id in model.partition_ids().chain(contents.keys()) {
            let found = contents.get(partition_id).unwrap_or(&empty);
            if let Some(difference) = difference(&model.read(partition_id, wall_s), found) {
                let partition = format!("{partition_id:02x?}");
                return Err(Violation::WrongRead { partition, difference });
            }
        }
        Ok(())
    }

    /// All rows that the store returns at this second.
    fn contents(&mut self, clock: &mut Clock, trace: &mut Trace) -> Result<Contents, Violation> {
        let mut contents = Contents::new();
        let wall_s = clock.wall_s();
        for table in TABLES {
            let begun_ns = clock.now_ns;
            let mut scanning = PartialScan::new(table, wall_s, SCAN_STEPS);
            let mut turns = 0;
            loop {
                let Some(engine) = &mut self.engine else { return Ok(contents) };
                match engine.scan(&mut scanning) {
                    Progress::Done => break,
                    Progress::Paused => {}
                    Progress::Missing => self.wait(clock, trace)?,
                    failed => {
                        self.excuse(&failed, begun_ns, clock, trace)?;
                        scanning.try_again();
                    }
                }
                turns += 1;
                if turns > TURNS_MAX {
                    let under_way = self.device.under_way();
                    return Err(Violation::Livelock { under_way, turns });
                }
            }
            contents.extend(scanning.partitions);
        }
        Ok(contents)
    }

    /// Hands operations to the device and returns completions to the store.
    pub(crate) fn run_once(&mut self, clock: &Clock, trace: &mut Trace) -> Result<(), Violation> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        while let Some(completion) = self.device.next_completion(clock.now_ns) {
            let (id, failed) = (completion.id.0, completion.result.is_err());
            trace.event(7, &[id, u64::from(failed)], format_args!("end {id:x}, failed: {failed}"));
            if let Err(why) = engine.complete(completion, clock.now()) {
                trace.event(8, &[], format_args!("  {why}"));
                if !self.device.failed && !self.device.was_full {
                    return Err(Violation::Unexpected { why });
                }
                // If a table has failed, a write of the log under way may still succeed.
                if engine.is_poisoned() && self.device.failed_log {
                    self.failed.get_or_insert(engine.durable());
                }
            }
        }
        let slices = self.rng.below(3);
        let worked = (0..slices).filter(|_| engine.work(clock.now())).count() as u64;
        if worked > 0 {
            trace.event(17, &[worked], format_args!("worked {worked} slices"));
        }
        while self.device.under_way() < self.under_way_max
            && engine.pump(&mut self.device, clock.now())?
        {
            let begun = self.device.last_begun();
            trace.event(9, &[begun.0, begun.1], format_args!("begin {begun:x?}"));
        }
        let durable = engine.durable();
        if self.failed.is_some_and(|then| durable > then) {
            return Err(Violation::Forgiven);
        }
        self.history.acknowledge(durable);
        self.read_on(clock, trace)
    }

    /// Advances the clock to the next event and runs the shard once.
    fn wait(&mut self, clock: &mut Clock, trace: &mut Trace) -> Result<(), Violation> {
        self.run_once(clock, trace)?;
        // A time that is already due is not the next one: the work for it waits for an operation
        // under way.
        let now_ns = clock.now_ns;
        let due = self.engine.as_ref().and_then(Engine::next_due_ns).filter(|due| *due > now_ns);
        let next = self.device.next_due_ns().into_iter().chain(due).min();
        clock.now_ns = next.unwrap_or(clock.now_ns + 1_000_000).max(clock.now_ns + 1000);
        self.run_once(clock, trace)
    }

    /// Continues without new requests until all writes are durable and all reads have ended, or the
    /// log has failed.
    pub(crate) fn settle(&mut self, clock: &mut Clock, trace: &mut Trace) -> Result<(), Violation> {
        let newest = self.history.newest();
        for _ in 0..TURNS_MAX {
            let Some(engine) = &self.engine else { return Ok(()) };
            let is_durable = newest.is_none_or(|newest| newest < engine.durable());
            if (is_durable || engine.is_poisoned()) && self.reads.is_empty() {
                return Ok(());
            }
            self.wait(clock, trace)?;
        }
        Err(Violation::Livelock { under_way: self.device.under_way(), turns: TURNS_MAX })
    }

    /// Gives the store the time in which it must notice that the disk has room again.
    pub(crate) fn recover_room(
        &mut self,
        clock: &mut Clock,
        trace: &mut Trace,
    ) -> Result<(), Violation> {
        let until_ns = clock.now_ns + ROOM_NS_MAX;
        while clock.now_ns < until_ns {
            self.wait(clock, trace)?;
        }
        self.settle(clock, trace)?;
        self.device.was_full = false;
        Ok(())
    }

    /// Stops the store cleanly.
    pub(crate) fn stop(&mut self, clock: &mut Clock, trace: &mut Trace) -> Result<(), Violation> {
        trace.event(10, &[], format_args!("stop"));
        self.device.set_full(false);
        let Some(engine) = &mut self.engine else { return Ok(()) };
        self.reads.clear();
        engine.close(self.rng.below(2) == 0);
        let mut turns = 0;
        while self.engine.as_ref().is_some_and(|e| !e.is_closed() && !e.is_poisoned()) {
            self.wait(clock, trace)?;
            turns += 1;
            if turns > TURNS_MAX {
                return Err(Violation::Livelock { under_way: self.device.under_way(), turns });
            }
        }
        let whole = self.engine.as_ref().is_some_and(|engine| !engine.is_poisoned());
        self.crash(Crash::Kill, trace);
        if whole {
            self.history.acknowledge(u64::MAX);
        }
        Ok(())
    }

    /// Crashes the store.
    pub(crate) fn crash(&mut self, crash: Crash, trace: &mut Trace) {
        trace.event(11, &[crash as u64], format_args!("{crash:?}"));
        self.engine = None;
        self.reads.clear();
        self.device.crash(crash);
        self.failed = None;
    }

    /// Starts the store again and checks its contents.
    pub(crate) fn start(&mut self, clock: &mut Clock, trace: &mut Trace) -> Result<(), Violation> {
        let vouched = log::vouched(&self.device.disk);
        let (engine, has_flips) = self.open(clock, trace)?;
        let next = engine.durable();
        self.engine = Some(engine);
        let wall_s = clock.wall_s();
        let found = self.contents(clock, trace)?;
        // A flip in the part of the log that no later group proves durable looks like a torn tail.
        let certain = self.history.acknowledged();
        let certain = if has_flips { certain.min(vouched) } else { certain };
        let unproven = log::unproven(&self.device.disk).unwrap_or(next)..next;
        let again = self.history.restarted(&found, certain, unproven, wall_s)?;
        trace.event(12, &[found.len() as u64, next], format_args!("started at {next}"));
        self.repeat(again, clock, trace)
    }

    /// Repeats writes that may or may not have survived, without faults.
    fn repeat(
        &mut self,
        again: Vec<Vec<Mutation>>,
        clock: &mut Clock,
        trace: &mut Trace,
    ) -> Result<(), Violation> {
        if again.is_empty() {
            return Ok(());
        }
        let faults = std::mem::replace(&mut self.device.faults, Faults::none());
        self.device.set_full(false);
        for mutations in made_certain(again, clock.wall_s()) {
            let mut turns = 0;
            // The write may be refused until memory has been flushed.
            while !self.send(mutations.clone(), trace)? {
                self.wait(clock, trace)?;
                turns += 1;
                if turns > TURNS_MAX {
                    return Err(Violation::Livelock { under_way: self.device.under_way(), turns });
                }
            }
        }
        self.settle(clock, trace)?;
        self.device.faults = faults;
        Ok(())
    }

    /// Opens the store. Returns also whether it may have taken damage for the torn tail of the log.
    fn open(&mut self, clock: &Clock, trace: &mut Trace) -> Result<(Engine, bool), Violation> {
        let faults = self.device.faults.clone();
        let opened = self.open_over_faults(clock, trace);
        self.device.faults = faults;
        opened
    }

    fn open_over_faults(
        &mut self,
        clock: &Clock,
        trace: &mut Trace,
    ) -> Result<(Engine, bool), Violation> {
        let mut has_flips = self.device.flips.iter().any(|f| matches!(f.file, FileId::Log(_)));
        let mut was_cut_off = false;
        for attempt in 0..TURNS_MAX {
            let may_be_cut_off = attempt < CRASHES_MAX && self.device.faults.power_loss > 0;
            let cut_off = may_be_cut_off && self.rng.below(6) == 0;
            let changes_left = cut_off.then(|| self.rng.below(6));
            let rng = Rng::new(self.rng.next_u64());
            let mut files = DeviceFiles::new(&mut self.device, rng, changes_left);
            let opened = Engine::open(&mut files, self.limits, clock.now());
            let (crashed, failed) = (files.crashed(), files.failed());
            match opened {
                // A store that was opened on a machine without power is lost with it.
                _ if crashed => {
                    trace.event(13, &[], format_args!("the power failed during recovery"));
                    self.device.crash(Crash::Power);
                    was_cut_off = true;
                }
                Ok(engine) => {
                    self.device.started();
                    return Ok((engine, has_flips));
                }
                // The operator tries again, and later repairs the disk.
                Err(why) if failed => {
                    trace.event(15, &[], format_args!("not opened: {why}"));
                    if attempt >= ATTEMPTS_MAX {
                        self.device.set_full(false);
                        self.device.faults = Faults::none();
                    }
                }
                Err(why) => {
                    trace.event(14, &[], format_args!("damaged: {why}"));
                    self.repair_or_tell(&why, clock, trace)?;
                    has_flips &= was_cut_off;
                }
            }
        }
        Err(Violation::NotOpened { why: "the last try failed too".into() })
    }

    /// Plants a fault of the instrument in stored data. Returns whether there was a place for it.
    pub(crate) fn plant_at_rest(&mut self, canary: Canary) -> bool {
        canary == Canary::ForgedValue && log::forge(&mut self.device.disk)
    }

    /// Plants a fault of the instrument in a running store. Returns whether the store accepted it.
    pub(crate) fn plant(&mut self, canary: Canary, clock: &Clock) -> bool {
        let Some(engine) = &mut self.engine else { return false };
        canary == Canary::InventedWrite
            && engine.write(&self.workload.write(clock.wall_s())).is_ok()
    }
}

/// The writes that remove doubt about `open` ones. The same writes again change nothing if they
/// survived. If they are so old that a tombstone which would have hidden them may be gone, their
/// partitions are deleted instead.
fn made_certain(open: Vec<Vec<Mutation>>, wall_s: u32) -> Vec<Vec<Mutation>> {
    let mutations = || open.iter().flatten();
    let since = i64::from(wall_s.saturating_sub(GC_GRACE_S / 2)) * 1_000_000;
    if mutations().all(|mutation| mutation.change.timestamp_min() >= since) {
        return open;
    }
    let newest = mutations().map(|mutation| mutation.change.timestamp_max()).max();
    let timestamp = newest.unwrap_or(0).max(i64::from(wall_s) * 1_000_000) + 1;
    let partition_ids: BTreeSet<&PartitionId> =
        mutations().map(|mutation| &mutation.partition_id).collect();
    let deletion = |partition_id: &PartitionId| {
        let range = Range { from: Vec::new(), to: None, timestamp, deleted_s: wall_s };
        vec![Mutation { partition_id: partition_id.clone(), change: Change::Range(range) }]
    };
    partition_ids.into_iter().map(deletion).collect()
}
