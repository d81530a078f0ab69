//! Static columns, through a real server on one shard and on three.

use crate::server::Server;
use crate::{KEYSPACE, each, script};

#[test]
fn rows_have_the_static_columns_of_their_partition() {
    each(|_, client| {
        script(
            client,
            &[
                (
                    "CREATE TABLE t (k int, c int, s int static, l list<int> static, v int, \
                     PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)",
                    "ok",
                ),
                ("INSERT INTO t (k, c, s, l, v) VALUES (1, 1, 10, [1], 11)", "ok"),
                ("INSERT INTO t (k, c, v) VALUES (1, 2, 12)", "ok"),
                ("INSERT INTO t (k, s) VALUES (2, 20)", "ok"),
                ("SELECT * FROM t WHERE k = 1", "1 2 [1] 10 12; 1 1 [1] 10 11"),
                ("SELECT c, s FROM t WHERE k = 1 AND c = 1", "1 10"),
                ("SELECT v, c FROM t WHERE k = 1 AND c = 2", "12 2"),
                ("SELECT c, s FROM t WHERE k = 1 AND c = 5", ""),
                ("SELECT s, c FROM t WHERE k = 1 AND c < 5 ORDER BY c ASC LIMIT 1", "10 1"),
                ("SELECT * FROM t WHERE k = 2", "2 null null 20 null"),
                ("SELECT c, v FROM t WHERE k = 2", "null null"),
                ("SELECT s FROM t WHERE k = 2 AND c > 0", ""),
                ("SELECT DISTINCT k, s FROM t WHERE k IN (1, 2, 3)", "1 10; 2 20"),
                ("SELECT count(*) FROM t", "3"),
                ("SELECT count(s) FROM t", "3"),
                ("SELECT count(v) FROM t", "2"),
                ("UPDATE t SET s = 21, l = l + [2] WHERE k = 2", "ok"),
                ("UPDATE t SET s = 13, v = 14 WHERE k = 1 AND c = 1", "ok"),
                (
                    "SELECT k, c, s, l, v FROM t WHERE k IN (1, 2)",
                    "1 2 13 [1] 12; 1 1 13 [1] 14; 2 null 21 [2] null",
                ),
                // Only the deletion of the partition deletes its static columns.
                ("DELETE FROM t WHERE k = 1 AND c > 0", "ok"),
                ("DELETE FROM t WHERE k = 1 AND c < 9", "ok"),
                ("SELECT * FROM t WHERE k = 1", "1 null [1] 13 null"),
                ("DELETE s FROM t WHERE k = 1", "ok"),
                ("SELECT * FROM t WHERE k = 1", "1 null [1] null null"),
                ("DELETE FROM t WHERE k = 2", "ok"),
                ("SELECT * FROM t WHERE k = 2", ""),
                ("INSERT INTO t (k, c, v) VALUES (3, 3, 3)", "ok"),
                ("SELECT k, c, s FROM t WHERE k = 3", "3 3 null"),
                ("UPDATE t USING TTL 1000 SET s = 5 WHERE k IN (3, 4)", "ok"),
                ("SELECT k, c, s FROM t WHERE k IN (3, 4)", "3 3 5; 4 null 5"),
                ("DELETE l, v FROM t WHERE k = 3 AND c = 3", "ok"),
            ],
        );
        let shown = client.query("DESCRIBE TABLE ks.t").rows.join("\n");
        assert!(shown.contains("s int static,"), "{shown}");
        script(
            client,
            &[
                (
                    "SELECT column_name, position FROM system_schema.columns WHERE keyspace_name = 'ks' AND kind = 'static'",
                    "'l' -1; 's' -1",
                ),
                ("ALTER TABLE t ADD w text static", "ok"),
                ("UPDATE t SET w = 'x' WHERE k = 3", "ok"),
                ("SELECT DISTINCT k, w FROM t WHERE k = 3", "3 'x'"),
                (
                    "UPDATE t SET s = 1 WHERE k = 1 AND c = 1",
                    "Invalid: Invalid restrictions on clustering columns since",
                ),
                (
                    "DELETE s FROM t WHERE k = 1 AND c = 1",
                    "Invalid: Invalid restrictions on clustering columns since",
                ),
                (
                    "INSERT INTO t (k, s, v) VALUES (1, 1, 1)",
                    "Invalid: Some clustering keys are missing: c",
                ),
                (
                    "UPDATE t SET s = 1, v = 1 WHERE k = 1",
                    "Invalid: Some clustering keys are missing: c",
                ),
                (
                    "SELECT DISTINCT k, v FROM t",
                    "Invalid: SELECT DISTINCT queries must only request",
                ),
                (
                    "SELECT k FROM t WHERE s = 1",
                    "Invalid: Cannot execute this query as it might involve data filtering",
                ),
                (
                    "CREATE TABLE u (k int PRIMARY KEY, s int static)",
                    "Invalid: Static columns are only useful",
                ),
                (
                    "CREATE TABLE u (k int, c int static, PRIMARY KEY (k, c))",
                    "Invalid: Static column 'c' cannot be part of",
                ),
            ],
        );
    });
}

/// Pages begin within partitions and after static columns without rows; tables on disk have both.
#[test]
fn static_columns_are_paged_and_survive_restarts() {
    for shards in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        let create = "CREATE TABLE ks.t (k int, c int, s int static, PRIMARY KEY (k, c))";
        for round in 0..6 {
            let server = Server::start(data.path(), shards, "sync");
            let mut client = server.connect();
            if round == 0 {
                client.query(KEYSPACE);
                assert_eq!(client.query(create).error, None);
            }
            for k in 0..20 {
                // Every third partition has static columns alone, every other has none.
                let text = match k % 3 {
                    0 => format!("UPDATE ks.t SET s = {round} WHERE k = {k}"),
                    1 => format!("INSERT INTO ks.t (k, c, s) VALUES ({k}, {round}, {round})"),
                    _ => format!("INSERT INTO ks.t (k, c) VALUES ({k}, {round})"),
                };
                assert_eq!(client.query(&text).error, None, "{text}");
            }
            let whole = client.query("SELECT k, c, s FROM ks.t").rows;
            assert_eq!(whole.len(), 7 + 13 * (round + 1));
            let count = |end: &str| whole.iter().filter(|row| row.ends_with(end)).count();
            assert_eq!(count(&format!(" null {round}")), 7);
            assert_eq!(count(" null"), 6 * (round + 1));
            for page_size in [1, 2, 3, 7, 100] {
                let pages = client.pages("SELECT k, c, s FROM ks.t", page_size);
                assert_eq!(pages, whole, "by {page_size}");
            }
            let distinct = client.query("SELECT DISTINCT k, s FROM ks.t").rows;
            assert_eq!(distinct.len(), 20);
            assert_eq!(client.pages("SELECT DISTINCT k, s FROM ks.t", 3), distinct);
            server.stop();
        }
    }
}
