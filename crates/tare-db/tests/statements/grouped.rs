//! GROUP BY and aggregates.

use crate::{each, script};

#[test]
fn aggregates_and_groups() {
    each(|_, client| {
        let create = "CREATE TABLE t (k int, a int, b int, v int, w text, f double, \
                      PRIMARY KEY (k, a, b))";
        script(client, &[(create, "ok")]);
        for (a, b, v) in [(1, 1, 4), (1, 2, 6), (2, 1, 5), (2, 2, 7), (3, 1, 1)] {
            for k in [1, 2] {
                let v = v * k;
                let text = format!(
                    "INSERT INTO t (k, a, b, v, w, f) VALUES ({k}, {a}, {b}, {v}, 'w{v}', {v}.5)"
                );
                assert_eq!(client.query(&text).error, None);
            }
        }
        client.query("DELETE v, w FROM t WHERE k = 1 AND a = 2 AND b = 1");
        script(
            client,
            &[
                (
                    "SELECT min(v), max(v), sum(v), avg(v), count(v), count(*) FROM t WHERE k = 1",
                    "1 7 18 4 4 5",
                ),
                (
                    "SELECT a, count(*), min(w), max(w), avg(f) FROM t WHERE k = 1",
                    "1 5 'w1' 'w7' 5.1",
                ),
                ("SELECT k, v FROM t WHERE k = 1 GROUP BY k", "1 4"),
                (
                    "SELECT * FROM t WHERE k = 1 GROUP BY k, a LIMIT 2",
                    "1 1 1 4.5 4 'w4'; 1 2 1 5.5 null null",
                ),
                ("SELECT a, sum(v) FROM t WHERE k = 1 GROUP BY k, a", "1 10; 2 7; 3 1"),
                ("SELECT a, sum(v) FROM t WHERE k = 1 GROUP BY a", "1 10; 2 7; 3 1"),
                (
                    "SELECT a, b, max(v) FROM t WHERE k = 1 GROUP BY a, b",
                    "1 1 4; 1 2 6; 2 1 null; 2 2 7; 3 1 1",
                ),
                ("SELECT b, max(v) FROM t WHERE k = 1 AND a = 1 GROUP BY b", "1 4; 2 6"),
                ("SELECT a, max(b) FROM t WHERE k = 1 GROUP BY a ORDER BY a DESC", "3 1; 2 2; 1 2"),
                (
                    "SELECT k, a, count(*) FROM t WHERE k IN (1, 2) GROUP BY k, a PER PARTITION LIMIT 2",
                    "1 1 2; 1 2 2; 2 1 2; 2 2 2",
                ),
                (
                    "SELECT k, a, count(*) FROM t WHERE k IN (1, 2) GROUP BY k, a LIMIT 4",
                    "1 1 2; 1 2 2; 1 3 1; 2 1 2",
                ),
                ("SELECT k, sum(v) FROM t WHERE k IN (1, 2) GROUP BY k", "1 18; 2 46"),
                ("SELECT sum(v) FROM t", "64"),
                (
                    "SELECT k, a, sum(v) FROM t WHERE k IN (1, 2) AND v > 5 GROUP BY k, a ALLOW FILTERING",
                    "1 1 6; 1 2 7; 2 1 20; 2 2 24",
                ),
                ("SELECT max(v) AS most FROM t WHERE k = 1 AND a = 1 AND b = 2", "6"),
                // Without rows there is one group, unless columns make groups.
                (
                    "SELECT a, count(*), min(v), sum(v), avg(f) FROM t WHERE k = 9",
                    "null 0 null 0 0.0",
                ),
                ("SELECT a, count(*) FROM t WHERE k = 9 GROUP BY k", ""),
            ],
        );
        let names = client.query("SELECT count(*), count(v), avg(v), a FROM t").names;
        assert_eq!(names, ["count", "system.count(v)", "system.avg(v)", "a"]);
        for (text, expect) in [
            ("GROUP BY k", vec!["1 5", "2 5"]),
            ("GROUP BY k, a", vec!["1 1", "1 2", "1 2", "2 1", "2 2", "2 2"]),
        ] {
            for page_size in 1..5 {
                let text = format!("SELECT k, count(*) FROM t {text}");
                let mut rows = client.pages(&text, page_size);
                assert_eq!(rows, client.query(&text).rows, "{text} by {page_size}");
                rows.sort();
                assert_eq!(rows, expect, "{text} by {page_size}");
            }
        }
        for limit in 1..4 {
            let text = format!("SELECT a, count(*) FROM t WHERE k = 1 GROUP BY k, a LIMIT {limit}");
            assert_eq!(client.pages(&text, 2), ["1 2", "2 2", "3 1"][..limit], "{text}");
        }
    });
}

#[test]
fn groups_that_the_key_does_not_make_are_refused() {
    each(|_, client| {
        script(
            client,
            &[
                (
                    "CREATE TABLE t (k int, l int, a int, b int, v int, w varint, PRIMARY KEY ((k, l), a, b))",
                    "ok",
                ),
                (
                    "SELECT k FROM t GROUP BY v",
                    "Invalid: Group by is currently only supported on the columns of the PRIMARY KEY, got v",
                ),
                (
                    "SELECT k FROM t GROUP BY k",
                    "Invalid: Group by is not supported on only a part of the partition key",
                ),
                (
                    "SELECT k FROM t GROUP BY k, l, b",
                    "Invalid: Group by currently only support groups of columns following",
                ),
                (
                    "SELECT k FROM t GROUP BY l, k",
                    "Invalid: Group by currently only support groups of columns following",
                ),
                (
                    "SELECT k FROM t WHERE k = 1 AND l = 1 GROUP BY b",
                    "Invalid: Group by currently only support groups of columns following",
                ),
                (
                    "SELECT DISTINCT k, l FROM t GROUP BY k, l",
                    "Invalid: SELECT DISTINCT with aggregates or GROUP BY is not supported",
                ),
                (
                    "SELECT a, max(v) FROM t WHERE k IN (1, 2) AND l = 1 GROUP BY k, l ORDER BY a",
                    "Invalid: GROUP BY with ORDER BY and IN on the partition key is not supported",
                ),
                ("SELECT sum(w) FROM t", "Invalid: sum() of a varint is not supported"),
                ("SELECT max(w), min(none) FROM t", "Invalid: Undefined column name none"),
                (
                    "SELECT max(key) FROM system.local",
                    "Invalid: aggregates other than count(*) alone are not supported in tables of the system",
                ),
                (
                    "SELECT key FROM system.local GROUP BY key",
                    "Invalid: GROUP BY is not supported in tables of the system",
                ),
            ],
        );
    });
}
