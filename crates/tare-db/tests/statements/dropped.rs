//! ALTER TABLE DROP.

use crate::server::Server;
use crate::{KEYSPACE, each, script};

#[test]
fn dropped_columns_disappear_and_their_values_never_come_back() {
    each(|_, client| {
        script(
            client,
            &[
                ("CREATE TABLE t (k int, c int, v int, w text, x int, PRIMARY KEY (k, c))", "ok"),
                ("INSERT INTO t (k, c, v, w, x) VALUES (1, 1, 1, 'a', 1)", "ok"),
                // Rows that exist by the values of one column.
                ("UPDATE t SET v = 2 WHERE k = 1 AND c = 2", "ok"),
                ("UPDATE t SET v = 3, w = 'b' WHERE k = 1 AND c = 3", "ok"),
                ("UPDATE t SET v = 4 WHERE k = 2 AND c = 4", "ok"),
                ("ALTER TABLE t DROP v", "ok"),
                ("SELECT * FROM t", "1 1 'a' 1; 1 3 'b' null"),
                ("SELECT v FROM t", "Invalid: Undefined column name v in table ks.t"),
                ("SELECT count(*) FROM t", "2"),
                ("SELECT DISTINCT k FROM t", "1"),
                ("SELECT c FROM t WHERE k = 1 AND c = 2", ""),
                ("SELECT count(*) FROM t WHERE k = 1 AND c = 2", "0"),
                ("SELECT x FROM t WHERE k = 1 AND c = 3", "null"),
                ("SELECT c FROM t WHERE k = 1 ORDER BY c DESC LIMIT 1", "3"),
                ("SELECT c FROM t WHERE k = 2 PER PARTITION LIMIT 1", ""),
                ("UPDATE t SET w = 'z' WHERE k = 1 AND c = 2 IF EXISTS", "false"),
                ("INSERT INTO t (k, c) VALUES (2, 4) IF NOT EXISTS", "true"),
                ("ALTER TABLE t ADD v text", "ok"),
                ("SELECT k, c, v FROM t", "1 1 null; 1 3 null; 2 4 null"),
                ("UPDATE t SET v = 'new' WHERE k = 1 AND c = 2", "ok"),
                ("SELECT c, v FROM t WHERE k = 1", "1 null; 2 'new'; 3 null"),
                ("ALTER TABLE t DROP (v, x)", "ok"),
                ("ALTER TABLE t ADD v int", "ok"),
                ("SELECT * FROM t WHERE k = 1", "1 1 null 'a'; 1 3 null 'b'"),
                (
                    "SELECT table_name, column_name, kind, type FROM system_schema.dropped_columns \
                     WHERE keyspace_name = 'ks'",
                    "'t' 'v' 'regular' 'text'; 't' 'x' 'regular' 'int'",
                ),
                ("ALTER TABLE t DROP IF EXISTS none", "ok"),
                ("ALTER TABLE t DROP none", "Invalid: Column none was not found in table 'ks.t'"),
                ("ALTER TABLE t DROP c", "Invalid: Cannot drop PRIMARY KEY column c"),
                ("ALTER TABLE t DROP IF EXISTS k", "Invalid: Cannot drop PRIMARY KEY column k"),
                ("ALTER TABLE t DROP (w, none)", "Invalid: Column none was not found"),
                ("SELECT w FROM t WHERE k = 1 AND c = 1", "'a'"),
            ],
        );
    });
}

#[test]
fn prepared_statements_lose_a_dropped_column() {
    each(|_, client| {
        script(client, &[("CREATE TABLE t (k int PRIMARY KEY, v int, w int)", "ok")]);
        script(client, &[("INSERT INTO t (k, v, w) VALUES (1, 2, 3)", "ok")]);
        let all = client.prepare("SELECT * FROM t WHERE k = 1");
        let one = client.prepare("SELECT v FROM t WHERE k = 1");
        assert_eq!(client.execute(&all.id, &[]).rows, ["1 2 3"]);
        script(client, &[("ALTER TABLE t DROP v", "ok")]);
        assert_eq!(client.execute(&all.id, &[]).rows, ["1 3"]);
        let error = client.execute(&one.id, &[]).error.unwrap();
        assert_eq!(error, "Invalid: Undefined column name v in table ks.t");
    });
}

