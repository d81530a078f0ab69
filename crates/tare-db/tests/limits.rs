//! Drives a real server process to its limits of connections and memory, and reads its metrics over
//! HTTP.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use common::{Server, serve};
use tare_cql::request::{self, Settings};
use tare_cql::response::{ErrorKind, Response};
use tare_cql::wire::Value;
use tare_db::report::Report;
use tare_testkit::cql::Connection;
use tare_testkit::database::until;
use tare_testkit::{Reason, skip};

/// Starts one shard with one engine.
fn start(data: &Path, engine: &str, options: &[&str]) -> Result<Server, String> {
    serve(data, &[&["0", "100", engine, "1"], options].concat())
}

struct Client {
    connection: Connection,
}

/// The answer to a request: success, an error and its message, or the end of the connection.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Fine,
    Overloaded,
    Failed(String),
    Gone,
}

impl Client {
    fn start(report: &Report) -> (Self, Answer) {
        let mut client =
            Self { connection: Connection::open((report.listen, report.port)).unwrap() };
        let mut out = Vec::new();
        request::encode_startup(&mut out, 0, &[("CQL_VERSION", "3.0.0")]);
        // A server that refuses the connection may have closed it already.
        let _ = client.connection.stream.write_all(&out);
        let answer = client.receive();
        (client, answer)
    }

    fn receive(&mut self) -> Answer {
        let answer = self.connection.receive_with(|_, response| match response {
            Response::Error(error) if error.kind == ErrorKind::Overloaded => Answer::Overloaded,
            Response::Error(error) => Answer::Failed(error.message.to_string()),
            _ => Answer::Fine,
        });
        answer.unwrap_or(Answer::Gone)
    }

    fn prepare(&mut self, text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        request::encode_prepare(&mut out, 0, text);
        self.connection.stream.write_all(&out).unwrap();
        let id = self.connection.receive_with(|_, response| match response {
            Response::Prepared(prepared) => prepared.id.to_vec(),
            response => panic!("{response:?}"),
        });
        id.unwrap()
    }

    fn query(&mut self, text: &str) -> Answer {
        let mut out = Vec::new();
        request::encode_query(&mut out, 0, text, &Settings::default(), &[]);
        self.connection.stream.write_all(&out).unwrap();
        self.receive()
    }

    fn schema(&mut self) {
        let strategy = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        let keyspace = format!("CREATE KEYSPACE ks WITH replication = {strategy}");
        assert_eq!(self.query(&keyspace), Answer::Fine);
        let table = "CREATE TABLE ks.t (k blob PRIMARY KEY, v blob)";
        assert_eq!(self.query(table), Answer::Fine);
    }
}

/// Runs `test` with every engine that this machine has.
fn each_engine(name: &str, options: &[&str], test: impl Fn(Server, &Path)) {
    for engine in ["uring", "epoll"] {
        let data = tempfile::tempdir().unwrap();
        match start(data.path(), engine, options) {
            Ok(server) => test(server, data.path()),
            Err(why) => skip(&format!("{name} with {engine}"), Reason::no_engine(engine, &why)),
        }
    }
}

/// The least memory that one shard can work with.
const LITTLE: &str = "memory=33554432";

