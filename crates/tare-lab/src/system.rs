//! The trait of systems under test.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::PartError;
use crate::environment::{DataSnapshot, Endpoint, Launch};

pub use crate::background::BackgroundWork;
pub use crate::own_accounts::{BusyTime, LoopInWindow, LoopTime, LoopTimes, OwnCounts, OwnLatency};

/// Default time limit for a started system to answer.
pub const READY_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for a system to become quiet once its data is loaded.
pub const QUIET_LIMIT: Duration = Duration::from_secs(300);

/// How many instances of a system one environment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instances {
    /// At least 1.
    pub count: u32,
    /// True: the instances form one cluster, and each of them answers for the data of all. False:
    /// each instance is independent and holds all rows.
    pub cluster: bool,
}

impl Instances {
    pub const ONE: Self = Self { count: 1, cluster: false };
}

/// The least memory that a system needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    pub bytes: u64,
    /// The lowest memory limit under which it starts. It exceeds `bytes` for a system that uses a
    /// part of the limit alone.
    pub limit_bytes: u64,
    /// The use of the memory, such as `a heap of 2048 MiB and 588 MiB beside it`.
    pub what: String,
}

/// A database or another server under test. `tare-system` has the implementations.
pub trait System {
    /// Returns the name used in studies and in `tare list`.
    fn name(&self) -> &str;

    /// Returns the command to start. `cpus` is the number of CPUs that the baseline gives the
    /// system: every environment starts as many shards, so that only the layer differs.
    fn launch(&self, cpus: usize) -> Launch;

    /// Returns how many instances an environment runs.
    fn instances(&self) -> Instances {
        Instances::ONE
    }

    /// Returns the command of one of several instances, numbered from 0. By default all instances
    /// start alike. `cpus` is the share of one instance.
    fn launch_instance(&self, cpus: usize, _number: u32) -> Launch {
        self.launch(cpus)
    }

    /// Returns the least memory that one instance on `cpus` CPUs needs; `None` if only a run can
    /// show it.
    fn memory(&self, _cpus: usize) -> Option<MemoryNeed> {
        None
    }

    /// Returns how many bytes of rows one instance on `cpus` CPUs keeps in memory once it has read
    /// more of them; `None` if Tare does not know.
    fn row_memory_bytes(&self, _cpus: usize) -> Option<u64> {
        None
    }

    /// Returns the time limit for a started instance to answer.
    fn ready_limit(&self) -> Duration {
        READY_LIMIT
    }

    /// Returns the text that the system prints when it is up; `ready` is called only after it.
    fn announces(&self) -> Option<&str> {
        None
    }

    /// Checks once whether a started system answers. The campaign repeats the call until it
    /// succeeds or `ready_limit` has passed. The default is ready at once and leaves waiting to the
    /// driver's `open`.
    ///
    /// # Errors
    /// The part that is not ready yet. The campaign reports it when the limit has passed.
    fn ready(&self, _at: &Endpoint) -> Result<(), PartError> {
        Ok(())
    }

    /// Returns what the system detected and chose (I/O engine, polling, shards ...). Queries the
    /// system, or reads its data directory as the host sees it.
    /// The default returns nothing.
    fn settings(&self, _at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        Ok(Vec::new())
    }

    /// Returns the background work that is still running after the load, such as flushes and
    /// compactions; `None` once the system is quiet. The campaign repeats the call until then, and
    /// measures only afterwards.
    fn pending(&self, _at: &Endpoint) -> Result<Option<String>, PartError> {
        Ok(None)
    }

    /// Returns the background work that it has done since its start, by its own account. The
    /// campaign asks before and after each slice, outside its window. The default returns nothing.
    ///
    /// # Errors
    /// If it does not answer; the slice then has the doubt `probe_failed`.
    fn background(&self, _at: &Endpoint) -> Result<Vec<BackgroundWork>, PartError> {
        Ok(Vec::new())
    }

    /// Returns whether [`System::save_data`] can save the data for later starts.
    fn can_save_data(&self) -> bool {
        false
    }

    /// Shuts the running system down cleanly, saves its data in the directory `to`, which does not
    /// exist yet, and returns it. `processes` are the host's ids of the system's processes, the
    /// first started one first. `None`: the host does not see the data, and nothing was done.
    fn save_data(
        &self,
        _at: &Endpoint,
        _processes: &[u32],
        _to: &Path,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        Ok(None)
    }

    /// Returns what the saved data of an instance on `cpus` CPUs depends on beside the rows: the
    /// program, and the options that change files, as (name, value). `None`: Tare does not know it.
    fn data_identity(&self, _cpus: usize) -> Option<Vec<(String, String)>> {
        None
    }

    /// Returns data that another run has saved, whose files are in a directory of this run now.
    /// `None`: it has no saved data.
    fn open_data(
        &self,
        _folder: &Path,
        _description: &str,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        Ok(None)
    }

    /// Reads the system's busy time, if the system measures it. Takes well under 1 ms.
    fn busy_time(&self, _data: &Path) -> Result<Option<BusyTime>, PartError> {
        Ok(None)
    }

    /// Asks a system that polls what its event loops have counted. The campaign asks before and
    /// after each slice, outside its window. The default returns `None`: the system does not poll,
    /// or [`System::busy_time`] tells its busy time.
    ///
    /// # Errors
    /// If it polls and does not answer. The slice then has the doubt `no_polling_account`.
    fn loop_times(&self, _at: &Endpoint) -> Result<Option<LoopTimes>, PartError> {
        Ok(None)
    }

    /// Asks a system for the latency inside it. The campaign asks before and after each slice,
    /// outside its window. The default returns `None`: the system does not tell it, or
    /// [`System::own_counts`] has it.
    ///
    /// # Errors
    /// If it does not answer; the slice then has the doubt `probe_failed`.
    fn own_latency(&self, _at: &Endpoint) -> Result<Option<OwnLatency>, PartError> {
        Ok(None)
    }

    /// Reads what the system counts by itself, if it does. Takes well under 1 ms.
    fn own_counts(&self, _data: &Path) -> Result<Option<OwnCounts>, PartError> {
        Ok(None)
    }
}
