//! What `tare load --verify` finds in a real `tare db` while another client changes the rows, and
//! tables that do not match the workload.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{stderr, stdout, tare};
use serde_json::Value;
use tare_cql::request::{self, Settings};
use tare_db::report::{FILE, Report};
use tare_testkit::cql::Connection;
use tare_testkit::database::Server;

/// Later than any write timestamp of a load, so that the load's later writes have no effect.
const FUTURE_US: u64 = 9_000_000_000_000_000;
/// Rows of the table: one third is made wrong, one third stale, and one third lost.
const ROWS: u64 = 30;

/// A database that ends with the test.
struct Database(Server<Report>);

impl Database {
    fn start(data: &Path) -> Self {
        let mut command = tare();
        command.args(["db", "--smp", "1", "--overprovisioned", "yes", "--memory", "256M"]);
        command.args(["--port", "0", "--data"]).arg(data);
        let server = Server::start(command, &data.join(FILE), tare_db::report::read);
        Self(server.unwrap_or_else(|said| panic!("{said}")))
    }

    fn load(&self, words: &[&str]) -> Command {
        let mut command = tare();
        let address = format!("127.0.0.1:{}", self.0.report.port);
        command.args(["load", &address, "--json", "--lead-in", "0s"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// A client that changes the rows of the load.
struct Client(Connection);

impl Client {
    fn connect(database: &Database) -> Self {
        let mut client =
            Self(Connection::open((database.0.report.listen, database.0.report.port)).unwrap());
        client.send(|out| request::encode_startup(out, 0, &[("CQL_VERSION", "3.0.0")]));
        client
    }

    fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Vec<Vec<Option<Vec<u8>>>> {
        let mut out = Vec::new();
        encode(&mut out);
        self.0.stream.write_all(&out).unwrap();
        let (_, answer, _) = self.0.receive().expect("an answer");
        answer.unwrap_or_else(|error| panic!("{error}"))
    }

    fn query(&mut self, statement: &str) -> Vec<Vec<Option<Vec<u8>>>> {
        self.send(|out| request::encode_query(out, 0, statement, &Settings::DEFAULT, &[]))
    }

    /// Writes the columns of a row of the load's table with a timestamp in the far future.
    fn overwrite(&mut self, row: u64, cells: &[Vec<u8>]) {
        let literal = |cell: &Vec<u8>| {
            let digits: String = cell.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{digits}")
        };
        let cells: Vec<String> = cells.iter().map(literal).collect();
        self.query(&format!(
            "INSERT INTO tare.row2x32 (key, c0, c1) VALUES ({row}, {}) USING TIMESTAMP {FUTURE_US}",
            cells.join(", ")
        ));
    }
}

fn report(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|error| {
        panic!("{error}: {}", stderr(output));
    })
}

fn count(value: &Value) -> u64 {
    value.as_u64().expect("a count")
}

/// Returns the row that the first error of this kind names.
fn row_of(report: &Value, kind: &str) -> u64 {
    let errors = report["errors"].as_array().into_iter().flatten();
    let mut first = errors.filter(|error| error["kind"] == kind).map(|error| &error["first"]);
    let text = first.next().and_then(Value::as_str).expect("an error of the kind");
    let words = text.split_once("row ").expect("the number of a row").1;
    words.split([' ', ':']).next().unwrap().parse().expect("a number")
}

#[test]
fn verify_finds_wrong_stale_and_lost_rows() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::start(folder.path());
    let rows = ROWS.to_string();
    let table = ["--rows", &rows, "--columns", "2", "--column-bytes", "32", "--verify"];
    let load = |words: &[&str]| database.load(&[&table[..], words].concat());
    let untouched = load(&["--populate", "--operation", "mixed", "--duration", "300ms"]);
    let untouched = { untouched }.output().unwrap();
    let untouched_report = report(&untouched);
    assert!(untouched.status.success(), "{untouched_report}");
    let verify = &untouched_report["verify"];
    assert!(count(&verify["checked"]) > 0, "{verify}");
    assert_eq!([count(&verify["wrong"]), count(&verify["stale"]), count(&verify["lost"])], [0; 3]);

    let mut client = Client::connect(&database);
    let old: Vec<Vec<Vec<u8>>> = (0..ROWS)
        .map(|row| {
            let found = client.query(&format!("SELECT c0, c1 FROM tare.row2x32 WHERE key = {row}"));
            found[0].iter().map(|cell| cell.clone().expect("a value")).collect()
        })
        .collect();
    let words = ["--operation", "mixed", "--keys", "uniform", "--duration", "4s"];
    let mut child = load(&words).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while lines.read_line(&mut line).unwrap() > 0 && !line.contains(" op/s ") {
        line.clear();
    }
    // By now the load has written every row, and each write was acknowledged.
    for (row, cells) in (0..).zip(&old) {
        match row * 3 / ROWS {
            0 => client.overwrite(row, &[vec![7; 32], cells[1].clone()]),
            1 => client.overwrite(row, cells),
            _ => drop(client.query(&format!(
                "DELETE FROM tare.row2x32 USING TIMESTAMP {FUTURE_US} WHERE key = {row}"
            ))),
        }
    }
    lines.read_to_string(&mut line).unwrap();
    let output = child.wait_with_output().unwrap();
    let found = report(&output);
    assert_eq!(output.status.code(), Some(1), "{found}");
    let verify = &found["verify"];
    let bad = ["wrong", "stale", "lost"].map(|kind| count(&verify[kind]));
    assert!(bad.iter().all(|count| *count > 0), "{verify}");
    assert!(bad.iter().sum::<u64>() < count(&verify["checked"]), "{verify}");
    let failed: u64 =
        found["errors"].as_array().into_iter().flatten().map(|e| count(&e["count"])).sum();
    assert_eq!(failed, bad.iter().sum::<u64>(), "nothing else failed: {found}");
    let kinds = ["row differs from what was written", "row stale", "row missing"];
    assert_eq!(kinds.map(|kind| row_of(&found, kind) * 3 / ROWS), [0, 1, 2], "{found}");

    // A load that only reads has the values that were written but not the times, so it cannot
    // detect stale rows. Every row is read equally often, and correct reads count only inside the
    // window.
    let words = ["--operation", "read", "--keys", "sequential", "--duration", "300ms"];
    let output = load(&words).output().unwrap();
    let verify = &report(&output)["verify"];
    let [checked, wrong, lost] = ["checked", "wrong", "lost"].map(|kind| count(&verify[kind]));
    assert!(wrong > 0 && wrong.abs_diff(lost) <= ROWS + 64, "{verify}");
    let good = checked - wrong - lost;
    assert!(good > 0 && good <= wrong + ROWS + 64, "{verify}");
    assert_eq!(count(&verify["stale"]), 0, "{verify}");
}

#[test]
fn a_mismatched_table_is_refused_before_any_write() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::start(folder.path());
    let mut client = Client::connect(&database);
    let refused = |words: &[&str]| {
        let output = database.load(&[words, &["--duration", "100ms"]].concat()).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let message: Vec<&str> = text.lines().filter(|line| line.starts_with("tare: ")).collect();
        assert!(stdout(&output).is_empty() && message.len() == 1, "{text}");
        message[0].to_string()
    };
    let message = refused(&["--columns", "2", "--column-bytes", "32"]);
    assert!(message.contains("there is no table tare.row2x32 at 127.0.0.1:"), "{message}");
    assert!(message.contains("--populate"), "{message}");
    let strategy = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    client.query(&format!("CREATE KEYSPACE tare WITH replication = {strategy}"));
    let mut check = |columns: &str, expect: &str| {
        client.query(&format!("CREATE TABLE tare.row2x32 ({columns})"));
        for words in [
            &["--columns", "2", "--column-bytes", "32"][..],
            &["--columns", "2", "--column-bytes", "32", "--populate"],
        ] {
            let message = refused(words);
            assert!(message.contains("the table tare.row2x32 at 127.0.0.1:"), "{message}");
            assert!(message.contains(expect), "{message}");
        }
        assert!(client.query("SELECT key FROM tare.row2x32").is_empty(), "nothing was written");
        client.query("DROP TABLE tare.row2x32");
    };
    check("key bigint PRIMARY KEY, c0 text, c1 blob", "its column c0 is text, not blob");
    check("key blob PRIMARY KEY, c0 blob, c1 blob", "its column key is blob, not bigint");
    check("key bigint PRIMARY KEY, c0 blob", "it has no column c1");
    check(
        "key bigint, c0 blob, c1 blob, PRIMARY KEY (key, c0)",
        "its primary key is ((key), c0), not ((key))",
    );
    // Columns that the workload does not use are ignored.
    client.query("CREATE TABLE tare.row2x32 (key bigint PRIMARY KEY, c0 blob, c1 blob, note text)");
    let words = ["--columns", "2", "--column-bytes", "32", "--populate", "--rows", "100"];
    let output = database.load(&[&words[..], &["--duration", "100ms"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}
