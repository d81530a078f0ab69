//! The driver with a real agent process: this program, started again with `load-agent`.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tare_driver::{AgentOptions, Client, DriverError, TareLoad};
use tare_lab::access::ClientAccess;
use tare_lab::driver::{Driver, Edge, Pacing, SliceOrder};
use tare_load::histogram;
use tare_std::cpus::CpuSet;

use tare_testkit::fake_server::{FakeServer, ServerBehaviour};
use tare_testkit::harness;
use tare_testkit::{Machine, Reason, skip, workload};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, _, cpus, _, speaks] = arguments.as_slice()
        && word == "load-agent"
    {
        let options = AgentOptions {
            driver: "tare-load".into(),
            cpus: cpus.parse().unwrap(),
            silence: None,
            program: program(),
            speaks: speaks.clone(),
        };
        let ended =
            tare_driver::agent(&options, BufReader::new(std::io::stdin()), std::io::stdout());
        return if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if arguments.get(1).is_some_and(|word| word == "serve") {
        return serve();
    }
    let cases: [(&str, fn()); 4] = [
        ("driver_runs_its_agent", driver_runs_its_agent),
        ("agent_runs_where_it_was_placed", agent_runs_where_it_was_placed),
        ("frozen_server_breaks_nothing", frozen_server_breaks_nothing),
        ("dead_agent_is_an_error_with_its_output", dead_agent_is_an_error_with_its_output),
    ];
    harness::run(&cases);
    ExitCode::SUCCESS
}

/// Runs a server as a process until its standard input closes. Its exit code is the number of its
/// connections.
fn serve() -> ExitCode {
    let server = FakeServer::start(ServerBehaviour::Good);
    std::io::stdout().write_all(format!("{}\n", server.address).as_bytes()).unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    ExitCode::from(u8::try_from(server.connections()).unwrap())
}

fn cpus() -> CpuSet {
    let affinity = rustix::thread::sched_getaffinity(None).unwrap();
    (0u32..1_024).filter(|&cpu| affinity.is_set(cpu as usize)).take(1).collect()
}

fn program() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

fn slice(pacing: Pacing) -> SliceOrder {
    SliceOrder {
        workload: workload(),
        pacing,
        lead_in: Duration::from_millis(20),
        window: Duration::from_millis(100),
        seed: 4,
    }
}

fn start(program: &Path, namespace: Option<&Path>, run: &str) -> Result<TareLoad, DriverError> {
    let (cpus, scratch) = (&cpus(), Path::new("unused"));
    let access = &ClientAccess::default();
    TareLoad::start(&Client { program, cpus, namespace, scratch, run, speaks: "cql", access })
}

fn driver_runs_its_agent() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let mut driver = start(&program(), None, "test").unwrap();
    let target = driver.open(&[server.address], Duration::from_secs(10)).unwrap();
    assert_eq!(driver.pids().len(), 1);
    let mut last = (0, 0);
    driver.populate(target, &workload(), 1, &mut |done, all| last = (done, all)).unwrap();
    assert_eq!(last, (1_000, 1_000));
    for pacing in [Pacing::Closed, Pacing::Open { rate_per_s: 2_000.0 }] {
        let mut edges = Vec::new();
        let load = driver.run(target, &slice(pacing), &mut |edge| edges.push(edge)).unwrap();
        assert_eq!(edges, [Edge::Begin, Edge::End]);
        assert!(load.operations > 0 && load.errors.is_empty(), "{load:?}");
        let service = histogram::decode(&load.service).unwrap();
        match pacing {
            Pacing::Closed => assert!(load.response.is_empty() && service.len() == load.operations),
            Pacing::Open { .. } => assert!((200 - load.unsent..=200).contains(&service.len())),
        }
    }
    driver.close(target).unwrap();
    let pid = driver.pids()[0];
    driver.stop().unwrap();
    driver.stop().unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    let error = driver.open(&[server.address], Duration::from_secs(1)).unwrap_err();
    assert_eq!(error.to_string(), "the load agent has been stopped");
}

