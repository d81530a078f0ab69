//! Columns that are collections, through a real server on one shard and on three.

use tare_cql::statement::parse_type;
use tare_cql::wire::Value;

use crate::server::{Client, Server};
use crate::{KEYSPACE, each, script};

/// The bytes of a collection of ints.
fn ints(numbers: &[i32], count: i32) -> Vec<u8> {
    let mut out = count.to_be_bytes().to_vec();
    for number in numbers {
        out.extend_from_slice(&4_i32.to_be_bytes());
        out.extend_from_slice(&number.to_be_bytes());
    }
    out
}

#[test]
fn elements_are_written_and_deleted_one_by_one() {
    each(|_, client| {
        let create = "CREATE TABLE t (k int, c int, s set<int>, m map<text, int>, l list<text>, \
                      v int, PRIMARY KEY (k, c))";
        script(
            client,
            &[
                (create, "ok"),
                (
                    "INSERT INTO t (k, c, s, m, l) VALUES (1, 1, {3, -1, 3}, {'b': 2, 'a': 1}, ['x', 'y', 'x'])",
                    "ok",
                ),
                ("SELECT s, m, l FROM t", "{-1, 3} {'a': 1, 'b': 2} ['x', 'y', 'x']"),
                ("UPDATE t SET s = s + {7, 0}, m['c'] = 3, m['a'] = 9 WHERE k = 1 AND c = 1", "ok"),
                ("UPDATE t SET l = l + ['z'], v = 5 WHERE k = 1 AND c = 1", "ok"),
                ("UPDATE t SET l = ['v', 'w'] + l WHERE k = 1 AND c = 1", "ok"),
                ("UPDATE t SET l = ['u'] + l, s -= {3, 5} WHERE k = 1 AND c = 1", "ok"),
                (
                    "SELECT * FROM t WHERE k = 1 AND c = 1",
                    "1 1 ['u', 'v', 'w', 'x', 'y', 'x', 'z'] {'a': 9, 'b': 2, 'c': 3} {-1, 0, 7} 5",
                ),
                ("UPDATE t SET m = m + {'d': 4, 'a': 1}, m[''] = 0 WHERE k = 1 AND c = 1", "ok"),
                ("DELETE m['b'], s[7] FROM t WHERE k = 1 AND c = 1", "ok"),
                ("SELECT s, m FROM t", "{-1, 0} {'': 0, 'a': 1, 'c': 3, 'd': 4}"),
                (
                    "UPDATE t SET m = m - {'c', 'nothing'}, m['d'] = null WHERE k = 1 AND c = 1",
                    "ok",
                ),
                ("SELECT m FROM t", "{'': 0, 'a': 1}"),
                (
                    "UPDATE t SET m = {'a long key': 5}, s = {}, l = null WHERE k = 1 AND c = 1",
                    "ok",
                ),
                ("SELECT s, m, l FROM t", "null {'a long key': 5} null"),
                ("SELECT count(s), count(m) FROM t", "0 1"),
                ("SELECT count(m) FROM t", "1"),
                ("SELECT count(s) FROM t", "0"),
                // A row of nothing but elements exists as long as they do.
                ("UPDATE t SET s = s + {1} WHERE k = 2 AND c = 1", "ok"),
                ("SELECT k, s FROM t WHERE k = 2", "2 {1}"),
                ("UPDATE t SET s = s - {1} WHERE k = 2 AND c = 1", "ok"),
                ("SELECT k, s FROM t WHERE k = 2", ""),
                ("DELETE FROM t WHERE k = 1 AND c = 1", "ok"),
                ("SELECT k FROM t", ""),
                (
                    "BEGIN BATCH UPDATE t SET s += {1} WHERE k = 3 AND c IN (1, 2); \
                     UPDATE t SET s += {2} WHERE k = 3 AND c = 2; APPLY BATCH",
                    "ok",
                ),
                ("SELECT c, s FROM t WHERE k = 3", "1 {1}; 2 {1, 2}"),
            ],
        );
    });
}

