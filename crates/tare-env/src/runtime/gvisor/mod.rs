//! gVisor: a kernel in user space, the sentry, handles the system calls. `runsc` creates its
//! sandbox as an OCI runtime (`oci:runsc`), for an engine (`docker:runsc`), or for a pod, if the
//! runtime class has gVisor's shim (`crate::pod_sandbox`).
//!
//! This module holds what these ways share: the options, the path of `runsc`, the platforms and the
//! read-back. Layers are read twice: from the sandbox process (its command line names platform and
//! network, /proc its CPUs, namespaces and filter), and by Tare's own program, which runs once in
//! the sandbox and reports what a process sees there (`inside`).
//!
//! Freezing: `runsc` pauses the sandbox; its processes are not frozen. The freezer, like any
//! signal, wakes a thread that waits in a seccomp notification and withdraws the notification
//! (seccomp_do_user_notification in the kernel's kernel/seccomp.c). On systrap the sentry then
//! fails ("failed waiting for seccomp notify"), drops its stub process and kills the system. A
//! paused sentry uses no CPU except for the timers of its own runtime.
//!
//! Accounts: the sandbox's processes count as the system, including the sentry, like the kernel of
//! a virtual machine. The gofer, which opens files for it, counts as the layer's part `gofer`. The
//! account of a polling system does not separate sentry and application: idle polls are calls too.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use tare_host::{exec, facts, process};
use tare_lab::environment::{EnvironmentSpec, LayerState};

use crate::layer::Layers;
use crate::layer::rootfs::PROGRAM;
use crate::pod_sandbox::PodSandbox;
use crate::system::state;

pub mod doctor;
pub mod inside;
mod options;
mod platform;

pub use inside::SandboxView;
pub(crate) use options::Options;
pub use options::{OPTIONS, OptionError};
pub(crate) use platform::PlatformTrial;
pub use platform::{Outcome, Platform};

/// Where `scripts/` installs it, in a directory for each version.
const CACHE: &str = "/var/cache/tare/runsc";

/// How to install it.
pub(crate) const REMEDY: &str = "with Go: CGO_ENABLED=0 go install gvisor.dev/gvisor/runsc@latest, \
                                 then put it on PATH; or see gvisor.dev/docs/user_guide/install";

/// The name of the sandbox's file server in the accounts.
pub(crate) const GOFER: &str = "gofer";

/// Returns whether a runtime's name or path is gVisor's.
pub(crate) fn is_gvisor(program: &str) -> bool {
    let name = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned());
    name.is_some_and(|name| name.contains("runsc") || name.contains("gvisor"))
}

/// Finds a program on PATH. For `runsc` it also searches the builds for Tare, and returns the last
/// version.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    exec::find(program).or_else(|| {
        if program != "runsc" {
            return None;
        }
        let versions = fs::read_dir(CACHE).ok()?.flatten().map(|entry| entry.path().join(program));
        versions.filter(|path| path.is_file()).max()
    })
}

/// Returns the version of a `runsc`. A build from the Go module does not report it, so it is then
/// read from the build information.
pub(crate) fn version(program: &Path) -> String {
    let reported = facts::version(&program.to_string_lossy(), "--version").unwrap_or_default();
    let reported = reported.trim_start_matches("runsc version ").to_string();
    match reported.contains("MISSING") || reported.is_empty() {
        true => module_version(program).unwrap_or_else(|| "an unknown version".into()),
        false => reported,
    }
}

/// Returns the version in the line `mod gvisor.dev/gvisor VERSION`, which Go's linker leaves in a
/// program (runtime/debug.BuildInfo).
fn module_version(program: &Path) -> Option<String> {
    const LINE: &[u8] = b"mod\tgvisor.dev/gvisor\t";
    let mut reader = BufReader::with_capacity(1 << 20, File::open(program).ok()?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).ok()? > 0 {
        if let Some(rest) = line.strip_prefix(LINE) {
            let version = rest.split(|byte| matches!(byte, b'\t' | b'\n')).next()?;
            return Some(String::from_utf8_lossy(version).into_owned());
        }
        line.clear();
    }
    None
}

/// Checks the options against the runtime and the other layers.
pub(super) fn check(
    spec: &EnvironmentSpec,
    layers: &Layers,
    argument: Option<&str>,
) -> Result<(), OptionError> {
    if argument.is_some_and(is_gvisor) {
        return Options::parse(spec, layers).map(drop);
    }
    match spec.sandbox.is_empty() {
        true => Ok(()),
        false => Err(OptionError::NotGvisor { environment: spec.name.clone() }),
    }
}

