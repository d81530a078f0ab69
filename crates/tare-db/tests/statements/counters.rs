//! Counters, through a real server on one shard and on three.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tare_cql::request::{BatchKind, BatchStatement, Settings};
use tare_cql::wire::{Consistency, Value};
use tare_std::rng::Rng;

use crate::server::{Client, Server};
use crate::{KEYSPACE, each, script};

#[test]
fn counters_are_increased_and_decreased() {
    each(|_, client| {
        script(
            client,
            &[
                (
                    "CREATE TABLE t (k int, c int, n counter, m counter, s counter static, \
                     PRIMARY KEY (k, c))",
                    "ok",
                ),
                ("UPDATE t SET n = n + 5 WHERE k = 1 AND c = 1", "ok"),
                ("UPDATE t SET n = n - 2, m += 7 WHERE k = 1 AND c = 1", "ok"),
                ("UPDATE t SET n = n -1, m -= -1 WHERE k = 1 AND c = 1", "ok"),
                ("SELECT n, m, s FROM t", "2 8 null"),
                ("UPDATE t SET s = s + 3 WHERE k = 1", "ok"),
                ("UPDATE t SET s = s + 1, n = n + 1 WHERE k = 1 AND c = 2", "ok"),
                ("SELECT * FROM t", "1 1 4 8 2; 1 2 4 null 1"),
                ("UPDATE t SET n = n + 1, n = n + 2 WHERE k = 1 AND c = 1", "ok"),
                ("UPDATE t SET n = n + 10 WHERE k IN (1, 2, 3, 4) AND c IN (1, 2)", "ok"),
                ("SELECT n FROM t WHERE k IN (1, 4)", "15; 11; 10; 10"),
                ("UPDATE t SET n = n + 0 WHERE k = 9 AND c = 9", "ok"),
                ("SELECT n FROM t WHERE k = 9", "0"),
                // A row exists as long as it has a counter. A deleted counter begins again.
                ("DELETE n FROM t WHERE k = 9 AND c = 9", "ok"),
                ("SELECT n FROM t WHERE k = 9", ""),
                ("UPDATE t SET n = n + 1 WHERE k = 9 AND c = 9", "ok"),
                ("DELETE FROM t WHERE k = 1 AND c = 1", "ok"),
                ("UPDATE t SET n = n + 1 WHERE k = 1 AND c = 1", "ok"),
                ("DELETE FROM t WHERE k = 2", "ok"),
                ("UPDATE t SET m = m + 1 WHERE k = 2 AND c = 2", "ok"),
                (
                    "SELECT * FROM t WHERE k IN (1, 2, 9)",
                    "1 1 4 null 1; 1 2 4 null 11; 2 2 null 1 null; 9 9 null null 1",
                ),
                ("UPDATE t SET n = n + 9223372036854775807 WHERE k = 9 AND c = 9", "ok"),
                ("SELECT n FROM t WHERE k = 9", "-9223372036854775808"),
                ("SELECT count(n) FROM t WHERE k = 1", "2"),
                ("TRUNCATE t", "ok"),
                ("UPDATE t SET n = n + 1 WHERE k = 1 AND c = 1", "ok"),
                ("SELECT n FROM t", "1"),
            ],
        );
    });
}

