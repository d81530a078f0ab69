use std::collections::HashMap;
use std::io::Write;

use tare_lab::driver::Edge;
use tare_lab::probe::Scope;
use tare_lab::stacks::{CLIENT, LAYER, SYSTEM, SampledStack, StackKind, StackSampler};
use tare_testkit::{Machine, Reason, skip};

use super::{Perf, StacksError, UserFrames, fold};

/// What `perf script` of Linux 6.1 printed, shortened; process 2550 is the system, 2560 the client.
const PRINTED: &str = include_str!("../../../fixtures/perf-script.txt");

fn folded() -> Vec<SampledStack> {
    let parts = HashMap::from([(2550, SYSTEM), (2560, CLIENT), (2570, LAYER)]);
    fold(PRINTED, &parts)
}

#[test]
fn what_perf_prints_is_folded_and_counted() {
    let stacks = folded();
    // Every sample of a known process, and none of another.
    let headers = PRINTED.lines().filter(|line| !line.starts_with('\t') && !line.trim().is_empty());
    let known = headers.filter(|line| ["2550", "2560", "2570"].contains(&line.trim())).count();
    assert_eq!(stacks.iter().map(|stack| stack.samples).sum::<u64>(), known as u64);
    assert!(stacks.iter().all(|stack| !stack.folded.contains("stranger")));
    let find = |part: &str, end: &str| {
        let found = stacks.iter().find(|one| one.part == part && one.folded.ends_with(end));
        found.unwrap_or_else(|| panic!("no stack of {part} ends with {end}: {stacks:#?}"))
    };
    let twice = find(SYSTEM, "tare_db::shard::Shard::run");
    assert_eq!((twice.samples, twice.subsystem.as_str()), (2, "database"));
    let bell = find(SYSTEM, "vp_notify_[k];iowrite16_[k]");
    assert_eq!(bell.subsystem, "hypervisor");
    assert!(bell.folded.starts_with("syscall;entry_SYSCALL_64_after_hwframe_[k]"), "{bell:?}");
    let bridge = find(CLIENT, "br_handle_frame_[k]");
    assert_eq!(bridge.subsystem, "bridge and veth");
    assert_eq!(find(LAYER, "tcp_sendmsg_[k]").subsystem, "userland proxy");
    // No path of the machine that it was taken on gets into a record.
    assert!(stacks.iter().all(|stack| !stack.folded.contains('/')));
}

#[test]
fn a_program_that_is_missing_is_named_with_its_package() {
    let error =
        Perf::open_program("tare-has-no-such-perf", StackKind::OnCpu, UserFrames::Auto, ("A", "b"))
            .unwrap_err();
    assert!(matches!(error, StacksError::NotInstalled), "{error:?}");
    assert!(error.to_string().contains("linux-perf"));
}

/// Why perf cannot be opened here.
fn reason(error: &StacksError) -> Reason {
    match error {
        StacksError::NotInstalled => Reason::not_installed("perf"),
        _ if !tare_testkit::skip::is_root() => Machine::NotRoot.into(),
        error => Reason::Other(error.to_string()),
    }
}

#[test]
fn a_busy_process_is_sampled() {
    let mut perf = match Perf::open(StackKind::OnCpu, UserFrames::Auto, ("TARE_TEST", "stacks")) {
        Ok(perf) => perf,
        Err(error) => {
            return skip("a_busy_process_is_sampled", reason(&error));
        }
    };
    let mut child = std::process::Command::new("sh")
        .args(["-c", "while :; do read -r x < /proc/self/stat; done"])
        .spawn()
        .unwrap();
    let scope = Scope { system: vec![child.id()], ..Scope::default() };
    let sampled = perf.begin(&scope).and_then(|()| {
        perf.edge(Edge::Begin)?;
        std::thread::sleep(std::time::Duration::from_millis(300));
        perf.edge(Edge::End)?;
        perf.end()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    match sampled {
        Ok(stacks) => assert!(stacks.iter().all(|stack| stack.part == SYSTEM), "{stacks:?}"),
        // The kernel may not let this user look.
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[test]
fn a_process_that_is_gone_is_an_error_and_leaves_nothing_running() {
    let Ok(mut perf) = Perf::open(StackKind::OnCpu, UserFrames::Auto, ("TARE_TEST", "stacks"))
    else {
        return;
    };
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let gone = Scope { system: vec![child.id()], ..Scope::default() };
    assert!(perf.begin(&gone).is_err());
    assert!(perf.end().is_err());
    assert!(perf.begin(&Scope::default()).unwrap_err().to_string().contains("no process"));
}

#[test]
fn a_sleep_of_known_length_is_waited_for_by_the_clock() {
    let mut perf = match Perf::open(StackKind::OffCpu, UserFrames::Auto, ("TARE_TEST", "stacks")) {
        Ok(perf) => perf,
        Err(error) => {
            return skip("a_sleep_of_known_length_is_waited_for_by_the_clock", reason(&error));
        }
    };
    let mut child = std::process::Command::new("sh")
        .args(["-c", "read -r line; exec sleep 0.2"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Perf ends with the last process that it looks at: this one never leaves its sleep.
    let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let scope = Scope { system: vec![child.id(), other.id()], ..Scope::default() };
    let started = std::time::Instant::now();
    let sampled = perf.begin(&scope).and_then(|()| {
        perf.edge(Edge::Begin)?;
        child.stdin.take().unwrap().write_all(b"\n")?;
        child.wait()?;
        perf.edge(Edge::End)?;
        perf.end()
    });
    let window_ns = started.elapsed().as_nanos();
    other.kill().unwrap();
    other.wait().unwrap();
    let stacks = sampled.unwrap();
    let slept = stacks.iter().filter(|stack| stack.subsystem == "the clock");
    let slept_ns: u64 = slept.map(|stack| stack.samples).sum();
    assert!(slept_ns >= 200_000_000 && u128::from(slept_ns) <= window_ns, "{stacks:#?}");
}
