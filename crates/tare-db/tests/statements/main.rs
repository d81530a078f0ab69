//! Tests statements through a real server, on one shard and on three.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

mod collections;
#[path = "../common/mod.rs"]
mod common;
mod conditional;
mod counters;
mod dropped;
mod filtering;
mod grouped;
mod lists;
mod model;
mod server;
mod statics;

use server::{Client, Server};
use tare_cql::request::{BatchKind, BatchStatement, Settings};
use tare_cql::wire::{Consistency, Value};

const KEYSPACE: &str = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
                        'replication_factor': 1}";

/// Runs `test` on servers of one and of three shards, with a keyspace `ks` in use.
fn each(test: impl Fn(&Server, &mut Client)) {
    for shards in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), shards, "100");
        let mut client = server.connect();
        assert_eq!(client.query(KEYSPACE).error, None);
        client.query("USE ks");
        test(&server, &mut client);
    }
}

/// Runs statements one after the other. Each expected answer is: rows joined by `; `, `ok` for an
/// answer without rows, or the beginning of an error.
#[track_caller]
fn script(client: &mut Client, script: &[(&str, &str)]) {
    for (text, expect) in script {
        let answer = client.query(text);
        let got = match answer.error {
            Some(error) => error,
            None if answer.names.is_empty() => "ok".to_owned(),
            None => answer.rows.join("; "),
        };
        let fits = match expect.contains(": ") {
            true => got.starts_with(expect),
            false => got == *expect,
        };
        assert!(fits, "{text}\n  got:      {got}\n  expected: {expect}");
    }
}

#[test]
fn every_kind_of_condition_reads_and_writes() {
    each(|_, client| {
        let create = "CREATE TABLE t (k int, l text, c int, d text, v int, w text, \
                      PRIMARY KEY ((k, l), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)";
        assert_eq!(client.query(create).error, None);
        for c in 0..4 {
            for d in ["a", "b"] {
                let text =
                    format!("INSERT INTO t (k, l, c, d, v) VALUES (1, 'x', {c}, '{d}', {c})");
                assert_eq!(client.query(&text).error, None);
            }
        }
        script(
            client,
            &[
                ("INSERT INTO t (k, l, c, d, v) VALUES (2, 'x', 9, 'z', 9)", "ok"),
                ("SELECT * FROM t WHERE k = 2 AND l = 'x'", "2 'x' 9 'z' 9 null"),
                ("SELECT c, d FROM t WHERE k = 1 AND l = 'x' AND c = 2", "2 'a'; 2 'b'"),
                ("SELECT c, d FROM t WHERE k = 1 AND l = 'x' AND c > 2", "3 'a'; 3 'b'"),
                ("SELECT c, d FROM t WHERE k = 1 AND l = 'x' AND c >= 1 AND c < 2", "1 'a'; 1 'b'"),
                ("SELECT c, d FROM t WHERE k = 1 AND l = 'x' AND c = 2 AND d > 'a'", "2 'b'"),
                (
                    "SELECT c, d FROM t WHERE k = 1 AND l = 'x' AND c IN (0, 3, 0) AND d = 'b'",
                    "3 'b'; 0 'b'",
                ),
                (
                    "SELECT c, d FROM t WHERE k = 1 AND l = 'x' AND (c, d) IN ((2, 'a'), (0, 'b'))",
                    "2 'a'; 0 'b'",
                ),
                ("SELECT c, d FROM t WHERE k = 1 AND l = 'x' AND (c, d) = (2, 'a')", "2 'a'"),
                ("SELECT c FROM t WHERE k = 1 AND l = 'x' AND c IN ()", ""),
                (
                    "SELECT c, d FROM t WHERE k = 1 AND l = 'x' ORDER BY c ASC LIMIT 3",
                    "0 'b'; 0 'a'; 1 'b'",
                ),
                (
                    "SELECT c, d FROM t WHERE k = 1 AND l = 'x' ORDER BY c DESC, d ASC LIMIT 3",
                    "3 'a'; 3 'b'; 2 'a'",
                ),
                (
                    "SELECT c, d FROM t WHERE k = 1 AND l = 'x' AND c = 1 ORDER BY d DESC",
                    "1 'b'; 1 'a'",
                ),
                (
                    "SELECT k, c, d FROM t WHERE k IN (2, 1) AND l = 'x' ORDER BY c DESC LIMIT 2",
                    "2 9 'z'; 1 3 'a'",
                ),
                (
                    "SELECT d, c FROM t WHERE k IN (2, 1) AND l = 'x' AND c > 2 ORDER BY c ASC",
                    "'b' 3; 'a' 3; 'z' 9",
                ),
                ("SELECT count(*) FROM t WHERE k IN (2, 1) AND l = 'x' ORDER BY c LIMIT 3", "9"),
                (
                    "SELECT k, c, d FROM t WHERE k IN (2, 1) AND l = 'x' PER PARTITION LIMIT 1",
                    "1 3 'a'; 2 9 'z'",
                ),
                (
                    "SELECT k FROM t WHERE k IN (2, 1, 5) AND l IN ('x', 'y') LIMIT 9",
                    "1; 1; 1; 1; 1; 1; 1; 1; 2",
                ),
                ("SELECT count(*) FROM t", "9"),
                ("SELECT count(w) FROM t", "0"),
                ("SELECT count(v) AS n FROM t WHERE k = 1 AND l = 'x' LIMIT 1", "8"),
                (
                    "SELECT c, d FROM t WHERE k = 1 AND l = 'x' AND (c, d) > (2, 'a')",
                    "3 'a'; 3 'b'; 2 'b'",
                ),
            ],
        );
        script(client, &REFUSED_SELECTS);
    });
}

