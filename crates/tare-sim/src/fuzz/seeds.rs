//! The seeds of the corpora: small inputs that reach every kind of message, statement and record.
//! The encoders make them. Inputs that fuzzing found may be added.

use tare_cql::frame::{Head, Version};
use tare_cql::framing::Framing;
use tare_cql::request::{self, BatchKind, BatchStatement, Settings};
use tare_cql::wire::Value;
use tare_store::FileId;

use crate::fuzz::sample;

/// The seeds of a target: file names and contents.
pub fn of(target: &str) -> Vec<(String, Vec<u8>)> {
    match target {
        "requests" => requests(),
        "responses" => responses(),
        "framings" => framings(),
        "statements" => statements(),
        "logs" => sample::files(false, |file| matches!(file, FileId::Log(_))),
        "tables" => sample::files(true, |file| matches!(file, FileId::Table(_))),
        "manifests" => sample::files(true, |file| file == FileId::Manifest),
        "canary" => vec![("text".into(), b"tare".to_vec())],
        _ => Vec::new(),
    }
}

fn named(inputs: Vec<(&str, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    inputs.into_iter().map(|(name, bytes)| (name.to_string(), bytes)).collect()
}

fn made(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn requests() -> Vec<(String, Vec<u8>)> {
    let settings = Settings {
        page_size: Some(5000),
        paging_state: Some(b"state"),
        timestamp_us: Some(7),
        ..Settings::default()
    };
    let values = [Value::Bytes(b"x"), Value::Null, Value::Unset];
    let items: [(BatchStatement<'_>, &[Value<'_>]); 2] =
        [(BatchStatement::Text("INSERT"), &values[..2]), (BatchStatement::Prepared(b"id"), &[])];
    let batch =
        |out: &mut Vec<u8>| request::encode_batch(out, 1, BatchKind::Logged, &items, &settings);
    let five = Head { version: Version::V5, stream: 3 };
    named(vec![
        ("options", made(|out| request::encode_options(out, 1))),
        ("startup", made(|out| request::encode_startup(out, 1, &[("CQL_VERSION", "3.0.0")]))),
        ("register", made(|out| request::encode_register(out, 1, &["SCHEMA_CHANGE"]))),
        ("auth", made(|out| request::encode_auth_response(out, 1, Some(b"\0user\0secret")))),
        ("prepare", made(|out| request::encode_prepare(out, 1, "SELECT a FROM b"))),
        ("query", made(|out| request::encode_query(out, 1, "SELECT", &settings, &values))),
        ("execute", made(|out| request::encode_execute(out, 1, b"id", &settings, &values))),
        ("batch", made(batch)),
        ("prepare-5", made(|out| request::encode_prepare(out, five, "SELECT a FROM b"))),
        ("query-5", made(|out| request::encode_query(out, five, "SELECT", &settings, &values))),
        ("version-66", b"\x42\0\0\x07\x05\0\0\0\0".to_vec()),
    ])
}

fn framings() -> Vec<(String, Vec<u8>)> {
    let framings = [
        (0, "plain", Framing::Plain),
        (1, "compressed", Framing::Compressed),
        (2, "segments", Framing::Segments { lz4: false }),
        (3, "segments-lz4", Framing::Segments { lz4: true }),
    ];
    let made = |(how, name, framing): (u8, &str, Framing)| {
        let version = if how < 2 { Version::V4 } else { Version::V5 };
        let (mut frames, mut out) = (Vec::new(), vec![how]);
        request::encode_options(&mut frames, Head { version, stream: 1 });
        let text = "SELECT a FROM b WHERE c = 1 AND d = 1 AND e = 1 AND f = 1 AND g = 1 AND h = 1";
        request::encode_prepare(&mut frames, Head { version, stream: 2 }, text);
        framing.pack(&frames, &mut out);
        (name.to_string(), out)
    };
    framings.into_iter().map(made).collect()
}

fn responses() -> Vec<(String, Vec<u8>)> {
    use tare_cql::response;
    let error = |out: &mut Vec<u8>| {
        response::encode_error(out, 1, &response::ErrorKind::Protocol, "a message");
    };
    // One page of rows: two columns, of which the second is null in one row.
    let rows =
        b"\x84\0\0\x01\x08\0\0\0\x3d\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\x02ks\0\x01t\0\x01a\0\x03\
                 \0\x01b\0\x09\0\0\0\x02\0\0\0\x01x\0\0\0\x04\0\0\0\x07\0\0\0\x01y\xff\xff\xff\xff";
    let mut rows = rows.to_vec();
    let body = u32::try_from(rows.len() - 9).unwrap_or_default();
    rows[5..9].copy_from_slice(&body.to_be_bytes());
    named(vec![
        ("ready", made(|out| response::encode_ready(out, 1))),
        ("void", made(|out| response::encode_void(out, 1))),
        ("supported", made(|out| response::encode_supported(out, 1, &[("A", &["b", "c"])]))),
        ("keyspace", made(|out| response::encode_set_keyspace(out, 1, "ks"))),
        ("error", made(error)),
        ("rows", rows),
    ])
}

fn statements() -> Vec<(String, Vec<u8>)> {
    let texts = [
        ("use", "USE \"Ks\""),
        (
            "create-keyspace",
            "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1} AND durable_writes = true",
        ),
        (
            "create-table",
            "CREATE TABLE ks.t (a int, b text, c uuid, d blob, PRIMARY KEY ((a, b), c)) WITH \
             CLUSTERING ORDER BY (c DESC) AND default_time_to_live = 60 AND comment = 'it''s'",
        ),
        ("alter-table", "ALTER TABLE ks.t ADD e timestamp"),
        ("drop", "DROP TABLE IF EXISTS ks.t; -- gone"),
        ("truncate", "TRUNCATE TABLE ks.t"),
        ("insert", "INSERT INTO ks.t (a, b, c) VALUES (1, 'x', ?) USING TIMESTAMP 7 AND TTL :ttl"),
        ("update", "UPDATE t USING TTL 5 SET b = ?, d = 0xcafe WHERE a = 1 AND c > 2"),
        ("delete", "DELETE b, d FROM t USING TIMESTAMP 1 WHERE a IN (1, 2) AND (b, c) >= (?, ?)"),
        (
            "select",
            "SELECT DISTINCT a, writetime(b), ttl(b), count(*) AS n FROM ks.t WHERE token(a) > \
             token(?) AND b IN ('x', 'y') ORDER BY c DESC PER PARTITION LIMIT 2 LIMIT 10 ALLOW \
             FILTERING",
        ),
        ("batch", "BEGIN UNLOGGED BATCH INSERT INTO t (a) VALUES (1); APPLY BATCH;"),
        (
            "counter-batch",
            "BEGIN COUNTER BATCH UPDATE c SET n = n + ?, m -= 1 WHERE k = 1; UPDATE c SET n = n -1 \
             WHERE k = 2 APPLY BATCH",
        ),
        (
            "list-elements",
            "UPDATE t USING TTL 5 SET l[0] = ?, l = l - ['a', 'b'], l = ['c'] + l WHERE k = 1",
        ),
        ("list-deletion", "DELETE l[?], m['k'] FROM ks.t WHERE k IN (1, 2)"),
        (
            "conditions",
            "UPDATE t SET s = 1 WHERE k = 1 AND c = 2 IF m['a'] = 1 AND l[0] IN (1, ?) AND s != \
             {1, 2} AND l >= []",
        ),
        ("literals", "SELECT a FROM t WHERE a = [1, -2.5e3, {true: null}, $$raw$$, 2h5m, NaN]"),
    ];
    texts.into_iter().map(|(name, text)| (name.to_string(), text.as_bytes().to_vec())).collect()
}
