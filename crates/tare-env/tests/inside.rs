//! A guest whose root is the host's. Commands run in it and return their output and status. Only
//! files in the hand-back directory reach the host, and nothing is left, even if the harness is
//! killed.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]
#![expect(clippy::print_stderr, reason = "times are shown")]

mod common;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{State, own_guest, program, skipped_inside_of};
use tare_env::inside::{Command, Guest, InsideError, Status};
use tare_host::error_line;

fn shell(script: &str) -> Command {
    Command::new(["/bin/sh", "-c", script]).limit(Duration::from_secs(300))
}

#[test]
fn commands_run_in_qemu_guest() {
    if !skipped_inside_of("commands_run_in_qemu_guest", "vm:qemu") {
        let guest = "vm:qemu,memory=768M,raw=64M,nvme=64M,accelerator=tcg";
        check_guest(guest, &["/dev/vdb", "/dev/nvme0n1"], "tcg", "nft add table inet tare-t");
    }
}

#[test]
fn commands_run_in_user_mode_guest() {
    if !skipped_inside_of("commands_run_in_user_mode_guest", "vm:uml") {
        // Its kernel has no nftables for IP.
        check_guest("vm:uml,memory=768M,raw=64M", &["/dev/ubdb"], "uml", "modprobe f2fs");
    }
}

/// Runs commands in one guest. `disks` may be overwritten, and `can` is a command that the guest's
/// kernel supports.
fn check_guest(guest: &str, disks: &[&str], accelerator: &str, can: &str) {
    let _guest = own_guest();
    let state = State::new(&format!("inside-{accelerator}"));
    let began = Instant::now();
    let mut guest = Guest::boot(&guest.parse().unwrap(), &state.0, &program())
        .unwrap_or_else(|error| panic!("{}", error_line(&error)));
    eprintln!("up after {:.1?}: {}, {}", began.elapsed(), guest.kernel(), guest.accelerator());

    // The guest has its own kernel and the host's files, and returns both streams and the status.
    let (status, out, err) =
        guest.output(&shell("uname -r; echo no >&2; exit 3").variable("A", "b")).unwrap();
    assert_eq!((status, err.as_str()), (Status::Code(3), "no\n"));
    assert_eq!(out.trim(), guest.kernel());
    let (status, out, _) = guest.output(&shell("kill -9 $$")).unwrap();
    assert_eq!((status, out.as_str()), (Status::Signal(9), ""));
    let here = format!("test -x {} && pwd", program().display());
    let (status, out, _) = guest.output(&shell(&here)).unwrap();
    assert_eq!(status, Status::Code(0));
    assert_eq!(out.trim(), std::env::current_dir().unwrap().to_string_lossy());

    // A command may be long, and others follow it.
    let long = "x".repeat(100_000);
    for _ in 0..2 {
        let (status, out, _) =
            guest.output(&shell("echo ${#LONG}").variable("LONG", &long)).unwrap();
        assert_eq!((status, out.as_str()), (Status::Code(0), "100000\n"));
    }

    // Modules that the host's kernel may lack are loaded on demand.
    let script = "set -ex
        for disk in $DISKS; do
            dd if=/dev/zero of=$disk bs=1M count=1 oflag=direct 2>&1
            dd if=$disk of=/dev/null bs=1M count=1 iflag=direct 2>&1
        done
        dd if=/dev/zero of=/var/lib/tare/tmp/file bs=4096 count=4 oflag=direct 2>&1
        DM_DISABLE_UDEV=1 dmsetup targets; losetup --find
        ip link add tare-a type veth peer name tare-b; $CAN
        ip netns add tare-n; ping -c 1 127.0.0.1 >/dev/null 2>&1 || ip address show lo
        cat /run/tare/guest.json";
    let command = shell(script).variable("DISKS", &disks.join(" ")).variable("CAN", can);
    let (status, out, err) = guest.output(&command).unwrap();
    assert_eq!(status, Status::Code(0), "{out}\n{err}\n{}", guest.console());
    for part in ["thin-pool", "/dev/loop0", accelerator].iter().chain(disks) {
        assert!(out.contains(*part), "no {part}: {out}");
    }

    // The host's root is read-only for the guest; files in the hand-back directory reach the host.
    let identity = state.0.join("never");
    let script = format!(
        "mkdir -p {0} && echo x > {1} && echo kept > /run/tare/export/kept",
        state.0.display(),
        identity.display()
    );
    assert_eq!(guest.output(&shell(&script)).unwrap().0, Status::Code(0));
    assert!(!identity.exists());
    assert_eq!(fs::read_to_string(guest.export().join("kept")).unwrap(), "kept\n");

    // A stopped command gets a signal, and its end is awaited.
    let stop = AtomicBool::new(false);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let script = "trap 'echo stopped; exit 7' INT; echo up; while :; do sleep 1; done";
    let status = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_secs(3));
            stop.store(true, Ordering::Relaxed);
        });
        guest.run(&shell(script), &mut out, &mut err, &stop).unwrap()
    });
    assert_eq!((status, out), (Status::Code(7), b"up\nstopped\n".to_vec()));

    // The hostname identifies the guest.
    let (_, out, _) = guest.output(&shell("cat /proc/sys/kernel/hostname; id -u")).unwrap();
    assert_eq!(out, "tare-guest\n0\n");

    let missing = guest.output(&Command::new(["/no/such/program"])).unwrap_err();
    assert!(matches!(missing, InsideError::Refused { .. }), "{missing}");
    let slow = guest.output(&shell("sleep 1000").limit(Duration::from_secs(1))).unwrap_err();
    assert!(matches!(slow, InsideError::TimedOut { .. }), "{slow}");

    // A guest that dies is an error and does not hang.
    let script = "echo o > /proc/sysrq-trigger; sleep 1000";
    let gone = guest.output(&shell(script)).unwrap_err();
    assert!(matches!(gone, InsideError::Gone { .. }), "{gone}");
    let began = Instant::now();
    assert!(guest.close().is_empty());
    eprintln!("gone after {:.1?}", began.elapsed());
    assert_eq!(fs::read_dir(state.0.join("runs")).unwrap().count(), 0);
}