fn metrics(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Reads the metrics until they contain a line.
fn wait_for(address: SocketAddr, line: &str) -> String {
    until(line, || {
        let text = metrics(address, "/metrics");
        text.lines().any(|served| served == line).then_some(text)
    })
}

#[test]
fn full_statement_cache_forgets_the_least_recently_used() {
    const STATEMENTS_MAX: usize = 10_000;
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path(), "epoll", &[]).unwrap();
    let (mut client, _) = Client::start(&server.report);
    client.schema();
    let text = |number: usize| format!("SELECT v FROM ks.t WHERE k = {number:#010x}");
    let execute = |client: &mut Client, id: &[u8]| {
        let mut out = Vec::new();
        request::encode_execute(&mut out, 0, id, &Settings::default(), &[]);
        client.connection.stream.write_all(&out).unwrap();
        client.connection.receive_with(|_, response| match response {
            Response::Rows(_) => true,
            Response::Error(error) if matches!(error.kind, ErrorKind::Unprepared { .. }) => false,
            response => panic!("{response:?}"),
        })
    };
    let ids: Vec<Vec<u8>> = (0..STATEMENTS_MAX).map(|n| client.prepare(&text(n))).collect();
    // The shard has used the oldest statement last, so that the second one leaves before it.
    assert_eq!(execute(&mut client, &ids[0]), Some(true));
    let more = [STATEMENTS_MAX, STATEMENTS_MAX + 1].map(|number| client.prepare(&text(number)));
    assert_eq!(execute(&mut client, &ids[1]), Some(false));
    for id in [&ids[0], &ids[3], &ids[STATEMENTS_MAX - 1], &more[0], &more[1]] {
        assert_eq!(execute(&mut client, id), Some(true));
    }
    server.kill();
}

#[test]
fn metrics_are_served_over_http() {
    each_engine("metrics", &["metrics=127.0.0.1:0"], |server, _| {
        let address = server.report.metrics.unwrap();
        let (mut client, _) = Client::start(&server.report);
        client.schema();
        for key in 0..7 {
            let insert = format!("INSERT INTO ks.t (k, v) VALUES (0x{key:02x}, 0x01)");
            assert_eq!(client.query(&insert), Answer::Fine);
        }
        assert_eq!(client.query("SELECT v FROM ks.t WHERE k = 0x03"), Answer::Fine);
        let text = wait_for(address, "tare_db_writes_total{shard=\"0\"} 7");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
        let count = "tare_db_latency_seconds_count{shard=\"0\",operation=\"write\"} 7";
        assert!(text.contains(count), "{text}");
        let engine = format!("io_engine=\"{}\"}} 1", server.report.io_engine);
        assert!(text.contains(&engine), "{text}");
        wait_for(address, "tare_db_connections{shard=\"0\"} 1");
        assert!(metrics(address, "/").starts_with("HTTP/1.1 404"));
        let said = server.stop();
        assert!(said.contains(&format!("metrics on http://{address}/metrics")), "{said}");
    });
}

#[test]
fn environment_is_in_the_log_and_in_the_report() {
    each_engine("environment", &[LITTLE], |server, _| {
        let report = server.report.clone();
        let said = server.stop();
        for what in
            ["CPUs ", "CPU quota ", "CPU ownership ", "memory ", "I/O engine ", "direct I/O "]
        {
            assert!(said.lines().any(|line| line.starts_with(what)), "{what}: {said}");
        }
        assert!(said.contains("32.0 MiB in all: memtables 40 %"), "{said}");
        let environment = report.environment.unwrap();
        assert!(report.cpus.is_subset(&environment.allowed_cpus));
        assert_eq!(report.memory_bytes, 32 << 20);
        assert!(!report.direct_io_why.is_empty() && !report.file_system.is_empty());
    });
}

#[test]
fn stall_names_the_shard_and_the_task() {
    // Every turn is a stall here.
    each_engine("stalls", &["stall=1", "metrics=127.0.0.1:0"], |server, _| {
        let address = server.report.metrics.unwrap();
        let (mut client, _) = Client::start(&server.report);
        client.schema();
        let none = "tare_db_stalls_total{shard=\"0\"} 0";
        until("a stall", || (!metrics(address, "/metrics").contains(none)).then_some(()));
        let said = server.stop();
        let line = said.lines().find(|line| line.starts_with("shard 0 stalled for ")).unwrap();
        assert!(line.contains("requests took") && line.contains("over the limit of 1.00 ns"));
    });
}

const ROWS: u32 = 40_000;

