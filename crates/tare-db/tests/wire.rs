//! Tests the outer layers of the protocol through a real server: versions, segments, compression,
//! chosen shards, logins, TLS.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tare_cql::frame::{self, Direction, Head, Version, flag};
use tare_cql::framing::Framing;
use tare_cql::request::{self, BatchKind, BatchStatement, Settings};
use tare_cql::response::{ErrorKind, Event, Response, SchemaTarget};
use tare_cql::wire::Value;
use tare_db::report::Report;
use tare_testkit::{Reason, skip};

/// A server with a data directory of its own.
struct Server {
    process: common::Server,
    #[expect(dead_code, reason = "removed with the server")]
    data: tempfile::TempDir,
}

impl Server {
    /// Starts a server, or returns its error output.
    fn start(io: &str, smp: u16, more: &[&str]) -> Result<Self, String> {
        let data = tempfile::tempdir().unwrap();
        let smp = smp.to_string();
        let arguments = [&["0", "100", io, &smp, "yes"], more].concat();
        Ok(Self { process: common::serve(data.path(), &arguments)?, data })
    }

    fn report(&self) -> &Report {
        &self.process.report
    }

    fn connect(&self) -> TcpStream {
        self.connect_to(self.report().port)
    }

    fn connect_to(&self, port: u16) -> TcpStream {
        let stream = TcpStream::connect((self.report().listen, port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

struct Client {
    stream: Box<dyn Stream>,
    version: Version,
    framing: Framing,
    received: Vec<u8>,
    frames: Vec<u8>,
}

impl Client {
    fn new(stream: impl Stream + 'static, version: Version) -> Self {
        let stream = Box::new(stream);
        let (received, frames) = (Vec::new(), Vec::new());
        Self { stream, version, framing: Framing::Plain, received, frames }
    }

    /// Connects and sends STARTUP.
    fn start(server: &Server, version: Version, lz4: bool) -> Self {
        let mut client = Self::new(server.connect(), version);
        let answer = client.startup(lz4.then_some("lz4"));
        assert!(matches!(decode(&answer), Response::Ready));
        client
    }

    fn startup(&mut self, compression: Option<&str>) -> Vec<u8> {
        let mut options = vec![("CQL_VERSION", "3.0.0")];
        options.extend(compression.map(|name| ("COMPRESSION", name)));
        let answer = self.ask(|head, out| request::encode_startup(out, head, &options));
        self.framing = Framing::after_startup(self.version, compression.is_some());
        answer
    }

    fn send(&mut self, write: impl FnOnce(Head, &mut Vec<u8>)) {
        let mut frame = Vec::new();
        write(Head { version: self.version, stream: 9 }, &mut frame);
        let mut packed = Vec::new();
        self.framing.pack(&frame, &mut packed);
        self.stream.write_all(&packed).unwrap();
    }

    /// The next frame; `None` if the server has closed the connection.
    fn receive(&mut self) -> Option<Vec<u8>> {
        const LIMIT: usize = 256 << 20;
        loop {
            let whole = frame::decode(&self.frames, Direction::Response, LIMIT).unwrap();
            if let Some((_, length)) = whole {
                return Some(self.frames.drain(..length).collect());
            }
            let unpacked =
                self.framing.unpack(&self.received, Direction::Response, LIMIT, &mut self.frames);
            if let Some(length) = unpacked.unwrap() {
                self.received.drain(..length);
                continue;
            }
            let mut bytes = [0; 65536];
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(length) => self.received.extend_from_slice(&bytes[..length]),
            }
        }
    }

    fn ask(&mut self, write: impl FnOnce(Head, &mut Vec<u8>)) -> Vec<u8> {
        self.send(write);
        self.receive().unwrap()
    }

    fn query(&mut self, text: &str) -> Vec<u8> {
        self.ask(|head, out| request::encode_query(out, head, text, &Settings::DEFAULT, &[]))
    }

    /// The first value of SUPPORTED under a key.
    fn option(&mut self, key: &str) -> Option<String> {
        let answer = self.ask(|head, out| request::encode_options(out, head));
        let Response::Supported { mut options } = decode(&answer) else { panic!("SUPPORTED") };
        let (_, mut values) = options.find(|(name, _)| *name == key)?;
        values.next().map(String::from)
    }

    fn shard(&mut self) -> u16 {
        self.option("SCYLLA_SHARD").unwrap().parse().unwrap()
    }

    fn login(&mut self, user: &str, password: &str) -> Vec<u8> {
        let token = format!("\0{user}\0{password}");
        self.ask(|head, out| {
            request::encode_auth_response(out, head, Some(token.as_bytes()));
        })
    }
}

fn decode(bytes: &[u8]) -> Response<'_> {
    let (frame, length) = frame::decode(bytes, Direction::Response, 256 << 20).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    Response::decode(&frame).unwrap()
}

#[track_caller]
fn error(bytes: &[u8]) -> (i32, String) {
    match decode(bytes) {
        Response::Error(body) => (body.kind.code(), body.message.to_string()),
        other => panic!("{other:?}"),
    }
}

/// Runs `test` with every engine that this machine has.
fn each_engine(name: &str, test: impl Fn(&str)) {
    for engine in ["uring", "epoll"] {
        match Server::start(engine, 1, &[]) {
            Ok(_) => test(engine),
            Err(why) => skip(&format!("{name} with {engine}"), Reason::no_engine(engine, &why)),
        }
    }
}

const KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

#[test]
fn rows_travel_in_every_version_with_and_without_compression() {
    each_engine("versions", |engine| {
        let server = Server::start(engine, 2, &[]).unwrap();
        let mut first = Client::start(&server, Version::V4, false);
        first.query(KEYSPACE);
        first.query("CREATE TABLE ks.t (k int PRIMARY KEY, v blob, d duration)");
        let mut key = 0_i32;
        for (version, lz4) in
            [(Version::V4, false), (Version::V4, true), (Version::V5, false), (Version::V5, true)]
        {
            let mut client = Client::start(&server, version, lz4);
            // Sizes from nothing to several segments; some of the data compresses, some does not.
            for length in [0, 1, 100, 20_000, 131_000, 131_072, 600_000] {
                let noise = (0..length).map(|i: u64| (i.wrapping_mul(i + 7) >> 3).to_be_bytes()[7]);
                let value: Vec<u8> = noise.collect();
                key += 1;
                let id = key.to_be_bytes();
                let values = [Value::Bytes(&id), Value::Bytes(&value)];
                let insert = "INSERT INTO ks.t (k, v) VALUES (?, ?)";
                let answer = client.ask(|head, out| {
                    request::encode_query(out, head, insert, &Settings::DEFAULT, &values);
                });
                assert!(matches!(decode(&answer), Response::Void), "{version:?} {lz4} {length}");
                let select = "SELECT v, d FROM ks.t WHERE k = ?";
                let answer = client.ask(|head, out| {
                    request::encode_query(out, head, select, &Settings::DEFAULT, &values[..1]);
                });
                let Response::Rows(rows) = decode(&answer) else { panic!("rows") };
                let cells: Vec<_> = rows.cells().collect();
                assert!(cells == [Some(&value[..]), None], "{version:?} {lz4} {length}");
                let kinds = rows.metadata.columns.unwrap().map(|column| column.kind.to_string());
                assert_eq!(kinds.collect::<Vec<_>>(), ["blob", "duration"]);
            }
        }
    });
}

#[test]
fn many_requests_in_one_segment_are_all_answered() {
    each_engine("segments", |engine| {
        let server = Server::start(engine, 1, &[]).unwrap();
        let mut client = Client::start(&server, Version::V5, true);
        client.send(|head, out| {
            for stream in 0..300 {
                let text = "SELECT * FROM system.local";
                let head = Head { stream, ..head };
                request::encode_query(out, head, text, &Settings::DEFAULT, &[]);
            }
        });
        for stream in 0..300 {
            let answer = client.receive().unwrap();
            assert!(matches!(decode(&answer), Response::Rows(_)));
            assert_eq!(i16::from_be_bytes([answer[2], answer[3]]), stream);
        }
    });
}

#[test]
fn unknown_versions_are_refused_in_the_nearest_known_one() {
    let server = Server::start("auto", 1, &[]).unwrap();
    for (offered, answered) in [(3, 0x84), (6, 0x85), (65, 0x85), (66, 0x85)] {
        let mut stream = server.connect();
        stream.write_all(&[offered, 0, 0, 7, 5, 0, 0, 0, 0]).unwrap();
        let mut client = Client::new(stream, Version::V5);
        let answer = client.receive().unwrap();
        assert_eq!((answer[0], answer[3]), (answered, 7));
        let (code, message) = error(&answer);
        assert_eq!(code, ErrorKind::Protocol.code());
        let expect = format!(
            "Invalid or unsupported protocol version ({offered}); supported versions are (4/v4, 5/v5)"
        );
        assert_eq!(message, expect);
        assert!(client.receive().is_none(), "the connection ends");
    }
}

#[test]
fn connection_keeps_its_version() {
    let server = Server::start("auto", 1, &[]).unwrap();
    let mut client = Client::start(&server, Version::V5, false);
    client.version = Version::V4;
    let (_, message) = error(&client.query("SELECT * FROM system.local"));
    assert_eq!(
        message,
        "Invalid message version. Got 4/v4 but previous messages on this connection had version 5/v5"
    );
    assert!(client.receive().is_none(), "the connection ends");
}

#[test]
fn damaged_segments_and_unknown_compressions_are_refused() {
    let server = Server::start("auto", 1, &[]).unwrap();
    let mut client = Client::new(server.connect(), Version::V4);
    let (code, message) = error(&client.startup(Some("snappy")));
    assert_eq!(code, ErrorKind::Protocol.code());
    assert!(message.contains("snappy") && message.contains("lz4"), "{message}");
    client.framing = Framing::Plain;
    assert!(matches!(decode(&client.startup(None)), Response::Ready), "a second try");
    let mut client = Client::start(&server, Version::V5, false);
    let mut packed = Vec::new();
    let mut frame = Vec::new();
    let head = Head { version: Version::V5, stream: 1 };
    request::encode_query(&mut frame, head, "SELECT 1", &Settings::DEFAULT, &[]);
    client.framing.pack(&frame, &mut packed);
    packed[20] ^= 1;
    client.stream.write_all(&packed).unwrap();
    let (_, message) = error(&client.receive().unwrap());
    assert!(message.starts_with("the checksum of a segment's payload is wrong"), "{message}");
    assert!(client.receive().is_none(), "the connection ends");
}

#[test]
fn version_5_reports_changed_columns() {
    let server = Server::start("auto", 1, &[]).unwrap();
    let mut client = Client::start(&server, Version::V5, false);
    client.query(KEYSPACE);
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, a int)");
    let answer = client.ask(|head, out| request::encode_prepare(out, head, "SELECT * FROM ks.t"));
    let Response::Prepared(prepared) = decode(&answer) else { panic!("prepared") };
    let (id, known) = (prepared.id, prepared.result_id.unwrap());
    let execute = |client: &mut Client, known: &[u8]| {
        let settings =
            Settings { skip_metadata: true, result_id: Some(known), ..Settings::DEFAULT };
        client.ask(|head, out| request::encode_execute(out, head, id, &settings, &[]))
    };
    let metadata = |answer: &[u8]| {
        let Response::Rows(rows) = decode(answer) else { panic!("rows") };
        let names = rows.metadata.columns.into_iter().flatten().map(|c| c.name.to_string());
        (rows.metadata.new_id.map(<[u8]>::to_vec), names.collect::<Vec<_>>())
    };
    assert_eq!(metadata(&execute(&mut client, known)), (None, vec![]));
    client.query("DROP TABLE ks.t");
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, a int, b int)");
    let (new, names) = metadata(&execute(&mut client, known));
    let new = new.expect("the columns are others");
    assert_eq!(names, ["k", "a", "b"]);
    assert_eq!(metadata(&execute(&mut client, &new)), (None, vec![]));
}