#[test]
fn statements_that_counters_cannot_have_are_refused() {
    each(|_, client| {
        let create = "CREATE TABLE t (k int PRIMARY KEY, n counter)";
        script(
            client,
            &[
                (create, "ok"),
                ("CREATE TABLE u (k int PRIMARY KEY, v int, l list<int>)", "ok"),
                (
                    "INSERT INTO t (k, n) VALUES (1, 1)",
                    "Invalid: INSERT statements are not allowed on counter tables, use UPDATE instead",
                ),
                (
                    "UPDATE t SET n = 1 WHERE k = 1",
                    "Invalid: Cannot set the value of counter column n (counters can only be incremented/decremented, not set)",
                ),
                (
                    "UPDATE t USING TTL 5 SET n = n + 1 WHERE k = 1",
                    "Invalid: Cannot provide custom TTL for counter updates",
                ),
                (
                    "UPDATE t USING TIMESTAMP 5 SET n = n + 1 WHERE k = 1",
                    "Invalid: Cannot provide custom timestamp for counter updates",
                ),
                (
                    "DELETE FROM t USING TIMESTAMP 5 WHERE k = 1",
                    "Invalid: Cannot provide custom timestamp for counter updates",
                ),
                (
                    "UPDATE t SET n = n + 1 WHERE k = 1 IF EXISTS",
                    "Invalid: Conditional updates are not supported on counter tables",
                ),
                (
                    "UPDATE t SET n = n + null WHERE k = 1",
                    "Invalid: Invalid null value for counter increment",
                ),
                (
                    "UPDATE t SET n = n - -9223372036854775808 WHERE k = 1",
                    "Invalid: The negation of -9223372036854775808 overflows supported counter precision",
                ),
                (
                    "UPDATE t SET n = n + 'a' WHERE k = 1",
                    "Invalid: Invalid STRING constant for \"n\"",
                ),
                (
                    "UPDATE t SET n[1] = 1 WHERE k = 1",
                    "Invalid: Invalid operation for counter column n",
                ),
                ("UPDATE u SET v = v + 1 WHERE k = 1", "Invalid: Invalid operation (v = v + ...)"),
                (
                    "CREATE TABLE w (k int PRIMARY KEY, n counter, v int)",
                    "Invalid: Cannot mix counter and non counter columns in the same table",
                ),
                (
                    "CREATE TABLE w (k int PRIMARY KEY, n counter) WITH default_time_to_live = 5",
                    "Invalid: Cannot set default_time_to_live on a table with counters",
                ),
                (
                    "ALTER TABLE t WITH default_time_to_live = 5",
                    "Invalid: Cannot set default_time_to_live on a table with counters",
                ),
                (
                    "CREATE TABLE w (k int PRIMARY KEY, l list<counter>)",
                    "Invalid: Counters are not allowed inside collections: list<counter>",
                ),
                (
                    "CREATE TABLE w (k counter PRIMARY KEY)",
                    "Invalid: counter type is not supported",
                ),
                ("SELECT * FROM t", ""),
                ("ALTER TABLE t ADD m counter", "ok"),
                ("UPDATE t SET m = m + 1 WHERE k = 1", "ok"),
                ("ALTER TABLE t DROP n", "ok"),
                ("SELECT * FROM t", "1 1"),
            ],
        );
        let mut at = |consistency| {
            let settings = Settings { consistency, ..Settings::default() };
            let text = "UPDATE t SET m = m + 1 WHERE k = 1";
            client.query_with(text, &settings, &[]).error.unwrap_or_default()
        };
        let serial = "Invalid: Counter operations are inherently non-serializable";
        assert_eq!(at(Consistency::Serial), serial);
        let any = "Invalid: Consistency level ANY is not yet supported for counter table t";
        assert_eq!(at(Consistency::Any), any);
    });
}

#[test]
fn batches_that_counters_cannot_have_are_refused() {
    each(|_, client| {
        script(
            client,
            &[
                ("CREATE TABLE t (k int PRIMARY KEY, n counter)", "ok"),
                ("CREATE TABLE u (k int PRIMARY KEY, v int)", "ok"),
                (
                    "BEGIN BATCH UPDATE t SET n = n + 1 WHERE k = 1 APPLY BATCH",
                    "Invalid: Cannot include a counter statement in a logged batch",
                ),
                (
                    "BEGIN UNLOGGED BATCH UPDATE t SET n = n + 1 WHERE k = 1; \
                     INSERT INTO u (k) VALUES (1) APPLY BATCH",
                    "Invalid: Counter and non-counter mutations cannot exist in the same batch",
                ),
                (
                    "BEGIN COUNTER BATCH INSERT INTO u (k) VALUES (1) APPLY BATCH",
                    "Invalid: Cannot include non-counter statement in a counter batch",
                ),
                (
                    "BEGIN COUNTER BATCH USING TIMESTAMP 5 UPDATE t SET n = n + 1 WHERE k = 1 APPLY BATCH",
                    "Invalid: Cannot provide custom timestamp for counter BATCH",
                ),
                (
                    "BEGIN UNLOGGED BATCH USING TIMESTAMP 5 UPDATE t SET n = n + 1 WHERE k = 1 APPLY BATCH",
                    "Invalid: Cannot provide custom timestamp for a BATCH containing counters",
                ),
            ],
        );
    });
}