/// The value of a row, which differs from its neighbours and does not compress.
fn value(key: u32) -> Vec<u8> {
    let mut state = u64::from(key) + 1;
    let mut next = || {
        // xorshift64, Marsaglia 2003.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..125).flat_map(|_| next()).collect()
}

/// Executes a statement for each key, 32 at a time, and calls `check` with every answer. A request
/// that an overloaded server refuses is sent again.
fn execute_all(
    client: &mut Client,
    id: &[u8],
    keys: impl Iterator<Item = u32>,
    mut values: impl FnMut(u32) -> Vec<Vec<u8>>,
    mut check: impl FnMut(u32, &Response<'_>),
) {
    let mut waiting: Vec<u32> = keys.collect();
    waiting.reverse();
    let mut under_way: [Option<u32>; 32] = [None; 32];
    loop {
        let mut out = Vec::new();
        for (stream, slot) in (0..).zip(&mut under_way) {
            if slot.is_none()
                && let Some(key) = waiting.pop()
            {
                let values = values(key);
                let bound: Vec<Value<'_>> = values.iter().map(|v| Value::Bytes(v)).collect();
                request::encode_execute(&mut out, stream, id, &Settings::default(), &bound);
                *slot = Some(key);
            }
        }
        client.connection.stream.write_all(&out).unwrap();
        if under_way.iter().all(Option::is_none) {
            return;
        }
        client.connection.receive_with(|stream, response| {
            let key = under_way[usize::try_from(stream).unwrap()].take().unwrap();
            match response {
                Response::Error(error) if error.kind == ErrorKind::Overloaded => waiting.push(key),
                response => check(key, response),
            }
        });
    }
}

fn metric(address: SocketAddr, name: &str) -> u64 {
    let text = metrics(address, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn data_larger_than_memory_is_served_within_the_limit() {
    each_engine("larger than memory", &[LITTLE, "metrics=127.0.0.1:0"], |server, data| {
        let address = server.report.metrics.unwrap();
        let (mut client, _) = Client::start(&server.report);
        client.schema();
        let insert = client.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)");
        let mut resident_max = 0;
        execute_all(
            &mut client,
            &insert,
            0..ROWS,
            |key| vec![key.to_be_bytes().to_vec(), value(key)],
            |key, response| {
                assert!(matches!(response, Response::Void), "{key}: {response:?}");
                if key % 5_000 == 0 {
                    resident_max = metric(address, "tare_db_resident_bytes ").max(resident_max);
                }
            },
        );
        assert!(metric(address, "tare_db_flushes_total{") > 0);
        let errors = metric(address, "tare_db_errors_total{");
        assert_eq!(errors, 0, "who writes faster than the disk is held up, not refused");
        let select = client.prepare("SELECT v FROM ks.t WHERE k = ?");
        // All rows, in an order other than that of writing.
        let keys = (0..ROWS).map(|n| (n * 7_919) % ROWS);
        let mut read = 0;
        execute_all(
            &mut client,
            &select,
            keys,
            |key| vec![key.to_be_bytes().to_vec()],
            |key, response| {
                let Response::Rows(rows) = response else { panic!("{key}: {response:?}") };
                let cells: Vec<_> = rows.iter().flat_map(|row| row.cells()).collect();
                assert_eq!(cells, [Some(&value(key)[..])], "{key}");
                read += 1;
                if read % 5_000 == 0 {
                    resident_max = metric(address, "tare_db_resident_bytes ").max(resident_max);
                }
            },
        );
        assert_eq!(read, ROWS);
        assert!(metric(address, "tare_db_parked_reads_total{") > 0);
        let from_disk = metric(address, "tare_db_disk_reads_total{");
        let all = metric(address, "tare_db_reads_total{");
        assert!(from_disk > 0 && from_disk <= all, "{from_disk} of {all} reads waited");
        // More than may wait for the disk; the others queue.
        let answers = read_at_once(&mut client, &select, 512);
        assert!(answers.iter().all(|answer| *answer == Answer::Fine), "{answers:?}");
        // More than may queue.
        let answers = read_at_once(&mut client, &select, 8_000);
        assert!(answers.contains(&Answer::Fine) && answers.contains(&Answer::Overloaded));
        assert!(resident_max < 64 << 20, "{resident_max} bytes were in memory");
        server.stop();
        let server = start(data, "auto", &[LITTLE]).unwrap();
        let (mut client, _) = Client::start(&server.report);
        assert_eq!(server.report.replayed, 0, "what was in memory is in tables");
        let select = "SELECT v FROM ks.t WHERE k = 0x00000007";
        assert_eq!(client.query(select), Answer::Fine);
    });
}

#[test]
fn too_little_memory_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let refused = start(data.path(), "auto", &["memory=1000000"]).err().unwrap();
    assert!(refused.contains("is too little for 1 shards"), "{refused}");
    let exposed = start(data.path(), "auto", &["metrics=0.0.0.0:0"]).err().unwrap();
    assert!(exposed.contains("give a loopback address"), "{exposed}");
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    each_engine("connections", &[LITTLE, "metrics=127.0.0.1:0"], |server, _| {
        let mut clients = Vec::new();
        let refused = loop {
            let (client, answer) = Client::start(&server.report);
            if answer != Answer::Fine {
                break answer;
            }
            clients.push(client);
            assert!(clients.len() < 900, "no limit was met");
        };
        // Whether the refusal arrives before the end of the connection depends on timing.
        assert!(matches!(refused, Answer::Overloaded | Answer::Gone), "{refused:?}");
        assert!(clients.len() > 100, "{}", clients.len());
        clients[0].schema();
        // Closed connections make room.
        clients.truncate(50);
        let address = server.report.metrics.unwrap();
        wait_for(address, "tare_db_connections{shard=\"0\"} 50");
        let (_client, answer) = Client::start(&server.report);
        assert_eq!(answer, Answer::Fine);
    });
}

#[test]
fn untaken_answers_overload_the_server() {
    each_engine("overload", &[LITTLE], |server, _| {
        let (mut client, _) = Client::start(&server.report);
        client.schema();
        let insert = format!("INSERT INTO ks.t (k, v) VALUES (0x01, 0x{})", "07".repeat(100_000));
        assert_eq!(client.query(&insert), Answer::Fine);
        let mut out = Vec::new();
        const REQUESTS: i16 = 20;
        for stream in 0..REQUESTS {
            let select = "SELECT v FROM ks.t WHERE k = 0x01";
            request::encode_query(&mut out, stream, select, &Settings::default(), &[]);
        }
        let mut lazy: Vec<Client> = (0..8).map(|_| Client::start(&server.report).0).collect();
        let select = "SELECT v FROM ks.t WHERE k = 0x02";
        let mut asked = 0;
        // Sockets take many answers, and some refusals come early. The overload lasts only once the
        // sockets are full.
        until("lasting overload", || {
            lazy.iter_mut().for_each(|client| client.connection.stream.write_all(&out).unwrap());
            asked += REQUESTS;
            let refused = |_| client.query(select) == Answer::Overloaded;
            (0..50).all(refused).then_some(())
        });
        // A long request is refused when it begins; the connection goes on after its end.
        let value = "07".repeat(1_000_000);
        let long = format!("INSERT INTO ks.t (k, v) VALUES (0x09, 0x{value})");
        assert_eq!(client.query(&long), Answer::Overloaded);
        for client in &mut lazy {
            for _ in 0..asked {
                let answer = client.receive();
                assert!(matches!(answer, Answer::Fine | Answer::Overloaded), "{answer:?}");
            }
        }
        until("an answer", || (client.query(select) == Answer::Fine).then_some(()));
    });
}

/// Asks for so many rows at a time. Each read is answered, if not with a refusal.
fn read_at_once(client: &mut Client, select: &[u8], reads: i16) -> Vec<Answer> {
    let mut out = Vec::new();
    for stream in 0..reads {
        let key = (u32::try_from(stream).unwrap() * 7_919 % ROWS).to_be_bytes();
        let values = [Value::Bytes(&key)];
        request::encode_execute(&mut out, stream, select, &Settings::default(), &values);
    }
    let mut stream = client.connection.stream.try_clone().unwrap();
    // The server takes no more requests while too many answers wait for this client.
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        scope.spawn(|| stream.write_all(&out).unwrap());
        (0..reads).map(|_| client.receive()).collect()
    });
    assert!(answers.iter().all(|a| matches!(a, Answer::Fine | Answer::Overloaded)), "{answers:?}");
    answers
}

