//! What a disk can do: sequential bandwidth and random I/O per second, the depth that saturates it,
//! the latency below that, and a map of read latency over read and write rates.
//!
//! It does direct I/O through an io_uring of its own on a file written in full with random bytes,
//! and compares the device's own counters with its own.
//!
//! ```
//! use std::path::Path;
//!
//! use tare_disk::{Target, TargetError};
//!
//! // A path that is not on a disk is refused, because a cache would be measured.
//! let refused = Target::find(Path::new("/proc"), Path::new("/"));
//! assert!(matches!(refused, Err(TargetError::FileSystem { .. } | TargetError::NoDevice { .. })));
//! ```

mod bursts;
mod device;
mod doubt;
mod engine;
pub mod io_properties;
mod measure;
mod offsets;
mod report;
mod rules;
#[allow(unsafe_code, reason = "io_uring's buffers and mincore are raw memory")]
mod sys;
mod target;
mod throttle;

pub use device::{Device, Layer};
pub use doubt::Doubt;
pub use engine::EngineError;
pub use measure::{MeasureError, Options, Progress, measure};
pub use report::{Cell, Figure, Latency, LoadReport, Map, Point, Report};
pub use rules::Step;
pub use target::{Kind, Mount, SIZE_MIN_BYTES, Target, TargetError};