#[test]
fn batches_and_bound_values_change_counters() {
    each(|_, client| {
        client.query("CREATE TABLE t (k int PRIMARY KEY, n counter)");
        client.query("CREATE TABLE u (k int PRIMARY KEY, n counter)");
        client.query("CREATE TABLE v (k int PRIMARY KEY)");
        let add = client.prepare("UPDATE t SET n = n + ? WHERE k = ?");
        assert_eq!(add.markers, ["n counter", "k int"]);
        assert_eq!(add.key_markers, [1]);
        let (by, [one, two]) = (20_i64.to_be_bytes(), [1_i32, 2].map(i32::to_be_bytes));
        let values = |k| [Value::Bytes(&by), Value::Bytes(k)];
        // Drivers send a timestamp with every request; it has no effect on counters.
        let settings = Settings { timestamp_us: Some(7), ..Settings::default() };
        for k in [&one, &two, &one] {
            let text = "UPDATE t SET n = n + ? WHERE k = ?";
            assert_eq!(client.query_with(text, &settings, &values(k)).error, None);
        }
        let unset = client.execute(&add.id, &[Value::Unset, Value::Bytes(&one)]);
        assert_eq!(unset.error, None);
        let null = client.execute(&add.id, &[Value::Null, Value::Bytes(&one)]).error;
        assert_eq!(null.as_deref(), Some("Invalid: Invalid null value for counter increment"));
        assert_eq!(client.query("SELECT n FROM t WHERE k IN (1, 2)").rows, ["40", "20"]);

        // Increments of one counter in one batch add up.
        let other = BatchStatement::Text("UPDATE u SET n = n - 1 WHERE k = 5");
        let (first, second) = (values(&one), values(&two));
        let items: [(BatchStatement<'_>, &[Value<'_>]); 5] = [
            (BatchStatement::Prepared(&add.id), &first),
            (BatchStatement::Prepared(&add.id), &second),
            (BatchStatement::Prepared(&add.id), &first),
            (other, &[]),
            (other, &[]),
        ];
        for kind in [BatchKind::Counter, BatchKind::Unlogged] {
            assert_eq!(client.batch_of(kind, &items).error, None);
        }
        assert_eq!(client.query("SELECT n FROM t WHERE k IN (1, 2)").rows, ["120", "60"]);
        assert_eq!(client.query("SELECT n FROM u").rows, ["-4"]);
        let text = "BEGIN COUNTER BATCH UPDATE t SET n = n + 1 WHERE k = 1; \
                    DELETE FROM u WHERE k = 5; UPDATE t SET n = n + 2 WHERE k = 1; APPLY BATCH";
        assert_eq!(client.query(text).error, None);
        assert_eq!(client.query("SELECT n FROM t WHERE k = 1").rows, ["123"]);
        assert_eq!(client.query("SELECT n FROM u").rows, [""; 0]);
        let logged = client.batch(&items).error.unwrap();
        assert_eq!(logged, "Invalid: Cannot include a counter statement in a logged batch");
        let plain = BatchStatement::Text("INSERT INTO v (k) VALUES (1)");
        let mixed = client.batch_of(BatchKind::Counter, &[(plain, &[])]).error.unwrap();
        assert_eq!(mixed, "Invalid: Cannot include non-counter statement in a counter batch");
        let many = |rows: i32| {
            let update = |k| format!("UPDATE t SET n = n + 1 WHERE k = {k};");
            let all: String = (0..rows).map(update).collect();
            format!("BEGIN COUNTER BATCH {all} APPLY BATCH")
        };
        assert_eq!(client.query(&many(256)).error, None);
        let refused = client.query(&many(1_000)).error.unwrap();
        assert!(refused.starts_with("Invalid: writes that change more than 256"), "{refused}");
    });
}