#[test]
fn elements_follow_their_timestamps_and_expire() {
    each(|_, client| {
        script(
            client,
            &[
                ("CREATE TABLE t (k int PRIMARY KEY, m map<int, int>, v int)", "ok"),
                ("UPDATE t USING TIMESTAMP 10 SET m = m + {1: 1, 2: 1, 3: 1} WHERE k = 1", "ok"),
                ("UPDATE t USING TIMESTAMP 5 SET m[1] = 5 WHERE k = 1", "ok"),
                ("UPDATE t USING TIMESTAMP 15 SET m[2] = 15 WHERE k = 1", "ok"),
                ("SELECT m FROM t", "{1: 1, 2: 15, 3: 1}"),
                // Replacing deletes what is older, and at its own time nothing.
                ("UPDATE t USING TIMESTAMP 15 SET m = {3: 7} WHERE k = 1", "ok"),
                ("SELECT m FROM t", "{2: 15, 3: 7}"),
                ("DELETE m FROM t USING TIMESTAMP 15 WHERE k = 1", "ok"),
                ("SELECT m FROM t", ""),
                ("UPDATE t USING TIMESTAMP 15 SET m[4] = 4 WHERE k = 1", "ok"),
                ("SELECT m FROM t", ""),
                ("UPDATE t USING TIMESTAMP 16 SET m[4] = 4, m[4] = 5 WHERE k = 1", "ok"),
                ("SELECT m FROM t", "{4: 5}"),
                ("UPDATE t USING TTL 1 SET m[9] = 1, m[8] = 1 WHERE k = 1", "ok"),
                ("UPDATE t USING TTL 1000 SET m[9] = 2 WHERE k = 1", "ok"),
            ],
        );
        tare_testkit::database::until("the element expires", || {
            (client.query("SELECT m FROM t").rows == ["{4: 5, 9: 2}"]).then_some(())
        });
        script(client, &[("SELECT writetime(m) FROM t", "Invalid: Cannot use selection function")]);
    });
}

#[test]
fn frozen_collections_are_values_and_keys() {
    each(|_, client| {
        script(
            client,
            &[
                (
                    "CREATE TABLE t (k frozen<set<int>>, c frozen<list<int>>, \
                     v frozen<map<text, list<int>>>, w list<frozen<set<int>>>, \
                     PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)",
                    "ok",
                ),
                (
                    "INSERT INTO t (k, c, v, w) VALUES ({2, -1}, [1], {'b': [], 'a': [2, 1]}, [{1, -1}, {}])",
                    "ok",
                ),
                ("INSERT INTO t (k, c, v) VALUES ({-1, 2, 2}, [], {})", "ok"),
                ("INSERT INTO t (k, c) VALUES ({-1, 2}, [1, -2])", "ok"),
                ("INSERT INTO t (k, c) VALUES ({-1, 2}, [-7, 9])", "ok"),
                (
                    "SELECT c, v, w FROM t WHERE k = {2, -1}",
                    "[1, -2] null null; [1] {'a': [2, 1], 'b': []} [{-1, 1}, {}]; [-7, 9] null null; [] {} null",
                ),
                ("SELECT c FROM t WHERE k = {2, -1} AND c > [0] AND c <= [1]", "[1]"),
                ("SELECT c FROM t WHERE k = {-1, 2} AND c IN ([], [1])", "[1]; []"),
                ("SELECT writetime(v) FROM t WHERE k = {0}", ""),
                (
                    "UPDATE t SET v = v + {'c': [1]} WHERE k = {2, -1} AND c = [1]",
                    "Invalid: Invalid operation (v = v + ...) for frozen collection column v",
                ),
                ("UPDATE t SET w = [{3}] + w WHERE k = {2, -1} AND c = [1]", "ok"),
                ("SELECT w FROM t WHERE k = {-1, 2} AND c = [1]", "[{3}, {-1, 1}, {}]"),
                (
                    "SELECT k FROM t WHERE v = {'a': [2, 1]}",
                    "Invalid: Cannot execute this query as it might involve data filtering",
                ),
            ],
        );
    });
}