#[test]
fn keyspace_of_a_request_applies_to_every_statement() {
    let server = Server::start("auto", 1, &[]).unwrap();
    let mut client = Client::start(&server, Version::V5, false);
    let mut ask = |keyspace: Option<&str>, text: &str| {
        let settings = Settings { keyspace, ..Settings::DEFAULT };
        let answer = client.ask(|head, out| request::encode_query(out, head, text, &settings, &[]));
        match decode(&answer) {
            Response::Rows(rows) => rows.len(),
            Response::Error(error) => panic!("{text}: {}", error.message),
            _ => 0,
        }
    };
    for keyspace in ["a", "b"] {
        ask(None, &KEYSPACE.replace(" ks ", &format!(" {keyspace} ")));
        ask(Some(keyspace), "CREATE TABLE t (k int PRIMARY KEY)");
        ask(Some(keyspace), "INSERT INTO t (k) VALUES (1)");
    }
    ask(None, "USE b");
    ask(Some("a"), "TRUNCATE t");
    assert_eq!((ask(Some("a"), "SELECT k FROM t"), ask(None, "SELECT k FROM t")), (0, 1));
    ask(Some("a"), "DROP TABLE t");
    assert_eq!(ask(None, "SELECT k FROM t"), 1);
}

#[test]
fn events_come_in_the_version_of_the_connection() {
    let server = Server::start("auto", 2, &[]).unwrap();
    let versions = [Version::V4, Version::V5, Version::V4, Version::V5];
    let mut clients = versions.map(|version| {
        let mut client = Client::start(&server, version, true);
        let answer = client.ask(|head, out| {
            request::encode_register(out, head, &["SCHEMA_CHANGE", "STATUS_CHANGE"]);
        });
        assert!(matches!(decode(&answer), Response::Ready));
        client
    });
    // The client that makes the change gets the event too, after the answer.
    clients[1].query(KEYSPACE);
    for client in &mut clients {
        let event = client.receive().unwrap();
        let (frame, _) = frame::decode(&event, Direction::Response, 1 << 20).unwrap().unwrap();
        assert_eq!((frame.version, frame.stream), (client.version, -1));
        let Response::Event(Event::Schema(change)) = decode(&event) else { panic!("an event") };
        assert_eq!(change.target, SchemaTarget::Keyspace { keyspace: "ks" });
    }
}

