//! An environment inside a guest of `--inside`. Its layers include the guest's accelerator, so that
//! the record shows where it was measured.

use std::rc::Rc;

use tare_lab::PartError;
use tare_lab::environment::{
    ACCELERATOR, DataSnapshot, Endpoint, Environment, EnvironmentSpec, Launch, LayerState,
    Processes, RestoreStats, Usage,
};

use super::GuestInfo;
use crate::system::state;

/// An environment inside a guest.
pub(crate) struct GuestEnvironment {
    inner: Box<dyn Environment>,
    here: GuestInfo,
}

impl GuestEnvironment {
    pub(crate) fn new(inner: Box<dyn Environment>, here: GuestInfo) -> Self {
        Self { inner, here }
    }
}

impl Environment for GuestEnvironment {
    fn spec(&self) -> &EnvironmentSpec {
        self.inner.spec()
    }

    fn start_from(&mut self, data: &Rc<dyn DataSnapshot>) {
        self.inner.start_from(data);
    }

    fn restored(&self) -> Option<RestoreStats> {
        self.inner.restored()
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        self.inner.start(launch)
    }

    fn start_all(&mut self, launches: &[Launch]) -> Result<Vec<Endpoint>, PartError> {
        self.inner.start_all(launches)
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        let mut layers = self.inner.read_back()?;
        // A virtual machine reports its own accelerator.
        if !layers.iter().any(|layer| layer.layer == ACCELERATOR) {
            let wanted = "the guest that the study runs inside of";
            layers.push(state(ACCELERATOR, wanted, self.here.accelerator.clone(), true));
        }
        Ok(layers)
    }

    fn lost(&self) -> Option<String> {
        self.inner.lost()
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.inner.freeze()
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.inner.thaw()
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        self.inner.usage()
    }

    fn processes(&mut self) -> Processes {
        self.inner.processes()
    }

    fn config(&self) -> Option<String> {
        self.inner.config()
    }

    fn log_tail(&self) -> String {
        self.inner.log_tail()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.inner.stop()
    }
}