/// Selects that the table of the test above refuses.
const REFUSED_SELECTS: [(&str, &str); 14] = [
    (
        "SELECT k FROM t WHERE k = 1",
        "Invalid: Cannot execute this query as it might involve data filtering",
    ),
    (
        "SELECT k FROM t WHERE v = 1",
        "Invalid: Cannot execute this query as it might involve data filtering",
    ),
    (
        "SELECT k FROM t WHERE k = 1 AND l = 'x' AND d = 'a'",
        "Invalid: PRIMARY KEY column \"d\" cannot be restricted as preceding column \"c\"",
    ),
    (
        "SELECT k FROM t WHERE k = 1 AND l = 'x' AND c > 1 AND d = 'a'",
        "Invalid: Clustering column \"d\" cannot be restricted (preceding column \"c\" is restricted by a non-EQ relation)",
    ),
    (
        "SELECT k FROM t WHERE k > 1 AND l = 'x'",
        "Invalid: Cannot execute this query as it might involve data filtering",
    ),
    (
        "SELECT k FROM t ORDER BY c",
        "Invalid: ORDER BY is only supported when the partition key is restricted",
    ),
    (
        "SELECT k FROM t WHERE k = 1 AND l = 'x' ORDER BY d",
        "Invalid: Order by currently only supports the ordering of columns following",
    ),
    (
        "SELECT k FROM t WHERE k = 1 AND l = 'x' ORDER BY c DESC, d DESC",
        "Invalid: Unsupported order by relation",
    ),
    ("SELECT nothing FROM t", "Invalid: Undefined column name nothing in table ks.t"),
    ("SELECT * FROM nothing", "Invalid: unconfigured table nothing"),
    ("SELECT * FROM no.thing", "Invalid: keyspace no does not exist"),
    ("SELECT k FROM t LIMIT 0", "Invalid: LIMIT must be strictly positive"),
    (
        "SELECT k FROM t WHERE k = 'a' AND l = 'x'",
        "Invalid: Invalid STRING constant for \"k\" of type int",
    ),
    (
        "SELECT k FROM t WHERE k = null AND l = 'x'",
        "Invalid: Invalid null value in condition for column k",
    ),
];

#[test]
fn slices_of_several_columns_and_of_tokens() {
    each(|_, client| {
        script(client, &[("CREATE TABLE s (k int, a int, b int, PRIMARY KEY (k, a, b))", "ok")]);
        for (a, b) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            client.query(&format!("INSERT INTO s (k, a, b) VALUES (0, {a}, {b})"));
        }
        script(
            client,
            &[
                (
                    "SELECT a, b FROM s WHERE k = 0 AND (a, b) > (1, 1) AND (a, b) <= (2, 1)",
                    "1 2; 2 1",
                ),
                ("SELECT a, b FROM s WHERE k = 0 AND (a, b) >= (1, 2) AND (a) < (2)", "1 2"),
                ("SELECT a, b FROM s WHERE k = 0 AND a = 2 AND (b) > (1)", "2 2"),
                (
                    "SELECT a, b FROM s WHERE k = 0 AND (a, b) < (2, 2) ORDER BY a DESC",
                    "2 1; 1 2; 1 1",
                ),
            ],
        );
        script(client, &[("CREATE TABLE u (k int PRIMARY KEY, v int)", "ok")]);
        for k in 0..50 {
            client.query(&format!("INSERT INTO u (k, v) VALUES ({k}, {k})"));
        }
        let all = client.query("SELECT token(k), k FROM u").rows;
        assert_eq!(all.len(), 50);
        let token = |row: &String| row.split(' ').next().unwrap().parse::<i64>().unwrap();
        let tokens: Vec<i64> = all.iter().map(token).collect();
        assert!(tokens.is_sorted(), "{tokens:?}");
        for at in [0, 10, 49] {
            let token = tokens[at];
            let ask = |client: &mut Client, condition: String| {
                client.query(&format!("SELECT token(k), k FROM u WHERE {condition}")).rows
            };
            assert_eq!(ask(client, format!("token(k) > {token}")), all[at + 1..]);
            assert_eq!(ask(client, format!("token(k) >= {token}")), all[at..]);
            assert_eq!(ask(client, format!("token(k) < {token}")), all[..at]);
            assert_eq!(
                ask(client, format!("token(k) <= {token} AND token(k) > {}", tokens[0])),
                all[1..=at]
            );
            let k = all[at].split(' ').nth(1).unwrap();
            assert_eq!(
                ask(client, format!("token(k) >= token({k}) LIMIT 2")),
                all[at..(at + 2).min(50)]
            );
        }
        let least = i64::MIN;
        assert_eq!(
            client
                .query(&format!("SELECT k FROM u WHERE token(k) > {least} AND token(k) <= {least}"))
                .rows
                .len(),
            50
        );
        script(
            client,
            &[
                ("SELECT k FROM u WHERE token(k) > 9223372036854775807", ""),
                (
                    "SELECT k FROM s WHERE token(a) > 1",
                    "Invalid: The token function arguments must be in the partition key order: k",
                ),
                (
                    "SELECT k FROM u WHERE token(k) > 1 AND k = 1",
                    "Invalid: Columns of the partition key cannot be restricted by both",
                ),
            ],
        );
    });
}

