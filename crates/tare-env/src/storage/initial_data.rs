//! What the data of an environment begins with: nothing, or data that was kept from another start.

use std::path::Path;
use std::rc::Rc;

use tare_lab::PartError;
use tare_lab::environment::{KeptData, Restored};

/// The data that starts begin with, and what came of it in the last one.
#[derive(Debug, Default)]
pub(crate) struct InitialData {
    data: Option<Rc<dyn KeptData>>,
    restored: Option<Restored>,
}

impl InitialData {
    /// Starts begin with this data from now on.
    pub(crate) fn set(&mut self, data: &Rc<dyn KeptData>) {
        self.data = Some(Rc::clone(data));
    }

    /// Puts it into the directory of a start, whose storage is made, before the system runs.
    pub(crate) fn put(&mut self, to: &Path) -> Result<(), PartError> {
        self.restored = None;
        if let Some(data) = &self.data {
            self.restored = Some(data.put(to)?);
        }
        Ok(())
    }

    pub(crate) fn restored(&self) -> Option<Restored> {
        self.restored
    }
}
