//! The common form of a probe: it reads the same values at both edges of a slice and reports the
//! change.

use tare_lab::PartError;
use tare_lab::probe::{Counter, Probe, Scope};
use tare_lab::seconds::DiskSecond;

use crate::{Opened, ProbeError, ProbeKind};

/// Reads values at the edges of a slice and turns them into counters.
pub(crate) trait EdgeReader {
    /// The values at one edge.
    type Values;

    /// Opens the files of the processes and the data directory in the scope, before the slice.
    /// Probes of the whole host do nothing here.
    fn prepare(&mut self, _scope: &Scope) -> Result<(), ProbeError> {
        Ok(())
    }

    /// How this host is read, where that is not the usual way.
    fn method(&self) -> Option<String> {
        None
    }

    fn read(&mut self, edge: Edge) -> Result<Self::Values, ProbeError>;

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter>;

    /// The disks in each second between the two readings, if it follows them.
    fn disk_seconds(&mut self) -> Vec<DiskSecond> {
        Vec::new()
    }
}

/// The edge of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    Begin,
    End,
}

/// The probe that runs an [`EdgeReader`].
struct EdgeProbe<N: EdgeReader> {
    name: &'static str,
    reader: N,
    begin: Option<N::Values>,
}

/// Makes a probe from a reader.
pub(crate) fn edge_probe<N: EdgeReader + 'static>(kind: &ProbeKind, reader: N) -> Opened {
    Ok(Box::new(EdgeProbe { name: kind.name, reader, begin: None }))
}

impl<N: EdgeReader> Probe for EdgeProbe<N> {
    fn name(&self) -> &str {
        self.name
    }

    fn method(&self) -> Option<String> {
        self.reader.method()
    }

    fn prepare(&mut self, scope: &Scope) -> Result<(), PartError> {
        self.begin = None;
        Ok(self.reader.prepare(scope)?)
    }

    fn begin(&mut self) -> Result<(), PartError> {
        self.begin = None;
        self.begin = Some(self.reader.read(Edge::Begin)?);
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Counter>, PartError> {
        let begin = self.begin.take().ok_or(ProbeError::NotBegun { probe: self.name })?;
        let end = self.reader.read(Edge::End)?;
        Ok(self.reader.counters(begin, end))
    }

    fn disk_seconds(&mut self) -> Vec<DiskSecond> {
        self.reader.disk_seconds()
    }
}
