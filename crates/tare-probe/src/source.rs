//! A file that stays open and is read again from its start, and a probe made of one such file.
//!
//! Files of procfs and cgroupfs make their text anew for each read at offset 0, so that an open
//! file needs no more than a `pread` (kernel: `seq_read_iter` rewinds at position 0).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tare_lab::PartError;
use tare_lab::probe::{Counter, Probe};

use crate::{Opened, ProbeError, counter};

/// An open file and the buffer that it is read into.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    needs: &'static str,
}

impl Source {
    /// Opens a file of the host. `needs` says in an error what the host would have to have.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path, needs: &'static str) -> Result<Self, ProbeError> {
        // Room for the /proc/stat of a large host; it grows where that is not enough.
        Self::with_room(path, needs, 16 * 1024)
    }

    /// The same for a file of which many are open.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn with_room(path: &Path, needs: &'static str, bytes: usize) -> Result<Self, ProbeError> {
        let path = path.to_path_buf();
        match File::open(&path) {
            Ok(file) => Ok(Self { path, file, buffer: vec![0; bytes], needs }),
            Err(source) => Err(ProbeError::Open { path, needs, source }),
        }
    }

    /// The whole text as it is now.
    ///
    /// # Errors
    /// When it cannot be read, or is no UTF-8. A file of a process that has ended cannot be read.
    pub fn read(&mut self) -> Result<&str, ProbeError> {
        let fail = |source| ProbeError::Read { path: self.path.clone(), source };
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                self.buffer.resize(2 * length, 0);
            }
            let offset = length as u64;
            match self.file.read_at(&mut self.buffer[length..], offset).map_err(fail)? {
                0 => break,
                count => length += count,
            }
        }
        std::str::from_utf8(&self.buffer[..length])
            .map_err(|error| fail(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))
    }

    /// Reads the text and takes a number, or several, from it; `what` names them.
    ///
    /// # Errors
    /// When it cannot be read, or has no such number.
    pub fn number<T>(
        &mut self,
        what: &str,
        take: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ProbeError> {
        let number = take(self.read()?);
        number.ok_or_else(|| ProbeError::Missing {
            path: self.path.clone(),
            what: what.to_string(),
            needs: self.needs,
        })
    }
}

/// Takes the number out of the text.
type Take = dyn Fn(&str) -> Option<u64>;

/// A probe whose one counter is the growth of a number in one file.
pub(crate) struct Growth {
    name: &'static str,
    counter: &'static str,
    source: Source,
    what: &'static str,
    take: Box<Take>,
    /// Units of the counter per unit of the file.
    scale: f64,
    begin: Option<u64>,
}

impl Growth {
    /// Opens the file and reads it once, so that a host that cannot serve the probe is known at
    /// the start of a study and not in its first slice.
    pub(crate) fn open(
        kind: &crate::ProbeKind,
        path: &Path,
        what: &'static str,
        scale: f64,
        take: impl Fn(&str) -> Option<u64> + 'static,
    ) -> Opened {
        let mut source = Source::open(path, kind.needs)?;
        source.number(what, &take)?;
        Ok(Box::new(Self {
            name: kind.name,
            counter: kind.counters[0].name,
            source,
            what,
            take: Box::new(take),
            scale,
            begin: None,
        }))
    }
}

impl Probe for Growth {
    fn name(&self) -> &str {
        self.name
    }

    fn begin(&mut self) -> Result<(), PartError> {
        self.begin = Some(self.source.number(self.what, &self.take)?);
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Counter>, PartError> {
        let begin = self.begin.take().ok_or(ProbeError::NotBegun { probe: self.name })?;
        let end = self.source.number(self.what, &self.take)?;
        let value = end.saturating_sub(begin) as f64 * self.scale;
        Ok(vec![counter(self.counter, value)])
    }
}
