//! Several loaders with real agent processes over pipes: this program, started again with
//! `load-agent`.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tare_driver::AgentOptions;
use tare_driver::loaders::{AgentPipes, LoaderError, MultiLoader, StartAgent};
use tare_lab::PartError;
use tare_lab::access::ClientAccess;
use tare_lab::driver::{Driver, Edge, Pacing, SliceLoad, SliceOrder, TargetId};
use tare_lab::study::WorkloadSpec;
use tare_load::histogram;
use tare_std::cpus::CpuSet;
use tare_testkit::fake_server::{FakeServer, ServerBehaviour};
use tare_testkit::{Machine, harness, skip};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, flag, parent, _, tool @ ..] = arguments.as_slice()
        && (word.as_str(), flag.as_str()) == ("load-agent", "--become")
    {
        tare_driver::become_tool(parent.parse().unwrap(), tool).unwrap();
    }
    if let [_, word, _, driver, _, speaks, _, cpus, _, silence] = arguments.as_slice()
        && word == "load-agent"
    {
        let options = AgentOptions {
            driver: driver.clone(),
            cpus: cpus.parse().unwrap(),
            silence: Some(Duration::from_secs(silence.parse().unwrap())),
            program: std::env::current_exe().unwrap(),
            speaks: speaks.clone(),
        };
        let ended =
            tare_driver::agent(&options, BufReader::new(std::io::stdin()), std::io::stdout());
        return if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let cases: [(&str, fn()); 11] = [
        ("loaders_divide_a_slice", loaders_divide_a_slice),
        ("nine_loaders_with_one_connection_each", nine_loaders_with_one_connection_each),
        ("clock_that_is_2_s_ahead_is_found", clock_that_is_2_s_ahead_is_found),
        ("lost_loader_is_connected_again", lost_loader_is_connected_again),
        ("loader_that_stays_away_ends_the_run", loader_that_stays_away_ends_the_run),
        ("failed_order_leaves_no_answer_behind", failed_order_leaves_no_answer_behind),
        ("frozen_loader_is_late", frozen_loader_is_late),
        ("agents_end_with_their_pipes", agents_end_with_their_pipes),
        ("tool_is_divided_among_loaders", tool_is_divided_among_loaders),
        ("tool_ends_with_its_killed_agent", tool_ends_with_its_killed_agent),
        ("late_loader_is_waited_for", late_loader_is_waited_for),
    ];
    harness::run(&cases);
    ExitCode::SUCCESS
}

/// Starts agents on this host, behind the words of another program.
struct TestAgent {
    name: String,
    before: Vec<String>,
    /// The processes that were started.
    started: Arc<Mutex<Vec<u32>>>,
    /// How many more times it can be started.
    left: usize,
}

impl TestAgent {
    fn new(name: &str) -> Self {
        let started = Arc::default();
        Self { name: name.into(), before: Vec::new(), started, left: 100 }
    }

    fn boxed(self) -> (Box<dyn StartAgent>, Option<CpuSet>) {
        let affinity = rustix::thread::sched_getaffinity(None).unwrap();
        let cpu = (0u32..1_024).filter(|&cpu| affinity.is_set(cpu as usize)).take(1).collect();
        (Box::new(self), Some(cpu))
    }
}

impl StartAgent for TestAgent {
    fn host(&self) -> &str {
        &self.name
    }

    fn start(&mut self, arguments: &[String]) -> Result<AgentPipes, PartError> {
        self.left = self.left.checked_sub(1).ok_or("the host is switched off")?;
        let mut words = self.before.clone();
        words.push(std::env::current_exe()?.to_string_lossy().into_owned());
        words.extend_from_slice(arguments);
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        self.started.lock().unwrap().push(child.id());
        Ok(AgentPipes::of_child(child)?)
    }
}

type Agents = Vec<(Box<dyn StartAgent>, Option<CpuSet>)>;