#[test]
fn updates_and_deletions_follow_their_timestamps() {
    each(|_, client| {
        script(
            client,
            &[
                ("CREATE TABLE t (k int, c int, v int, w int, PRIMARY KEY (k, c))", "ok"),
                ("INSERT INTO t (k, c, v) VALUES (1, 1, 1) USING TIMESTAMP 10", "ok"),
                ("UPDATE t USING TIMESTAMP 5 SET v = 0, w = 5 WHERE k = 1 AND c = 1", "ok"),
                ("SELECT v, w, writetime(v), writetime(w) FROM t", "1 5 10 5"),
                ("DELETE w FROM t USING TIMESTAMP 6 WHERE k = 1 AND c = 1", "ok"),
                ("SELECT v, w, writetime(w) FROM t", "1 null null"),
                ("DELETE v FROM t WHERE k = 1 AND c = 1", "ok"),
                // The marker of the INSERT keeps the row.
                ("SELECT k, v FROM t", "1 null"),
                ("UPDATE t USING TIMESTAMP 20 SET v = 2 WHERE k = 1 AND c = 2", "ok"),
                ("UPDATE t USING TIMESTAMP 21 SET v = null WHERE k = 1 AND c = 2", "ok"),
                // A row of an UPDATE disappears with its last value.
                ("SELECT c FROM t", "1"),
                ("DELETE FROM t USING TIMESTAMP 9 WHERE k = 1 AND c = 1", "ok"),
                ("SELECT c FROM t", "1"),
                ("DELETE FROM t USING TIMESTAMP 10 WHERE k = 1 AND c = 1", "ok"),
                ("SELECT c FROM t", ""),
                ("INSERT INTO t (k, c) VALUES (1, 1) USING TIMESTAMP 11", "ok"),
                ("INSERT INTO t (k, c) VALUES (1, 2) USING TIMESTAMP 30", "ok"),
                ("INSERT INTO t (k, c) VALUES (1, 3) USING TIMESTAMP 30", "ok"),
                ("INSERT INTO t (k, c) VALUES (1, 4) USING TIMESTAMP 30", "ok"),
                ("DELETE FROM t USING TIMESTAMP 30 WHERE k = 1 AND c > 1 AND c <= 3", "ok"),
                ("SELECT c FROM t", "1; 4"),
                ("DELETE FROM t USING TIMESTAMP 40 WHERE k IN (1, 2) AND c IN (4, 5)", "ok"),
                ("SELECT c FROM t", "1"),
                (
                    "UPDATE t USING TIMESTAMP 50 SET v = 7 WHERE k IN (1, 2, 3) AND c IN (8, 9)",
                    "ok",
                ),
                ("SELECT count(*) FROM t", "7"),
                ("DELETE FROM t USING TIMESTAMP 60 WHERE k = 1", "ok"),
                ("SELECT k, c FROM t WHERE k IN (1, 2, 3)", "2 8; 2 9; 3 8; 3 9"),
                ("DELETE FROM t WHERE c = 1", "Invalid: Some partition key parts are missing: k"),
                ("DELETE v FROM t WHERE k = 1", "Invalid: Some clustering keys are missing: c"),
                (
                    "DELETE k FROM t WHERE k = 1 AND c = 1",
                    "Invalid: Invalid identifier k for deletion",
                ),
                (
                    "UPDATE t SET v = 1 WHERE k = 1 AND c > 1",
                    "Invalid: Slice restrictions are not supported",
                ),
                (
                    "UPDATE t SET c = 1 WHERE k = 1 AND c = 1",
                    "Invalid: PRIMARY KEY part c found in SET part",
                ),
                (
                    "UPDATE t SET v = 1 WHERE k = 1 AND c = 1 AND w = 1",
                    "Invalid: Non PRIMARY KEY columns found in where clause: w",
                ),
                (
                    "INSERT INTO t (k, v) VALUES (1, 1)",
                    "Invalid: Some clustering keys are missing: c",
                ),
                (
                    "INSERT INTO t (k, c, k) VALUES (1, 1, 1)",
                    "Invalid: The column names contains duplicates",
                ),
            ],
        );
    });
}

