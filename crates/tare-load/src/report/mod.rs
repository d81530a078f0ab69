//! The results of a load: counts, histograms, logs, doubts, and the report that is made of them.

mod doubts;
mod gathering;
pub mod histogram;
pub mod log;
mod model;
mod series;
pub(crate) mod stats;

pub use doubts::LoadDoubt;
pub(crate) use gathering::{ReportBuilder, cpu_share, ratio};
pub use model::{
    DoubtReport, ErrorCount, InKernelReport, IntervalReport, JSON_VERSION, LoadReport,
    OperationReport, StepReport, Verified, WithoutService,
};
pub use stats::LATE_NS;
pub use tare_stats::steady::Steadiness;
