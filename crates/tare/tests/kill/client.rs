//! A client that checks what the server acknowledged: every key has a version that only grows, and
//! a value that is derived from key and version.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tare_cql::request::{self, Settings};
use tare_cql::wire::Value;
use tare_db::report::Report;
use tare_std::rng::{Rng, mix64};

use tare_testkit::cql::{Answer, Connection};

/// Keys of one writer.
const KEYS: u64 = 200;
/// Rows of a partition of the clustered table.
const ROWS: u64 = 16;
/// Requests in flight on a connection.
const IN_FLIGHT: u64 = 16;

/// One connection.
pub(crate) struct Client {
    connection: Connection,
}

/// One writer, with what it has sent and what was acknowledged.
pub(crate) struct Writer {
    number: u64,
    rng: Rng,
    keys: BTreeMap<u64, Versions>,
    acknowledged: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Versions {
    sent: u64,
    acknowledged: u64,
}

impl Client {
    fn connect(report: &Report) -> Option<Self> {
        Some(Self { connection: Connection::open((report.listen, report.port)).ok()? })
    }

    pub(crate) fn start(report: &Report) -> Self {
        let mut client = Self::connect(report).expect("the server listens");
        client.request(|out| request::encode_startup(out, 0, &[("CQL_VERSION", "3.0.0")])).unwrap();
        client
    }

    pub(crate) fn schema(&mut self) {
        let strategy = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        let statements = [
            format!("CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {strategy}"),
            "CREATE TABLE IF NOT EXISTS ks.plain (k blob PRIMARY KEY, v blob)".into(),
            "CREATE TABLE IF NOT EXISTS ks.rows (k blob, c blob, v blob, PRIMARY KEY (k, c))"
                .into(),
        ];
        for text in statements {
            self.request(|out| request::encode_query(out, 0, &text, &Settings::default(), &[]))
                .unwrap();
        }
    }

    /// Returns the next frame: its stream, its answer, and the id of a prepared statement. `None`
    /// if the server has gone.
    fn receive(&mut self) -> Option<(i16, Answer, Vec<u8>)> {
        self.connection.receive()
    }

    fn request(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Answer {
        let mut out = Vec::new();
        write(&mut out);
        self.connection.stream.write_all(&out).unwrap();
        self.receive().expect("the server answers").1
    }

    fn prepare(&mut self, text: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        request::encode_prepare(&mut out, 0, text);
        self.connection.stream.write_all(&out).ok()?;
        Some(self.receive()?.2)
    }

    fn send(&mut self, stream: i16, id: &[u8], values: &[Value<'_>]) -> bool {
        let mut out = Vec::new();
        request::encode_execute(&mut out, stream, id, &Settings::default(), values);
        self.connection.stream.write_all(&out).is_ok()
    }
}

impl Writer {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, rng: Rng::stream(7, number), keys: BTreeMap::new(), acknowledged: 0 }
    }