#[test]
fn all_shards_together_keep_to_the_memory_limit() {
    let data = tempfile::tempdir().unwrap();
    let arguments = ["0", "100", "auto", "2", "memory=67108864", "metrics=127.0.0.1:0"];
    let server = serve(data.path(), &arguments).unwrap();
    let address = server.report.metrics.unwrap();
    let (mut client, _) = Client::start(&server.report);
    client.schema();
    let insert = client.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)");
    let mut resident_max = 0;
    execute_all(
        &mut client,
        &insert,
        0..2 * ROWS,
        |key| vec![key.to_be_bytes().to_vec(), value(key)],
        |key, response| {
            assert!(matches!(response, Response::Void), "{key}: {response:?}");
            if key % 5_000 == 0 {
                resident_max = metric(address, "tare_db_resident_bytes ").max(resident_max);
            }
        },
    );
    for shard in 0..2 {
        let of_shard =
            |name| metric(address, &format!("tare_db_{name}_total{{shard=\"{shard}\"}}"));
        assert!(of_shard("flushes") > 0, "shard {shard}");
        assert_eq!(of_shard("errors"), 0, "shard {shard}");
    }
    assert!(resident_max < 96 << 20, "{resident_max} bytes were in memory");
}

#[test]
fn half_sent_answer_counts_as_connection_memory() {
    each_engine("half sent", &["metrics=127.0.0.1:0"], |server, _| {
        let (mut client, _) = Client::start(&server.report);
        client.schema();
        let insert = client.prepare("INSERT INTO ks.t (k, v) VALUES (0x01, ?)");
        // More than the kernel takes for a client that does not read.
        let value = vec![7; 12 << 20];
        let mut out = Vec::new();
        let values = [Value::Bytes(&value)];
        request::encode_execute(&mut out, 0, &insert, &Settings::default(), &values);
        client.connection.stream.write_all(&out).unwrap();
        assert_eq!(client.receive(), Answer::Fine);
        let address = server.report.metrics.unwrap();
        let held_bytes = || metric(address, "tare_db_connection_bytes{");
        until("the request is forgotten", || (held_bytes() < 1 << 20).then_some(()));
        out.clear();
        let select = "SELECT v FROM ks.t WHERE k = 0x01";
        request::encode_query(&mut out, 0, select, &Settings::default(), &[]);
        client.connection.stream.write_all(&out).unwrap();
        until("the answer is counted", || (held_bytes() > 12 << 20).then_some(()));
        assert_eq!(client.receive(), Answer::Fine);
        until("the answer is forgotten", || (held_bytes() < 1 << 20).then_some(()));
    });
}

/// This runs only with epoll: a multishot accept keeps the limit of the time when it was armed.
#[test]
fn server_accepts_again_after_running_out_of_descriptors() {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path(), "epoll", &[]).unwrap();
    let process = Some(Pid::from_child(&server.child));
    // The server inherits the limit of this process.
    let usual = getrlimit(Resource::Nofile);
    prlimit(process, Resource::Nofile, Rlimit { current: Some(3), ..usual }).unwrap();
    let mut client = Client {
        connection: Connection::open((server.report.listen, server.report.port)).unwrap(),
    };
    let mut out = Vec::new();
    request::encode_startup(&mut out, 0, &[("CQL_VERSION", "3.0.0")]);
    client.connection.stream.write_all(&out).unwrap();
    let patience = |ms| Some(Duration::from_millis(ms));
    client.connection.stream.set_read_timeout(patience(300)).unwrap();
    assert_eq!(client.receive(), Answer::Gone, "there is no descriptor for it");
    prlimit(process, Resource::Nofile, usual).unwrap();
    client.connection.stream.set_read_timeout(patience(60_000)).unwrap();
    assert_eq!(client.receive(), Answer::Fine);
}
