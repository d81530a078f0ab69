#![expect(clippy::print_stderr, reason = "what the program sees inside")]

use std::path::Path;
use std::process::Command;

use super::*;
use tare_testkit::Need;

const AMD64: NativeArch = NativeArch { moby: "amd64", oci: Some(Arch::ScmpArchX86_64) };
const ARM64: NativeArch = NativeArch { moby: "arm64", oci: Some(Arch::ScmpArchAarch64) };

fn default_caps() -> Vec<String> {
    CAPABILITIES.iter().map(|&cap| cap.to_owned()).collect()
}

fn resolved(
    value: Security,
    caps: &[String],
    arch: NativeArch,
    kernel: (u32, u32),
) -> LinuxSeccomp {
    let extra = extra_calls(value).unwrap();
    resolve(serde_json::from_str(MOBY_DEFAULT).unwrap(), extra, caps, arch, kernel).unwrap()
}

/// Returns whether a rule allows the call with any arguments.
fn allows(profile: &LinuxSeccomp, name: &str) -> bool {
    profile.syscalls().iter().flatten().any(|rule| {
        rule.action() == LinuxSeccompAction::ScmpActAllow
            && rule.args().is_none()
            && rule.names().iter().any(|allowed| allowed == name)
    })
}

#[test]
fn every_value_resolves() {
    for value in [Security::Default, Security::DefaultWithIoUring, Security::None] {
        let filters = value != Security::None;
        let found = profile(value, &default_caps(), (6, 1)).unwrap();
        assert_eq!(found.is_some(), filters, "{value}");
        assert_eq!(moby_json(value).unwrap().is_some(), filters, "{value}");
        assert_eq!(status_mode(value), if filters { 2 } else { 0 });
    }
}

#[test]
fn allows_and_refuses_known_calls() {
    let default = resolved(Security::Default, &default_caps(), AMD64, (6, 1));
    let with_uring = resolved(Security::DefaultWithIoUring, &default_caps(), AMD64, (6, 1));
    for name in ["read", "write", "futex", "epoll_wait", "io_submit", "chroot", "arch_prctl"] {
        assert!(allows(&default, name), "{name}");
        assert!(allows(&with_uring, name), "{name}");
    }
    for name in ["mount", "bpf", "perf_event_open", "mbind", "kexec_load", "keyctl"] {
        assert!(!allows(&default, name), "{name}");
        assert!(!allows(&with_uring, name), "{name}");
    }
    for name in IO_URING_CALLS {
        assert!(!allows(&default, name), "{name}");
        assert!(allows(&with_uring, name), "{name}");
    }
    assert_eq!(default.default_action(), LinuxSeccompAction::ScmpActErrno);
    assert_eq!(default.default_errno_ret(), Some(1));
}

#[test]
fn capabilities_allow_their_calls() {
    let cases =
        [("CAP_SYS_NICE", "mbind"), ("CAP_PERFMON", "perf_event_open"), ("CAP_SYS_ADMIN", "mount")];
    for (cap, name) in cases {
        let caps = [default_caps(), vec![cap.to_owned()]].concat();
        assert!(
            !allows(&resolved(Security::Default, &default_caps(), AMD64, (6, 1)), name),
            "{name}"
        );
        assert!(allows(&resolved(Security::Default, &caps, AMD64, (6, 1)), name), "{name}");
    }
}

#[test]
fn maps_architectures() {
    let amd64 = resolved(Security::Default, &default_caps(), AMD64, (6, 1));
    let arm64 = resolved(Security::Default, &default_caps(), ARM64, (6, 1));
    let expected = vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32];
    assert_eq!(amd64.architectures(), &Some(expected));
    let expected = vec![Arch::ScmpArchAarch64, Arch::ScmpArchArm];
    assert_eq!(arm64.architectures(), &Some(expected));
    assert!(allows(&amd64, "modify_ldt") && !allows(&arm64, "modify_ldt"));
    let unknown = NativeArch { moby: "unknown", oci: None };
    assert_eq!(resolved(Security::Default, &[], unknown, (6, 1)).architectures(), &None);
}

