//! Changes of lists by position and by value, through a real server on one shard and on three.

use tare_cql::request::BatchStatement;
use tare_cql::wire::Value;

use crate::server::{Client, Server};
use crate::{KEYSPACE, each, script};

#[test]
fn elements_are_changed_by_position_and_by_value() {
    each(|_, client| {
        script(
            client,
            &[
                (
                    "CREATE TABLE t (k int, c int, l list<text>, s list<int> static, v int, \
                     PRIMARY KEY (k, c))",
                    "ok",
                ),
                ("INSERT INTO t (k, c, l, s) VALUES (1, 1, ['a', 'b', 'a'], [1, 2, 3])", "ok"),
                ("UPDATE t SET l[1] = 'x', v = 5 WHERE k = 1 AND c = 1", "ok"),
                ("SELECT l, v FROM t", "['a', 'x', 'a'] 5"),
                // All changes see the list as it was before the statement.
                ("UPDATE t SET l = ['0'] + l, l[2] = 'y', l += ['z'] WHERE k = 1 AND c = 1", "ok"),
                ("SELECT l FROM t", "['0', 'a', 'x', 'y', 'z']"),
                ("DELETE l[0], l[4] FROM t WHERE k = 1 AND c = 1", "ok"),
                ("UPDATE t SET l[1] = null WHERE k = 1 AND c = 1", "ok"),
                ("SELECT l FROM t", "['a', 'y']"),
                ("UPDATE t SET l = l + ['a', 'b', 'a'] WHERE k = 1 AND c = 1", "ok"),
                ("UPDATE t SET l = l - ['a', 'none'] WHERE k = 1 AND c = 1", "ok"),
                ("SELECT l FROM t", "['y', 'b']"),
                ("UPDATE t SET l -= ['y', 'b'] WHERE k = 1 AND c = 1", "ok"),
                ("UPDATE t SET l -= ['y'] WHERE k = 1 AND c = 1", "ok"),
                ("SELECT l, s FROM t", "null [1, 2, 3]"),
                ("UPDATE t SET s[1] = 7, s = s - [3] WHERE k = 1", "ok"),
                ("UPDATE t SET s[0] = 9, l = ['n'] WHERE k = 1 AND c = 1", "ok"),
                ("DELETE s[1] FROM t WHERE k = 1", "ok"),
                ("SELECT l, s FROM t", "['n'] [9]"),
                // Several rows and partitions in one statement.
                ("UPDATE t SET l = ['p', 'q'] WHERE k IN (2, 3, 4, 5) AND c IN (1, 2)", "ok"),
                ("UPDATE t SET l[0] = 'r' WHERE k IN (2, 3, 4, 5) AND c IN (1, 2)", "ok"),
                ("SELECT l FROM t WHERE k IN (2, 5) AND c = 2", "['r', 'q']; ['r', 'q']"),
            ],
        );
    });
}

#[test]
fn positions_outside_of_a_list_change_nothing() {
    each(|_, client| {
        let outside = "Invalid: List index 2 out of bound, list has size 2";
        script(
            client,
            &[
                ("CREATE TABLE t (k int PRIMARY KEY, l list<int>, v int)", "ok"),
                ("INSERT INTO t (k, l, v) VALUES (1, [1, 2], 1)", "ok"),
                ("UPDATE t SET l[2] = 1, v = 2 WHERE k = 1", outside),
                ("DELETE l[2], v FROM t WHERE k = 1", outside),
                (
                    "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 1; DELETE l[2] FROM t WHERE k = 1 \
                     APPLY BATCH",
                    outside,
                ),
                (
                    "UPDATE t SET l[-1] = 1 WHERE k = 1",
                    "Invalid: List index -1 out of bound, list has size 2",
                ),
                (
                    "UPDATE t SET l[0] = 1 WHERE k = 2",
                    "Invalid: Attempted to set an element on a list which is null",
                ),
                (
                    "DELETE l[0] FROM t WHERE k = 2",
                    "Invalid: Attempted to delete an element from a list which is null",
                ),
                ("UPDATE t SET l = l - [1] WHERE k = 2", "ok"),
                (
                    "UPDATE t SET l[null] = 1 WHERE k = 1",
                    "Invalid: Invalid null value for list index",
                ),
                (
                    "UPDATE t SET l = [1], l[0] = 2 WHERE k = 1",
                    "Invalid: Multiple incompatible setting of column l",
                ),
                (
                    "UPDATE t SET l[0] = 2, l = [1] WHERE k = 1",
                    "Invalid: Multiple incompatible setting of column l",
                ),
                ("SELECT * FROM t", "1 [1, 2] 1"),
            ],
        );
    });
}

