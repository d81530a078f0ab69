//! The data that an environment starts with: none, or data kept from an earlier start.

use std::path::Path;
use std::rc::Rc;

use tare_lab::PartError;
use tare_lab::environment::{DataSnapshot, RestoreStats};

/// The data that every start restores, and the outcome of the last restore.
#[derive(Debug, Default)]
pub(crate) struct InitialData {
    data: Option<Rc<dyn DataSnapshot>>,
    restored: Option<RestoreStats>,
}

impl InitialData {
    /// Restores this data at every later start.
    pub(crate) fn set(&mut self, data: &Rc<dyn DataSnapshot>) {
        self.data = Some(Rc::clone(data));
    }

    /// Restores the data into the directory of a start, after its storage is made and before the
    /// system runs.
    pub(crate) fn put(&mut self, to: &Path) -> Result<(), PartError> {
        self.restored = None;
        if let Some(data) = &self.data {
            self.restored = Some(data.restore(to)?);
        }
        Ok(())
    }

    pub(crate) fn restored(&self) -> Option<RestoreStats> {
        self.restored
    }
}
