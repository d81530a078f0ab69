//! Access to the host: facts and checks (read only), commands, namespaces and cgroups, and the
//! journal that undoes every change.
//!
//! **Invariant:** nothing is created on the host before the journal that undoes it is synced.
#![deny(unsafe_code)]

pub mod account;
pub mod block;
pub mod cgroup;
mod cgroup_folder;
pub mod clean;
#[allow(unsafe_code, reason = "clock_getcpuclockid(3) has no safe interface")]
pub mod cpu_clock;
pub mod cpu_times;
pub mod data_cache;
pub mod device;
pub mod doctor;
pub mod exec;
pub mod facts;
pub mod housekeeping;
pub mod journal;
pub mod line_file;
#[allow(unsafe_code, reason = "set_mempolicy(2) and prctl(2) with flags have no safe interface")]
pub mod memory_policy;
pub mod module;
pub mod mounts;
pub mod net_device;
pub mod netns;
pub mod nvme;
pub mod page_cache;
pub mod process;
pub mod program;
pub mod tcp;
pub mod tree_copy;
pub mod undo;
#[allow(unsafe_code, reason = "mount_setattr(2) has no safe interface")]
pub mod user_namespace;

pub use tare_std::error_line;
pub use undo::UndoError;

/// The prefix of every name that Tare creates on a host.
pub const NAME_PREFIX: &str = "tare-";

/// Environment variable that marks every process of a run; its value is the run id.
pub const RUN_VARIABLE: &str = "TARE_RUN";

/// The default directory for the journals and the data of runs.
pub const STATE_DIRECTORY: &str = "/var/lib/tare";