#[test]
fn values_expire_after_their_ttl() {
    each(|_, client| {
        script(
            client,
            &[
                (
                    "CREATE TABLE t (k int PRIMARY KEY, v int, w int) WITH default_time_to_live = 1000",
                    "ok",
                ),
                ("INSERT INTO t (k, v) VALUES (1, 1)", "ok"),
                ("INSERT INTO t (k, v) VALUES (2, 1) USING TTL 0", "ok"),
                ("INSERT INTO t (k, v) VALUES (3, 1) USING TTL 1", "ok"),
                ("UPDATE t USING TTL 500 SET w = 1 WHERE k = 2", "ok"),
                ("SELECT ttl(v) FROM t WHERE k = 2", "null"),
                (
                    "INSERT INTO t (k) VALUES (4) USING TTL 630720001",
                    "Invalid: ttl is too large. requested (630720001) maximum (630720000)",
                ),
                (
                    "INSERT INTO t (k) VALUES (4) USING TTL -1",
                    "Invalid: A TTL must be greater or equal to 0, but was -1",
                ),
            ],
        );
        let ttl =
            |client: &mut Client, text: &str| client.query(text).rows[0].parse::<i32>().unwrap();
        assert!((990..=1000).contains(&ttl(client, "SELECT ttl(v) FROM t WHERE k = 1")));
        assert!((490..=500).contains(&ttl(client, "SELECT ttl(w) FROM t WHERE k = 2")));
        let gone = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            client.query("SELECT k FROM t WHERE k = 3").rows.is_empty()
        });
        assert!(gone, "a row that was to live one second is there after ten");
    });
}

#[test]
fn batches_write_all_or_nothing() {
    each(|_, client| {
        script(
            client,
            &[
                ("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))", "ok"),
                ("CREATE TABLE u (k int PRIMARY KEY, v int)", "ok"),
                (
                    "BEGIN BATCH USING TIMESTAMP 5 INSERT INTO t (k, c, v) VALUES (1, 1, 1); \
                 INSERT INTO t (k, c, v) VALUES (2, 1, 2); UPDATE u SET v = 3 WHERE k = 1; \
                 DELETE FROM u WHERE k = 2; APPLY BATCH",
                    "ok",
                ),
                ("SELECT k, v, writetime(v) FROM t WHERE k IN (1, 2)", "1 1 5; 2 2 5"),
                ("SELECT * FROM u", "1 3"),
                (
                    "BEGIN BATCH USING TIMESTAMP 5 INSERT INTO u (k) VALUES (1) USING TIMESTAMP 6; APPLY BATCH",
                    "Invalid: Timestamp must be set either on BATCH or individual statements",
                ),
                ("BEGIN UNLOGGED BATCH APPLY BATCH", "ok"),
            ],
        );
        let insert = client.prepare("INSERT INTO t (k, c, v) VALUES (?, ?, ?)");
        assert_eq!(insert.markers, ["k int", "c int", "v int"]);
        assert_eq!(insert.key_markers, [0]);
        let number = |number: i32| number.to_be_bytes();
        let rows: Vec<[[u8; 4]; 3]> = (0..100).map(|i| [number(i), number(7), number(i)]).collect();
        let values: Vec<[Value<'_>; 3]> =
            rows.iter().map(|row| row.each_ref().map(|cell| Value::Bytes(cell))).collect();
        let prepared = BatchStatement::Prepared(&insert.id);
        let items: Vec<_> = values.iter().map(|values| (prepared, &values[..])).collect();
        assert_eq!(client.batch(&items).error, None);
        script(client, &[("SELECT count(*) FROM t", "102")]);
        let text = BatchStatement::Text("DELETE FROM t WHERE k = ?");
        let items: Vec<_> = values.iter().map(|values| (text, &values[..1])).collect();
        assert_eq!(client.batch(&items).error, None);
        script(client, &[("SELECT count(*) FROM t", "0")]);
        let select = [(BatchStatement::Text("SELECT * FROM t"), &[][..])];
        let error = client.batch(&select).error.unwrap();
        assert!(error.starts_with("Invalid: Invalid statement in batch"), "{error}");
    });
}

#[test]
fn answers_warn_as_cassandra_does() {
    // The answer comes at once, from several shards, and only when the write is durable.
    for (shards, durability) in [(1, "100"), (3, "100"), (1, "sync"), (3, "sync")] {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), shards, durability);
        let mut client = server.connect();
        assert_eq!(client.query(KEYSPACE).warnings, [""; 0]);
        client.register();
        let three = KEYSPACE.replace("ks", "three").replace("1}", "3}");
        let expect =
            "Your replication factor 3 for keyspace three is higher than the number of nodes 1";
        assert_eq!(client.query(&three).warnings, [expect]);
        let alter = "ALTER KEYSPACE three WITH replication = {'class': 'NetworkTopologyStrategy', \
                     'datacenter1': 2}";
        let expect = "Your replication factor 2 for keyspace three is higher than the number of \
                      nodes 1 for datacenter datacenter1";
        assert_eq!(client.query(alter).warnings, [expect]);
        assert_eq!(client.query("DROP KEYSPACE three").warnings, [""; 0]);
        client.query("USE ks");
        client.query("CREATE TABLE t (k int PRIMARY KEY, v blob)");
        let insert = client.prepare("INSERT INTO t (k, v) VALUES (?, ?)");
        let value = vec![7; 1000];
        let keys: Vec<[u8; 4]> = (0..11i32).map(i32::to_be_bytes).collect();
        let mut write = |kind, keys: &[[u8; 4]], value: &[u8]| {
            let values: Vec<[Value<'_>; 2]> =
                keys.iter().map(|key| [Value::Bytes(key), Value::Bytes(value)]).collect();
            let prepared = BatchStatement::Prepared(&insert.id);
            let items: Vec<_> = values.iter().map(|values| (prepared, &values[..])).collect();
            let answer = client.batch_of(kind, &items);
            assert_eq!(answer.error, None);
            answer.warnings
        };
        let (logged, unlogged) = (BatchKind::Logged, BatchKind::Unlogged);
        assert_eq!(write(unlogged, &keys[..10], b"small"), [""; 0]);
        assert_eq!(write(logged, &keys, b"small"), [""; 0]);
        let scattered = "Unlogged batch covering 11 partitions detected against table [ks.t]. You \
                         should use a logged batch for atomicity, or asynchronous writes for \
                         performance.";
        assert_eq!(write(unlogged, &keys, b"small"), [scattered]);
        // Large batches of a single partition cause no warning.
        assert_eq!(write(logged, &[keys[0]; 11], &value), [""; 0]);
        let large = write(logged, &keys[..6], &value);
        let begin = "Batch for [ks.t] is of size ";
        assert!(large.len() == 1 && large[0].starts_with(begin), "{large:?}");
        assert!(large[0].contains(", exceeding specified threshold of 5.000KiB by "), "{large:?}");
        let warnings = write(unlogged, &keys, &value);
        assert!(warnings.len() == 2 && warnings[1] == scattered, "{warnings:?}");
        let inserts: String =
            (0..11).map(|k| format!("INSERT INTO t (k) VALUES ({k}); ")).collect();
        let text = client.query(&format!("BEGIN UNLOGGED BATCH {inserts} APPLY BATCH"));
        assert_eq!((text.error, text.warnings), (None, vec![scattered.to_owned()]));
        // The answer after a warning has none.
        assert_eq!(client.query("SELECT count(*) FROM t").warnings, [""; 0]);
    }
}

