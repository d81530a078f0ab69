//! Several loaders with real agent processes over pipes: this program, started again with
//! `load-agent`.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::io::BufReader;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tare_driver::loaders::{AgentPipes, MultiLoader, StartAgent};
use tare_lab::PartError;
use tare_lab::driver::{Driver, Edge, Pacing, SliceLoad, SliceOrder, TargetId};
use tare_lab::study::WorkloadSpec;
use tare_load::histogram;
use tare_std::cpus::CpuSet;
use tare_testkit::fake_server::{FakeServer, ServerBehaviour};
use tare_testkit::{Machine, harness, skip};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, _, cpus, _, silence] = arguments.as_slice()
        && word == "load-agent"
    {
        let ended = tare_driver::agent(
            &cpus.parse().unwrap(),
            Some(Duration::from_secs(silence.parse().unwrap())),
            BufReader::new(std::io::stdin()),
            std::io::stdout(),
        );
        return if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let cases: [(&str, fn()); 8] = [
        ("loaders_divide_a_slice", loaders_divide_a_slice),
        ("nine_loaders_with_one_connection_each", nine_loaders_with_one_connection_each),
        ("clock_that_is_2_s_ahead_is_found", clock_that_is_2_s_ahead_is_found),
        ("lost_loader_is_connected_again", lost_loader_is_connected_again),
        ("loader_that_stays_away_ends_the_run", loader_that_stays_away_ends_the_run),
        ("failed_order_leaves_no_answer_behind", failed_order_leaves_no_answer_behind),
        ("frozen_loader_is_late", frozen_loader_is_late),
        ("agents_end_with_their_pipes", agents_end_with_their_pipes),
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
    let mut driver =
        MultiLoader::start(names.map(|name| TestAgent::new(name).boxed()).into()).unwrap();
    let loaders = driver.loaders();
    assert_eq!(loaders.iter().map(|one| one.host.as_str()).collect::<Vec<_>>(), names);
    assert!(loaders.iter().all(|one| one.cpus.len() == 1 && !one.kernel.is_empty()));
    let target = driver.open(server.address, Duration::from_secs(10)).unwrap();
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
    let mut driver = MultiLoader::start(nine.collect()).unwrap();
    let target = driver.open(server.address, Duration::from_secs(10)).unwrap();
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
    let mut driver = MultiLoader::start(agents).unwrap();
    let offsets = driver.clock_offsets();
    let ((offset_ns, error_ns), (here_ns, here_error_ns)) = (offsets[0], offsets[1]);
    assert!(offset_ns.abs_diff(2_000_000_000) <= error_ns, "{offset_ns} {error_ns}");
    assert!(here_ns.unsigned_abs() <= here_error_ns, "{here_ns} {here_error_ns}");
    assert!(error_ns < 1_000_000_000, "{error_ns}");
    let target = driver.open(server.address, Duration::from_secs(10)).unwrap();
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

fn lost_loader_is_connected_again() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let lost = TestAgent::new("ssh:lost");
    let started = Arc::clone(&lost.started);
    let agents = vec![TestAgent::new("ssh:kept").boxed(), lost.boxed()];
    let mut driver = MultiLoader::start(agents).unwrap();
    let target = driver.open(server.address, Duration::from_secs(10)).unwrap();
    driver.populate(target, &workload(4, 8), 1, &mut |_, _| {}).unwrap();
    let order = slice(workload(4, 8), Pacing::Closed);
    run(&mut driver, target, &order);
    // In the middle of a slice.
    let pid = started.lock().unwrap()[0];
    let long = SliceOrder { window: Duration::from_secs(60), ..order.clone() };
    let began = Instant::now();
    let error = driver.run(target, &long, &mut |edge| {
        if edge == Edge::Begin {
            kill(pid);
        }
    });
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("the loader ssh:lost is lost"), "{error}");
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
    let mut driver = MultiLoader::start(vec![lost.boxed()]).unwrap();
    let target = driver.open(server.address, Duration::from_secs(10)).unwrap();
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
    let mut driver = MultiLoader::start(agents).unwrap();
    let nobody = driver.open("127.0.0.1:1".parse().unwrap(), Duration::from_millis(10));
    let error = nobody.unwrap_err().to_string();
    assert!(error.starts_with("the loader ssh:"), "{error}");
    let target = driver.open(server.address, Duration::from_secs(10)).unwrap();
    let order = slice(workload(4, 8), Pacing::Closed);
    driver.populate(target, &workload(4, 8), 1, &mut |_, _| {}).unwrap();
    assert_eq!(run(&mut driver, target, &order).loaders.len(), 2);
}

fn frozen_loader_is_late() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let slow = TestAgent::new("ssh:slow");
    let started = Arc::clone(&slow.started);
    let agents = vec![slow.boxed(), TestAgent::new("ssh:b").boxed()];
    let mut driver = MultiLoader::start(agents).unwrap();
    let target = driver.open(server.address, Duration::from_secs(10)).unwrap();
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
    let driver = MultiLoader::start(vec![lost.boxed()]).unwrap();
    let pid = started.lock().unwrap()[0];
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    drop(driver);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}