/// Starts loaders with the built-in driver.
fn start(agents: Agents) -> Result<MultiLoader, LoaderError> {
    start_with("tare-load", agents)
}

fn start_with(driver: &str, agents: Agents) -> Result<MultiLoader, LoaderError> {
    let driver = tare_driver::ALL.iter().find(|known| known.name == driver).unwrap();
    MultiLoader::start(driver, driver.speaks[0], &ClientAccess::default(), agents)
}

fn workload(connections: u32, in_flight: u32) -> WorkloadSpec {
    WorkloadSpec { connections, in_flight, ..tare_testkit::workload() }
}

fn slice(workload: WorkloadSpec, pacing: Pacing) -> SliceOrder {
    let (lead_in, window) = (Duration::from_millis(20), Duration::from_millis(100));
    SliceOrder { workload, pacing, lead_in, window, seed: 4 }
}

/// Runs a slice and checks its edges.
fn run(driver: &mut MultiLoader, target: TargetId, order: &SliceOrder) -> SliceLoad {
    let mut edges = Vec::new();
    let load = driver.run(target, order, &mut |edge| edges.push(edge)).unwrap();
    assert_eq!(edges, [Edge::Begin, Edge::End]);
    load
}

fn loaders_divide_a_slice() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let names = ["ssh:a", "ssh:b", "local"];
    let mut driver = start(names.map(|name| TestAgent::new(name).boxed()).into()).unwrap();
    let loaders = driver.loaders();
    assert_eq!(loaders.iter().map(|one| one.host.as_str()).collect::<Vec<_>>(), names);
    assert!(loaders.iter().all(|one| one.cpus.len() == 1 && !one.kernel.is_empty()));
    let target = driver.open(&[server.address], Duration::from_secs(10)).unwrap();
    let mut last = (0, 0);
    let workload = workload(7, 32);
    driver.populate(target, &workload, 1, &mut |done, all| last = (done, all)).unwrap();
    assert_eq!(last, (1_000, 1_000));
    for pacing in [Pacing::Closed, Pacing::Open { rate_per_s: 2_000.0 }, Pacing::Closed] {
        let load = run(&mut driver, target, &slice(workload.clone(), pacing));
        assert!(load.errors.is_empty(), "{load:?}");
        let parts = load.loaders.iter().map(|one| one.loader).collect::<Vec<_>>();
        assert_eq!(parts, [0, 1, 2]);
        assert_eq!(load.operations, load.loaders.iter().map(|one| one.operations).sum::<u64>());
        assert!(load.loaders.iter().all(|one| one.operations > 0), "{load:?}");
        let cpu_ns: u64 = load.loaders.iter().map(|one| one.cpu_ns).sum();
        assert_eq!(load.client_cpu_ns, cpu_ns);
        let service = histogram::decode(&load.service).unwrap();
        match pacing {
            Pacing::Closed => assert!(load.response.is_empty() && service.len() == load.operations),
            Pacing::Open { .. } => {
                // Each loader may have one operation more or less at an edge.
                let due = service.len() + load.unsent;
                assert!((197..=203).contains(&due), "{due}");
            }
        }
    }
    // Three control connections, and 3 + 2 + 2 for the load: all open, none opened again.
    assert_eq!(server.connections(), 10);
    driver.close(target).unwrap();
    driver.stop().unwrap();
    assert!(driver.pids().is_empty());
}

fn nine_loaders_with_one_connection_each() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let nine = (0..9).map(|number| TestAgent::new(&format!("ssh:{number}")).boxed());
    let mut driver = start(nine.collect()).unwrap();
    let target = driver.open(&[server.address], Duration::from_secs(10)).unwrap();
    driver.populate(target, &workload(9, 9), 1, &mut |_, _| {}).unwrap();
    let load = run(&mut driver, target, &slice(workload(9, 9), Pacing::Closed));
    assert!(load.loaders.len() == 9 && load.errors.is_empty(), "{load:?}");
    // Of two requests in flight two loaders get one each, and the others pause.
    let load = run(&mut driver, target, &slice(workload(9, 2), Pacing::Closed));
    assert_eq!(load.loaders.iter().map(|one| one.loader).collect::<Vec<_>>(), [0, 1]);
}

