//! A probe made of numbers that are read at both edges: what most probes are.

use tare_lab::PartError;
use tare_lab::probe::{Counter, Probe, Scope};

use crate::{Opened, ProbeError, ProbeKind};

/// Numbers that are read twice, and what the two readings say.
pub(crate) trait Numbers {
    /// What one reading gives.
    type Reading;

    /// Opens what belongs to the scope. Probes of the whole host need nothing.
    fn prepare(&mut self, _scope: &Scope) -> Result<(), ProbeError> {
        Ok(())
    }

    fn read(&mut self, edge: Edge) -> Result<Self::Reading, ProbeError>;

    fn counters(&mut self, begin: Self::Reading, end: Self::Reading) -> Vec<Counter>;
}

/// Which of the two readings it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    Begin,
    End,
}

/// The probe of some numbers.
struct Between<N: Numbers> {
    name: &'static str,
    numbers: N,
    begin: Option<N::Reading>,
}

/// Makes a probe of numbers.
pub(crate) fn between<N: Numbers + 'static>(kind: &ProbeKind, numbers: N) -> Opened {
    Ok(Box::new(Between { name: kind.name, numbers, begin: None }))
}

impl<N: Numbers> Probe for Between<N> {
    fn name(&self) -> &str {
        self.name
    }

    fn prepare(&mut self, scope: &Scope) -> Result<(), PartError> {
        self.begin = None;
        Ok(self.numbers.prepare(scope)?)
    }

    fn begin(&mut self) -> Result<(), PartError> {
        self.begin = None;
        self.begin = Some(self.numbers.read(Edge::Begin)?);
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Counter>, PartError> {
        let begin = self.begin.take().ok_or(ProbeError::NotBegun { probe: self.name })?;
        let end = self.numbers.read(Edge::End)?;
        Ok(self.numbers.counters(begin, end))
    }
}
