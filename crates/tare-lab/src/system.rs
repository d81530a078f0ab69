//! The system under test, as the core sees it.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::PartError;
use crate::environment::{Endpoint, KeptData, Launch};

/// How long a started system may take until it answers, where it does not say otherwise.
pub const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long a system may take to get quiet once its data is loaded.
pub const QUIET_LIMIT: Duration = Duration::from_secs(300);

/// A system's own account of its CPU time since it was started, in ns. A polling system burns its
/// CPUs whether or not it works, so this says how much of the burning was waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnAccount {
    /// Time spent working.
    pub busy_ns: u64,
    /// CPU time burnt in polling without finding work.
    pub idle_poll_ns: u64,
}

/// How many instances of a system one environment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instances {
    /// At least 1.
    pub count: u32,
    /// They belong together: whoever asks one of them has the data of all. Otherwise each stands alone,
    /// with the data of a whole system.
    pub cluster: bool,
}

impl Instances {
    pub const ONE: Self = Self { count: 1, cluster: false };
}

/// What a system takes of memory at the least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    pub bytes: u64,
    /// Of what, such as `a heap of 2048 MiB and 588 MiB beside it`.
    pub what: String,
}

/// A database or another server that a study weighs. Implementations live in `tare-system`.
pub trait System {
    /// Name as in the study and in `tare list`.
    fn name(&self) -> &str;

    /// What to start. `cpus` is how many CPUs the baseline gives the system: every environment
    /// starts the same number of shards, so that only the layer differs.
    fn launch(&self, cpus: usize) -> Launch;

    /// How many of it an environment runs.
    fn instances(&self) -> Instances {
        Instances::ONE
    }

    /// What to start as one of several instances, counted from 0; the same for all of them unless
    /// they have to differ. `cpus` is one instance's share.
    fn launch_instance(&self, cpus: usize, _number: u32) -> Launch {
        self.launch(cpus)
    }

    /// What one instance takes of memory at the least, where that is known before it runs.
    fn memory(&self) -> Option<MemoryNeed> {
        None
    }

    /// How long it may take to answer once it is started, in a quiet environment.
    fn ready_limit(&self) -> Duration {
        READY_LIMIT
    }

    /// What it must have printed before `ready` is asked, where that is how it says that it is up.
    fn announces(&self) -> Option<&str> {
        None
    }

    /// One look at whether a started system answers; asked again until it does, or `ready_limit` is
    /// over. One that leaves it to the driver's `open` is ready at once.
    ///
    /// # Errors
    /// What is not ready yet, for the message if that stays so.
    fn ready(&self, _at: &Endpoint) -> Result<(), PartError> {
        Ok(())
    }

    /// What the system found in its environment and chose (I/O engine, polling, shards ...): asked
    /// of itself, or read from its data directory as the host sees it. Nothing from a system that nobody
    /// knows how to ask.
    fn settings(&self, _at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        Ok(Vec::new())
    }

    /// What the system still does in the background of its own accord, such as flushes and
    /// compactions, now that its data is loaded; `None` once it is quiet. Asked again until then.
    /// Measuring begins only afterwards.
    fn pending(&self, _at: &Endpoint) -> Result<Option<String>, PartError> {
        Ok(None)
    }

    /// Whether its data can be kept for other starts to begin with.
    fn keeps_data(&self) -> bool {
        false
    }

    /// Ends the running system in good order, keeps its data in the directory `to`, which is not there
    /// yet, and returns it. `processes` are the system's as the host numbers them, the first one
    /// first. `None`: the host does not see the data there; nothing was done.
    fn keep(
        &self,
        _at: &Endpoint,
        _processes: &[u32],
        _to: &Path,
    ) -> Result<Option<Rc<dyn KeptData>>, PartError> {
        Ok(None)
    }

    /// The system's own account of its CPU time, where it keeps one. Takes well under 1 ms.
    fn own_account(&self, _data: &Path) -> Result<Option<OwnAccount>, PartError> {
        Ok(None)
    }
}