    /// Returns the total of acknowledged writes.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Writes until the server dies.
    pub(crate) fn write_until_it_dies(&mut self, report: &Report, count: &AtomicU64) {
        let Some(mut client) = Client::connect(report) else { return };
        let mut out = Vec::new();
        request::encode_startup(&mut out, 0, &[("CQL_VERSION", "3.0.0")]);
        if client.connection.stream.write_all(&out).is_err() || client.receive().is_none() {
            return;
        }
        let Some(plain) = client.prepare("INSERT INTO ks.plain (k, v) VALUES (?, ?)") else {
            return;
        };
        let Some(rows) = client.prepare("INSERT INTO ks.rows (k, c, v) VALUES (?, ?, ?)") else {
            return;
        };
        let mut under_way: BTreeMap<i16, (u64, u64)> = BTreeMap::new();
        let mut free: Vec<i16> = (0..i16::try_from(IN_FLIGHT).unwrap()).collect();
        loop {
            while let Some(stream) = free.pop() {
                let key = self.rng.below(KEYS);
                // Only one version of a key is in flight, so the version acknowledged last is the
                // oldest that may be found.
                if under_way.values().any(|(other, _)| *other == key) {
                    free.push(stream);
                    continue;
                }
                let versions = self.keys.entry(key).or_default();
                versions.sent += 1;
                let value = value(self.number, key, versions.sent);
                let (partition, row) = self.place(key);
                let sent = match &row {
                    None => {
                        let values = [Value::Bytes(&partition), Value::Bytes(&value)];
                        client.send(stream, &plain, &values)
                    }
                    Some(row) => {
                        let values =
                            [Value::Bytes(&partition), Value::Bytes(row), Value::Bytes(&value)];
                        client.send(stream, &rows, &values)
                    }
                };
                under_way.insert(stream, (key, self.keys[&key].sent));
                if !sent {
                    return;
                }
            }
            let Some((stream, answer, _)) = client.receive() else { return };
            let (key, version) = under_way.remove(&stream).unwrap();
            free.push(stream);
            match answer {
                Ok(_) => {
                    self.keys.get_mut(&key).unwrap().acknowledged = version;
                    self.acknowledged += 1;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                // A request refused for overload has not been written.
                Err(why) => assert!(why.contains("less") || why.contains("behind"), "{why}"),
            }
        }
    }

    /// Reads every key and checks that its version is between the last acknowledged and the last
    /// sent one.
    pub(crate) fn verify(&mut self, client: &mut Client, acknowledged_is_durable: bool) {
        let plain = client.prepare("SELECT v FROM ks.plain WHERE k = ?").unwrap();
        let rows = client.prepare("SELECT v FROM ks.rows WHERE k = ? AND c = ?").unwrap();
        let keys: Vec<u64> = self.keys.keys().copied().collect();
        for key in keys {
            let (partition, row) = self.place(key);
            let mut values = vec![Value::Bytes(&partition)];
            values.extend(row.as_ref().map(|row| Value::Bytes(row)));
            let id = if row.is_some() { &rows } else { &plain };
            assert!(client.send(0, id, &values));
            let answer = client.receive().unwrap().1.unwrap();
            let found = answer.first().map(|row| row[0].clone().unwrap());
            let Versions { sent, acknowledged } = self.keys[&key];
            let least = if acknowledged_is_durable { acknowledged } else { 0 };
            let number = self.number;
            let version = (least..=sent).find(|&version| match &found {
                None => version == 0,
                Some(found) => version > 0 && *found == value(number, key, version),
            });
            let version = version.unwrap_or_else(|| {
                let found = found.map(|found| found.get(..8).map(<[u8]>::to_vec));
                panic!(
                    "writer {number}, key {key}: found {found:02x?}, but {acknowledged} was \
                     acknowledged and {sent} sent"
                )
            });
            // A version that was read must not disappear later.
            self.keys.insert(key, Versions { sent, acknowledged: version });
        }
    }

    /// Returns the partition of a key and, for every other key, its row in the clustered table.
    fn place(&self, key: u64) -> ([u8; 9], Option<[u8; 8]>) {
        let partition = |key: u64| {
            let mut bytes = [0; 9];
            bytes[0] = self.number.to_be_bytes()[7];
            bytes[1..].copy_from_slice(&key.to_be_bytes());
            bytes
        };
        match key % 2 {
            0 => (partition(key), None),
            _ => (partition(key / ROWS), Some(key.to_be_bytes())),
        }
    }
}

/// Returns the value of a version of a key; its length and bytes are derived from both.
fn value(writer: u64, key: u64, version: u64) -> Vec<u8> {
    let mut state = mix64(writer << 48 ^ key << 32 ^ version);
    let length = match state % 20 {
        0 => 8000,
        1..4 => 3000,
        _ => 300,
    };
    let mut value = version.to_le_bytes().to_vec();
    while value.len() < length {
        state = mix64(state);
        value.extend_from_slice(&state.to_le_bytes());
    }
    value
}

/// Opens connections, sends part of a frame on each, and closes them.
pub(crate) fn break_connections(report: &Report, dead: &AtomicBool) {
    let mut rng = Rng::new(3);
    let mut frame = Vec::new();
    request::encode_startup(&mut frame, 0, &[("CQL_VERSION", "3.0.0")]);
    let values = [Value::Bytes(&[1; 100])];
    request::encode_query(&mut frame, 1, "SELECT v FROM ks.plain", &Settings::default(), &values);
    while !dead.load(Ordering::Relaxed) {
        if let Some(mut client) = Client::connect(report) {
            let length = usize::try_from(rng.below(frame.len() as u64)).unwrap();
            // The server may already be gone.
            let _ = client.connection.stream.write_all(&frame[..length]);
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}