#[test]
fn clients_choose_their_shard_by_their_port() {
    each_engine("shards", |engine| {
        let server = Server::start(engine, 3, &[]).unwrap();
        let mut client = Client::new(server.connect(), Version::V4);
        assert_eq!(client.option("SCYLLA_NR_SHARDS").unwrap(), "3");
        assert_eq!(client.option("SCYLLA_SHARDING_IGNORE_MSB").unwrap(), "0");
        let algorithm = client.option("SCYLLA_SHARDING_ALGORITHM").unwrap();
        assert_eq!(algorithm, "biased-token-round-robin");
        let port: u16 = client.option("SCYLLA_SHARD_AWARE_PORT").unwrap().parse().unwrap();
        assert_eq!(Some(port), server.report().shard_aware_port);
        for _ in 0..6 {
            let stream = server.connect_to(port);
            let SocketAddr::V4(address) = stream.local_addr().unwrap() else { panic!("IPv4") };
            let mut client = Client::new(stream, Version::V4);
            assert_eq!(client.shard(), address.port() % 3, "{engine} {address}");
        }
        // Connections to the usual port are spread evenly.
        let server = Server::start(engine, 3, &[]).unwrap();
        let mut clients: Vec<Client> =
            (0..6).map(|_| Client::new(server.connect(), Version::V4)).collect();
        let shards: Vec<u16> = clients.iter_mut().map(Client::shard).collect();
        for shard in 0..3 {
            let count = shards.iter().filter(|&&other| other == shard).count();
            assert_eq!(count, 2, "{engine} {shards:?}");
        }
    });
}