#[test]
fn counters_stay_visible_after_deletions_in_the_future() {
    each(|_, client| {
        client.query("CREATE TABLE t (k int PRIMARY KEY, n counter)");
        let future = Settings { timestamp_us: Some(4_000_000_000_000_000), ..Settings::default() };
        for text in ["UPDATE t SET n = n + 5 WHERE k = 1", "DELETE FROM t WHERE k = 1"] {
            assert_eq!(client.query_with(text, &future, &[]).error, None);
        }
        script(
            client,
            &[
                ("SELECT n FROM t", ""),
                ("UPDATE t SET n = n + 1 WHERE k = 1", "ok"),
                ("SELECT n FROM t", "1"),
            ],
        );
    });
}

/// The rows of the model: `n` and `m` by the key; null is a counter that was deleted or never
/// changed.
type Model = BTreeMap<(i64, i64), [Option<i64>; 2]>;

/// A random change of the counters of the table `t`, as a statement.
fn change(random: &mut Rng, model: &mut Model) -> String {
    let mut below = |end: u64| i64::try_from(random.next_u64() % end).unwrap();
    let (k, c, at) = (below(6), below(3), usize::try_from(below(2)).unwrap());
    let (by, kind) = (below(200) - 100, below(12));
    let row = format!("WHERE k = {k} AND c = {c}");
    let name = ["n", "m"][at];
    match kind {
        0 => {
            model.remove(&(k, c));
            return format!("DELETE FROM t {row}");
        }
        1 => {
            model.retain(|(of, _), _| *of != k);
            return format!("DELETE FROM t WHERE k = {k}");
        }
        2 => {
            model.retain(|(of, clustering), _| *of != k || *clustering < c);
            return format!("DELETE FROM t WHERE k = {k} AND c >= {c}");
        }
        3 => {
            model.entry((k, c)).or_default()[at] = None;
            return format!("DELETE {name} FROM t {row}");
        }
        _ => {}
    }
    let counter = &mut model.entry((k, c)).or_default()[at];
    *counter = Some(counter.unwrap_or(0) + by);
    match kind % 2 {
        0 => format!("UPDATE t SET {name} = {name} + {by} {row}"),
        _ => format!("UPDATE t SET {name} -= {} {row}", -by),
    }
}

/// Counters are in memory, in tables, and in the log of the last life.
#[test]
fn random_changes_of_counters_agree_with_a_map() {
    for shards in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        let (mut random, mut model) = (Rng::new(11), Model::new());
        for life in 0..6 {
            let mut server = Server::start(data.path(), shards, "sync");
            let mut client = server.connect();
            if life == 0 {
                client.query(KEYSPACE);
                let create = "CREATE TABLE ks.t (k int, c int, n counter, m counter, \
                              PRIMARY KEY (k, c))";
                assert_eq!(client.query(create).error, None);
            }
            client.query("USE ks");
            for round in 0..100 {
                let text = match round % 7 {
                    // In a batch a deletion wins over an increment, so it has only increments.
                    0 => {
                        let updates: Vec<String> = (0..5)
                            .map(|_| {
                                loop {
                                    let mut next = model.clone();
                                    let text = change(&mut random, &mut next);
                                    if text.starts_with("UPDATE") {
                                        model = next;
                                        return text;
                                    }
                                }
                            })
                            .collect();
                        format!("BEGIN COUNTER BATCH {} APPLY BATCH", updates.join("; "))
                    }
                    _ => change(&mut random, &mut model),
                };
                assert_eq!(client.query(&text).error, None, "{text}");
                if round % 10 == 9 {
                    agrees(&mut client, &model);
                }
            }
            match life % 2 {
                0 => server.stop(),
                _ => server.kill(),
            }
        }
        agrees(&mut Server::start(data.path(), shards, "sync").connect(), &model);
    }
}

