//! The security layer: the system calls that a seccomp filter allows, and the capabilities that the
//! system keeps.
//!
//! The filter is Moby's current default profile for every runtime, resolved as in Moby. `default`
//! is therefore the same filter under runc, crun, an old Docker and Podman, whose built-in profiles
//! differ (Docker 20.10 allows io_uring, 25.0 and later do not, Podman answers ENOSYS).
//! Capabilities are Moby's default set under every value; only the filter changes.
//!
//! Limits: this module resolves Moby's conditions on capabilities, architecture and kernel version
//! for the OCI runtimes. Engines get the profile in Moby's form and resolve it themselves.

use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompBuilder, LinuxSyscall,
    LinuxSyscallBuilder,
};
use serde::Deserialize;
use tare_lab::layer::Security;

/// Version of the Go module `github.com/moby/profiles/seccomp` that the profile comes from.
pub const VERSION: &str = "v0.2.3";

/// Capabilities of a container by default in Moby (moby/moby: oci/caps/defaults.go).
pub const CAPABILITIES: &[&str] = &[
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// The calls that `default+io_uring` adds.
const IO_URING_CALLS: [&str; 3] = ["io_uring_setup", "io_uring_enter", "io_uring_register"];

const MOBY_DEFAULT: &str = include_str!("moby-default.json");

/// Why a profile cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    #[error("cannot read Moby's seccomp profile {VERSION}, which is built into this program")]
    ReadProfile(#[source] serde_json::Error),
    #[error("cannot convert the seccomp profile to OCI form")]
    BuildProfile(#[source] oci_spec::OciSpecError),
}

/// Returns the filter for an OCI `config.json`, or `None` if the layer is switched off.
///
/// `caps` is the bounding set of the process (`CAP_...`), `kernel` the host's version and major
/// revision. Some rules depend on them.
pub fn profile(
    value: Security,
    caps: &[String],
    kernel: (u32, u32),
) -> Result<Option<LinuxSeccomp>, SecurityError> {
    let Some(extra) = extra_calls(value) else { return Ok(None) };
    let profile = serde_json::from_str(MOBY_DEFAULT).map_err(SecurityError::ReadProfile)?;
    resolve(profile, extra, caps, NATIVE_ARCH, kernel).map(Some)
}

/// Returns the filter of a process with Moby's default capabilities as JSON, `None` if the layer is
/// switched off. Every environment has this one, so that the layer of capabilities changes nothing
/// but the capabilities.
pub(crate) fn default_profile(
    value: Security,
    kernel: (u32, u32),
) -> Result<Option<serde_json::Value>, SecurityError> {
    let bounding: Vec<String> = CAPABILITIES.iter().map(|name| (*name).into()).collect();
    let filter = profile(value, &bounding, kernel)?;
    filter.map(serde_json::to_value).transpose().map_err(SecurityError::ReadProfile)
}

/// Returns the filter in Moby's form for an engine's `seccomp=` option, or `None` if the layer is
/// switched off (`seccomp=unconfined`).
pub fn moby_json(value: Security) -> Result<Option<String>, SecurityError> {
    let Some(extra) = extra_calls(value) else { return Ok(None) };
    let mut profile: serde_json::Value =
        serde_json::from_str(MOBY_DEFAULT).map_err(SecurityError::ReadProfile)?;
    if !extra.is_empty()
        && let Some(rules) = profile["syscalls"].as_array_mut()
    {
        rules.push(serde_json::json!({ "names": extra, "action": "SCMP_ACT_ALLOW" }));
    }
    serde_json::to_string(&profile).map(Some).map_err(SecurityError::ReadProfile)
}

/// Returns the value of `Seccomp:` in `/proc/PID/status` if the layer is in force: 2 with a filter,
/// 0 without (man 5 proc).
pub fn status_mode(value: Security) -> u32 {
    if extra_calls(value).is_some() { 2 } else { 0 }
}

/// Returns the calls that the value adds to the profile, or `None` without a profile.
fn extra_calls(value: Security) -> Option<&'static [&'static str]> {
    match value {
        Security::Default => Some(&[]),
        Security::DefaultWithIoUring => Some(&IO_URING_CALLS),
        Security::None => None,
    }
}

/// Moby's form of a profile: the OCI form with conditional rules.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MobyProfile {
    default_action: LinuxSeccompAction,
    default_errno_ret: Option<u32>,
    arch_map: Vec<MobyArch>,
    syscalls: Vec<MobyRule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MobyArch {
    architecture: Arch,
    sub_architectures: Option<Vec<Arch>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MobyRule {
    names: Vec<String>,
    action: LinuxSeccompAction,
    errno_ret: Option<u32>,
    args: Option<Vec<LinuxSeccompArg>>,
    #[serde(default, rename = "comment")]
    _comment: String,
    #[serde(default)]
    includes: MobyFilter,
    #[serde(default)]
    excludes: MobyFilter,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MobyFilter {
    #[serde(default)]
    caps: Vec<String>,
    #[serde(default)]
    arches: Vec<String>,
    #[serde(default, deserialize_with = "kernel_version")]
    min_kernel: Option<(u32, u32)>,
}

/// An architecture with its name in Moby's conditions and its name in Moby's map.
#[derive(Clone, Copy, Debug)]
struct NativeArch {
    moby: &'static str,
    /// `None` without an entry: the filter then covers only the native architecture.
    oci: Option<Arch>,
}

const NATIVE_ARCH: NativeArch = if cfg!(target_arch = "x86_64") {
    NativeArch { moby: "amd64", oci: Some(Arch::ScmpArchX86_64) }
} else if cfg!(target_arch = "aarch64") {
    NativeArch { moby: "arm64", oci: Some(Arch::ScmpArchAarch64) }
} else if cfg!(target_arch = "riscv64") {
    NativeArch { moby: "riscv64", oci: Some(Arch::ScmpArchRiscv64) }
} else if cfg!(target_arch = "s390x") {
    NativeArch { moby: "s390x", oci: Some(Arch::ScmpArchS390x) }
} else {
    NativeArch { moby: "unknown", oci: None }
};

/// Resolves a profile like `setupSeccomp` of `github.com/moby/profiles/seccomp`: a rule is dropped
/// if any of its exclusions matches or any of its inclusions does not.
fn resolve(
    profile: MobyProfile,
    extra: &[&str],
    caps: &[String],
    arch: NativeArch,
    kernel: (u32, u32),
) -> Result<LinuxSeccomp, SecurityError> {
    let architectures =
        profile.arch_map.into_iter().find(|entry| Some(entry.architecture) == arch.oci).map(
            |entry| {
                [vec![entry.architecture], entry.sub_architectures.unwrap_or_default()].concat()
            },
        );
    let mut calls = Vec::new();
    for rule in profile.syscalls {
        if rule.excludes.excludes(caps, arch, kernel) || !rule.includes.includes(caps, arch, kernel)
        {
            continue;
        }
        calls.push(syscall(rule.names, rule.action, rule.errno_ret, rule.args)?);
    }
    if !extra.is_empty() {
        let names = extra.iter().map(|&name| name.to_owned()).collect();
        calls.push(syscall(names, LinuxSeccompAction::ScmpActAllow, None, None)?);
    }
    let mut builder =
        LinuxSeccompBuilder::default().default_action(profile.default_action).syscalls(calls);
    if let Some(errno) = profile.default_errno_ret {
        builder = builder.default_errno_ret(errno);
    }
    if let Some(architectures) = architectures {
        builder = builder.architectures(architectures);
    }
    builder.build().map_err(SecurityError::BuildProfile)
}

impl MobyFilter {
    fn excludes(&self, caps: &[String], arch: NativeArch, kernel: (u32, u32)) -> bool {
        self.arches.iter().any(|name| name == arch.moby)
            || self.caps.iter().any(|cap| caps.contains(cap))
            || self.min_kernel.is_some_and(|least| kernel >= least)
    }

    fn includes(&self, caps: &[String], arch: NativeArch, kernel: (u32, u32)) -> bool {
        (self.arches.is_empty() || self.arches.iter().any(|name| name == arch.moby))
            && self.caps.iter().all(|cap| caps.contains(cap))
            && self.min_kernel.is_none_or(|least| kernel >= least)
    }
}

fn syscall(
    names: Vec<String>,
    action: LinuxSeccompAction,
    errno: Option<u32>,
    args: Option<Vec<LinuxSeccompArg>>,
) -> Result<LinuxSyscall, SecurityError> {
    let mut builder = LinuxSyscallBuilder::default().names(names).action(action);
    if let Some(errno) = errno {
        builder = builder.errno_ret(errno);
    }
    if let Some(args) = args {
        builder = builder.args(args);
    }
    builder.build().map_err(SecurityError::BuildProfile)
}

/// Reads a kernel version and major revision in Moby's form, such as `"4.8"`.
fn kernel_version<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<(u32, u32)>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let parsed = text
        .split_once('.')
        .and_then(|(version, major)| Some((version.parse().ok()?, major.parse().ok()?)));
    parsed.map(Some).ok_or_else(|| {
        serde::de::Error::custom(format!("\"{text}\" is no kernel version such as \"4.8\""))
    })
}

#[cfg(test)]
mod tests;