#[test]
fn every_scalar_type_works_as_key_and_value() {
    let cases = [
        ("ascii", "'a'", "'b'"),
        ("bigint", "-5", "7"),
        ("blob", "0x00ff", "0x01"),
        ("boolean", "false", "true"),
        ("date", "'2020-01-01'", "'2024-02-29'"),
        ("decimal", "-1.50", "12345678901234567890.123"),
        ("double", "-1.5", "Infinity"),
        ("float", "0.25", "3.5"),
        ("inet", "'10.0.0.1'", "'fe80::1'"),
        ("int", "-1", "1"),
        ("smallint", "-2", "300"),
        ("text", "'it''s'", "'ä'"),
        ("time", "'01:02:03.000000004'", "'23:59:59'"),
        ("timestamp", "'2020-01-01 00:00:00+0000'", "1700000000000"),
        (
            "timeuuid",
            "8a7f3c80-7b9f-11ec-90d6-0242ac120003",
            "8a7f3c81-7b9f-11ec-90d6-0242ac120003",
        ),
        ("tinyint", "-3", "3"),
        ("uuid", "123e4567-e89b-42d3-a456-426614174000", "223e4567-e89b-42d3-a456-426614174000"),
        ("varchar", "'a'", "'b'"),
        ("varint", "-170141183460469231731687303715884105729", "5"),
    ];
    each(|_, client| {
        for (kind, low, high) in cases {
            for order in ["ASC", "DESC"] {
                client.query("DROP TABLE IF EXISTS t");
                let create = format!(
                    "CREATE TABLE t (k {kind}, c {kind}, v {kind}, PRIMARY KEY (k, c)) \
                     WITH CLUSTERING ORDER BY (c {order})"
                );
                assert_eq!(client.query(&create).error, None);
                for c in [low, high] {
                    let text = format!("INSERT INTO t (k, c, v) VALUES ({low}, {c}, {c})");
                    assert_eq!(client.query(&text).error, None, "{text}");
                }
                let rows = client.query(&format!("SELECT c, v FROM t WHERE k = {low}")).rows;
                assert_eq!(rows.len(), 2, "{kind}");
                for row in &rows {
                    let (c, v) = row.split_at(row.len() / 2);
                    assert_eq!(c, v.trim_start(), "{kind}");
                }
                let above =
                    client.query(&format!("SELECT c, v FROM t WHERE k = {low} AND c > {low}"));
                let expect = if order == "ASC" { &rows[1..] } else { &rows[..1] };
                assert_eq!(above.rows, expect, "{kind} {order}");
                let keys = client.query("SELECT DISTINCT k FROM t").rows;
                assert_eq!(keys.len(), 1, "{kind}");
            }
        }
        script(
            client,
            &[
                ("CREATE TABLE d (k int PRIMARY KEY, v duration)", "ok"),
                ("INSERT INTO d (k, v) VALUES (1, 1mo2d3ns)", "ok"),
                ("SELECT v FROM d", "0x020406"),
                (
                    "CREATE TABLE e (k duration PRIMARY KEY)",
                    "Invalid: duration type is not supported for PRIMARY KEY column 'k'",
                ),
            ],
        );
    });
}

