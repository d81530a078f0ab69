//! KVM or TCG: found out by booting a guest once.
//!
//! That /dev/kvm can be opened says little: on a host that is itself a guest, KVM may be there and
//! run a kernel a thousand times too slowly. So a small guest is booted with it, once for each boot
//! of the host and kernel of the guest, with a time limit; the outcome is kept in the state
//! directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tare_host::exec::Command;
use tare_host::{NAME_PREFIX, RUN_VARIABLE};

use super::error::VmError;
use super::kernel::Kernel;
use super::lines::Lines;
use super::monitor::Monitor;
use super::options::AcceleratorChoice;
use super::qemu::{Accelerator, Files, Machine, Memory, PROGRAM};
use crate::guest::protocol::Answer;
use crate::run_context::RunIdentity;

/// A guest is up within 2 s where KVM works.
const TRY_LIMIT: Duration = Duration::from_secs(10);

/// Enough for the kernel, and for the program twice.
const TRY_MEMORY_BYTES: u64 = 512 << 20;

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// `/proc/sys/kernel/random/boot_id` of the host.
    boot: String,
    kernel: PathBuf,
    pub(crate) usable: bool,
    /// `a guest is up after 900 ms`, or what went wrong.
    pub(crate) detail: String,
}

/// Where the outcome is kept.
fn path(state: &Path) -> PathBuf {
    state.join("kvm.json")
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}

/// The outcome of the last try since the host booted, if there was one.
pub(crate) fn last(state: &Path) -> Option<Outcome> {
    let text = fs::read_to_string(path(state)).ok()?;
    let outcome: Outcome = serde_json::from_str(&text).ok()?;
    (outcome.boot == boot_id()).then_some(outcome)
}

/// Why KVM cannot even be tried, if so.
pub(crate) fn obstacle() -> Option<String> {
    match File::options().read(true).write(true).open("/dev/kvm") {
        Ok(_) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some("there is no /dev/kvm: the CPU's virtualisation is off, or hidden".into())
        }
        Err(error) => Some(format!("/dev/kvm cannot be opened: {error}")),
    }
}

/// The accelerator for a guest and how that was decided. `files` hold the initramfs.
pub(crate) fn choose(
    run: RunIdentity<'_>,
    wanted: AcceleratorChoice,
    kernel: &Kernel,
    files: &Files,
) -> Result<(Accelerator, String), VmError> {
    if wanted == AcceleratorChoice::Tcg {
        return Ok((Accelerator::Tcg, "asked for".into()));
    }
    let outcome = match obstacle() {
        Some(detail) => {
            Outcome { boot: boot_id(), kernel: kernel.image.clone(), usable: false, detail }
        }
        None => tried(run, kernel, files)?,
    };
    match (outcome.usable, wanted) {
        (true, _) => Ok((Accelerator::Kvm, outcome.detail)),
        (false, AcceleratorChoice::Kvm) => Err(VmError::NoKvm { why: outcome.detail }),
        (false, _) => Ok((Accelerator::Tcg, format!("KVM does not serve: {}", outcome.detail))),
    }
}

/// The outcome that is known, or that of a try now.
fn tried(run: RunIdentity<'_>, kernel: &Kernel, files: &Files) -> Result<Outcome, VmError> {
    // The work directory of a run lies in the state directory.
    let state = run.work.parent().unwrap_or(Path::new("/")).to_path_buf();
    if let Some(outcome) = last(&state)
        && outcome.kernel == kernel.image
    {
        return Ok(outcome);
    }
    let (usable, detail) = attempt(run, kernel, files)?;
    let outcome = Outcome { boot: boot_id(), kernel: kernel.image.clone(), usable, detail };
    // Should it not be kept, the next run tries again.
    if let Ok(text) = serde_json::to_string(&outcome) {
        let _ = fs::write(path(&state), text + "\n");
    }
    Ok(outcome)
}

fn attempt(
    run: RunIdentity<'_>,
    kernel: &Kernel,
    files: &Files,
) -> Result<(bool, String), VmError> {
    let folder = files.qmp().with_file_name("kvm");
    let fail = |source| VmError::File { path: folder.clone(), source };
    fs::create_dir(&folder).map_err(fail)?;
    let here = Files::new(&folder);
    fs::hard_link(files.initramfs(), here.initramfs()).map_err(fail)?;
    let machine = Machine {
        name: format!("{NAME_PREFIX}{}-kvm", run.run),
        accelerator: Accelerator::Kvm,
        vcpus: 1,
        kernel: &kernel.image,
        files: &here,
        memory: Memory { bytes: TRY_MEMORY_BYTES, ..Memory::default() },
        devices: Vec::new(),
        sandbox: false,
    };
    let command = Command::new(PROGRAM)
        .args(machine.arguments())
        .variable(RUN_VARIABLE, run.run)
        .on_cpus(run.cpus);
    let stderr = File::create(here.stderr()).map_err(fail)?;
    let began = Instant::now();
    let child = command.spawn(Stdio::null(), Stdio::null(), stderr.into())?;
    let mut monitor = Monitor::new(child);
    let said = hello(&mut monitor, &here, began + TRY_LIMIT);
    let took = began.elapsed();
    let ended = monitor.child().try_wait().ok().flatten();
    monitor.kill()?;
    let detail = match (&said, ended) {
        (Ok(()), _) => format!("a guest is up after {} ms", took.as_millis()),
        (Err(_), Some(status)) => {
            let text = fs::read_to_string(here.stderr()).unwrap_or_default();
            format!("QEMU ended with {status}: {}", text.trim().replace('\n', "; "))
        }
        (Err(_), None) => {
            format!("a guest is not up after {} s, though /dev/kvm is there", TRY_LIMIT.as_secs())
        }
    };
    Ok((said.is_ok(), detail))
}

/// Waits for the guest's first words.
fn hello(monitor: &mut Monitor, files: &Files, deadline: Instant) -> io::Result<()> {
    let mut lines = Lines::connect(&files.orders(), deadline, || monitor.alive())?;
    match lines.receive::<Answer>(deadline)? {
        Answer::Hello { .. } => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
