//! A file that stays open and is read repeatedly, and a probe that reads one such file.
//!
//! Procfs and cgroupfs generate the text of a file at each read at offset 0, so that an open file
//! needs one `pread` per reading (kernel: `seq_read_iter` rewinds at position 0).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tare_lab::PartError;
use tare_lab::probe::{Counter, Probe};

use crate::{Opened, ProbeError, counter};

/// An open file of the host and its read buffer.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    needs: &'static str,
}

impl Source {
    /// Opens a file of the host. An error contains `needs`, which names what the host lacks.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path, needs: &'static str) -> Result<Self, ProbeError> {
        // Room for the /proc/stat of a large host. The buffer grows if that is too small.
        Self::with_room(path, needs, 16 * 1024)
    }

    /// Opens a file with a buffer of `bytes`, for probes that keep many small files open.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn with_room(path: &Path, needs: &'static str, bytes: usize) -> Result<Self, ProbeError> {
        let path = path.to_path_buf();
        match File::open(&path) {
            Ok(file) => Ok(Self { path, file, buffer: vec![0; bytes], needs }),
            Err(source) => Err(ProbeError::Open { path, needs, source }),
        }
    }

    /// Reads the current text of the whole file.
    ///
    /// # Errors
    /// If the file cannot be read or is not UTF-8. The files of a process that has ended cannot be
    /// read.
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

    /// Reads the text and extracts one or more numbers with `take`. `what` names them in an error.
    ///
    /// # Errors
    /// If the file cannot be read, or `take` finds nothing.
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

/// Extracts a number from the text of a file.
type Take = dyn Fn(&str) -> Option<u64>;

/// A probe with one counter: the growth of a number in one file.
pub(crate) struct GrowthProbe {
    name: &'static str,
    counter: &'static str,
    source: Source,
    what: &'static str,
    take: Box<Take>,
    /// Units of the counter per unit of the file.
    scale: f64,
    begin: Option<u64>,
}

impl GrowthProbe {
    /// Opens the file and reads it once, so that a host that cannot run the probe is known at the
    /// start of a study and not in its first slice.
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

impl Probe for GrowthProbe {
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