#[test]
fn functions_and_markers_work_in_place_of_values() {
    each(|_, client| {
        script(
            client,
            &[
                (
                    "CREATE TABLE t (k timeuuid PRIMARY KEY, a timestamp, b date, c uuid, d bigint)",
                    "ok",
                ),
                (
                    "INSERT INTO t (k, a, b, c, d) VALUES (minTimeuuid('2020-01-01 00:00:00+0000'), toTimestamp(now()), currentDate(), uuid(), toUnixTimestamp('2020-01-01'))",
                    "ok",
                ),
            ],
        );
        let answer = client.query("SELECT toDate(k), d, toUnixTimestamp(b) AS x FROM t");
        assert_eq!(answer.names, ["system.todate(k)", "d", "x"]);
        assert!(answer.rows[0].starts_with("'2020-01-01' 1577836800000 1"), "{answer:?}");
        let now = client.query("SELECT now() FROM system.local");
        assert_eq!((now.rows.len(), &now.names[..]), (1, &["system.now()".to_owned()][..]));
        let prepared = client.prepare("SELECT d FROM ks.t WHERE k IN ? AND token(k) > ? LIMIT ?");
        assert!(prepared.error.is_some());
        script(
            client,
            &[
                ("CREATE TABLE m (k int, c int, d int, v int, PRIMARY KEY (k, c, d))", "ok"),
                ("INSERT INTO m (k, c, d, v) VALUES (1, 2, 3, 4)", "ok"),
                (
                    "INSERT INTO t (k) VALUES (1)",
                    "Invalid: Invalid INTEGER constant for \"k\" of type timeuuid",
                ),
                (
                    "INSERT INTO m (k, c, d) VALUES (now(), 1, 1)",
                    "Invalid: Type error: cannot assign result of function system.now (type timeuuid) to k (type int)",
                ),
                (
                    "SELECT writetime(k) FROM m",
                    "Invalid: Cannot use selection function writeTime on PRIMARY KEY part k",
                ),
            ],
        );
        let text = "SELECT v FROM m WHERE k IN ? AND (c, d) >= ? AND (c, d) < (?, :last) \
                    PER PARTITION LIMIT ? LIMIT ?";
        let prepared = client.prepare(text);
        assert_eq!(
            prepared.markers,
            [
                "in(k) list<int>",
                "(c,d) tuple<int, int>",
                "c int",
                "last int",
                "[per_partition_limit] int",
                "[limit] int",
            ]
        );
        let list = b"\0\0\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x04\0\0\0\x02";
        let tuple = b"\0\0\0\x04\0\0\0\x02\0\0\0\x04\0\0\0\x03";
        let [two, nine, one] = [2_i32, 9, 1].map(i32::to_be_bytes);
        let values: [&[u8]; 6] = [list, tuple, &two, &nine, &one, &one];
        let answer = client.execute(&prepared.id, &values.map(Value::Bytes));
        assert_eq!((answer.error, answer.rows), (None, vec!["4".to_owned()]));
        let update = client.prepare(
            "UPDATE m USING TTL ? AND TIMESTAMP ? SET v = ? WHERE k = ? AND c IN ? AND d IN (?)",
        );
        assert_eq!(update.markers[..3], ["[ttl] int", "[timestamp] bigint", "v int"]);
        let error = client.execute(&prepared.id, &[Value::Null]).error.unwrap();
        assert_eq!(error, "Invalid: there were 6 markers(?) in CQL but 1 bound variables");
    });
}