#[test]
fn changed_elements_follow_timestamps_and_expire() {
    each(|_, client| {
        script(
            client,
            &[
                ("CREATE TABLE t (k int PRIMARY KEY, l list<int>)", "ok"),
                ("UPDATE t USING TIMESTAMP 10 SET l = [1, 2, 3] WHERE k = 1", "ok"),
                ("UPDATE t USING TIMESTAMP 5 SET l[0] = 9 WHERE k = 1", "ok"),
                ("UPDATE t USING TIMESTAMP 5 SET l = l - [2] WHERE k = 1", "ok"),
                ("DELETE l[2] FROM t USING TIMESTAMP 5 WHERE k = 1", "ok"),
                ("SELECT l FROM t", "[1, 2, 3]"),
                ("UPDATE t USING TIMESTAMP 15 SET l[0] = 7, l = l - [3] WHERE k = 1", "ok"),
                ("SELECT l FROM t", "[7, 2]"),
                ("UPDATE t USING TTL 1 AND TIMESTAMP 20 SET l[1] = 8 WHERE k = 1", "ok"),
            ],
        );
        tare_testkit::database::until("the element expires", || {
            (client.query("SELECT l FROM t").rows == ["[7]"]).then_some(())
        });
        // A position counts the elements that are still there.
        script(
            client,
            &[
                (
                    "UPDATE t SET l[1] = 1 WHERE k = 1",
                    "Invalid: List index 1 out of bound, list has size 1",
                ),
                (
                    "BEGIN BATCH USING TIMESTAMP 30 UPDATE t SET l[0] = 5 WHERE k = 1; \
                     UPDATE t SET l[0] = 6 WHERE k = 1; UPDATE t SET l = l + [4] WHERE k = 1; \
                     UPDATE t SET l = [1] WHERE k = 2; APPLY BATCH",
                    "ok",
                ),
                ("SELECT l FROM t WHERE k IN (1, 2)", "[6, 4]; [1]"),
            ],
        );
    });
}

#[test]
fn positions_and_values_can_be_bound() {
    each(|_, client| {
        client.query("CREATE TABLE t (k int PRIMARY KEY, l list<int>)");
        client.query("INSERT INTO t (k, l) VALUES (1, [1, 2, 3])");
        let set = client.prepare("UPDATE t SET l[?] = ? WHERE k = ?");
        assert_eq!(set.markers, ["idx(l) int", "value(l) int", "k int"]);
        assert_eq!(set.key_markers, [2]);
        let [zero, one, nine, ten] = [0_i32, 1, 9, 10].map(i32::to_be_bytes);
        let run = |client: &mut Client, id: &[u8], values: &[Value<'_>]| {
            let error = client.execute(id, values).error;
            error.unwrap_or_else(|| client.query("SELECT l FROM t").rows.join("; "))
        };
        let (k, bytes) = (Value::Bytes(&one), Value::Bytes(&nine));
        let at = Value::Bytes(&zero);
        assert_eq!(run(client, &set.id, &[at, bytes, k]), "[9, 2, 3]");
        assert_eq!(run(client, &set.id, &[at, Value::Unset, k]), "[9, 2, 3]");
        assert_eq!(run(client, &set.id, &[at, Value::Null, k]), "[2, 3]");
        assert_eq!(
            run(client, &set.id, &[Value::Unset, bytes, k]),
            "Invalid: Invalid unset value for list index"
        );
        let delete = client.prepare("DELETE l[?] FROM t WHERE k = ?");
        assert_eq!(delete.markers, ["idx(l) int", "k int"]);
        assert_eq!(run(client, &delete.id, &[Value::Unset, k]), "[2, 3]");
        assert_eq!(
            run(client, &delete.id, &[Value::Null, k]),
            "Invalid: Invalid null value for list index"
        );
        assert_eq!(run(client, &delete.id, &[at, k]), "[3]");
        let discard = client.prepare("UPDATE t SET l = l - ? WHERE k = ?");
        assert_eq!(discard.markers, ["l list<int>", "k int"]);
        let list = [&[0, 0, 0, 1, 0, 0, 0, 4], &3_i32.to_be_bytes()[..]].concat();
        assert_eq!(run(client, &discard.id, &[Value::Unset, k]), "[3]");
        assert_eq!(run(client, &discard.id, &[Value::Bytes(&list), k]), "null");
        // A BATCH message writes an element of one list, and a new list.
        client.query("INSERT INTO t (k, l) VALUES (1, [1, 2])");
        let values = [at, Value::Bytes(&ten), k];
        let answer = client.batch(&[
            (BatchStatement::Prepared(&set.id), &values),
            (BatchStatement::Text("INSERT INTO t (k, l) VALUES (2, [5])"), &[]),
        ]);
        assert_eq!(answer.error, None);
        assert_eq!(client.query("SELECT l FROM t WHERE k IN (1, 2)").rows, ["[10, 2]", "[5]"]);
    });
}

