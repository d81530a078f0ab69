//! Formats a record and its analysis: terminal text, an HTML page, JSON, CSV, Markdown, Prometheus
//! metrics, the cost for a fleet, and comparisons of records.
//!
//! Every function is pure: the same record gives the same bytes. Nothing here measures, reads a
//! clock, or touches the host, so a record gives the same report anywhere and years later.
//!
//! Names, paths and messages in a record come from study files, runtimes and kernels, and a record
//! may be untrusted: terminal text has no control characters ([`terminal`]), HTML and Markdown are
//! escaped ([`html`], [`markdown`]).
#![forbid(unsafe_code)]

mod axes;
mod bandwidth;
pub mod check;
pub mod compare;
pub mod cost_chart;
pub mod counters;
pub mod csv;
mod csv_table;
pub mod disk_map;
mod doubts;
mod escape;
pub mod explain;
mod figures;
pub mod findings;
pub mod fleet;
mod headline;
mod histogram;
pub mod history;
pub mod html;
mod instances;
mod interrupts;
pub mod json;
mod layout;
mod loaders;
pub mod markdown;
mod network_path;
mod objective;
mod own_view;
mod polling;
pub mod prometheus;
pub mod prove;
mod rates;
mod relations;
mod run_conditions;
mod seconds;
mod slice_schedule;
pub mod stacks;
mod tails;
pub mod terminal;

#[cfg(test)]
mod browser_tests;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod golden_tests;

pub use figures::{clean, latency, percent, rate, utc};
pub use headline::{Metric, headline};
pub use run_conditions::climb_text;
