//! The host as Tare meets it: facts and checks (read only), commands, namespaces and cgroups, and
//! the journal that undoes every change.
//!
//! **Invariant:** nothing is made on the host before the journal that undoes it has been synced.
#![forbid(unsafe_code)]

pub mod account;
pub mod block;
pub mod cgroup;
pub mod clean;
pub mod device;
pub mod doctor;
pub mod exec;
pub mod facts;
pub mod housekeeping;
pub mod journal;
pub mod line_file;
pub mod module;
pub mod mounts;
pub mod netns;
pub mod nvme;
pub mod process;
pub mod program;
pub mod undo;
pub use tare_std::error_line;
pub use undo::UndoError;

/// What every name that Tare makes on a host begins with.
pub const NAME_PREFIX: &str = "tare-";

/// Environment variable that marks every process of a run; its value is the run id.
pub const RUN_VARIABLE: &str = "TARE_RUN";

/// Where the journals and the data of runs are kept unless asked otherwise.
pub const STATE_DIRECTORY: &str = "/var/lib/tare";
