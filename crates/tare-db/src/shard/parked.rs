//! Reads that wait for blocks of tables. Each keeps what it has found and the blocks that it has, so
//! that it comes further with every try; how many there may be is bounded (`Budget::parked_max`), and
//! beyond it reads are refused as overloaded.

use tare_store::Pins;

use crate::query::failure::Failure;
use crate::query::rows::Reading;
use crate::shard::Shard;

/// Reads that go on in one turn: their answers are on their way while the next ones are looked at.
const WOKEN_MAX: usize = 16;

/// The reads that wait.
#[derive(Debug, Default)]
pub(super) struct Parked {
    reads: Vec<(Box<Reading>, Pins)>,
    /// Operations on files have ended since the reads were looked at.
    blocks_came: bool,
}

impl Parked {
    pub(super) fn len(&self) -> usize {
        self.reads.len()
    }

    /// Whether it is worth while to look for reads that can go on.
    #[inline]
    pub(super) fn may_go_on(&self) -> bool {
        self.blocks_came && !self.reads.is_empty()
    }

    /// An operation on a file has ended.
    #[inline]
    pub(super) fn blocks_came(&mut self) {
        self.blocks_came = true;
    }
}

impl Shard {
    /// Keeps a reading until its blocks are there; a refusal is the caller's to tell.
    pub(crate) fn park(&mut self, reading: Box<Reading>, pins: Pins) -> Result<(), Failure> {
        if pins.is_ready() {
            // What it missed is gone or has come meanwhile: no operation will wake it.
            self.state.readings.push_back((reading, pins));
            return Ok(());
        }
        if self.state.parked.len() >= self.budget.parked_max {
            self.state.metrics.overloaded += 1;
            let message = "more reads wait for the disk than memory allows; send fewer at a time";
            return Err(Failure::Overloaded(message.into()));
        }
        self.state.metrics.parked += 1;
        self.state.parked.reads.push((reading, pins));
        Ok(())
    }

    /// Takes on the readings whose blocks have come.
    pub(super) fn wake_parked(&mut self) -> bool {
        self.state.parked.blocks_came = false;
        let mut at = 0;
        let mut woken = 0;
        // Those that have to wait again are put at the end, and are not ready.
        while let Some((_, pins)) = self.state.parked.reads.get(at) {
            if !pins.is_ready() {
                at += 1;
                continue;
            }
            if woken == WOKEN_MAX {
                self.state.parked.blocks_came = true;
                break;
            }
            let (reading, pins) = self.state.parked.reads.swap_remove(at);
            self.advance(reading, pins);
            woken += 1;
        }
        woken > 0
    }
}