#[test]
fn tuples_are_values_and_keys() {
    each(|_, client| {
        script(
            client,
            &[
                (
                    "CREATE TABLE t (k tuple<int, text>, c frozen<tuple<int, tuple<int>>>, \
                     v tuple<text, list<int>>, s set<frozen<tuple<int, int>>>, PRIMARY KEY (k, c))",
                    "ok",
                ),
                (
                    "INSERT INTO t (k, c, v, s) VALUES ((1, 'a'), (2, (3)), ('x', [2, 1]), {(2, 1), (-1, 5), (2)})",
                    "ok",
                ),
                ("INSERT INTO t (k, c, v) VALUES ((1, 'a'), (-2, null), (null, null))", "ok"),
                ("INSERT INTO t (k, c, v) VALUES ((1, 'a'), (2, (-3)), ('short'))", "ok"),
                (
                    "SELECT c, v, s FROM t WHERE k = (1, 'a')",
                    "(-2, null) (null, null) null; (2, (-3)) ('short') null; \
                     (2, (3)) ('x', [2, 1]) {(-1, 5), (2, null), (2, 1)}",
                ),
                ("SELECT c FROM t WHERE k = (1, 'a') AND c > (2, (-3))", "(2, (3))"),
                (
                    "SELECT c FROM t WHERE k IN ((1, 'a'), (2, 'b')) AND c IN ((2, (3)), (9, (9)))",
                    "(2, (3))",
                ),
                (
                    "INSERT INTO t (k, c) VALUES ((1, 2), (1, (1)))",
                    "Invalid: Invalid tuple literal for k: a INTEGER constant is not of type text",
                ),
                (
                    "INSERT INTO t (k, c) VALUES ((1, 'a', 2), (1, (1)))",
                    "Invalid: Invalid TUPLE constant for \"k\"",
                ),
                (
                    "SELECT type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't' AND column_name = 'v'",
                    "'frozen<tuple<text, frozen<list<int>>>>'",
                ),
            ],
        );
        let insert = client.prepare("INSERT INTO t (k, c, v) VALUES (?, (5, (5)), ?)");
        let expect = ["k tuple<int, text>", "v tuple<text, list<int>>"].map(String::from);
        assert_eq!(insert.markers, expect);
        let key = b"\0\0\0\x04\0\0\0\x01\0\0\0\x01z";
        let too_long = [&key[..], &key[..]].concat();
        let values = [Value::Bytes(key), Value::Bytes(b"\0\0\0\x01z\xff\xff\xff\xff")];
        assert_eq!(client.execute(&insert.id, &values).error, None);
        assert_eq!(client.query("SELECT v FROM t WHERE k = (1, 'z')").rows, ["('z', null)"]);
        let values = [Value::Bytes(&too_long), Value::Null];
        let error = client.execute(&insert.id, &values).error.unwrap();
        assert!(error.starts_with("Invalid: k: the bytes are no value of type"), "{error}");
    });
}