#[test]
fn rules_depend_on_kernel_version() {
    for (kernel, expected) in
        [((3, 10), false), ((4, 7), false), ((4, 8), true), ((4, 19), true), ((6, 1), true)]
    {
        let profile = resolved(Security::Default, &default_caps(), AMD64, kernel);
        assert_eq!(allows(&profile, "ptrace"), expected, "{kernel:?}");
    }
}

#[test]
fn engine_profile_is_in_moby_form() {
    let default = moby_json(Security::Default).unwrap().unwrap();
    let with_uring = moby_json(Security::DefaultWithIoUring).unwrap().unwrap();
    assert!(!default.contains("io_uring_setup"));
    assert!(with_uring.contains("io_uring_setup"));
    let resolved_again =
        resolve(serde_json::from_str(&with_uring).unwrap(), &[], &default_caps(), AMD64, (6, 1))
            .unwrap();
    assert_eq!(
        resolved_again,
        resolved(Security::DefaultWithIoUring, &default_caps(), AMD64, (6, 1))
    );
}

/// Runs inside the container that `filter_is_in_force_under_runc` starts; does nothing elsewhere.
#[test]
fn report_from_inside() {
    if std::env::var_os("TARE_TEST_INSIDE").is_none() {
        return;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mode = status.lines().find(|line| line.starts_with("Seccomp:")).unwrap();
    let ring = match io_uring::IoUring::new(8) {
        Ok(_) => "works".to_owned(),
        Err(error) => format!("errno {}", error.raw_os_error().unwrap_or_default()),
    };
    eprintln!("inside: {} io_uring {ring}", mode.replace('\t', " "));
}

#[test]
fn filter_is_in_force_under_runc() {
    let name = "filter_is_in_force_under_runc";
    if tare_testkit::skipped(name, &[Need::Root, Need::Program("runc")]) {
        return;
    }
    // A host may disable io_uring itself (kernel.io_uring_disabled), which refuses every value.
    let works = if io_uring::IoUring::new(8).is_ok() { "works" } else { "errno 1" };
    for (value, expected) in [
        ("default", "inside: Seccomp: 2 io_uring errno 1".to_owned()),
        ("default+io_uring", format!("inside: Seccomp: 2 io_uring {works}")),
        ("none", format!("inside: Seccomp: 0 io_uring {works}")),
    ] {
        let printed = run_in_runc(value);
        assert!(printed.contains(&expected), "{value}: wanted \"{expected}\" in:\n{printed}");
    }
}

/// Runs `report_from_inside` of this static test program in a container.
fn run_in_runc(value: &str) -> String {
    let bundle = tempfile::tempdir().unwrap();
    for folder in ["rootfs/proc", "rootfs/tmp"] {
        std::fs::create_dir_all(bundle.path().join(folder)).unwrap();
    }
    std::fs::write(bundle.path().join("rootfs/program"), b"").unwrap();
    let program = std::env::current_exe().unwrap();
    write_config(bundle.path(), &program, value);
    let id = format!("tare-test-security-{}-{}", std::process::id(), value.replace('+', "-"));
    let output = Command::new("runc")
        .args(["run", "--bundle"])
        .arg(bundle.path())
        .arg(&id)
        .output()
        .unwrap();
    // `run` deletes the container unless it failed half-way.
    let _ = Command::new("runc").args(["delete", "--force", &id]).output();
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn write_config(bundle: &Path, program: &Path, value: &str) {
    let caps = default_caps();
    let mut config = serde_json::json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": 0, "gid": 0 },
            "cwd": "/",
            "env": ["TARE_TEST_INSIDE=1"],
            "args": ["/program", "--exact", "layer::security::tests::report_from_inside",
                "--nocapture", "--test-threads=1"],
            "capabilities": { "bounding": &caps, "effective": &caps, "permitted": &caps },
        },
        "root": { "path": "rootfs", "readonly": true },
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/program", "type": "bind", "source": program,
              "options": ["bind", "ro"] },
        ],
        "linux": {
            "namespaces": [
                { "type": "pid" }, { "type": "mount" }, { "type": "ipc" }, { "type": "uts" },
                { "type": "network" },
            ],
        },
    });
    if let Some(filter) = profile(value.parse().unwrap(), &caps, (5, 10)).unwrap() {
        config["linux"]["seccomp"] = serde_json::to_value(filter).unwrap();
    }
    std::fs::write(bundle.join("config.json"), config.to_string()).unwrap();
}
