//! The errors of virtual machines.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tare_host::exec;

/// Why a guest failed.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    #[error("there is no monitor {name:?}; write vm:qemu or vm:uml")]
    Monitor { name: String },
    #[error("{folder} cannot hold the memory of a guest of user-mode Linux: {why}")]
    Memory { folder: &'static str, why: String },
    #[error("cannot use {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("accelerator = \"kvm\" is not available: {why}")]
    NoKvm { why: String },
    #[error("cannot start the monitor")]
    Start(#[from] exec::ExecError),
    #[error(
        "there is no virtiofsd for storage = \"virtiofs\": it comes with QEMU up to 7.2, \
         later as its own package (apt-get install virtiofsd)"
    )]
    NoVirtiofsd,
    #[error("virtiofsd does not serve the shared directory: {output}")]
    Virtiofsd { output: String },
    #[error("the monitor (process {pid}) does not end after SIGKILL")]
    Unkillable { pid: u32 },
    #[error("the guest did not come up within {} s", .limit.as_secs())]
    Boot { limit: Duration, source: io::Error },
    #[error("the guest did not answer the order {order}")]
    Order { order: &'static str, source: io::Error },
    #[error("the guest cannot carry out the order {order}: {error}")]
    Refused { order: &'static str, error: String },
    #[error("the guest sent the wrong answer to the order {order}")]
    Answer { order: &'static str },
    #[error("environment {environment:?} is not started")]
    NotStarted { environment: String },
    #[error("cannot pin vCPU thread {thread}")]
    Pin { thread: u32, source: io::Error },
}