#[test]
fn single_shard_has_no_shard_aware_port() {
    let server = Server::start("auto", 1, &[]).unwrap();
    let mut client = Client::new(server.connect(), Version::V4);
    assert_eq!(client.shard(), 0);
    assert_eq!(client.option("SCYLLA_SHARD_AWARE_PORT"), None);
}

#[test]
fn slow_reader_is_held_up_with_every_framing() {
    const ANSWERS: i16 = 400;
    each_engine("back pressure", |engine| {
        let server = Server::start(engine, 1, &[]).unwrap();
        let mut first = Client::start(&server, Version::V4, false);
        first.query(KEYSPACE);
        first.query("CREATE TABLE ks.t (k int PRIMARY KEY, v blob)");
        let value: Vec<u8> = (0..100_000_u64).map(|i| ((i * i) >> 5).to_be_bytes()[7]).collect();
        let values = [Value::Bytes(&[0, 0, 0, 1]), Value::Bytes(&value)];
        first.ask(|head, out| {
            let insert = "INSERT INTO ks.t (k, v) VALUES (?, ?)";
            request::encode_query(out, head, insert, &Settings::DEFAULT, &values);
        });
        for (version, lz4) in [(Version::V4, true), (Version::V5, false), (Version::V5, true)] {
            let mut client = Client::start(&server, version, lz4);
            client.send(|head, out| {
                for stream in 0..ANSWERS {
                    let text = "SELECT v FROM ks.t WHERE k = 1";
                    let head = Head { stream, ..head };
                    request::encode_query(out, head, text, &Settings::DEFAULT, &[]);
                }
            });
            std::thread::sleep(Duration::from_millis(200));
            // The server serves another client meanwhile.
            let answer = first.query("SELECT count(*) FROM ks.t");
            assert!(matches!(decode(&answer), Response::Rows(_)));
            for stream in 0..ANSWERS {
                let answer = client.receive().unwrap();
                assert_eq!(i16::from_be_bytes([answer[2], answer[3]]), stream);
                let Response::Rows(rows) = decode(&answer) else { panic!("rows") };
                assert!(rows.cells().eq([Some(&value[..])]), "{engine} {version:?} {lz4} {stream}");
            }
        }
    });
}