#[test]
fn transactions_change_lists_by_position() {
    each(|_, client| {
        script(
            client,
            &[
                ("CREATE TABLE t (k int, c int, l list<int>, v int, PRIMARY KEY (k, c))", "ok"),
                ("INSERT INTO t (k, c, l, v) VALUES (1, 1, [1, 2, 1], 1)", "ok"),
                ("UPDATE t SET l[0] = 5, v = 2 WHERE k = 1 AND c = 1 IF v = 1", "true"),
                ("UPDATE t SET l[9] = 5 WHERE k = 1 AND c = 1 IF v = 1", "false 2"),
                (
                    "UPDATE t SET l[9] = 5, v = 3 WHERE k = 1 AND c = 1 IF v = 2",
                    "Invalid: List index 9 out of bound, list has size 3",
                ),
                ("DELETE l[1] FROM t WHERE k = 1 AND c = 1 IF EXISTS", "true"),
                ("SELECT l, v FROM t", "[5, 1] 2"),
                ("INSERT INTO t (k, c, l) VALUES (1, 2, [7, 8])", "ok"),
                // The second row has no conditions.
                (
                    "BEGIN BATCH UPDATE t SET l = l - [5] WHERE k = 1 AND c = 1 IF v = 2; \
                     UPDATE t SET l[1] = 9 WHERE k = 1 AND c = 2 APPLY BATCH",
                    "true",
                ),
                ("SELECT l FROM t", "[1]; [7, 9]"),
            ],
        );
    });
}

/// Elements are found in tables on disk, in memory, and after a restart.
#[test]
fn elements_are_changed_over_flushes_and_restarts() {
    for shards in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        for round in 0..5 {
            let server = Server::start(data.path(), shards, "sync");
            let mut client = server.connect();
            if round == 0 {
                client.query(KEYSPACE);
                client.query("CREATE TABLE ks.t (k int PRIMARY KEY, l list<int>)");
            }
            for k in 0..20 {
                for text in [
                    format!("UPDATE ks.t SET l = l + [{round}, 100] WHERE k = {k}"),
                    format!("UPDATE ks.t SET l[{round}] = {} WHERE k = {k}", round + k),
                    format!("UPDATE ks.t SET l = l - [100] WHERE k = {k}"),
                ] {
                    assert_eq!(client.query(&text).error, None, "{text}");
                }
                let expect: Vec<i32> = (0..=round).map(|n| n + k).collect();
                let rows = client.query(&format!("SELECT l FROM ks.t WHERE k = {k}")).rows;
                assert_eq!(rows, [format!("{expect:?}")], "round {round}");
            }
            server.stop();
        }
    }
}