/// Ends a process that a test started, also when the test fails.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn agent_runs_where_it_was_placed() {
    let test = "agent_runs_where_it_was_placed";
    // This network namespace lives as long as a process of ours.
    let holder = Command::new("unshare")
        .args(["--net", "sh", "-c", "echo ready; exec sleep 60"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut holder) = holder.map(Guard) else {
        return skip(test, Reason::not_installed("unshare"));
    };
    let mut ready = String::new();
    let stdout = holder.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut ready).unwrap();
    if ready.is_empty() {
        return skip(test, Machine::NotRoot);
    }
    let namespace = format!("/proc/{}/ns/net", holder.0.id());
    let mut driver = start(&program(), Some(Path::new(&namespace)), "run-7").unwrap();
    // An agent that answers has its environment; one that has just started may not.
    let nobody = driver.open(&["127.0.0.1:1".parse().unwrap()], Duration::from_millis(1));
    assert!(nobody.is_err_and(|error| error.to_string().contains("did not answer within")));
    let agent = format!("/proc/{}", driver.pids()[0]);
    let link = |path: &str| std::fs::read_link(path).unwrap();
    assert_eq!(link(&format!("{agent}/ns/net")), link(&namespace));
    assert_ne!(link("/proc/self/ns/net"), link(&namespace));
    let environment = std::fs::read(format!("{agent}/environ")).unwrap();
    assert!(environment.split(|&byte| byte == 0).any(|entry| entry == b"TARE_RUN=run-7"));
    let status = std::fs::read_to_string(format!("{agent}/status")).unwrap();
    assert!(status.contains(&format!("Cpus_allowed_list:\t{}\n", cpus())), "{status}");
}

fn frozen_server_breaks_nothing() {
    let mut server = Guard(
        Command::new(program())
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut address = String::new();
    let stdout = server.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut address).unwrap();
    let pid = Pid::from_child(&server.0);
    let mut driver = start(&program(), None, "test").unwrap();
    let target = driver.open(&[address.trim().parse().unwrap()], Duration::from_secs(10)).unwrap();
    driver.populate(target, &workload(), 1, &mut |_, _| {}).unwrap();
    for _ in 0..3 {
        let load = driver.run(target, &slice(Pacing::Closed), &mut |_| {}).unwrap();
        assert!(load.operations > 0 && load.errors.is_empty(), "{load:?}");
        kill_process(pid, Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        kill_process(pid, Signal::CONT).unwrap();
    }
    // The server is frozen under load: a closed loop waits for its answers and gets them.
    let mut edges = 0;
    let load = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(60));
            kill_process(pid, Signal::STOP).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            kill_process(pid, Signal::CONT).unwrap();
        });
        driver.run(target, &slice(Pacing::Open { rate_per_s: 1_000.0 }), &mut |_| edges += 1)
    });
    let load = load.unwrap();
    let response = histogram::decode(&load.response).unwrap();
    assert!(edges == 2 && load.errors.is_empty(), "{load:?}");
    assert!((100 - load.unsent..=100).contains(&response.len()), "{load:?}");
    // One control connection, four for the load, and no new one after any freeze.
    drop(server.0.stdin.take());
    assert_eq!(server.0.wait().unwrap().code(), Some(5));
}

fn dead_agent_is_an_error_with_its_output() {
    // `sh load-agent --cpus N` finds no script of that name.
    let mut driver = start(Path::new("/bin/sh"), None, "test").unwrap();
    let address = "127.0.0.1:1".parse().unwrap();
    let error = driver.open(&[address], Duration::from_secs(1)).unwrap_err().to_string();
    assert!(error.starts_with("the load agent ended; it printed: "), "{error}");
    assert!(error.contains("load-agent"), "{error}");
    let error = start(&program(), Some(Path::new("/nonexistent")), "test");
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "cannot open the network namespace /nonexistent");
}
