//! The systems that a driver has open, by their number.

use std::collections::HashMap;

use tare_lab::driver::TargetId;

/// A driver does not have this target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no target {}; it was never opened or has been closed", .0.0)]
pub struct NoTarget(TargetId);

/// The systems that a driver has open.
#[derive(Debug)]
pub(crate) struct Targets<T> {
    open: HashMap<TargetId, T>,
    next: u32,
}

impl<T> Default for Targets<T> {
    fn default() -> Self {
        Self { open: HashMap::new(), next: 0 }
    }
}

impl<T> Targets<T> {
    /// Adds a system and gives it a number of its own.
    pub(crate) fn add(&mut self, target: T) -> TargetId {
        let id = TargetId(self.next);
        self.next += 1;
        self.open.insert(id, target);
        id
    }

    pub(crate) fn get(&self, id: TargetId) -> Result<&T, NoTarget> {
        self.open.get(&id).ok_or(NoTarget(id))
    }

    pub(crate) fn get_mut(&mut self, id: TargetId) -> Result<&mut T, NoTarget> {
        self.open.get_mut(&id).ok_or(NoTarget(id))
    }

    /// Removes a system.
    pub(crate) fn remove(&mut self, id: TargetId) -> Result<T, NoTarget> {
        self.open.remove(&id).ok_or(NoTarget(id))
    }

    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }
}
