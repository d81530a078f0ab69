//! Tests the kinds that a host's kernel may lack inside a guest whose kernel has them. This test
//! program runs its module `inside` there.

use std::io::stderr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tare_env::inside::{Guest, Status};
use tare_host::error_line;

use crate::common::{State, in_guest, own_guest, program, skipped_inside_of, take_over_skips};

/// What also runs under an emulated CPU, which takes ten times as long as a kernel in user mode.
const ONE: &str = "in_guest::inside::thin_pool_on_named_disk";

/// The time limit of the tests inside, long enough for TCG while other tests run.
const LIMIT: Duration = Duration::from_secs(1200);

#[test]
fn optional_kinds_in_qemu_guest() {
    if !skipped_inside_of("optional_kinds_in_qemu_guest", "vm:qemu") {
        run_in("vm:qemu,memory=1G,raw=384M", ONE, 1);
    }
}

#[test]
fn optional_kinds_in_user_mode_guest() {
    if !skipped_inside_of("optional_kinds_in_user_mode_guest", "vm:uml") {
        run_in("vm:uml,memory=1G,raw=384M", "in_guest::inside::", 3);
    }
}

fn run_in(guest: &str, tests: &str, count: u32) {
    let _guest = own_guest();
    let options = guest.parse().unwrap();
    let kind = guest.split([':', ',']).nth(1).unwrap();
    let state = State::new(&format!("storage-in-{kind}"));
    let mut guest = Guest::boot(&options, &state.0, &program())
        .unwrap_or_else(|error| panic!("{}", error_line(&error)));
    let test = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    let words = [test.as_str(), tests, "--test-threads=1", "--nocapture"];
    let mut out = Vec::new();
    let command = in_guest(&words).limit(LIMIT);
    let ended = guest.run(&command, &mut out, &mut stderr(), &AtomicBool::new(false));
    take_over_skips(&guest);
    let out = String::from_utf8_lossy(&out);
    let ended = ended.unwrap_or_else(|error| panic!("{}\n{out}", error_line(&error)));
    assert_eq!(ended, Status::Code(0), "{out}\n{}", guest.console());
    assert!(out.contains(&format!("test result: ok. {count} passed")), "{out}");
    assert!(guest.close().is_empty());
}

mod inside {
    use tare_env::inside;
    use tare_testkit::{Reason, skip};

    use crate::common::on_storage;
    use crate::{Pairs, check_environment, kill_and_clean, open_with, run_layers, traces};

    /// Returns true on a host, where these tests do not run.
    fn is_host(test: &str) -> bool {
        let is_host = inside::current_guest().is_none();
        if is_host {
            let place = "in the guest of optional_kinds_in_user_mode_guest".into();
            skip(test, Reason::RunsElsewhere { place });
        }
        is_host
    }

    #[test]
    fn thin_pools_and_f2fs() {
        if is_host("thin_pools_and_f2fs") {
            return;
        }
        let small: Pairs = &[("size", "256M"), ("pool", "64M")];
        let xfs: Pairs = &[("size", "384M"), ("pool", "384M"), ("filesystem", "xfs")];
        let layers: &[(&str, Pairs, bool)] = &[
            ("loop-lvm", small, true),
            ("loop-lvm", xfs, false),
            ("direct-lvm", small, true),
            ("f2fs", &[("size", "128M")], true),
        ];
        run_layers("process", layers);
        run_layers("oci:runc", layers);
    }

    #[test]
    fn thin_pool_on_named_disk() {
        if is_host("thin_pool_on_named_disk") {
            return;
        }
        let devices = inside::current_guest().unwrap().devices;
        let [disk] = devices.as_slice() else { panic!("{devices:?}") };
        let state = crate::State::new("storage-disk");
        let before = traces();
        let factory = open_with(&state, devices.clone());
        let options = [("device", disk.to_str().unwrap()), ("size", "256M"), ("pool", "64M")];
        check_environment(&factory, &on_storage("process", "direct-lvm", &options), true);
        assert!(factory.close().is_empty());
        assert_eq!(traces(), before);
    }

    #[test]
    fn clean_removes_leftovers_of_killed_harness() {
        if is_host("clean_removes_leftovers_of_killed_harness") {
            return;
        }
        kill_and_clean(&[
            ("process", &["loop-lvm", "direct-lvm"]),
            ("oci:runc", &["direct-lvm", "f2fs"]),
        ]);
    }
}
