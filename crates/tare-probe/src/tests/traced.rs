//! Probes that disturb, on this machine, of work whose size is known. They need root.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::known_work::{Killed, of, seen, system};
use super::*;

/// Whether this process may do what the probes need; says so where not.
fn may_trace(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: {test}: needs root");
    }
    root
}

#[test]
fn system_calls_are_counted_to_the_last_one() {
    if !may_trace("system_calls_are_counted_to_the_last_one") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("file")).unwrap();
    let (writes, syncs) = (3000, 7);
    let seen = seen(&["syscalls"], &system(std::process::id()), || {
        for at in 0..writes {
            file.write_all_at(b"x", at).unwrap();
        }
        for _ in 0..syncs {
            file.sync_data().unwrap();
        }
    });
    assert_eq!(of(&seen, "system_syscalls_pwrite64"), 3000.0, "{seen:?}");
    assert_eq!(of(&seen, "system_syscalls_fdatasync"), f64::from(syncs), "{seen:?}");
    assert!(of(&seen, "system_syscalls") >= 3007.0, "{seen:?}");
    assert!(!seen.iter().any(|(name, _)| name.starts_with("client_")), "{seen:?}");
}

/// A process in a pid namespace of its own that waits for a line and then writes bytes one by one.
fn writer_in_a_namespace(bytes: u32, file: &Path) -> (Child, u32) {
    let script = format!(
        "read line; exec dd if=/dev/zero of={} bs=1 count={bytes} status=none",
        file.display()
    );
    let outer = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", outer.id());
    let inner = (0..1000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        std::fs::read_to_string(&children).ok()?.trim().parse().ok()
    });
    (outer, inner.unwrap())
}

#[test]
fn system_calls_are_counted_inside_a_pid_namespace() {
    if !may_trace("system_calls_are_counted_inside_a_pid_namespace") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (outer, inner) = writer_in_a_namespace(2000, &folder.path().join("file"));
    let mut outer = Killed(outer);
    let seen = seen(&["syscalls"], &system(inner), || {
        outer.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        outer.0.wait().unwrap();
    });
    assert_eq!(of(&seen, "system_syscalls_write"), 2000.0, "{seen:?}");
}