/// A loader whose CLOCK_MONOTONIC is 2 s ahead begins and ends with the others. CLOCK_MONOTONIC is
/// what is compared, so that a step of the wall clock changes nothing.
fn clock_that_is_2_s_ahead_is_found() {
    let test = "clock_that_is_2_s_ahead_is_found";
    let mut ahead = TestAgent::new("ssh:ahead");
    let words = ["unshare", "--time", "--monotonic", "2", "--fork", "--kill-child"];
    ahead.before = words.map(str::to_string).to_vec();
    let tried = Command::new(words[0]).args(&words[1..]).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return skip(test, Machine::KernelLacks("no time namespace can be made".into()));
    }
    let server = FakeServer::start(ServerBehaviour::Good);
    let agents = vec![ahead.boxed(), TestAgent::new("ssh:here").boxed()];
    let mut driver = start(agents).unwrap();
    let offsets = driver.clock_offsets();
    let ((offset_ns, error_ns), (here_ns, here_error_ns)) = (offsets[0], offsets[1]);
    assert!(offset_ns.abs_diff(2_000_000_000) <= error_ns, "{offset_ns} {error_ns}");
    assert!(here_ns.unsigned_abs() <= here_error_ns, "{here_ns} {here_error_ns}");
    assert!(error_ns < 1_000_000_000, "{error_ns}");
    let target = driver.open(&[server.address], Duration::from_secs(10)).unwrap();
    driver.populate(target, &workload(4, 8), 1, &mut |_, _| {}).unwrap();
    let load = run(&mut driver, target, &slice(workload(4, 8), Pacing::Closed));
    // 2 s would be far outside; a busy host may make it late by some ms.
    assert!(load.loaders.iter().all(|one| one.apart_ns() < 500_000_000), "{load:?}");
    assert!(load.loaders.iter().all(|one| one.operations > 0), "{load:?}");
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// Kills the agent of the loader `ssh:lost` in the middle of a long slice.
fn assert_lost_in_slice(
    driver: &mut MultiLoader,
    target: TargetId,
    order: &SliceOrder,
    agent: u32,
) {
    let long = SliceOrder { window: Duration::from_secs(60), ..order.clone() };
    let error = driver.run(target, &long, &mut |edge| {
        if edge == Edge::Begin {
            kill(agent);
        }
    });
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("the loader ssh:lost is lost"), "{error}");
}

fn lost_loader_is_connected_again() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let lost = TestAgent::new("ssh:lost");
    let started = Arc::clone(&lost.started);
    let agents = vec![TestAgent::new("ssh:kept").boxed(), lost.boxed()];
    let mut driver = start(agents).unwrap();
    let target = driver.open(&[server.address], Duration::from_secs(10)).unwrap();
    driver.populate(target, &workload(4, 8), 1, &mut |_, _| {}).unwrap();
    let order = slice(workload(4, 8), Pacing::Closed);
    run(&mut driver, target, &order);
    // In the middle of a slice.
    let pid = started.lock().unwrap()[0];
    let began = Instant::now();
    assert_lost_in_slice(&mut driver, target, &order, pid);
    assert!(began.elapsed() < Duration::from_secs(30), "the other one was stopped");
    assert_eq!(driver.given_up(), None);
    let load = run(&mut driver, target, &order);
    assert!(load.loaders.len() == 2 && load.errors.is_empty(), "{load:?}");
    // Between two slices.
    let pid = started.lock().unwrap()[1];
    kill(pid);
    let next = driver.run(target, &order, &mut |_| {});
    assert!(next.is_ok() || next.is_err_and(|error| error.to_string().contains("is lost")));
    run(&mut driver, target, &order);
    assert_eq!(started.lock().unwrap().len(), 3);
}

