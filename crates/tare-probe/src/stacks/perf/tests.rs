use std::collections::HashMap;
use std::io::Write;

use tare_lab::driver::Edge;
use tare_lab::probe::Scope;
use tare_lab::stacks::{
    CLIENT, INTERRUPT_CPUS, LAYER, SYSTEM, SampledStack, StackKind, StackSampler,
};
use tare_testkit::{Machine, Reason, skip};

use super::{Perf, StacksError, UserFrames, fold};

/// Shortened output of `perf script` of Linux 6.1. Process 2550 is the system, 2560 the client.
const PRINTED: &str = include_str!("../../../fixtures/perf-script.txt");

fn folded() -> Vec<SampledStack> {
    let parts = HashMap::from([(2550, SYSTEM), (2560, CLIENT), (2570, LAYER)]);
    fold(PRINTED, &parts)
}

#[test]
fn folds_and_counts_perf_output() {
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
    // No path of the recorded machine gets into a record.
    assert!(stacks.iter().all(|stack| !stack.folded.contains('/')));
}

#[test]
fn missing_perf_names_its_package() {
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
fn samples_busy_process() {
    let mut perf = match Perf::open(StackKind::OnCpu, UserFrames::Auto, ("TARE_TEST", "stacks")) {
        Ok(perf) => perf,
        Err(error) => {
            return skip("samples_busy_process", reason(&error));
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
        // The kernel may refuse to let this user sample.
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Shortened output of `perf record -C`: an idle CPU, a packet received while it was idle, a
/// program and its interrupt.
const ON_CPUS: &str = "
    0
\tffffffff81a00010 pv_native_safe_halt ([kernel.kallsyms])
\tffffffff81a00020 default_idle ([kernel.kallsyms])
\tffffffff81a00030 do_idle ([kernel.kallsyms])
\tffffffff81a00040 cpu_startup_entry ([kernel.kallsyms])

    0
\tffffffff81b00010 tcp_v4_rcv ([kernel.kallsyms])
\tffffffff81b00020 net_rx_action ([kernel.kallsyms])
\tffffffff81b00030 handle_softirqs ([kernel.kallsyms])
\tffffffff81b00040 common_interrupt ([kernel.kallsyms])
\tffffffff81a00010 pv_native_safe_halt ([kernel.kallsyms])
\tffffffff81a00030 do_idle ([kernel.kallsyms])

 4711
\t          105f179 main (/usr/bin/stranger)

";

#[test]
fn cpus_show_all_work_and_no_idling() {
    let stacks = super::fold_cpus(ON_CPUS);
    assert!(stacks.iter().all(|stack| stack.part == INTERRUPT_CPUS), "{stacks:?}");
    let found: Vec<(&str, u64)> =
        stacks.iter().map(|stack| (stack.subsystem.as_str(), stack.samples)).collect();
    assert_eq!(found, [("network stack", 1), ("programs", 1)], "{stacks:?}");
}

/// A busy program on one CPU shows in the samples of this CPU, although its process is not named.
#[test]
fn samples_a_cpu() {
    let cpus = "0".parse().unwrap();
    let mut perf = match Perf::open_on_cpus(&cpus, ("TARE_TEST", "stacks")) {
        Ok(perf) => perf,
        Err(error) => return skip("samples_a_cpu", reason(&error)),
    };
    if !tare_testkit::skip::is_root() {
        return skip("samples_a_cpu", Machine::NotRoot);
    }
    assert_eq!(perf.kind(), StackKind::InterruptCpus);
    let script = "while :; do read -r x < /proc/self/stat; done";
    let child = std::process::Command::new("taskset").args(["-c", "0", "sh", "-c", script]).spawn();
    let Ok(mut child) = child else {
        return skip("samples_a_cpu", Reason::not_installed("taskset"));
    };
    let scope = Scope { system: vec![std::process::id()], ..Scope::default() };
    let sampled = perf.begin(&scope).and_then(|()| {
        perf.edge(Edge::Begin)?;
        std::thread::sleep(std::time::Duration::from_millis(500));
        perf.edge(Edge::End)?;
        perf.end()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let stacks = sampled.unwrap();
    assert!(stacks.iter().all(|stack| stack.part == INTERRUPT_CPUS), "{stacks:?}");
    let reads = stacks.iter().filter(|stack| stack.folded.contains("vfs_read"));
    assert!(reads.map(|stack| stack.samples).sum::<u64>() > 0, "{stacks:?}");
}

#[test]
fn ended_process_is_an_error() {
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

/// Samples a process that sleeps for 0.2 s. Returns the stacks and the length of the window.
fn sample_sleep(perf: &mut Perf) -> (Vec<SampledStack>, u128) {
    let mut child = std::process::Command::new("sh")
        .args(["-c", "read -r line; exec sleep 0.2"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // perf ends with the last observed process. This one sleeps until it is killed.
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
    (sampled.unwrap(), window_ns)
}

#[test]
fn sleep_counts_as_waiting_for_clock() {
    let mut perf = match Perf::open(StackKind::OffCpu, UserFrames::Auto, ("TARE_TEST", "stacks")) {
        Ok(perf) => perf,
        Err(error) => {
            return skip("sleep_counts_as_waiting_for_clock", reason(&error));
        }
    };
    let (mut stacks, mut window_ns) = sample_sleep(&mut perf);
    // Seen once in many runs: perf wrote no event at all.
    if stacks.is_empty() {
        (stacks, window_ns) = sample_sleep(&mut perf);
    }
    let slept = stacks.iter().filter(|stack| stack.subsystem == "the clock");
    let slept_ns: u64 = slept.map(|stack| stack.samples).sum();
    assert!(slept_ns >= 200_000_000 && u128::from(slept_ns) <= window_ns, "{stacks:#?}");
}
