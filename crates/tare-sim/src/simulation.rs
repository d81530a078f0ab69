//! One simulation of a machine: shards, a clock, a seed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tare_std::rng::Rng;
use tare_store::Durability;

use crate::device::{Crash, Device};
use crate::engine;
use crate::faults::{Canary, Faults, strikes};
use crate::shard::{Clock, Shard};
use crate::trace::Trace;
use crate::violation::{Failure, Violation};
use crate::workload::Workload;

/// The parameters of a simulation, in addition to its seed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of steps; each has one request and the faults of its moment.
    pub steps: u64,
    /// A fault of the instrument that the checks must detect.
    pub canary: Option<Canary>,
    /// How many of the last events are kept as text.
    pub lines: usize,
}

/// The result of a simulation without a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// A hash of everything that happened.
    pub hash: u64,
    pub events: u64,
    pub restarts: u64,
}

struct Simulation {
    rng: Rng,
    clock: Clock,
    faults: Faults,
    shards: Vec<Shard>,
    trace: Trace,
    step: u64,
    at: usize,
    restarts: u64,
    options: Options,
    full: bool,
    planted: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { steps: 400, canary: None, lines: 0 }
    }
}

impl Options {
    /// The parameters of a simulation of a whole server.
    pub fn for_server() -> Self {
        Self { steps: 600, ..Self::default() }
    }
}

