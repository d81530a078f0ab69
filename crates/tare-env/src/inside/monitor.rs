//! The start of the guest's monitor: QEMU or user-mode Linux.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use tare_host::RUN_VARIABLE;
use tare_host::exec::Command;

use super::{InsideError, Options, machine};
use crate::guest::protocol::Share;
use crate::run_context::RunIdentity;
use crate::runtime::vm::{
    self, Accelerator, BOOT_LIMIT, Files, Kernel, Lines, Machine, Memory, Monitor, MonitorKind,
    VmError, uml,
};

/// The limits of the guest's default memory.
const MEMORY_BYTES: std::ops::RangeInclusive<u64> = 512 << 20..=4 << 30;

/// A guest whose files exist, ready to start.
pub(super) struct Ready<'a> {
    pub(super) options: &'a Options,
    pub(super) identity: RunIdentity<'a>,
    pub(super) kernel: &'a Kernel,
    pub(super) files: &'a Files,
}

/// A started guest that has not sent its hello.
pub(super) struct Started {
    pub(super) monitor: Monitor,
    pub(super) lines: Lines,
    /// The accelerator, and the reason for it.
    pub(super) accelerator: String,
    pub(super) share: Share,
}

impl Ready<'_> {
    pub(super) fn start(&self, deadline: Instant) -> Result<Started, InsideError> {
        match self.options.monitor {
            MonitorKind::Qemu => self.start_qemu(deadline),
            MonitorKind::Uml => self.start_uml(deadline),
        }
    }

    fn start_qemu(&self, deadline: Instant) -> Result<Started, InsideError> {
        let Self { options, identity, kernel, files } = self;
        let (chosen, why) = vm::choose_accelerator(*identity, options.accelerator, kernel, files)?;
        let own_cpus = u32::try_from(identity.cpus.len()).unwrap_or(u32::MAX);
        let words = Machine {
            name: format!("tare-{}-inside", identity.run),
            accelerator: chosen,
            vcpus: options.vcpus.unwrap_or(own_cpus).max(1),
            shape: options.shape,
            memory: Memory { bytes: self.memory_bytes(), ..Memory::default() },
            kernel: &kernel.image,
            files,
            devices: machine::devices(files, options),
            sandbox: false,
            ends_if_stuck: chosen == Accelerator::Tcg,
        }
        .arguments();
        // Ctrl-C must reach the command in the guest, not the monitor.
        let command = self.command(Command::new(vm::QEMU).args(words).own_group());
        let path = files.stderr();
        let stderr = File::create(&path).map_err(|source| InsideError::File { path, source })?;
        let child = command.spawn(Stdio::null(), Stdio::null(), stderr.into());
        let mut monitor = Monitor::new(child.map_err(VmError::Start)?);
        let boot = |source| VmError::Boot { limit: BOOT_LIMIT, source };
        let lines = Lines::connect(&files.orders(), deadline, || monitor.alive()).map_err(boot)?;
        let name = if chosen == Accelerator::Kvm { "kvm" } else { "tcg" };
        let accelerator = format!("{name}: {why}");
        Ok(Started { monitor, lines, accelerator, share: Share::NineP })
    }

    fn start_uml(&self, deadline: Instant) -> Result<Started, InsideError> {
        let Self { options, kernel, files, .. } = self;
        uml::check_memory(self.memory_bytes())?;
        let disks = machine::user_mode_disks(files, options);
        let words = uml::arguments(self.memory_bytes(), disks);
        let program: &Path = &kernel.image;
        let command = self.command(uml::command(program));
        let started = uml::Started::at_gate(command, &words, files)?;
        let (monitor, lines, _) = started.go(deadline)?;
        let accelerator = uml::ACCELERATOR.to_string();
        let export = machine::export(files.folder());
        Ok(Started { monitor, lines, accelerator, share: Share::Hostfs { export } })
    }

    fn memory_bytes(&self) -> u64 {
        self.options.memory_bytes.unwrap_or_else(memory_bytes)
    }

    fn command(&self, command: Command) -> Command {
        command.variable(RUN_VARIABLE, self.identity.run).on_cpus(self.identity.cpus)
    }
}

/// Returns half of the host's available memory, within limits.
fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let half = kib.map_or(0, |kib| kib << 10) / 2;
    half.clamp(*MEMORY_BYTES.start(), *MEMORY_BYTES.end()) & !0xf_ffff
}