#[test]
fn bound_collections_are_put_in_order_and_may_be_unset() {
    each(|_, client| {
        client
            .query("CREATE TABLE t (k frozen<set<int>> PRIMARY KEY, s set<int>, m map<int, int>)");
        let insert = client.prepare("INSERT INTO t (k, s, m) VALUES (?, ?, ?)");
        assert_eq!(insert.markers, ["k set<int>", "s set<int>", "m map<int, int>"]);
        assert_eq!(insert.key_markers, [0]);
        let (key, map) = (ints(&[5, -5, 5], 3), ints(&[2, 0, -1, 1, 2, 9], 3));
        let values = [Value::Bytes(&key), Value::Bytes(&key), Value::Bytes(&map)];
        assert_eq!(client.execute(&insert.id, &values).error, None);
        assert_eq!(client.query("SELECT * FROM t").rows, ["{-5, 5} {-1: 1, 2: 9} {-5, 5}"]);
        // Unset values change nothing; an empty collection is null.
        let none = ints(&[], 0);
        let values = [Value::Bytes(&key), Value::Unset, Value::Bytes(&none)];
        assert_eq!(client.execute(&insert.id, &values).error, None);
        assert_eq!(client.query("SELECT * FROM t").rows, ["{-5, 5} null {-5, 5}"]);

        let update = client.prepare("UPDATE t SET m[?] = ?, s = s - ? WHERE k = ?");
        let expect = ["key(m) int", "value(m) int", "s set<int>", "k set<int>"];
        assert_eq!(
            (update.markers, update.key_markers),
            (expect.map(String::from).into(), vec![3])
        );
        let (one, two) = (1_i32.to_be_bytes(), 2_i32.to_be_bytes());
        let gone = ints(&[-5], 1);
        let values = [&one[..], &two, &gone, &key].map(Value::Bytes);
        assert_eq!(client.execute(&update.id, &values).error, None);
        assert_eq!(client.query("SELECT m, s FROM t").rows, ["{1: 2} {5}"]);
        let values = [Value::Null, Value::Bytes(&two), Value::Unset, Value::Bytes(&key)];
        let error = client.execute(&update.id, &values).error;
        assert_eq!(error.as_deref(), Some("Invalid: Invalid null map key"));
        let select = client.prepare("SELECT k FROM t WHERE k IN ?");
        assert_eq!(select.markers, ["in(k) list<set<int>>"]);
        let mut keys = 1_i32.to_be_bytes().to_vec();
        keys.extend_from_slice(&i32::try_from(key.len()).unwrap().to_be_bytes());
        keys.extend_from_slice(&key);
        assert_eq!(client.execute(&select.id, &[Value::Bytes(&keys)]).rows, ["{-5, 5}"]);
    });
}

#[test]
fn wrong_collections_are_refused() {
    each(|_, client| {
        script(
            client,
            &[
                (
                    "CREATE TABLE t (k int PRIMARY KEY, s set<int>, m map<int, text>, l list<int>, f frozen<list<int>>, v int)",
                    "ok",
                ),
                (
                    "INSERT INTO t (k, s) VALUES (1, [1])",
                    "Invalid: Invalid LIST constant for \"s\" of type set<int>",
                ),
                (
                    "INSERT INTO t (k, s) VALUES (1, {'a'})",
                    "Invalid: Invalid set literal for s: a STRING constant is not of type int",
                ),
                (
                    "INSERT INTO t (k, m) VALUES (1, {1})",
                    "Invalid: Invalid SET constant for \"m\" of type map<int, text>",
                ),
                (
                    "INSERT INTO t (k, l) VALUES (1, [null])",
                    "Invalid: null is not supported inside collections",
                ),
                (
                    "UPDATE t SET v = v + 1 WHERE k = 1",
                    "Invalid: Invalid operation (v = v + ...) for non counter column v",
                ),
                (
                    "UPDATE t SET v[1] = 1 WHERE k = 1",
                    "Invalid: Invalid operation (v[...] = ...) for non collection column v",
                ),
                (
                    "UPDATE t SET f[1] = 1 WHERE k = 1",
                    "Invalid: Invalid operation (f[...] = ...) for frozen collection column f",
                ),
                (
                    "UPDATE t SET s = {1} + s WHERE k = 1",
                    "Invalid: Invalid operation for non list column s",
                ),
                (
                    "UPDATE t SET s[1] = 1 WHERE k = 1",
                    "Invalid: Invalid operation for set column s",
                ),
                (
                    "UPDATE t SET s = s + {1}, s = {2} WHERE k = 1",
                    "Invalid: Multiple incompatible setting of column s",
                ),
                (
                    "DELETE v[0] FROM t WHERE k = 1",
                    "Invalid: Invalid deletion operation for non collection column v",
                ),
                (
                    "DELETE f[0] FROM t WHERE k = 1",
                    "Invalid: Invalid deletion operation for frozen collection column f",
                ),
                (
                    "CREATE TABLE u (k set<int> PRIMARY KEY)",
                    "Invalid: Invalid non-frozen collection type set<int> for PRIMARY KEY column 'k'",
                ),
                (
                    "CREATE TABLE u (k int PRIMARY KEY, l list<list<int>>)",
                    "Invalid: Non-frozen collections are not allowed inside collections: list<list<int>>",
                ),
                (
                    "CREATE TABLE u (k frozen<list<duration>> PRIMARY KEY)",
                    "Invalid: frozen<list<duration>> type is not supported for PRIMARY KEY column 'k'",
                ),
            ],
        );
        let insert = client.prepare("INSERT INTO t (k, s) VALUES (1, ?)");
        let error = client.execute(&insert.id, &[Value::Bytes(&[0, 0, 0, 1])]).error.unwrap();
        assert_eq!(error, "Invalid: s: the bytes are no value of type set<int>");
    });
}