fn loader_that_stays_away_ends_the_run() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let lost = TestAgent { left: 1, ..TestAgent::new("ssh:lost") };
    let started = Arc::clone(&lost.started);
    let mut driver = start(vec![lost.boxed()]).unwrap();
    let target = driver.open(&[server.address], Duration::from_secs(10)).unwrap();
    driver.populate(target, &workload(4, 8), 1, &mut |_, _| {}).unwrap();
    kill(started.lock().unwrap()[0]);
    let order = slice(workload(4, 8), Pacing::Closed);
    let errors: Vec<String> = (0..3)
        .map(|_| tare_std::error_line(&*driver.run(target, &order, &mut |_| {}).unwrap_err()))
        .collect();
    let why = driver.given_up().unwrap();
    assert!(why.contains("3 attempts to connect again"), "{why}");
    assert!(why.contains("ssh:lost: the host is switched off"), "{why}");
    assert_eq!(errors[2], why);
}

fn failed_order_leaves_no_answer_behind() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let agents = vec![TestAgent::new("ssh:a").boxed(), TestAgent::new("ssh:b").boxed()];
    let mut driver = start(agents).unwrap();
    let nobody = driver.open(&["127.0.0.1:1".parse().unwrap()], Duration::from_millis(10));
    let error = nobody.unwrap_err().to_string();
    assert!(error.starts_with("the loader ssh:"), "{error}");
    let target = driver.open(&[server.address], Duration::from_secs(10)).unwrap();
    let order = slice(workload(4, 8), Pacing::Closed);
    driver.populate(target, &workload(4, 8), 1, &mut |_, _| {}).unwrap();
    assert_eq!(run(&mut driver, target, &order).loaders.len(), 2);
}

fn frozen_loader_is_late() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let slow = TestAgent::new("ssh:slow");
    let started = Arc::clone(&slow.started);
    let agents = vec![slow.boxed(), TestAgent::new("ssh:b").boxed()];
    let mut driver = start(agents).unwrap();
    let target = driver.open(&[server.address], Duration::from_secs(10)).unwrap();
    driver.populate(target, &workload(4, 8), 1, &mut |_, _| {}).unwrap();
    let order = slice(workload(4, 8), Pacing::Closed);
    let pid = Pid::from_raw(i32::try_from(started.lock().unwrap()[0]).unwrap()).unwrap();
    let load = driver.run(target, &order, &mut |edge| {
        if edge == Edge::Begin {
            kill_process(pid, Signal::STOP).unwrap();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                kill_process(pid, Signal::CONT).unwrap();
            });
        }
    });
    let load = load.unwrap();
    let late = &load.loaders[0];
    assert!(late.end_offset_ns > 100_000_000, "{late:?}");
    let loaders = driver.loaders();
    let doubts = tare_lab::loader::doubts(&loaders, &load.loaders, 100_000_000, false);
    assert!(doubts.iter().any(|doubt| doubt.text().contains("ssh:slow")), "{doubts:?}");
    let void = tare_lab::loader::void(&loaders, &load.loaders, 100_000_000).unwrap();
    assert!(void.starts_with("the window of ssh:slow was "), "{void}");
}

fn agents_end_with_their_pipes() {
    let lost = TestAgent::new("ssh:a");
    let started = Arc::clone(&lost.started);
    let driver = start(vec![lost.boxed()]).unwrap();
    let pid = started.lock().unwrap()[0];
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    drop(driver);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

/// A scylla-bench that loads nothing: it logs its arguments, starts for `$SLOW` seconds, reports
/// 1,000 operations/s for each `-concurrency`, and ends after `-duration`.
const SCYLLA_BENCH: &str = r#"#!/bin/sh
echo "$$ $*" >>"${0%/*}/log"
seconds=0
while [ $# -gt 0 ]; do
    case $1 in
    -duration) seconds=${2%s}; shift ;;
    -concurrency) rate=$(($2 * 1000)); shift ;;
    -partition-count) done=$2; shift ;;
    esac
    shift
