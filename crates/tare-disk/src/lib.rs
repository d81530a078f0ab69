//! Measures a disk: sequential bandwidth and random I/O per second, the depth that saturates it,
//! the latency below saturation, and a map of read latency over read and write rates.
//!
//! Method: direct I/O through io_uring on a file that is filled with random bytes. The device's
//! counters are compared with the bytes moved.
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
mod steady;
#[allow(unsafe_code, reason = "io_uring's buffers and mincore are raw memory")]
mod sys;
mod target;
mod throttle;

pub use device::{Device, Layer};
pub use doubt::Doubt;
pub use engine::EngineError;
pub use measure::{MeasureError, Options, Progress, measure, size};
pub use report::{Cell, Figure, Latency, LoadReport, Map, Point, Report, SteadyReport};
pub use rules::Step;
pub use steady::Steady;
pub use target::{Kind, Mount, SIZE_MIN_BYTES, Target, TargetError};
