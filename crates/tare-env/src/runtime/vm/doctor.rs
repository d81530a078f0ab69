//! The checks of `tare doctor` for virtual machines: accelerator, monitor, kernel.

use std::fs;
use std::path::Path;

use tare_host::doctor::{Check, Verdict};
use tare_host::facts;

use super::kernel::{self, Kernel};
use super::options::Options;
use super::{accelerator, check_user_mode, default_kernel, needs, qemu::PROGRAM, uml};

/// Checks KVM, QEMU and the kernel for its guests.
pub(crate) fn qemu_checks() -> Vec<Check> {
    vec![kvm(), machine(), guest_kernel()]
}

fn check(what: &str, verdict: Verdict, detail: impl Into<String>, remedy: &str) -> Check {
    Check { what: what.into(), verdict, detail: detail.into(), remedy: remedy.into() }
}

/// Reports the cached outcome. A trial would take up to ten seconds of a CPU.
fn kvm() -> Check {
    let what = "vm: KVM";
    let remedy = "enable virtualisation in the firmware, or nested virtualisation of the machine's \
                  own host; without it guests are emulated, and their costs mean nothing";
    if let Some(obstacle) = accelerator::obstacle() {
        return check(what, Verdict::Limited, obstacle, remedy);
    }
    match accelerator::cached() {
        Some(outcome) if outcome.usable => check(what, Verdict::Ok, outcome.detail, ""),
        Some(outcome) => check(what, Verdict::Limited, outcome.detail, remedy),
        None => {
            let vhost = fs::exists("/dev/vhost-net").unwrap_or(false);
            let vhost = if vhost { "with" } else { "without" };
            let detail = format!("/dev/kvm opens, {vhost} vhost-net; the first guest tries it");
            check(what, Verdict::Ok, detail, "")
        }
    }
}

fn machine() -> Check {
    let what = "vm:qemu";
    match needs(Some("qemu")) {
        Ok(()) => {
            let version = facts::version(PROGRAM, "--version").unwrap_or_default();
            check(what, Verdict::Ok, version, "")
        }
        Err(missing) => check(what, Verdict::Missing, missing.why, &missing.remedy),
    }
}

fn guest_kernel() -> Check {
    let what = "vm: kernel";
    match default_kernel() {
        Ok((image, release)) => {
            let detail = format!("{release} ({})", image.display());
            check(what, Verdict::Ok, detail, "")
        }
        Err(_) => check(what, Verdict::Missing, "no kernel for guests", kernel::REMEDY),
    }
}

/// Checks user-mode Linux. `state` is the state directory, which holds the journal of a trial boot.
pub(crate) fn user_mode(state: &Path) -> Check {
    let what = "vm:uml";
    if let Err(missing) = check_user_mode(None, state) {
        return check(what, Verdict::Missing, missing.why, &missing.remedy);
    }
    let release = Kernel::user_mode(None).map(|kernel| kernel.release).unwrap_or_default();
    match uml::check_memory(Options::default().memory_bytes) {
        Ok(()) => check(what, Verdict::Ok, format!("kernel {release}, in user mode"), ""),
        Err(error) => {
            let remedy =
                "mount -o remount,exec,size=4G /dev/shm, or give guests less (vm option memory)";
            check(what, Verdict::Limited, format!("kernel {release}, but {error}"), remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_checks_have_a_remedy() {
        let state = tempfile::tempdir().unwrap();
        let checks = [qemu_checks(), vec![user_mode(state.path())]].concat();
        for check in checks {
            let has_remedy = check.verdict == Verdict::Ok || !check.remedy.is_empty();
            assert!(has_remedy && !check.detail.is_empty(), "{check:?}");
        }
    }
}
