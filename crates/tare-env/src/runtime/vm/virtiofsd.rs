//! The daemon that serves a shared directory to a guest (virtiofs): that of QEMU up to 7.2, or its
//! successor in Rust, which takes the same arguments.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use tare_host::RUN_VARIABLE;
use tare_host::exec::{self, Command};
use tare_std::cpus::CpuSet;

use super::error::VmError;
use super::monitor::Monitor;
use super::qemu::Files;
use crate::run_context::RunContext;

/// Where distributions install it, outside PATH in most cases.
const PLACES: &[&str] = &["virtiofsd", "/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"];

/// How long the daemon may take to create its socket.
const SOCKET_LIMIT: Duration = Duration::from_secs(10);

/// Returns the path of the daemon, if it is installed.
pub(super) fn find() -> Option<PathBuf> {
    PLACES.iter().find_map(|place| exec::find(place))
}

/// Starts the daemon and waits until QEMU can connect to it.
pub(super) fn start(
    context: &RunContext,
    files: &Files,
    cache: &str,
    cpus: &CpuSet,
) -> Result<Monitor, VmError> {
    let program = find().ok_or(VmError::NoVirtiofsd)?;
    let socket = files.share_socket();
    let source = files.share().to_string_lossy().into_owned();
    let log = |source| VmError::File { path: files.share_log(), source };
    let out = File::create(files.share_log()).map_err(log)?;
    // 0 leaves the limit of open files unchanged, which needs no capability.
    let command = Command::new(program)
        .arg(format!("--socket-path={}", socket.to_string_lossy()))
        .args(["--rlimit-nofile=0", "-f", "-o"])
        .arg(format!("source={source},cache={cache},sandbox=chroot"))
        .variable(RUN_VARIABLE, context.run())
        .on_cpus(cpus);
    let child = command.spawn(Stdio::null(), Stdio::null(), out.into())?;
    let mut daemon = Monitor::new(child);
    let deadline = Instant::now() + SOCKET_LIMIT;
    while !socket.exists() {
        if Instant::now() > deadline || !daemon.alive() {
            return Err(VmError::Virtiofsd { output: read_log(&files.share_log()) });
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(daemon)
}

fn read_log(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default().trim().replace('\n', "; ")
}