#[test]
fn drops_last_over_a_restart() {
    for shards in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), shards, "100");
        let mut client = server.connect();
        client.query(KEYSPACE);
        script(
            &mut client,
            &[
                ("CREATE TABLE ks.t (k int PRIMARY KEY, v int, w int)", "ok"),
                ("UPDATE ks.t SET v = 1 WHERE k = 1", "ok"),
                ("UPDATE ks.t SET v = 1, w = 1 WHERE k = 2", "ok"),
                ("ALTER TABLE ks.t DROP v", "ok"),
            ],
        );
        server.stop();
        let server = Server::start(data.path(), shards, "100");
        let mut client = server.connect();
        script(
            &mut client,
            &[
                ("SELECT * FROM ks.t", "2 1"),
                ("SELECT w FROM ks.t WHERE k = 1", ""),
                ("ALTER TABLE ks.t ADD v int", "ok"),
                ("SELECT * FROM ks.t", "2 null 1"),
                ("SELECT w FROM ks.t WHERE k = 1", ""),
                ("SELECT column_name FROM system_schema.dropped_columns", "'v'"),
            ],
        );
    }
}

#[test]
fn static_columns_and_collections_are_dropped() {
    each(|_, client| {
        script(
            client,
            &[
                (
                    "CREATE TABLE t (k int, c int, s int static, r list<int> static, \
                     m map<int, int>, l list<int>, v int, PRIMARY KEY (k, c))",
                    "ok",
                ),
                ("INSERT INTO t (k, c, s, r, m, l) VALUES (1, 1, 5, [1], {1: 1}, [7])", "ok"),
                ("UPDATE t SET l = [8] WHERE k = 1 AND c = 2", "ok"),
                ("INSERT INTO t (k, s) VALUES (2, 6)", "ok"),
                ("INSERT INTO t (k, r) VALUES (3, [2])", "ok"),
                ("ALTER TABLE t DROP s", "ok"),
                // A partition whose only value was dropped is gone.
                (
                    "SELECT * FROM t",
                    "1 1 [1] [7] {1: 1} null; 1 2 [1] [8] null null; 3 null [2] null null null",
                ),
                ("SELECT DISTINCT k, r FROM t", "1 [1]; 3 [2]"),
                ("SELECT count(*) FROM t", "3"),
                ("SELECT k FROM t WHERE k = 2", ""),
                ("INSERT INTO t (k, r) VALUES (2, [1]) IF NOT EXISTS", "true"),
                ("ALTER TABLE t DROP (l, m)", "ok"),
                ("SELECT * FROM t WHERE k = 1", "1 1 [1] null"),
                ("ALTER TABLE t DROP r", "ok"),
                ("SELECT * FROM t", "1 1 null"),
                ("SELECT DISTINCT k FROM t", "1"),
                ("SELECT * FROM t WHERE k = 3", ""),
                ("SELECT k FROM t WHERE k IN (1, 2, 3) ORDER BY c DESC LIMIT 5", "1"),
                ("SELECT count(*) FROM t WHERE k = 3", "0"),
                ("SELECT k, count(*) FROM t GROUP BY k", "1 1"),
                ("SELECT k FROM t WHERE v = 1 ALLOW FILTERING", ""),
                ("INSERT INTO t (k, c, v) VALUES (3, 3, 3) IF NOT EXISTS", "true"),
                ("ALTER TABLE t ADD (s text static, m set<int>, l list<text>)", "ok"),
                ("SELECT * FROM t", "1 1 null null null null; 3 3 null null null 3"),
                ("UPDATE t SET s = 'x' WHERE k = 2", "ok"),
                ("UPDATE t SET l = ['a'] + l WHERE k = 1 AND c = 1", "ok"),
                (
                    "SELECT k, s, l FROM t WHERE k IN (1, 2, 3)",
                    "1 null ['a']; 2 'x' null; 3 null null",
                ),
                (
                    "SELECT column_name, kind, type FROM system_schema.dropped_columns \
                     WHERE keyspace_name = 'ks'",
                    "'l' 'regular' 'list<int>'; 'm' 'regular' 'map<int, int>'; \
                     'r' 'static' 'list<int>'; 's' 'static' 'int'",
                ),
                ("ALTER TABLE t DROP s", "ok"),
                ("ALTER TABLE t ADD s int", "ok"),
                ("UPDATE t SET s = 1 WHERE k = 3 AND c = 3", "ok"),
                ("SELECT k, c, s FROM t", "1 1 null; 3 3 1"),
            ],
        );
    });
}
