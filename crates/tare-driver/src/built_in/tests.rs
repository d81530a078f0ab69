//! The agent in a thread.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tare_lab::driver::{Pacing, SliceOrder, TargetId};

use tare_load::histogram;
use tare_testkit::fake_server::{FakeServer, ServerBehaviour};

use crate::agent::protocol::{Answer, Order};
use crate::tests::{cpus, workload};
use crate::{AgentError, AgentOptions, agent};

/// An agent in a thread, connected by a pair of sockets.
struct Agent {
    orders: Option<TcpStream>,
    answers: BufReader<TcpStream>,
    thread: Option<std::thread::JoinHandle<Result<(), AgentError>>>,
}

impl Agent {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let orders = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        let answers = BufReader::new(orders.try_clone().unwrap());
        let input = BufReader::new(theirs.try_clone().unwrap());
        let options = AgentOptions {
            driver: "tare-load".into(),
            cpus: cpus(2),
            silence: None,
            program: "unused".into(),
            speaks: "cql".into(),
        };
        let thread = std::thread::spawn(move || agent(&options, input, theirs));
        Self { orders: Some(orders), answers, thread: Some(thread) }
    }

    fn order(&mut self, order: &Order) {
        let line = serde_json::to_string(order).unwrap() + "\n";
        self.orders.as_ref().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn answer(&mut self) -> Answer {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Sends an order and returns the first answer that is not progress.
    fn ask(&mut self, order: &Order) -> Answer {
        self.order(order);
        loop {
            match self.answer() {
                Answer::Progress { done, all } => assert!(done <= all),
                other => return other,
            }
        }
    }
}

fn open(server: &FakeServer) -> Order {
    Order::Open {
        addresses: vec![server.address],
        deadline: Duration::from_secs(10),
        access: Box::default(),
    }
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

#[test]
fn agent_loads_several_systems_and_reports_edges() {
    let servers =
        [FakeServer::start(ServerBehaviour::Good), FakeServer::start(ServerBehaviour::Good)];
    let mut agent = Agent::start();
    for (number, server) in (0..).zip(&servers) {
        assert_eq!(agent.ask(&open(server)), Answer::Opened { target: TargetId(number) });
    }
    for number in [0, 1] {
        let target = TargetId(number);
        let populate = Order::Populate { target, workload: workload(), seed: 1, part: None };
        assert_eq!(agent.ask(&populate), Answer::Populated);
    }
    for number in [0, 1, 1, 0] {
        let order = slice(Pacing::Open { rate_per_s: 1_000.0 });
        let answer = agent.ask(&Order::Run { target: TargetId(number), order, shared: None });
        assert_eq!(answer, Answer::Begin);
        assert_eq!(agent.answer(), Answer::End);
        let Answer::Ran(ran) = agent.answer() else { panic!() };
        let load = tare_lab::driver::SliceLoad::try_from(*ran).unwrap();
        assert!(load.operations > 0 && load.errors.is_empty(), "{load:?}");
        assert!(load.window_ns > 0 && load.client_cpu_ns > 0, "{load:?}");
        let response = histogram::decode(&load.response).unwrap();
        assert_eq!(response.len() + load.unsent, 100, "{load:?}");
    }
    assert_eq!(agent.ask(&Order::Close { target: TargetId(0) }), Answer::Closed);
    let order = slice(Pacing::Closed);
    let Answer::Failed { error } =
        agent.ask(&Order::Run { target: TargetId(0), order, shared: None })
    else {
        panic!()
    };
    assert_eq!(error, "there is no target 0; it was never opened or has been closed");
    agent.order(&Order::Quit);
    agent.thread.take().unwrap().join().unwrap().unwrap();
}

#[test]
fn long_slice_has_its_seconds() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let mut agent = Agent::start();
    agent.ask(&open(&server));
    let target = TargetId(0);
    agent.ask(&Order::Populate { target, workload: workload(), seed: 1, part: None });
    for (window, expect) in [(Duration::from_secs(10), 10), (Duration::from_secs(2), 0)] {
        let pacing = Pacing::Open { rate_per_s: 200.0 };
        let order = SliceOrder { window, ..slice(pacing) };
        agent.order(&Order::Run { target, order, shared: None });
        assert_eq!((agent.answer(), agent.answer()), (Answer::Begin, Answer::End));
        let Answer::Ran(ran) = agent.answer() else { panic!() };
        let load = tare_lab::driver::SliceLoad::try_from(*ran).unwrap();
        assert_eq!(load.seconds.len(), expect, "{load:?}");
        if expect > 0 {
            // Those that ended after the window belong to its operations alone.
            let sum: u64 = load.seconds.iter().map(|second| second.operations).sum();
            assert!(sum > 0 && sum <= load.operations, "{load:?}");
            let longest = histogram::decode(&load.response).unwrap().max();
            assert!(load.seconds.iter().all(|one| one.max_ns <= longest), "{load:?}");
            assert!(load.seconds.iter().all(|one| one.mean_ns <= one.max_ns), "{load:?}");
        }
    }
}

#[test]
fn broken_connection_is_replaced_in_a_slice() {
    // One of the first slice's operations ends its connection, and those in flight on it.
    let server = FakeServer::start(ServerBehaviour::CloseOnce(1_100));
    let mut agent = Agent::start();
    agent.ask(&open(&server));
    let target = TargetId(0);
    agent.ask(&Order::Populate { target, workload: workload(), seed: 1, part: None });
    for broken in [true, false] {
        agent.order(&Order::Run { target, order: slice(Pacing::Closed), shared: None });
        assert_eq!((agent.answer(), agent.answer()), (Answer::Begin, Answer::End));
        let Answer::Ran(ran) = agent.answer() else { panic!() };
        let load = tare_lab::driver::SliceLoad::try_from(*ran).unwrap();
        let kinds: Vec<&str> = load.errors.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, if broken { vec!["connection closed"] } else { vec![] }, "{load:?}");
        assert!(load.operations > 0, "{load:?}");
    }
    // One control connection, four for the load, and one replacement; or all of them again, if the
    // slice ended before that.
    assert!(server.connections() >= 6, "{} connections", server.connections());
}

#[test]
fn agent_ends_with_its_input_under_load() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let mut agent = Agent::start();
    agent.ask(&open(&server));
    let order = SliceOrder { window: Duration::from_secs(3_600), ..slice(Pacing::Closed) };
    agent.order(&Order::Run { target: TargetId(0), order, shared: None });
    assert_eq!(agent.answer(), Answer::Begin);
    agent.orders.take().unwrap().shutdown(std::net::Shutdown::Write).unwrap();
    agent.thread.take().unwrap().join().unwrap().unwrap();
    // The answers in between do not matter here.
    let _ = agent.answers.read_to_end(&mut Vec::new());
}

#[test]
fn unknown_order_is_answered() {
    let mut agent = Agent::start();
    agent.orders.as_ref().unwrap().write_all(b"{\"dance\":1}\n").unwrap();
    let Answer::Failed { error } = agent.answer() else { panic!() };
    assert!(error.starts_with("cannot understand the order: unknown variant `dance`"), "{error}");
}