done
if [ "$seconds" -gt 0 ]; then
    sleep "${SLOW:-0}"
    second=0
    while [ $second -lt "$seconds" ]; do
        sleep 1
        second=$((second + 1))
        echo "${second}s $rate $rate 0 5ms 4ms 3ms 2ms 2ms 1ms 1ms"
    done
    done=$((rate * seconds))
fi
printf '\nResults\nTime (avg): %ss\nTotal ops: %s\n' "$seconds" "$done"
for kind in raw c-o\ fixed; do
    printf '%s latency:\n  max: 5ms\n  99.9th: 4ms\n  99th: 3ms\n  95th: 2ms\n  90th: 2ms\n' "$kind"
    printf '  median: 1ms\n  mean: 1ms\n'
done
"#;

/// The program of a test's tool, and the workload that runs it.
struct FakeTool {
    directory: tempfile::TempDir,
    workload: WorkloadSpec,
}

impl FakeTool {
    fn new(options: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("scylla-bench");
        std::fs::write(&program, SCYLLA_BENCH).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = program.to_str().unwrap();
        let options = options.iter().copied().chain([("program", program)]);
        let options = options.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let workload = WorkloadSpec { options, ..tare_testkit::workload() };
        Self { directory, workload }
    }

    /// Returns the process and the arguments of each start.
    fn starts(&self) -> Vec<(u32, String)> {
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let start = |line: &str| {
            let (pid, words) = line.split_once(' ').unwrap();
            (pid.parse().unwrap(), words.to_string())
        };
        log.lines().map(start).collect()
    }

    fn slice(&self) -> SliceOrder {
        let (lead_in, window) = (Duration::from_millis(300), Duration::from_secs(2));
        let workload = self.workload.clone();
        SliceOrder { workload, pacing: Pacing::Closed, lead_in, window, seed: 4 }
    }

    /// Checks a slice by loaders with so many operations in flight each.
    fn check(&self, load: &SliceLoad, in_flight: &[u32]) {
        let rate_per_s = f64::from(in_flight.iter().sum::<u32>()) * 1_000.0;
        let expect = rate_per_s * load.window_ns as f64 / 1e9;
        let share = load.operations as f64 / expect;
        assert!((0.98..1.02).contains(&share), "{} of {expect}", load.operations);
        let sum: u64 = load.loaders.iter().map(|one| one.operations).sum();
        assert_eq!((load.loaders.len(), sum), (in_flight.len(), load.operations));
        let cpu_ns: u64 = load.loaders.iter().map(|one| one.cpu_ns).sum();
        assert_eq!(load.client_cpu_ns, cpu_ns);
        for (one, in_flight) in load.loaders.iter().zip(in_flight) {
            let expect = f64::from(*in_flight) * one.window_ns as f64 / 1e6;
            assert!((one.operations as f64 / expect - 1.0).abs() < 0.02, "{one:?}");
        }
        assert!(!histogram::decode(&load.service).unwrap().is_empty());
        assert_eq!(load.paths.len(), in_flight.len());
    }
}

