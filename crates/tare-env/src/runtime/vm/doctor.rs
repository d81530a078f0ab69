//! What virtual machines find on this host: accelerator, monitor, kernel, Kata.

use std::fs;
use std::path::Path;

use tare_host::doctor::{Check, Verdict};
use tare_host::{exec, facts};

use super::kernel::{self, Kernel};
use super::options::Options;
use super::{accelerator, default_kernel, needs, qemu::PROGRAM, uml};
use crate::inside;

/// Where Kata keeps its configuration, the first that is there counts (its own order).
const KATA: &[&str] = &[
    "/etc/kata-containers/configuration.toml",
    "/opt/kata/share/defaults/kata-containers/configuration.toml",
    "/usr/share/defaults/kata-containers/configuration.toml",
];

/// Settings of Kata that a cost depends on.
const KATA_SETTINGS: &[&str] =
    &["default_vcpus", "default_memory", "shared_fs", "enable_iothreads"];

/// Checks this host. `state` is the state directory, where the outcome of a try of KVM is kept.
pub fn checks(state: &Path) -> Vec<Check> {
    vec![kvm(state), machine(), guest_kernel(), whole_study(), user_mode(), kata()]
}

fn check(what: &str, verdict: Verdict, detail: impl Into<String>, remedy: &str) -> Check {
    Check { what: what.into(), verdict, detail: detail.into(), remedy: remedy.into() }
}

/// Nothing is tried here: that takes up to ten seconds of a CPU.
fn kvm(state: &Path) -> Check {
    let what = "vm: KVM";
    let remedy = "enable virtualisation in the firmware, or nested virtualisation of the machine's \
                  own host; without it guests are emulated, and their costs mean nothing";
    if let Some(obstacle) = accelerator::obstacle() {
        return check(what, Verdict::Limited, obstacle, remedy);
    }
    match accelerator::last(state) {
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
        Err(_) => check(what, Verdict::Missing, "none for guests", kernel::REMEDY),
    }
}

/// Running a whole study inside a guest.
fn whole_study() -> Check {
    let what = "--inside vm:qemu";
    match inside::needs(&inside::Options::default()) {
        Ok(()) => {
            let detail = "a guest with this host's files, for what its kernel lacks";
            check(what, Verdict::Ok, detail, "")
        }
        Err(missing) => check(what, Verdict::Missing, missing.why, &missing.remedy),
    }
}

fn user_mode() -> Check {
    let what = "vm:uml";
    if let Err(missing) = needs(Some("uml")) {
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

/// Kata is a runtime of the container engines (`docker:kata`); what it gives a guest is said here.
fn kata() -> Check {
    let what = "Kata Containers";
    let program = ["kata-runtime", "containerd-shim-kata-v2"].into_iter().find_map(exec::find);
    let file = KATA.iter().find(|path| Path::new(path).is_file());
    let (Some(program), Some(file)) = (program, file) else {
        let remedy = "install it from katacontainers.io and name it as a runtime of the engine";
        return check(what, Verdict::Missing, "not installed", remedy);
    };
    let text = fs::read_to_string(file).unwrap_or_default();
    let detail = format!("{}; {file}: {}", program.display(), settings(&text));
    check(what, Verdict::Ok, detail, "")
}

/// `default_vcpus = 1, shared_fs = "virtio-fs"`: the lines of interest of a configuration.
fn settings(text: &str) -> String {
    let wanted = |line: &&str| {
        let name = line.split_once('=').map(|(name, _)| name.trim());
        name.is_some_and(|name| KATA_SETTINGS.contains(&name))
    };
    text.lines().map(str::trim).filter(wanted).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_kata_are_found_among_others() {
        let text = "[hypervisor.qemu]\n# default_vcpus = 9\ndefault_vcpus = 1\npath = \"x\"\n\
                    default_memory = 2048\n shared_fs = \"virtio-fs\"\n";
        let expect = "default_vcpus = 1, default_memory = 2048, shared_fs = \"virtio-fs\"";
        assert_eq!(settings(text), expect);
    }

    #[test]
    fn what_is_not_ok_says_how_to_get_it() {
        for check in checks(Path::new("/nonexistent")) {
            let told = check.verdict == Verdict::Ok || !check.remedy.is_empty();
            assert!(told && !check.detail.is_empty(), "{check:?}");
        }
    }
}