#[test]
fn unsupported_options_are_ignored() {
    let server = Server::start("auto", 1, &[]).unwrap();
    for version in Version::ALL {
        let mut client = Client::start(&server, version, true);
        let answer = client.ask(|head, out| {
            let text = "SELECT key FROM system.local";
            request::encode_query(out, head, text, &Settings::DEFAULT, &[]);
            // A custom payload of one entry before the message; tracing; a version under trial.
            let payload = b"\0\x01\0\x03key\0\0\0\x05value";
            out[1] |= flag::CUSTOM_PAYLOAD | flag::TRACING | 0x10;
            out.splice(9..9, payload.iter().copied());
            let length = u32::try_from(out.len() - 9).unwrap();
            out[5..9].copy_from_slice(&length.to_be_bytes());
        });
        let (frame, _) = frame::decode(&answer, Direction::Response, 1 << 20).unwrap().unwrap();
        assert_eq!(frame.flags, 0);
        assert!(matches!(Response::decode(&frame), Ok(Response::Rows(rows)) if rows.len() == 1));
    }
}

#[test]
fn no_bytes_harm_the_server() {
    each_engine("garbage", |engine| {
        let server = Server::start(engine, 2, &[]).unwrap();
        let mut witness = Client::start(&server, Version::V5, true);
        let mut state = 1_u64;
        let mut random = |below: usize| {
            // Knuth's generator (The Art of Computer Programming, vol. 2, 3.3.4).
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).unwrap() % below
        };
        for round in 0..200 {
            let version = Version::ALL[round % 2];
            let mut client = Client::new(server.connect(), version);
            if round % 4 < 2 {
                client.startup((round % 8 < 4).then_some("lz4"));
            }
            let mut frames = Vec::new();
            let head = Head { version, stream: 1 };
            let settings = Settings { page_size: Some(2), ..Settings::DEFAULT };
            let values = [Value::Bytes(b"local"), Value::Unset];
            let text = "SELECT * FROM system.local WHERE key = ?";
            request::encode_query(&mut frames, head, text, &settings, &values);
            request::encode_prepare(&mut frames, head, text);
            request::encode_execute(&mut frames, head, &[7; 16], &settings, &values);
            request::encode_register(&mut frames, head, &["SCHEMA_CHANGE"]);
            request::encode_auth_response(&mut frames, head, Some(b"\0a\0b"));
            let items = [(BatchStatement::Text(text), &values[..])];
            request::encode_batch(&mut frames, head, BatchKind::Logged, &items, &settings);
            // Half of the damage is inside of valid segments.
            let inside = round % 16 < 8;
            for _ in 0..random(4) {
                let at = random(frames.len());
                frames[at] ^= 1 << random(8);
            }
            let mut packed = Vec::new();
            match client.framing {
                Framing::Segments { lz4 } if inside => {
                    tare_cql::segment::encode(&mut packed, &frames, round % 3 > 0, lz4);
                }
                framing => framing.pack(&frames, &mut packed),
            }
            if !inside && !packed.is_empty() {
                let at = random(packed.len());
                packed[at] ^= 1 << random(8);
            }
            packed.truncate(random(packed.len().max(1)) * 2);
            // A server that has refused the rest may close the connection before it came.
            let _ = client.stream.write_all(&packed);
        }
        let answer = witness.query("SELECT * FROM system.local");
        assert!(matches!(decode(&answer), Response::Rows(_)), "{engine}");
    });
}

