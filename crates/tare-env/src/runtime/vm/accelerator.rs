//! The choice between KVM and TCG, by a trial boot.
//!
//! An open /dev/kvm proves little: on a host that is itself a guest, KVM may exist and run a kernel
//! a thousand times too slowly. So a small guest is booted with KVM under a time limit, once for
//! each boot of the host and each guest kernel. `outcome_cache` keeps the outcome.

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
use super::qemu::{Accelerator, Files, Machine, Memory, PROGRAM, Shape};
use crate::guest::protocol::Answer;
use crate::outcome_cache;
use crate::run_context::RunIdentity;

/// How long the trial guest may take to boot. It takes up to 2 s where KVM works.
const TRIAL_LIMIT: Duration = Duration::from_secs(10);

/// The memory of the trial guest: enough for the kernel and two copies of the program.
const TRIAL_MEMORY_BYTES: u64 = 512 << 20;

/// The file of outcomes in the cache.
const CACHE_FILE: &str = "kvm.json";

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// `/proc/sys/kernel/random/boot_id` of the host.
    boot: String,
    kernel: PathBuf,
    pub(crate) usable: bool,
    /// Such as `a guest is up after 900 ms`, or what failed.
    pub(crate) detail: String,
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}

/// Returns the outcome of the last trial since the host booted, if there was one.
pub(crate) fn cached() -> Option<Outcome> {
    let outcome: Outcome = outcome_cache::read(Path::new(outcome_cache::FOLDER), CACHE_FILE)?;
    (outcome.boot == boot_id()).then_some(outcome)
}

/// Returns why KVM cannot even be tried, or `None` if it can.
pub(crate) fn obstacle() -> Option<String> {
    match File::options().read(true).write(true).open("/dev/kvm") {
        Ok(_) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some("there is no /dev/kvm: the CPU's virtualisation is off or hidden".into())
        }
        Err(error) => Some(format!("/dev/kvm cannot be opened: {error}")),
    }
}

/// Returns the accelerator for a guest and the reason for it. `files` hold the initramfs.
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
        None => cached_or_tried(run, kernel, files)?,
    };
    match (outcome.usable, wanted) {
        (true, _) => Ok((Accelerator::Kvm, outcome.detail)),
        (false, AcceleratorChoice::Kvm) => Err(VmError::NoKvm { why: outcome.detail }),
        (false, _) => Ok((Accelerator::Tcg, format!("KVM is not usable: {}", outcome.detail))),
    }
}

/// Returns the cached outcome for this kernel, or runs a trial.
fn cached_or_tried(
    run: RunIdentity<'_>,
    kernel: &Kernel,
    files: &Files,
) -> Result<Outcome, VmError> {
    if let Some(outcome) = cached()
        && outcome.kernel == kernel.image
    {
        return Ok(outcome);
    }
    let (usable, detail) = boot_trial(run, kernel, files)?;
    let outcome = Outcome { boot: boot_id(), kernel: kernel.image.clone(), usable, detail };
    outcome_cache::write(Path::new(outcome_cache::FOLDER), CACHE_FILE, &outcome);
    Ok(outcome)
}

/// Boots a guest with KVM. Returns whether it came up in time, and the detail.
fn boot_trial(
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
        shape: Shape::default(),
        kernel: &kernel.image,
        files: &here,
        memory: Memory { bytes: TRIAL_MEMORY_BYTES, ..Memory::default() },
        devices: Vec::new(),
        sandbox: false,
        ends_if_stuck: false,
    };
    let command = Command::new(PROGRAM)
        .args(machine.arguments())
        .variable(RUN_VARIABLE, run.run)
        .on_cpus(run.cpus);
    let stderr = File::create(here.stderr()).map_err(fail)?;
    let began = Instant::now();
    let child = command.spawn(Stdio::null(), Stdio::null(), stderr.into())?;
    let mut monitor = Monitor::new(child);
    let hello = receive_hello(&mut monitor, &here, began + TRIAL_LIMIT);
    let took = began.elapsed();
    let ended = monitor.child().try_wait().ok().flatten();
    monitor.kill()?;
    let detail = match (&hello, ended) {
        (Ok(()), _) => format!("a guest is up after {} ms", took.as_millis()),
        (Err(_), Some(status)) => {
            let text = fs::read_to_string(here.stderr()).unwrap_or_default();
            format!("QEMU ended with {status}: {}", text.trim().replace('\n', "; "))
        }
        (Err(_), None) => {
            format!("no guest came up within {} s, although /dev/kvm exists", TRIAL_LIMIT.as_secs())
        }
    };
    Ok((hello.is_ok(), detail))
}

/// Waits for the guest's first message.
fn receive_hello(monitor: &mut Monitor, files: &Files, deadline: Instant) -> io::Result<()> {
    let mut lines = Lines::connect(&files.orders(), deadline, || monitor.alive())?;
    match lines.receive::<Answer>(deadline)? {
        Answer::Hello { .. } => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