#[test]
fn pages_end_at_their_limits_and_go_on_after_a_restart() {
    for shards in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), shards, "sync");
        let mut client = server.connect();
        client.query(KEYSPACE);
        client.query("CREATE TABLE ks.t (k int, c int, PRIMARY KEY (k, c))");
        for k in 0..20 {
            let inserts: String =
                (0..7).map(|c| format!("INSERT INTO ks.t (k, c) VALUES ({k}, {c}); ")).collect();
            client.query(&format!("BEGIN BATCH {inserts} APPLY BATCH"));
        }
        let texts = [
            "SELECT k, c FROM ks.t",
            "SELECT k, c FROM ks.t LIMIT 50",
            "SELECT DISTINCT k FROM ks.t",
            "SELECT k, c FROM ks.t PER PARTITION LIMIT 3",
            "SELECT k, c FROM ks.t PER PARTITION LIMIT 3 LIMIT 31",
            "SELECT k, c FROM ks.t WHERE k IN (7, 3, 15) AND c > 2",
            "SELECT k, c FROM ks.t WHERE k IN (7, 3, 15) PER PARTITION LIMIT 4 LIMIT 9",
            "SELECT c FROM ks.t WHERE k = 4 ORDER BY c DESC",
            "SELECT c FROM ks.t WHERE k = 4 AND c IN (1, 3, 5) ORDER BY c DESC",
            "SELECT k, c FROM ks.t WHERE token(k) > -3000000000000000000",
            "SELECT count(*) FROM ks.t",
        ];
        let whole: Vec<_> = texts.iter().map(|text| client.query(text).rows).collect();
        assert_eq!(
            whole.iter().map(Vec::len).collect::<Vec<_>>()[..7],
            [140, 50, 20, 60, 31, 12, 9]
        );
        for (text, whole) in texts.iter().zip(&whole) {
            for page_size in [1, 2, 3, 7, 100, 5000] {
                assert_eq!(&client.pages(text, page_size), whole, "{text} by {page_size}");
            }
        }
        let columns = "SELECT column_name FROM system_schema.columns";
        let all = client.query(columns).rows;
        assert_eq!(client.pages(columns, 7), all);
        // A last page that is exactly full has no next page.
        let settings = Settings { page_size: Some(140), ..Settings::default() };
        assert_eq!(client.query_with(texts[0], &settings, &[]).state, None);

        let settings = Settings { page_size: Some(64), ..Settings::default() };
        let first = client.query_with(texts[0], &settings, &[]);
        server.stop();
        let server = Server::start(data.path(), shards, "sync");
        let mut client = server.connect();
        let paging_state = first.state.as_deref();
        let settings = Settings { page_size: Some(5000), paging_state, ..Settings::default() };
        let rest = client.query_with(texts[0], &settings, &[]);
        assert_eq!([first.rows, rest.rows].concat(), whole[0]);
        let paging_state = Some(&b"garbage"[..]);
        let settings = Settings { page_size: Some(10), paging_state, ..Settings::default() };
        let error = client.query_with(texts[0], &settings, &[]).error.unwrap();
        assert!(error.starts_with("Protocol: Invalid value for the paging state"), "{error}");
    }
}

#[test]
fn schema_changes_are_visible_and_sent_as_events() {
    each(|server, client| {
        let mut watcher = server.connect();
        watcher.register();
        let version =
            |client: &mut Client| client.query("SELECT schema_version FROM system.local").rows;
        let mut versions = vec![version(client)];
        for (text, change) in [
            (
                "CREATE TABLE t (k int PRIMARY KEY) WITH comment = 'c' AND gc_grace_seconds = 7",
                "Created",
            ),
            ("ALTER TABLE t ADD v int, w text", "Updated"),
            ("ALTER TABLE t WITH gc_grace_seconds = 9", "Updated"),
            ("ALTER KEYSPACE ks WITH durable_writes = false", "Updated"),
            (
                "CREATE KEYSPACE other WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}",
                "Created",
            ),
        ] {
            let answer = client.query(text);
            assert!(
                answer.change.as_ref().is_some_and(|found| found.contains(change)),
                "{answer:?}"
            );
            versions.push(version(client));
        }
        versions.dedup();
        assert_eq!(versions.len(), 6, "each change has a version of its own");
        // The last event may come after the answer to a query that was handled in the same turn.
        tare_testkit::database::until("five events", || {
            watcher.query("SELECT key FROM system.local");
            (watcher.events.len() >= 5).then_some(())
        });
        assert_eq!(watcher.events.len(), 5, "{:?}", watcher.events);
        script(
            client,
            &[
                ("INSERT INTO t (k, v, w) VALUES (1, 2, 'x')", "ok"),
                ("SELECT * FROM t", "1 2 'x'"),
                ("TRUNCATE t", "ok"),
                ("SELECT * FROM t", ""),
                (
                    "SELECT comment, gc_grace_seconds, speculative_retry FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 't'",
                    "'c' 9 '99p'",
                ),
                (
                    "SELECT column_name, kind, position, type FROM system_schema.columns WHERE keyspace_name = 'ks'",
                    "'k' 'partition_key' 0 'int'; 'v' 'regular' -1 'int'; 'w' 'regular' -1 'text'",
                ),
                (
                    "SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name IN ('ks', 'other')",
                    "false; true",
                ),
                ("SELECT count(*) FROM system_schema.tables WHERE keyspace_name = 'ks'", "1"),
                ("SELECT keyspace_name FROM system_schema.keyspaces LIMIT 1", "'ks'"),
                (
                    "SELECT * FROM system_schema.scylla_tables",
                    "Invalid: unconfigured table scylla_tables",
                ),
                ("ALTER TABLE t ADD v int", "Invalid: Column with name 'v' already exists"),
                ("ALTER TABLE t ADD IF NOT EXISTS v int", "ok"),
                ("ALTER TABLE IF EXISTS none ADD v int", "ok"),
                ("ALTER TABLE t ADD x list<int>", "ok"),
                ("ALTER TABLE t WITH colour = 'red'", "Syntax: Unknown property 'colour'"),
                (
                    "CREATE TABLE t (k int PRIMARY KEY)",
                    "AlreadyExists { keyspace: \"ks\", table: \"t\" }: ",
                ),
                ("CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)", "ok"),
                ("CREATE TABLE c (k int PRIMARY KEY, n counter)", "ok"),
                ("ALTER TABLE c ADD v int", "Invalid: Cannot mix counter and non counter columns"),
                ("CREATE KEYSPACE x WITH replication = {'class': 'FastStrategy'}", "Config: "),
                (
                    "CREATE KEYSPACE x WITH durable_writes = true",
                    "Config: Missing mandatory option 'replication'",
                ),
                ("DROP TABLE system.local", "Unauthorized: "),
                (
                    "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks' ORDER BY table_name DESC",
                    "Invalid: ORDER BY is not supported in tables of the system",
                ),
                ("DROP KEYSPACE none", "Config: Cannot drop non existing keyspace 'none'."),
                ("USE none", "Invalid: Keyspace 'none' does not exist"),
            ],
        );
    });
}