/// Reads the options back from the command line of the sandbox process. `runsc` omits flags with
/// default values, so an absent flag is read as its default. `is_set` returns whether the study
/// sets an option; the runtime of an engine or of a node has the others from its configuration.
pub(crate) fn read_options(
    pid: u32,
    wanted: Options,
    is_set: impl Fn(&str) -> bool,
) -> Vec<LayerState> {
    let words = process::command_line(pid);
    let there = words.first().is_some_and(|name| name.contains("runsc"));
    let flag = |name: &str, default: &str| {
        let flags = words.iter().map(|word| word.trim_start_matches('-'));
        let value = flags.filter_map(|word| word.strip_prefix(name)?.strip_prefix('=')).next();
        value.unwrap_or(default).to_string()
    };
    let yes_no = |value: String| if value == "true" { "yes" } else { "no" }.to_string();
    let word = |on: bool| if on { "yes" } else { "no" };
    let process = process::name(pid).unwrap_or_default();
    [
        ("platform", wanted.platform.word(), flag("platform", "systrap")),
        ("network", wanted.stack.word(), flag("network", "sandbox")),
        ("directfs", word(wanted.directfs), yes_no(flag("directfs", "true"))),
    ]
    .into_iter()
    .map(|(name, wanted, found)| {
        let wanted = if is_set(name) { wanted } else { "as configured" };
        let in_force = there && (found == wanted || !is_set(name));
        let found = format!("{found}, by the command line of {pid} ({process})");
        state(&format!("sandbox.{name}"), wanted, found, in_force)
    })
    .collect()
}

/// Adds the view from inside to the states, which the host can only read in part. `filter` is the
/// `Seccomp` line of the sandbox process, or `None` for a guest of Kata.
pub(crate) fn read_inside(
    states: &mut [LayerState],
    inside: &Result<SandboxView, String>,
    filter: Option<u32>,
) {
    let in_root =
        states.iter().any(|one| one.layer == "storage" && one.wanted.starts_with("rootfs"));
    for one in states {
        let seen = match inside {
            Ok(seen) => seen,
            Err(why) if one.layer == "rootfs" => {
                one.found = format!("cannot be read inside: {why}");
                one.in_force = false;
                continue;
            }
            Err(_) => continue,
        };
        match one.layer.as_str() {
            "runtime" => one.found += &format!("; inside: {}", seen.kernel),
            "network" => one.found += &format!("; inside: {}", seen.devices.join(" ")),
            "cpu" => one.found += &format!("; inside: CPUs {}", seen.cpus),
            "limits.memory" => one.found += &format!("; inside: {} bytes", seen.memory_bytes),
            "storage" => {
                let mounted = !seen.data.is_empty();
                let data = if mounted { &seen.data } else { "no separate mount" };
                one.found += &format!("; inside: {data}");
                one.in_force &= mounted != in_root;
            }
            "rootfs" => {
                one.found = format!("inside: {}", seen.root);
                one.in_force = seen.root_is_read_only() == Some(one.wanted == "read-only");
            }
            "security" => {
                let inside = if seen.seccomp.is_empty() { "unreadable" } else { &seen.seccomp };
                one.found = match filter {
                    // The sentry always filters itself.
                    Some(own) => {
                        format!("Seccomp of the sandbox: {own}, gVisor's own; inside: {inside}")
                    }
                    None => format!("Seccomp inside: {inside}; Kata's configuration decides"),
                };
                one.in_force &= filter.is_none_or(|mode| mode == 2);
            }
            _ => {}
        }
    }
}

/// Reads what a process sees in a container of a pod's sandbox.
///
/// # Errors
/// Returns the error on one line.
pub(crate) fn view_in_pod(sandbox: &PodSandbox, container: &str) -> Result<SandboxView, String> {
    let printed = sandbox.exec(container, &[PROGRAM, inside::COMMAND])?;
    SandboxView::parse(&printed).ok_or_else(|| format!("the program printed {printed:?}"))
}

/// Returns the gofers among the processes of a sandbox.
pub(crate) fn gofers(pids: &[u32]) -> Vec<u32> {
    let is_gofer = |pid: &&u32| {
        process::command_line(**pid).first().is_some_and(|name| name.starts_with("runsc-gofer"))
    };
    pids.iter().filter(is_gofer).copied().collect()
}

/// Returns the gofer of one container of a pod's sandbox, which has the container's mounts.
pub(crate) fn gofer_of(container: &str, pids: &[u32]) -> Option<u32> {
    let is_of = |pid: &u32| process::command_line(*pid).last().is_some_and(|id| id == container);
    gofers(pids).into_iter().find(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gvisor_is_recognised_by_its_name() {
        for name in ["runsc", "/opt/bin/runsc", "runsc-kvm", "gvisor"] {
            assert!(is_gvisor(name), "{name}");
        }
        for name in ["runc", "crun", "/runsc/bin/youki", "kata-runtime"] {
            assert!(!is_gvisor(name), "{name}");
        }
    }

    #[test]
    fn version_is_read_from_the_build_information() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("runsc");
        let text = b"\x7fELF\0\xff\xaf path\tgvisor.dev/gvisor/runsc\nmod\tgvisor.dev/gvisor\tv0.0.0-2026-1\th1:x=\n";
        fs::write(&program, text).unwrap();
        assert_eq!(module_version(&program).as_deref(), Some("v0.0.0-2026-1"));
        fs::write(&program, "mod\tother\tv1\n").unwrap();
        assert_eq!(module_version(&program), None);
    }
}
