//! Systems under test: what a study can weigh. The contract is `tare_lab::system::System`; one file
//! per implementation, all of them in `ALL`.
#![forbid(unsafe_code)]

mod fio;
mod tare_db;

use tare_lab::study::{OptionInfo, SystemSpec};
use tare_lab::system::System;

pub use fio::{Fio, FioReportError};
pub use tare_db::{TareDb, TareDbError};

/// One system as `tare list` shows it.
#[derive(Clone, Copy, Debug)]
pub struct SystemInfo {
    /// Name as in a study.
    pub name: &'static str,
    /// One line.
    pub help: &'static str,
    /// What a study may set under `[system]`.
    pub options: &'static [OptionInfo],
    /// Whether its data may be a block device (storage `raw`) in place of a directory.
    pub takes_device: bool,
    make: fn(&SystemSpec) -> Box<dyn System>,
}

impl SystemInfo {
    /// The system as a study describes it. The options must be those of `options`, which the
    /// study's parser checks.
    pub fn make(&self, spec: &SystemSpec) -> Box<dyn System> {
        (self.make)(spec)
    }
}

/// Every system that a study may name.
pub const ALL: &[SystemInfo] = &[tare_db::INFO, fio::INFO];

/// The system of that name.
pub fn find(name: &str) -> Option<&'static SystemInfo> {
    ALL.iter().find(|system| system.name == name)
}