fn agrees(client: &mut Client, model: &Model) {
    let mut rows = client.query("SELECT k, c, n, m FROM ks.t").rows;
    rows.sort();
    let show = |value: Option<i64>| value.map_or("null".into(), |value| value.to_string());
    let mut expect: Vec<String> = model
        .iter()
        .filter(|(_, counters)| counters.iter().any(Option::is_some))
        .map(|((k, c), [n, m])| format!("{k} {c} {} {}", show(*n), show(*m)))
        .collect();
    expect.sort();
    assert_eq!(rows, expect);
}

const CLIENTS: usize = 4;
const COUNTERS: usize = 16;
const LIVES: usize = 4;

/// Many clients add to few counters until the server is killed. Every increment that was answered
/// counts once; one that was not answered counts once or never.
fn count_over_kills(data: &Path, shards: usize) {
    let answered: Vec<AtomicI64> = (0..COUNTERS).map(|_| AtomicI64::new(0)).collect();
    let sent: Vec<AtomicI64> = (0..COUNTERS).map(|_| AtomicI64::new(0)).collect();
    // The least that the shards start with, so that memtables become tables.
    let memory = format!("memory={}", shards * (32 << 20));
    for life in 0..LIVES {
        let mut server = Server::start_with(data, shards, "sync", &[&memory]);
        let mut client = server.connect();
        if life == 0 {
            client.query(KEYSPACE);
            client.query("CREATE TABLE ks.t (k int PRIMARY KEY, n counter, m counter)");
        }
        check(&mut client, &answered, &sent);
        let is_killed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (mut client, sent, answered) = (server.connect(), &sent, &answered);
                let is_killed = &is_killed;
                scope.spawn(move || {
                    for round in 0.. {
                        let k = (number * 7 + round) % COUNTERS;
                        let text = format!("UPDATE ks.t SET n = n + 1, m = m - 1 WHERE k = {k}");
                        sent[k].fetch_add(1, Ordering::SeqCst);
                        match client.try_query(&text) {
                            Some(answer) => assert_eq!(answer.error, None),
                            None => {
                                assert!(is_killed.load(Ordering::SeqCst), "the connection is lost");
                                return;
                            }
                        }
                        answered[k].fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            let all = || answered.iter().map(|one| one.load(Ordering::SeqCst)).sum::<i64>();
            let before = all();
            tare_testkit::database::until("some increments are answered", || {
                (all() > before + 400).then_some(())
            });
            is_killed.store(true, Ordering::SeqCst);
            server.kill();
        });
    }
    let server = Server::start(data, shards, "sync");
    check(&mut server.connect(), &answered, &sent);
    server.stop();
    // Nothing is added by a start without a crash.
    let server = Server::start(data, shards, "sync");
    check(&mut server.connect(), &answered, &sent);
}

fn check(client: &mut Client, answered: &[AtomicI64], sent: &[AtomicI64]) {
    for k in 0..COUNTERS {
        let rows = client.query(&format!("SELECT n, m FROM ks.t WHERE k = {k}")).rows;
        let row = rows.first().map_or("0 0", |row| row);
        let (n, m) = row.split_once(' ').unwrap();
        let (n, m): (i64, i64) = (n.parse().unwrap(), m.parse().unwrap());
        let (least, most) = (answered[k].load(Ordering::SeqCst), sent[k].load(Ordering::SeqCst));
        assert!((least..=most).contains(&n), "counter {k} is {n}, not in {least}..={most}");
        assert_eq!(m, -n, "both counters of a row are written together");
        // From here on it is known how many counted.
        answered[k].store(n, Ordering::SeqCst);
        sent[k].store(n, Ordering::SeqCst);
    }
}

#[test]
fn every_increment_counts_once_over_kill_9() {
    for shards in [1, 3] {
        count_over_kills(tempfile::tempdir().unwrap().path(), shards);
    }
}