fn users(directory: &Path) -> PathBuf {
    let path = directory.join("users");
    let entry = |user, password| tare_db::auth::entry(user, password).unwrap();
    let text = format!("# people\n{}\n\n{}\n", entry("ann", "secret"), entry("bob", "p:w"));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn only_users_get_in() {
    each_engine("logins", |engine| {
        let directory = tempfile::tempdir().unwrap();
        let users = format!("users={}", users(directory.path()).display());
        for (smp, version) in [(1, Version::V4), (2, Version::V5)] {
            let server = Server::start(engine, smp, &[&users]).unwrap();
            let begin = || {
                let mut client = Client::new(server.connect(), version);
                let answer = client.startup(Some("lz4"));
                let Response::Authenticate { class } = decode(&answer) else { panic!("login") };
                assert_eq!(class, "org.apache.cassandra.auth.PasswordAuthenticator");
                client
            };
            let mut client = begin();
            let refused = error(&client.query("SELECT * FROM system.local"));
            assert_eq!(refused.0, ErrorKind::Protocol.code(), "{refused:?}");
            assert!(matches!(decode(&client.login("bob", "p:w")), Response::AuthSuccess { .. }));
            let answer = client.query("SELECT * FROM system.local");
            assert!(matches!(decode(&answer), Response::Rows(_)));
            for (user, password) in [("ann", "wrong"), ("ann", ""), ("eve", "secret")] {
                let mut client = begin();
                let (code, message) = error(&client.login(user, password));
                assert_eq!(code, ErrorKind::BadCredentials.code());
                let expect = format!("Provided username {user} and/or password are incorrect");
                assert_eq!(message, expect);
                assert!(client.receive().is_none(), "the connection ends");
            }
            let mut client = begin();
            let (code, _) = error(&client.ask(|head, out| {
                request::encode_auth_response(out, head, Some(b"ann"));
            }));
            assert_eq!(code, ErrorKind::Protocol.code());
        }
    });
}

#[test]
fn server_beyond_loopback_needs_passwords_and_tls() {
    let directory = tempfile::tempdir().unwrap();
    let check = |more: &[&str], expect: &str| {
        let refused = Server::start("auto", 1, more).err().unwrap();
        assert!(refused.contains(expect), "{refused}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
    };
    check(&["listen=0.0.0.0"], "without passwords and TLS");
    let users = format!("users={}", users(directory.path()).display());
    check(&["listen=::", &users], "without TLS");
    let missing = format!("users={}", directory.path().join("none").display());
    check(&[&missing], "cannot read the users in");
    std::fs::write(directory.path().join("plain"), "ann:secret\n").unwrap();
    let plain = format!("users={}", directory.path().join("plain").display());
    check(&[&plain], "line 1 of");
    check(&["cert=none", "key=none"], "cannot read a certificate from none");
}

/// Returns the server's options for TLS and the client's configuration.
fn tls() -> ([String; 2], Arc<rustls::ClientConfig>) {
    // A well-known key pair, for 127.0.0.1 until 2126.
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls");
    let (certificate, key) = (files.join("certificate.pem"), files.join("key.pem"));
    let options = [format!("cert={}", certificate.display()), format!("key={}", key.display())];
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add(CertificateDer::from_pem_file(&certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(trusted)
        .with_no_client_auth();
    (options, Arc::new(config))
}

#[test]
fn optional_tls_serves_both_kinds_of_clients_on_one_port() {
    let (options, config) = tls();
    each_engine("optional TLS", |engine| {
        let server = Server::start(engine, 2, &[&options[0], &options[1], "tls=optional"]).unwrap();
        assert!(server.report().tls && server.report().tls_optional);
        for version in [Version::V4, Version::V5] {
            let session =
                rustls::ClientConnection::new(Arc::clone(&config), "localhost".try_into().unwrap());
            let stream = rustls::StreamOwned::new(session.unwrap(), server.connect());
            let mut with = Client::new(stream, version);
            assert!(with.option("SCYLLA_SHARD_AWARE_PORT_SSL").is_some());
            assert!(matches!(decode(&with.startup(None)), Response::Ready));
            let mut without = Client::new(server.connect(), version);
            assert!(without.option("SCYLLA_SHARD_AWARE_PORT").is_some());
            assert!(without.option("SCYLLA_SHARD_AWARE_PORT_SSL").is_none());
            assert!(matches!(decode(&without.startup(None)), Response::Ready));
            for client in [&mut with, &mut without] {
                let answer = client.query("SELECT release_version FROM system.local");
                assert!(matches!(decode(&answer), Response::Rows(_)));
            }
        }
        // A client may send its first bytes one by one.
        let mut slow = server.connect();
        for byte in b"\x04\0\0\x01\x05\0\0\0\0" {
            slow.write_all(&[*byte]).unwrap();
        }
        let mut said = [0];
        slow.read_exact(&mut said).unwrap();
        assert_eq!(said, [0x84], "an answer of version 4");
    });
}

#[test]
fn statements_and_events_work_through_tls() {
    let (options, config) = tls();
    each_engine("TLS", |engine| {
        let server = Server::start(engine, 2, &[&options[0], &options[1]]).unwrap();
        for (version, lz4) in [(Version::V4, false), (Version::V4, true), (Version::V5, true)] {
            let name = "localhost".try_into().unwrap();
            let session = rustls::ClientConnection::new(Arc::clone(&config), name).unwrap();
            let stream = rustls::StreamOwned::new(session, server.connect());
            let mut client = Client::new(stream, version);
            assert!(client.option("SCYLLA_SHARD_AWARE_PORT_SSL").is_some());
            assert!(matches!(decode(&client.startup(lz4.then_some("lz4"))), Response::Ready));
            client.query(KEYSPACE);
            client.query("CREATE TABLE ks.t (k int PRIMARY KEY, v blob)");
            let value = vec![b'x'; 700_000];
            let values = [Value::Bytes(&[0, 0, 0, 1]), Value::Bytes(&value)];
            client.ask(|head, out| {
                let insert = "INSERT INTO ks.t (k, v) VALUES (?, ?)";
                request::encode_query(out, head, insert, &Settings::DEFAULT, &values);
            });
            let answer = client.query("SELECT v FROM ks.t WHERE k = 1");
            let Response::Rows(rows) = decode(&answer) else { panic!("rows") };
            assert!(rows.cells().eq([Some(&value[..])]));
        }
        // A client that does not speak TLS gets a TLS alert, and the connection closes.
        let mut stream = server.connect();
        stream.write_all(b"\x04\0\0\x01\x05\0\0\0\0").unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        assert_eq!(said.first(), Some(&21), "an alert");
    });
}