/// Runs the simulation of a seed.
pub fn run(seed: u64, options: &Options) -> Result<Outcome, Box<Failure>> {
    let mut simulation = Simulation::new(seed, options);
    let lived = catch_unwind(AssertUnwindSafe(|| simulation.run()));
    let result =
        lived.unwrap_or_else(|panic| Err(Violation::Panicked { message: panic_message(&*panic) }));
    match result {
        Ok(()) => Ok(Outcome {
            hash: simulation.trace.hash(),
            events: simulation.trace.events(),
            restarts: simulation.restarts,
        }),
        Err(violation) => {
            let Simulation { step, at, clock, trace, .. } = simulation;
            let trace = trace.into_lines();
            Err(Box::new(Failure { seed, step, shard: at, now_ns: clock.now_ns, violation, trace }))
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message").into()
}

impl Simulation {
    fn new(seed: u64, options: &Options) -> Self {
        let mut rng = Rng::stream(seed, 0);
        let mut faults = Faults::draw(&mut rng);
        match options.canary {
            Some(Canary::LostSync) => faults.power_loss = 60,
            Some(Canary::ForgivenSync) => (faults.failed_sync, faults.power_loss) = (30, 60),
            Some(_) => faults.clean_stop = 60,
            None => {}
        }
        let shards = 1 + rng.below(3);
        let shards = (0..shards).map(|number| {
            let stream = |purpose: u64| Rng::stream(seed, 16 * (number + 1) + purpose);
            let device = Device::new(stream(0), faults.clone(), options.canary, 64 << 20);
            let under_way_max = 1 + usize::try_from(rng.below(8)).unwrap_or(0);
            let period_ns = rng.below(50_000_000);
            let durability = match rng.below(3) {
                0 => Durability::Periodic { period_ns },
                _ => Durability::Sync,
            };
            // Smaller memtables are flushed more often.
            let memtable_bytes = 16 << 10 << rng.below(10);
            let limits = engine::limits(durability, memtable_bytes);
            Shard::new(device, Workload::new(stream(1)), limits, under_way_max, stream(2))
        });
        let shards = shards.collect();
        Self {
            clock: Clock { now_ns: 0, epoch_s: 1_700_000_000 },
            faults,
            shards,
            trace: Trace::new(options.lines),
            step: 0,
            at: 0,
            restarts: 0,
            options: options.clone(),
            full: false,
            planted: false,
            rng,
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        self.start()?;
        for step in 0..self.options.steps {
            self.step = step;
            self.tick();
            self.at = usize::try_from(self.rng.below(self.shards.len() as u64)).unwrap_or(0);
            self.send_request()?;
            self.plant();
            self.strike()?;
            self.run_shards()?;
        }
        self.end()
    }

    /// Advances the clock: mostly by little, sometimes past the end of all operations under way,
    /// rarely by much.
    fn tick(&mut self) {
        self.clock.now_ns += match self.rng.below(400) {
            0 => self.rng.below(200_000_000_000),
            1..4 => self.rng.below(10_000_000_000),
            4..30 => self.rng.below(20_000_000),
            _ => self.rng.below(60_000),
        };
    }

    fn send_request(&mut self) -> Result<(), Violation> {
        let shard = &mut self.shards[self.at];
        match self.rng.below(100) {
            0..60 => return shard.write(&self.clock, &mut self.trace),
            60..80 => shard.read(&self.clock),
            80..82 => return shard.scan(&mut self.clock, &mut self.trace),
            _ => {}
        }
        Ok(())
    }

    /// Draws the faults that concern the whole machine or the stored data.
    fn strike(&mut self) -> Result<(), Violation> {
        if strikes(&mut self.rng, self.faults.bit_flip) {
            let flip = self.shards[self.at].device.flip();
            let place = flip.map_or(0, |flip| flip.offset);
            self.trace.event(20, &[place], format_args!("flip: {flip:?}"));
        }
        if strikes(&mut self.rng, self.faults.full_disk) {
            self.full = !self.full;
            let full = self.full;
            self.trace.event(21, &[u64::from(full)], format_args!("disk full: {full}"));
            self.shards.iter_mut().for_each(|shard| shard.device.set_full(full));
            if !full {
                self.recover_room()?;
            }
        }
        if strikes(&mut self.rng, self.faults.clean_stop) {
            for at in 0..self.shards.len() {
                self.at = at;
                self.shards[at].stop(&mut self.clock, &mut self.trace)?;
            }
            return self.start();
        }
        for (chance, crash) in
            [(self.faults.power_loss, Crash::Power), (self.faults.kill, Crash::Kill)]
        {
            if strikes(&mut self.rng, chance) {
                self.shards.iter_mut().for_each(|shard| shard.crash(crash, &mut self.trace));
                return self.start();
            }
        }
        Ok(())
    }

    /// Checks that the stores notice by themselves that the disk has room again.
    fn recover_room(&mut self) -> Result<(), Violation> {
        for at in 0..self.shards.len() {
            self.at = at;
            self.shards[at].recover_room(&mut self.clock, &mut self.trace)?;
        }
        Ok(())
    }

    /// The canary to plant, once it is time for it.
    fn canary_due(&self) -> Option<Canary> {
        let is_due = !self.planted && self.step > self.options.steps / 4;
        self.options.canary.filter(|_| is_due)
    }

    fn plant(&mut self) {
        if let Some(canary) = self.canary_due() {
            self.planted = self.shards[self.at].plant(canary, &self.clock);
        }
    }

    fn run_shards(&mut self) -> Result<(), Violation> {
        for at in 0..self.shards.len() {
            self.at = at;
            self.shards[at].run_once(&self.clock, &mut self.trace)?;
        }
        Ok(())
    }

    /// Starts every shard, and clears the faults that a restart clears.
    fn start(&mut self) -> Result<(), Violation> {
        self.restarts += 1;
        if let Some(canary) = self.canary_due() {
            self.planted = self.shards.iter_mut().any(|shard| shard.plant_at_rest(canary));
        }
        for at in 0..self.shards.len() {
            self.at = at;
            self.shards[at].start(&mut self.clock, &mut self.trace)?;
        }
        Ok(())
    }

    /// Ends the run: without faults everything works again. A store that lost its log is started
    /// again, accepts writes, and has them after the last restart.
    fn end(&mut self) -> Result<(), Violation> {
        let quiet = Faults::none();
        for at in 0..self.shards.len() {
            self.at = at;
            let shard = &mut self.shards[at];
            shard.device.faults = quiet.clone();
            shard.device.set_full(false);
            shard.stop(&mut self.clock, &mut self.trace)?;
            shard.start(&mut self.clock, &mut self.trace)?;
            for _ in 0..5 {
                shard.write(&self.clock, &mut self.trace)?;
            }
            shard.settle(&mut self.clock, &mut self.trace)?;
            shard.scan(&mut self.clock, &mut self.trace)?;
            shard.crash(Crash::Power, &mut self.trace);
            shard.start(&mut self.clock, &mut self.trace)?;
        }
        Ok(())
    }
}
