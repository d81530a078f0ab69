//! Drivers: what loads a system during a study. The contract is `tare_lab::driver::Driver`; one
//! file per implementation, all of them in `ALL`.

use tare_lab::study::OptionInfo;

mod tare_load;

pub use tare_load::{DriverError, TareLoad};

/// One driver as `tare list` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// Name as in a study.
    pub name: &'static str,
    /// One line.
    pub help: &'static str,
    /// The words in which a workload asks it, where it has its own; else it is asked for rows.
    pub options: &'static [OptionInfo],
}

/// Every driver that a study may name.
pub const ALL: &[DriverInfo] = &[tare_load::INFO];
