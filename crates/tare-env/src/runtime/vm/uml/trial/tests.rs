//! Shell scripts in place of kernels that boot, die and hang; and the installed kernel.

use std::os::unix::fs::PermissionsExt;

use tare_testkit::Need;

use super::*;
use crate::runtime::vm::kernel;

/// The output of Debian's 6.1 on a CPU with AMX.
const DEATH: &str = "userspace - ptrace set fp regs failed, errno = 14\n\
                     Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b\n";

const PATIENCE: Duration = Duration::from_secs(60);

fn ends(last_line: &str) -> Outcome {
    Outcome::Fails(Reason::Ended { last_line: last_line.into() })
}

#[test]
fn console_output_decides_the_outcome() {
    let refused = Some(Outcome::Fails(Reason::RegisterState { cpu: cpu_field("model name") }));
    for (output, ended, expect) in [
        ("", false, None),
        ("booting", false, None),
        ("tare-trial: the guest is up\n", false, Some(Outcome::Boots)),
        (DEATH, false, refused.clone()),
        (DEATH, true, refused),
        ("Kernel panic - no", false, None),
        ("Kernel panic - no init\n", false, Some(ends("Kernel panic - no init"))),
        ("", true, Some(ends(""))),
        ("a\nout of memory\n\n", true, Some(ends("out of memory"))),
    ] {
        assert_eq!(judge(output, ended), expect, "{output:?}, ended: {ended}");
    }
}

#[test]
fn reason_is_one_line_with_a_remedy() {
    for reason in [
        Reason::RegisterState { cpu: "Some CPU".into() },
        Reason::Ended { last_line: String::new() },
        Reason::Ended { last_line: "Kernel panic".into() },
        Reason::TimedOut { limit: LIMIT },
    ] {
        let found = NoBoot { kernel: "/usr/bin/linux.uml".into(), release: "6.1".into(), reason };
        let text = found.to_string();
        assert!(!text.contains('\n') && text.contains("kernel = \"PATH\""), "{text}");
        let unavailable = Unavailable::from(found);
        assert_eq!(unavailable.to_string(), text);
    }
}

/// Returns whether no kernel can be started here; if so, reports the test as skipped.
fn skipped(test: &str) -> bool {
    tare_testkit::skipped(test, &[Need::Root])
}

/// A shell script in place of a kernel. It counts its boots.
struct FakeKernel {
    folder: tempfile::TempDir,
    kernel: Kernel,
}

impl FakeKernel {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("linux");
        let boots = folder.path().join("boots");
        let text = format!("#!/bin/sh\necho boot >> '{}'\n{script}\n", boots.display());
        fs::write(&image, text).unwrap();
        fs::set_permissions(&image, fs::Permissions::from_mode(0o755)).unwrap();
        let kernel = Kernel { image, release: "9.9".into(), modules: None };
        Self { folder, kernel }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn check(&self, limit: Duration) -> Result<(), Reason> {
        let found = check_within(&self.kernel, &self.state(), self.folder.path(), limit);
        // No directory, no process and no journal of the boot is left.
        let names = |folder: &Path| -> Vec<String> {
            let entries = fs::read_dir(folder).unwrap().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let state = names(&self.state());
        assert_eq!(state, ["runs"], "the outcome is cached elsewhere");
        let journals = names(&self.state().join("runs"));
        assert!(journals.is_empty(), "{journals:?}");
        let image = self.kernel.image.to_string_lossy().into_owned();
        let runs = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&image)
        };
        let processes: Vec<u32> = tare_host::process::all().into_iter().filter(runs).collect();
        assert!(processes.is_empty(), "{processes:?}");
        found.map_err(|found| found.reason)
    }

    fn boots(&self) -> usize {
        let text = fs::read_to_string(self.folder.path().join("boots")).unwrap_or_default();
        text.lines().count()
    }
}

#[test]
fn booting_kernel_is_tried_once_until_its_file_changes() {
    if skipped("booting_kernel_is_tried_once_until_its_file_changes") {
        return;
    }
    let kernel = FakeKernel::new(&format!("echo '{}' >&2", init::LINE));
    assert_eq!(kernel.check(PATIENCE), Ok(()));
    assert_eq!(kernel.check(PATIENCE), Ok(()));
    assert_eq!(kernel.boots(), 1);
    let text = fs::read_to_string(&kernel.kernel.image).unwrap();
    fs::write(&kernel.kernel.image, text + "# another build\n").unwrap();
    assert_eq!(kernel.check(PATIENCE), Ok(()));
    assert_eq!(kernel.boots(), 2);
}

#[test]
fn register_failure_is_cached() {
    if skipped("register_failure_is_cached") {
        return;
    }
    // The script hangs after its output.
    let kernel = FakeKernel::new(&format!("echo '{DEATH}' >&2; exec sleep 1000"));
    for _ in 0..2 {
        let reason = kernel.check(PATIENCE).unwrap_err();
        assert_eq!(reason, Reason::RegisterState { cpu: cpu_field("model name") });
    }
    assert_eq!(kernel.boots(), 1);
}

#[test]
fn possible_host_failures_are_tried_again() {
    if skipped("possible_host_failures_are_tried_again") {
        return;
    }
    let limit = Duration::from_millis(300);
    let kernel = FakeKernel::new("exec sleep 1000");
    for _ in 0..2 {
        assert_eq!(kernel.check(limit), Err(Reason::TimedOut { limit }));
    }
    let kernel = FakeKernel::new("echo no memory >&2; exit 1");
    for _ in 0..2 {
        assert_eq!(kernel.check(PATIENCE), Err(Reason::Ended { last_line: "no memory".into() }));
    }
    assert_eq!(kernel.boots(), 2);
}

#[test]
fn installed_kernel_has_a_definite_outcome() {
    let test = "installed_kernel_has_a_definite_outcome";
    if tare_testkit::skipped(test, &[Need::Root, Need::Program(kernel::USER_MODE_PROGRAM)]) {
        return;
    }
    let kernel = Kernel::user_mode(None).unwrap();
    let state = tempfile::tempdir().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let found = check_within(&kernel, state.path(), cache.path(), PATIENCE);
    match found {
        Ok(()) | Err(NoBoot { reason: Reason::RegisterState { .. }, .. }) => {}
        Err(other) => panic!("{other}"),
    }
    assert_eq!(cached(cache.path()).len(), 1);
}