#[test]
fn more_replicas_than_nodes_are_unavailable_above_level_one() {
    each(|_, client| {
        script(
            client,
            &[
                (
                    "CREATE KEYSPACE other WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}",
                    "ok",
                ),
                ("CREATE TABLE other.t (k int PRIMARY KEY)", "ok"),
            ],
        );
        let quorum = Settings { consistency: Consistency::Quorum, ..Settings::default() };
        let error = client.query_with("SELECT * FROM other.t", &quorum, &[]).error.unwrap();
        assert_eq!(
            error,
            "Unavailable { consistency: Quorum, required: 2, alive: 1 }: Cannot achieve consistency level QUORUM"
        );
        let insert = "INSERT INTO other.t (k) VALUES (1)";
        assert!(client.query_with(insert, &quorum, &[]).error.is_some());
        assert_eq!(client.query(insert).error, None);
    });
}

#[test]
fn described_statements_run_again() {
    each(|_, client| {
        for text in [
            "CREATE TABLE t (k int, l text, c int, d text, \"V\" int, PRIMARY KEY ((k, l), c, d)) \
             WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'it''s' AND compaction = \
             {'class': 'LeveledCompactionStrategy'}",
            "CREATE TABLE u (k int PRIMARY KEY)",
        ] {
            assert_eq!(client.query(text).error, None);
        }
        let described = client.query("DESCRIBE KEYSPACE ks");
        assert_eq!(described.names, ["keyspace_name", "type", "name", "create_statement"]);
        assert_eq!(described.rows.len(), 3);
        assert!(described.rows[1].contains("CLUSTERING ORDER BY (c DESC, d ASC)"), "{described:?}");
        client.query("DROP KEYSPACE ks");
        for row in &described.rows {
            let (_, quoted) = row.split_once(" 'CREATE").unwrap();
            let text = format!("CREATE{}", quoted.trim_end_matches('\'').replace("''", "'"));
            assert_eq!(client.query(&text).error, None, "{text}");
        }
        assert_eq!(client.query("DESCRIBE KEYSPACE ks"), described);
        client.query("USE ks");
        script(
            client,
            &[
                ("DESCRIBE TABLES", "'ks' 'table' 't'; 'ks' 'table' 'u'"),
                (
                    "DESCRIBE CLUSTER",
                    "'tare' 'Murmur3Partitioner' 'SimpleSnitch' {'0': ['127.0.0.1']}",
                ),
                ("DESCRIBE TABLE nothing", "Invalid: Table 'nothing' not found in keyspace 'ks'"),
                ("DESCRIBE KEYSPACE nothing", "Invalid: 'nothing' not found in keyspaces"),
                ("DESCRIBE TYPES", ""),
            ],
        );
        assert_eq!(client.query("DESC t").rows, client.query("DESCRIBE TABLE ks.t").rows);
        assert_eq!(client.query("DESCRIBE TABLE system.local").rows.len(), 1);
        assert!(
            client.query("DESCRIBE FULL SCHEMA").rows.len()
                > client.query("DESC SCHEMA").rows.len()
        );
    });
}