/// Values stay the same over restarts, with parts of them in several tables and after these are
/// merged.
#[test]
fn collections_survive_flushes_compactions_and_restarts() {
    for shards in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        let create = "CREATE TABLE ks.t (k int PRIMARY KEY, s set<text>, m map<int, int>, \
                      l list<int>, f frozen<map<text, int>>)";
        for round in 0..7_i32 {
            let server = Server::start(data.path(), shards, "sync");
            let mut client = server.connect();
            if round == 0 {
                client.query(KEYSPACE);
                assert_eq!(client.query(create).error, None);
            }
            check(&mut client, round);
            for k in 0..10 {
                let text = match round {
                    3 => format!("UPDATE ks.t SET m = {{3: 3}} WHERE k = {k}"),
                    _ => format!(
                        "UPDATE ks.t SET s = s + {{'{round}'}}, m[{round}] = {k}, l = l + [{round}], \
                         f = {{'r': {round}}} WHERE k = {k}"
                    ),
                };
                assert_eq!(client.query(&text).error, None, "{text}");
                let text = format!("DELETE s['{}'], m[4] FROM ks.t WHERE k = {k}", round - 2);
                assert_eq!(client.query(&text).error, None, "{text}");
            }
            check(&mut client, round + 1);
            server.stop();
        }
    }
}

/// Checks the rows after so many rounds.
fn check(client: &mut Client, rounds: i32) {
    let written = || (0..rounds).filter(|round| *round != 3);
    let joined = |numbers: Vec<String>| numbers.join(", ");
    let or_null = |text: String| if text.len() > 2 { text } else { "null".to_owned() };
    for k in 0..if rounds == 0 { 0 } else { 10 } {
        let kept = written().filter(|round| *round > rounds - 3);
        let set = or_null(format!("{{{}}}", joined(kept.map(|n| format!("'{n}'")).collect())));
        let entries = written().filter(|round| *round != 4 && (rounds < 4 || *round > 3));
        let mut entries: Vec<_> = entries.map(|n| format!("{n}: {k}")).collect();
        if rounds > 3 {
            entries.insert(0, "3: 3".into());
        }
        let map = or_null(format!("{{{}}}", joined(entries)));
        let list = format!("[{}]", joined(written().map(|n| n.to_string()).collect()));
        let last = written().next_back().unwrap_or(0);
        let expect = format!("{{'r': {last}}} {list} {map} {set}");
        let text = format!("SELECT f, l, m, s FROM ks.t WHERE k = {k}");
        assert_eq!(client.query(&text).rows, [expect], "after {rounds} rounds");
    }
    assert_eq!(client.query("SELECT m FROM ks.t").rows.len(), if rounds == 0 { 0 } else { 10 });
}

#[test]
fn schema_shows_the_types_of_collections() {
    each(|_, client| {
        let types = [
            "frozen<map<int, frozen<set<text>>>>",
            "list<blob>",
            "map<inet, frozen<list<int>>>",
            "set<int>",
        ];
        let columns: Vec<_> =
            types.iter().enumerate().map(|(n, kind)| format!("c{n} {kind}")).collect();
        let create = format!("CREATE TABLE t (k int PRIMARY KEY, {})", columns.join(", "));
        assert_eq!(client.query(&create).error, None);
        let shown = client.query(
            "SELECT type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't'",
        );
        let expect: Vec<_> = types.iter().map(|kind| format!("'{kind}'")).collect();
        assert_eq!(shown.rows[..4], expect);
        types.iter().for_each(|kind| assert!(parse_type(kind).is_ok()));
        let described = client.query("DESCRIBE TABLE ks.t").rows.join("\n");
        assert!(types.iter().all(|kind| described.contains(kind)), "{described}");
    });
}
