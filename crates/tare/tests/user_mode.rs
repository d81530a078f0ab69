//! A user-mode kernel that cannot run on this CPU, through the built program: `doctor` and `list`
//! report the reason and the remedy, `--inside` and a study refuse before anything is started, and
//! a study in which it is optional leaves it out. The kernel is a shell script.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use common::{stderr, stdout, tare};
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped};

/// Panics as Debian's 6.1 does on a CPU with AMX, and then hangs.
const KERNEL: &str = "#!/bin/sh
if [ \"$1\" = --version ]; then echo 6.1.176; exit 0; fi
echo 'userspace - ptrace set fp regs failed, errno = 14' >&2
echo 'Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b' >&2
exec sleep 1000
";

const REASON: &str = "(Linux 6.1.176) cannot set the registers of this CPU";
const REMEDY: &str = "of Linux 6.13 or later, by kernel = \"PATH\"";

fn study(optional: bool) -> String {
    format!(
        r#"
name = "two"
title = "Native and user-mode"
baseline = "native"
[system]
name = "tare-db"
durability = "periodic"
[schedule]
kind = "slices"
window = "100ms"
lead_in = "30ms"
rounds = 2
rounds_min = 2
budget = "5m"
[[environment]]
name = "native"
runtime = "process"
network = "host"
cpu = "pinned"
security = "none"
cgroup = "none"
[[environment]]
name = "other"
extends = "native"
cgroup = "own"
[[environment]]
name = "user-mode"
extends = "native"
runtime = "vm:uml"
network = "bridge"
optional = {optional}
[[workload]]
name = "write"
rows = 500
columns = 2
column_bytes = 64
keys = "gaussian"
latency_share = 0.3
"#
    )
}

/// Runs the program with that kernel first on the PATH.
fn run(here: &Path, words: &[&str]) -> Output {
    let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap());
    let mut command = tare();
    command.args(words).arg("--state").arg(here.join("state"));
    command.env("PATH", path).current_dir(here).output().unwrap()
}

#[test]
fn an_unusable_kernel_is_refused_before_the_start() {
    let programs = ["ip", "nft", "mkfs.ext4", "unshare", "depmod", "modprobe"];
    let needs: Vec<Need> = std::iter::once(Need::Root).chain(programs.map(Need::Program)).collect();
    if skipped("an_unusable_kernel_is_refused_before_the_start", &needs) {
        return;
    }
    let _alone = host_state::alone();
    let before = HostState::read();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("linux.uml"), KERNEL).unwrap();
    fs::set_permissions(here.join("linux.uml"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(here.join("needed.toml"), study(false)).unwrap();
    fs::write(here.join("optional.toml"), study(true)).unwrap();

    let refused = run(here, &["weigh", "needed.toml", "--inside", "vm:uml"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(REASON) && said.contains(REMEDY), "{said}");

    let doctor = stdout(&run(here, &["doctor"]));
    assert!(doctor.contains(REASON) && doctor.contains(REMEDY), "{doctor}");
    let list = stdout(&run(here, &["list", "runtimes"]));
    let line = list.lines().find(|line| line.contains(REASON)).unwrap_or_default();
    assert!(line.contains("not on this host: vm:uml") && line.contains(REMEDY), "{list}");

    let refused = run(here, &["weigh", "needed.toml"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("\"user-mode\"") && said.contains(REASON), "{said}");

    let weighed = run(here, &["weigh", "optional.toml", "--progress", "lines"]);
    let said = stderr(&weighed);
    assert!(weighed.status.success(), "{said}");
    let line = said.lines().find(|line| line.starts_with("user-mode: left out: "));
    assert!(line.is_some_and(|line| line.contains(REASON)), "{said}");

    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "{}", left.join("\n"));
}