/// The option of a workload is divided, the rows are written once, and every loader has keys of its
/// own.
fn tool_is_divided_among_loaders() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let options = [("concurrency", "5"), ("partitions", "9"), ("workload", "sequential")];
    let tool = FakeTool::new(&options);
    let agents = vec![TestAgent::new("ssh:a").boxed(), TestAgent::new("ssh:b").boxed()];
    let mut driver = start_with("scylla-bench", agents).unwrap();
    assert!(!driver.loads_at_edges());
    let target = driver.open(&[server.address], Duration::from_secs(10)).unwrap();
    let mut last = (0, 0);
    driver.populate(target, &tool.workload, 1, &mut |done, all| last = (done, all)).unwrap();
    assert_eq!(last, (9, 9));
    let doubts = driver.doubts(target);
    assert!(doubts.iter().any(|doubt| doubt.kind() == "latency_beyond_window"), "{doubts:?}");
    let load = run(&mut driver, target, &tool.slice());
    tool.check(&load, &[3, 2]);
    let mut starts: Vec<String> = tool.starts().into_iter().map(|(_, words)| words).collect();
    assert_eq!(starts.len(), 3, "{starts:?}");
    assert!(starts[0].contains("-concurrency 5") && !starts[0].contains("-duration"));
    starts[1..].sort();
    for (words, part) in starts[1..].iter().zip([
        ["-partition-count 4", "-concurrency 3", "-partition-offset 0"],
        ["-partition-count 5", "-concurrency 2", "-partition-offset 4"],
    ]) {
        assert!(part.iter().all(|one| words.contains(one)), "{words}");
    }
    // With one operation in flight, the second loader pauses.
    let one = FakeTool::new(&[("concurrency", "1")]);
    let load = run(&mut driver, target, &one.slice());
    one.check(&load, &[1]);
    driver.stop().unwrap();
    assert!(loader_directories().is_empty(), "{:?}", loader_directories());
}

/// Returns the directories of agents that run as children of this process, or have been killed.
fn loader_directories() -> Vec<String> {
    let entries = std::fs::read_dir("/var/tmp").unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_ours = |name: &String| {
        let pid = name.strip_prefix("tare-loader-").and_then(|rest| rest.split('-').next());
        let status = pid.map(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")));
        let parent = format!("PPid:\t{}\n", std::process::id());
        status.is_some_and(|status| status.is_ok_and(|status| status.contains(&parent)))
    };
    names.filter(is_ours).collect()
}

fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

fn tool_ends_with_its_killed_agent() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let tool = FakeTool::new(&[("concurrency", "4")]);
    let lost = TestAgent::new("ssh:lost");
    let started = Arc::clone(&lost.started);
    let agents = vec![TestAgent::new("ssh:kept").boxed(), lost.boxed()];
    let mut driver = start_with("scylla-bench", agents).unwrap();
    let target = driver.open(&[server.address], Duration::from_secs(10)).unwrap();
    driver.populate(target, &tool.workload, 1, &mut |_, _| {}).unwrap();
    let pid = started.lock().unwrap()[0];
    let began = Instant::now();
    assert_lost_in_slice(&mut driver, target, &tool.slice(), pid);
    let starts = tool.starts();
    assert_eq!(starts.len(), 3, "{starts:?}");
    // The tool of the other loader is ended too, long before its time.
    while starts.iter().any(|(pid, _)| is_alive(*pid)) {
        assert!(began.elapsed() < Duration::from_secs(50), "{starts:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let load = run(&mut driver, target, &tool.slice());
    tool.check(&load, &[2, 2]);
    assert_eq!(started.lock().unwrap().len(), 2);
    driver.stop().unwrap();
    let of_killed = format!("/var/tmp/tare-loader-{pid}-0");
    assert!(!Path::new(&of_killed).exists(), "the next agent removes what a killed one left");
}

/// One loader's tool starts 6 s later than the other's, which is more than the first guess.
fn late_loader_is_waited_for() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let tool = FakeTool::new(&[("concurrency", "4")]);
    let mut late = TestAgent::new("ssh:late");
    late.before = ["env", "SLOW=6"].map(str::to_string).to_vec();
    let agents = vec![TestAgent::new("ssh:early").boxed(), late.boxed()];
    let mut driver = start_with("scylla-bench", agents).unwrap();
    let target = driver.open(&[server.address], Duration::from_secs(10)).unwrap();
    driver.populate(target, &tool.workload, 1, &mut |_, _| {}).unwrap();
    let load = run(&mut driver, target, &tool.slice());
    tool.check(&load, &[2, 2]);
    // Each was started twice: the first time too short.
    assert_eq!(tool.starts().len(), 5, "{:?}", tool.starts());
}
