//! Drives a real server process over a real socket: crashes, restarts, refusals.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Server, program, serve_with};
use tare_cql::frame::{Direction, decode};
use tare_cql::request::{self, Settings};
use tare_cql::response::Response;
use tare_cql::wire::Value;
use tare_db::report::Report;
use tare_testkit::cql::{Answer, Connection};
use tare_testkit::database::until;
use tare_testkit::{Need, Reason, skip, skipped};

fn command(data: &Path, durability: &str, io: &str, smp: &str) -> Command {
    let mut command = Command::new(program());
    command.arg(data).args(["0", durability, io, smp]);
    command
}

fn start(command: Command, data: &Path) -> Result<Server, String> {
    serve_with(command, data)
}

struct Client {
    connection: Connection,
}

impl Client {
    fn connect(report: &Report) -> Self {
        Self { connection: Connection::open((report.listen, report.port)).unwrap() }
    }

    fn start(report: &Report) -> Self {
        let mut client = Self::connect(report);
        client.ask(|out| request::encode_startup(out, 0, &[("CQL_VERSION", "3.0.0")])).unwrap();
        client
    }

    fn receive(&mut self) -> Option<(i16, Answer, Vec<u8>)> {
        self.connection.receive()
    }

    fn ask(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Answer {
        let mut out = Vec::new();
        write(&mut out);
        self.connection.stream.write_all(&out).unwrap();
        self.receive().unwrap().1
    }

    fn query(&mut self, text: &str) -> Answer {
        self.ask(|out| request::encode_query(out, 0, text, &Settings::default(), &[]))
    }

    fn prepare(&mut self, text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        request::encode_prepare(&mut out, 0, text);
        self.connection.stream.write_all(&out).unwrap();
        self.receive().unwrap().2
    }

    fn execute(&mut self, id: &[u8], values: &[Value<'_>]) -> Answer {
        self.ask(|out| request::encode_execute(out, 0, id, &Settings::default(), values))
    }

    fn schema(&mut self) {
        let strategy = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        self.query(&format!("CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {strategy}"))
            .unwrap();
        self.query("CREATE TABLE IF NOT EXISTS ks.t (k blob PRIMARY KEY, v blob)").unwrap();
    }
}

const INSERT: &str = "INSERT INTO ks.t (k, v) VALUES (?, ?)";
const SELECT: &str = "SELECT v FROM ks.t WHERE k = ?";

/// Runs `test` with every engine that this machine has.
fn each_engine(name: &str, test: impl Fn(&str)) {
    for engine in ["uring", "epoll"] {
        let data = tempfile::tempdir().unwrap();
        match start(command(data.path(), "sync", engine, "1"), data.path()) {
            Ok(server) => {
                server.stop();
                test(engine);
            }
            Err(why) => skip(&format!("{name} with {engine}"), Reason::no_engine(engine, &why)),
        }
    }
}

/// Writes with eight requests in flight per connection until the server dies, and returns what was
/// acknowledged.
fn write_until_it_dies(report: &Report, from: u64, acknowledged: &AtomicUsize) -> BTreeSet<u64> {
    let mut client = Client::start(report);
    let id = client.prepare(INSERT);
    let mut done = BTreeSet::new();
    let send = |client: &mut Client, stream: i16, key: u64| {
        let (key, value) = (key.to_be_bytes(), [7; 300]);
        let values = [Value::Bytes(&key), Value::Bytes(&value)];
        let mut out = Vec::new();
        request::encode_execute(&mut out, stream, &id, &Settings::default(), &values);
        client.connection.stream.write_all(&out).is_ok()
    };
    let mut keys = [0u64; 8];
    let mut next = from;
    for stream in 0..8 {
        keys[usize::try_from(stream).unwrap()] = next;
        send(&mut client, stream, next);
        next += 1;
    }
    while let Some((stream, answer, _)) = client.receive() {
        answer.unwrap();
        let slot = usize::try_from(stream).unwrap();
        done.insert(keys[slot]);
        acknowledged.fetch_add(1, Ordering::Relaxed);
        keys[slot] = next;
        if !send(&mut client, stream, next) {
            break;
        }
        next += 1;
    }
    done
}

#[test]
fn no_acknowledged_write_is_lost_by_kill_9() {
    each_engine("kill -9", |engine| {
        for smp in ["1", "2"] {
            let data = tempfile::tempdir().unwrap();
            let mut expect: BTreeSet<u64> = BTreeSet::new();
            for round in 0..3u64 {
                let mut server =
                    start(command(data.path(), "sync", engine, smp), data.path()).unwrap();
                let mut client = Client::start(&server.report);
                client.schema();
                let id = client.prepare(SELECT);
                for key in &expect {
                    let rows = client.execute(&id, &[Value::Bytes(&key.to_be_bytes())]).unwrap();
                    assert_eq!(rows, [[Some(vec![7; 300])]], "{engine} {smp}: key {key} is lost");
                }
                let acknowledged = AtomicUsize::new(0);
                let all = Mutex::new(BTreeSet::new());
                let report = server.report.clone();
                std::thread::scope(|scope| {
                    for thread in 0..4 {
                        let (all, acknowledged, report) = (&all, &acknowledged, &report);
                        scope.spawn(move || {
                            let from = (round * 4 + thread) << 32;
                            let done = write_until_it_dies(report, from, acknowledged);
                            all.lock().unwrap().extend(done);
                        });
                    }
                    until("400 writes", || {
                        (acknowledged.load(Ordering::Relaxed) >= 400).then_some(())
                    });
                    server.kill();
                });
                let done = all.into_inner().unwrap();
                assert!(done.len() >= 400);
                expect.extend(done);
            }
        }
    });
}

#[test]
fn a_clean_stop_keeps_everything_and_leaves_no_torn_tail() {
    each_engine("clean stop", |engine| {
        let data = tempfile::tempdir().unwrap();
        let server = start(command(data.path(), "600000", engine, "2"), data.path()).unwrap();
        let mut client = Client::start(&server.report);
        client.schema();
        let id = client.prepare(INSERT);
        for key in 0..500u64 {
            let values = [Value::Bytes(&key.to_be_bytes()), Value::Bytes(b"value")];
            client.execute(&id, &values).unwrap();
        }
        let said = server.stop();
        assert!(said.ends_with("stopped: the log is durable\n"), "{said}");
        let server = start(command(data.path(), "600000", engine, "2"), data.path()).unwrap();
        assert_eq!(server.report.replayed, 0, "what was in memory is in tables");
        let mut client = Client::start(&server.report);
        let count = |client: &mut Client| client.query("SELECT count(*) FROM ks.t").unwrap();
        assert_eq!(count(&mut client), [[Some(500u64.to_be_bytes().to_vec())]]);
        assert_eq!(client.query("SELECT * FROM ks.t LIMIT 20").unwrap().len(), 20);
        assert_eq!(client.query("SELECT k FROM ks.t").unwrap().len(), 500);
        client.query("TRUNCATE ks.t").unwrap();
        assert_eq!(count(&mut client), [[Some(0u64.to_be_bytes().to_vec())]]);
        let said = server.stop();
        assert!(!said.contains("torn"), "{said}");
        let server = start(command(data.path(), "600000", engine, "2"), data.path()).unwrap();
        assert_eq!(
            count(&mut Client::start(&server.report)),
            [[Some(0u64.to_be_bytes().to_vec())]]
        );
    });
}

#[test]
fn pages_meet_every_row_once_over_all_shards() {
    let data = tempfile::tempdir().unwrap();
    let server = start(command(data.path(), "100", "auto", "3"), data.path()).unwrap();
    let mut client = Client::start(&server.report);
    client.schema();
    let id = client.prepare(INSERT);
    for key in 0..1000u64 {
        client.execute(&id, &[Value::Bytes(&key.to_be_bytes()), Value::Bytes(b"v")]).unwrap();
    }
    let mut seen = BTreeSet::new();
    let mut state: Option<Vec<u8>> = None;
    loop {
        let paging_state = state.as_deref();
        let settings = Settings { page_size: Some(77), paging_state, ..Settings::default() };
        let mut out = Vec::new();
        request::encode_query(&mut out, 0, "SELECT k FROM ks.t", &settings, &[]);
        client.connection.stream.write_all(&out).unwrap();
        let mut bytes = vec![0; 1 << 20];
        let mut length = 0;
        let next = loop {
            length += client.connection.stream.read(&mut bytes[length..]).unwrap();
            let frame = decode(&bytes[..length], Direction::Response, 1 << 28).unwrap();
            let Some((frame, _)) = frame else { continue };
            let Response::Rows(rows) = Response::decode(&frame).unwrap() else { panic!("rows") };
            assert!(rows.len() <= 77);
            for row in &rows {
                let key = row.cells().next().unwrap().unwrap().to_vec();
                assert!(seen.insert(key), "a row came twice");
            }
            break rows.metadata.paging_state.map(<[u8]>::to_vec);
        };
        state = next;
        if state.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 1000);
}

#[test]
fn a_second_server_and_another_number_of_shards_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let server = start(command(data.path(), "100", "auto", "1"), data.path()).unwrap();
    let refused = start(command(data.path(), "100", "auto", "1"), data.path()).err().unwrap();
    assert!(refused.contains("is in use by another server"), "{refused}");
    let other = tempfile::tempdir().unwrap();
    let mut busy = Command::new(program());
    let port = server.report.port.to_string();
    busy.arg(other.path()).args([&port, "100", "auto", "1"]);
    let refused = start(busy, other.path()).err().unwrap();
    assert!(refused.starts_with(&format!("cannot listen on 127.0.0.1:{port}")), "{refused}");
    server.stop();
    let refused = start(command(data.path(), "100", "auto", "2"), data.path()).err().unwrap();
    assert!(refused.contains("was written with 1 shards"), "{refused}");
}

#[test]
fn newer_protocols_are_refused_and_the_connection_ends() {
    each_engine("protocol versions", |engine| {
        let data = tempfile::tempdir().unwrap();
        let server = start(command(data.path(), "100", engine, "1"), data.path()).unwrap();
        for version in [6, 65, 66] {
            let mut client = Client::connect(&server.report);
            client.connection.stream.write_all(&[version, 0, 0, 7, 5, 0, 0, 0, 0]).unwrap();
            let (stream, answer, _) = client.receive().unwrap();
            let message = answer.unwrap_err();
            assert_eq!(stream, 7);
            assert!(message.contains("unsupported protocol version"), "{message}");
            assert!(client.receive().is_none(), "the connection ends");
        }
        // Requests that come byte by byte are met with patience.
        let mut client = Client::connect(&server.report);
        let mut out = Vec::new();
        request::encode_startup(&mut out, 3, &[("CQL_VERSION", "3.0.0")]);
        for byte in out {
            client.connection.stream.write_all(&[byte]).unwrap();
        }
        assert_eq!(client.receive().unwrap().0, 3);
        let refused = client.query("SELECT * FROM ks.none").unwrap_err();
        assert!(refused.contains("keyspace ks does not exist"), "{refused}");
    });
}

#[test]
fn a_client_that_does_not_read_is_held_up_and_served_later() {
    each_engine("back pressure", |engine| {
        let data = tempfile::tempdir().unwrap();
        let server = start(command(data.path(), "100", engine, "1"), data.path()).unwrap();
        let mut client = Client::start(&server.report);
        client.schema();
        let insert = client.prepare(INSERT);
        let select = client.prepare(SELECT);
        let value = vec![9; 100_000];
        client.execute(&insert, &[Value::Bytes(b"key"), Value::Bytes(&value)]).unwrap();
        let mut out = Vec::new();
        for stream in 0..500 {
            let settings = Settings::default();
            request::encode_execute(&mut out, stream, &select, &settings, &[Value::Bytes(b"key")]);
        }
        client.connection.stream.write_all(&out).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        // Another client is served meanwhile.
        let rows = Client::start(&server.report).query("SELECT count(*) FROM ks.t").unwrap();
        assert_eq!(rows, [[Some(1u64.to_be_bytes().to_vec())]]);
        for stream in 0..500 {
            let (answered, rows, _) = client.receive().unwrap();
            assert_eq!((answered, rows.unwrap()), (stream, vec![vec![Some(value.clone())]]));
        }
    });
}

/// Denies io_uring as container profiles do, then becomes the server.
const DENY_URING: &str = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def op(code, jt, jf, k): return struct.pack('HBBI', code, jt, jf, k)
# load the number of the call; io_uring_setup (425) fails with EPERM, all else passes
filter = op(0x20, 0, 0, 0) + op(0x15, 0, 1, 425) + op(0x06, 0, 0, 0x00050001) + op(0x06, 0, 0, 0x7fff0000)
memory = ctypes.create_string_buffer(filter)
program = struct.pack('HxxxxxxP', len(filter) // 8, ctypes.addressof(memory))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn without_io_uring_it_falls_back_to_epoll_and_says_why() {
    const NAME: &str = "without_io_uring_it_falls_back_to_epoll_and_says_why";
    if skipped(NAME, &[Need::Program("python3")]) {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let mut denied = Command::new("python3");
    denied.arg("-c").arg(DENY_URING).arg(program()).arg(data.path());
    denied.args(["0", "sync", "auto", "1"]);
    let server = start(denied, data.path()).unwrap();
    assert_eq!(server.report.io_engine, "epoll");
    let why = &server.report.io_engine_why;
    assert!(why.starts_with("io_uring_setup failed") && why.ends_with("(errno 1)"), "{why}");
    let mut client = Client::start(&server.report);
    client.schema();
    client.query("INSERT INTO ks.t (k, v) VALUES (0x01, 0x02)").unwrap();
    assert_eq!(client.query("SELECT v FROM ks.t").unwrap(), [[Some(vec![2])]]);
}

#[test]
fn a_full_disk_refuses_writes_and_reads_go_on() {
    const NAME: &str = "a_full_disk_refuses_writes_and_reads_go_on";
    each_engine(NAME, |engine| {
        let data = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o size=40m none \"$1\" && exec \"$0\" \"$@\"";
        // The report is inside the mount, so the port has to be known.
        let port = FreePort::find();
        let mut small = Command::new("unshare");
        small.args(["-m", "sh", "-c", script]).arg(program()).arg(data.path());
        small.args([&port.0.to_string(), "sync", engine, "1", "yes"]);
        let child = small.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut server = Server { child, report: port.report() };
        let serves = until("a server on a small disk", || {
            let ended = server.child.try_wait().unwrap().is_some();
            let serves = TcpStream::connect(("127.0.0.1", port.0)).is_ok();
            (ended || serves).then_some(serves)
        });
        if !serves {
            return skip(NAME, Reason::no_mount("a small file system"));
        }
        let mut client = Client::start(&server.report);
        client.schema();
        let insert = client.prepare(INSERT);
        let select = client.prepare(SELECT);
        let value = vec![5; 200_000];
        let write = |client: &mut Client, key: u64| {
            client.execute(&insert, &[Value::Bytes(&key.to_be_bytes()), Value::Bytes(&value)])
        };
        let refused = (0..400).find_map(|key| Some((key, write(&mut client, key).err()?)));
        let (key, why) = refused.expect("the disk holds 40 MiB");
        assert!(why.contains("cannot make a commit log segment"), "{why}");
        assert!(key > 100, "{key}");
        let rows = client.execute(&select, &[Value::Bytes(&0u64.to_be_bytes())]).unwrap();
        assert_eq!(rows, [[Some(value.clone())]]);
        assert!(write(&mut client, 1000).is_err());
    });
}

/// A port that was free a moment ago.
struct FreePort(u16);

impl FreePort {
    fn find() -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Self(listener.local_addr().unwrap().port())
    }

    fn report(&self) -> Report {
        let listen = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
        let text = format!(
            r#"{{"version":"","pid":0,"listen":"{listen}","port":{},"shards":1,"cpus":"0",
            "pinned":[],"polling":false,"polling_why":"","io_engine":"","io_engine_why":"",
            "durability":"","period_ms":null,"memory_bytes":0,"replayed":0}}"#,
            self.0
        );
        serde_json::from_str(&text).unwrap()
    }
}
