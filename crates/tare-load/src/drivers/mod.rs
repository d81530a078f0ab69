//! Drivers: what loads a system during a study. The contract is `tare_lab::driver::Driver`; one
//! file per implementation, all of them in `ALL`.

mod tare_load;

pub use tare_load::{DriverError, TareLoad};

/// One driver as `tare list` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// Name as in a study.
    pub name: &'static str,
    /// One line.
    pub help: &'static str,
}

/// Every driver that a study may name.
pub const ALL: &[DriverInfo] = &[tare_load::INFO];
