//! The files of a shard while its store is being opened. Reads may be short or fail, and a power
//! loss may interrupt recovery.

use std::cell::{Cell, RefCell};
use std::io;

use tare_std::rng::Rng;

use crate::device::Device;
use crate::faults::strikes;
use tare_store::{Completion, FileId, Files, Op};

/// Access to a device during recovery.
#[derive(Debug)]
pub(crate) struct DeviceFiles<'a> {
    device: &'a mut Device,
    rng: RefCell<Rng>,
    /// Number of changes before the power fails; `None` if it does not fail.
    changes_left: Option<u64>,
    crashed: bool,
    /// Whether a fault of the simulation has made something fail.
    failed: Cell<bool>,
}

impl<'a> DeviceFiles<'a> {
    pub(crate) fn new(device: &'a mut Device, rng: Rng, changes_left: Option<u64>) -> Self {
        Self {
            device,
            rng: RefCell::new(rng),
            changes_left,
            crashed: false,
            failed: Cell::new(false),
        }
    }

    /// Whether the power failed while the store was being opened.
    pub(crate) fn crashed(&self) -> bool {
        self.crashed
    }

    /// Whether a read or a change was made to fail.
    pub(crate) fn failed(&self) -> bool {
        self.failed.get()
    }

    fn alive(&self) -> io::Result<()> {
        if self.crashed { Err(power()) } else { Ok(()) }
    }
}

impl Files for DeviceFiles<'_> {
    fn list(&self) -> io::Result<Vec<FileId>> {
        self.alive()?;
        let mut names = self.device.disk.names();
        // A directory has no order.
        self.rng.borrow_mut().shuffle(&mut names);
        Ok(names)
    }

    fn length(&self, file: FileId) -> io::Result<u64> {
        self.alive()?;
        self.device.disk.length(file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn read_at(&self, file: FileId, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.alive()?;
        let mut rng = self.rng.borrow_mut();
        if strikes(&mut rng, self.device.faults.failed_read.saturating_mul(20)) {
            self.failed.set(true);
            return Err(io::Error::other("the medium cannot be read"));
        }
        let wanted = match buffer.len() {
            length @ 2.. if strikes(&mut rng, self.device.faults.short_read) => {
                1 + rng.below(length as u64 - 1)
            }
            length => length as u64,
        };
        let wanted = usize::try_from(wanted).unwrap_or(buffer.len());
        let read = self.device.disk.read(file, offset, &mut buffer[..wanted]);
        read.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn carry_out(&mut self, op: Op) -> Completion {
        let failed =
            |op: Op, error: io::Error| Completion { id: op.id, chunk: None, result: Err(error) };
        if let Err(error) = self.alive() {
            return failed(op, error);
        }
        if let Some(left) = &mut self.changes_left {
            if *left == 0 {
                self.crashed = true;
                let covers = self.device.disk.writes(op.file);
                let id = op.id;
                self.device.interrupt(op, covers);
                return Completion { id, chunk: None, result: Err(power()) };
            }
            *left -= 1;
        }
        let completion = self.device.carry_out(op);
        self.failed.set(self.failed.get() || completion.result.is_err());
        completion
    }

    fn name(&self, file: FileId) -> String {
        file.file_name()
    }
}

fn power() -> io::Error {
    io::Error::other("the power failed")
}
