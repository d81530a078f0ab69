//! ALLOW FILTERING.

use tare_cql::request::Settings;
use tare_cql::wire::Value;

use crate::server::Client;
use crate::{each, script};

const REFUSED: &str = "Invalid: Cannot execute this query as it might involve data filtering and \
                       thus may have unpredictable performance. If you want to execute this query \
                       despite the performance unpredictability, use ALLOW FILTERING";

/// `(k int, l text, c int DESC, d text, v int, w text)`: partitions (1, 'x') and (2, 'x') with rows
/// (0..3, 'a' and 'b'), in which `v` is `10 k + c` and `w` is `d` in rows of odd `c`.
fn fill(client: &mut Client) {
    let create = "CREATE TABLE t (k int, l text, c int, d text, v int, w text, \
                  PRIMARY KEY ((k, l), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)";
    assert_eq!(client.query(create).error, None);
    for k in 1..3 {
        for c in 0..3 {
            for d in ["a", "b"] {
                let w = if c % 2 == 1 { format!("'{d}'") } else { "null".into() };
                let values = format!("{k}, 'x', {c}, '{d}', {}, {w}", 10 * k + c);
                let text = format!("INSERT INTO t (k, l, c, d, v, w) VALUES ({values})");
                assert_eq!(client.query(&text).error, None);
            }
        }
    }
}

#[test]
fn rows_are_filtered_by_any_column() {
    each(|_, client| {
        fill(client);
        let one = "k = 1 AND l = 'x'";
        for (condition, expect) in [
            // Regular columns.
            ("k = 1 AND l = 'x' AND v = 11", "1 1 'a'; 1 1 'b'"),
            ("k = 1 AND l = 'x' AND v > 10 AND v <= 11", "1 1 'a'; 1 1 'b'"),
            ("k = 1 AND l = 'x' AND v IN (12, 99) AND d = 'b'", "1 2 'b'"),
            ("k = 1 AND l = 'x' AND c = 1 AND d = 'a' AND v = 11", "1 1 'a'"),
            ("k = 1 AND l = 'x' AND c = 1 AND d = 'a' AND v < 11", ""),
            ("k = 1 AND l = 'x' AND v IN ()", ""),
            // Rows without a value satisfy no condition.
            ("k = 1 AND l = 'x' AND w >= ''", "1 1 'a'; 1 1 'b'"),
            // Clustering columns out of order.
            ("k = 1 AND l = 'x' AND d = 'b'", "1 2 'b'; 1 1 'b'; 1 0 'b'"),
            ("k = 1 AND l = 'x' AND c > 0 AND d > 'a'", "1 2 'b'; 1 1 'b'"),
            ("k = 1 AND l = 'x' AND c >= 1 AND c < 2 AND d = 'b'", "1 1 'b'"),
            (
                "k IN (1, 2) AND l = 'x' AND d = 'a' AND c IN (0, 2)",
                "1 2 'a'; 1 0 'a'; 2 2 'a'; 2 0 'a'",
            ),
        ] {
            let text = format!("SELECT k, c, d FROM t WHERE {condition} ALLOW FILTERING");
            script(client, &[(&text, expect)]);
        }
        // Scans come in the order of tokens.
        for (condition, expect) in [
            ("k = 1 AND c = 1", "1 1 'a'; 1 1 'b'"),
            ("k > 1 AND l = 'x' AND c = 0", "2 0 'a'; 2 0 'b'"),
            ("l = 'x' AND k < 2 AND (c, d) > (1, 'a')", "1 1 'b'; 1 2 'a'; 1 2 'b'"),
            ("(c, d) IN ((2, 'b'), (7, 'z'))", "1 2 'b'; 2 2 'b'"),
            ("v = 21", "2 1 'a'; 2 1 'b'"),
            ("w = 'b' AND c >= 0", "1 1 'b'; 2 1 'b'"),
            (
                "token(k, l) >= token(1, 'x') AND token(k, l) <= token(1, 'x') AND v = 12",
                "1 2 'a'; 1 2 'b'",
            ),
            ("k = 3", ""),
        ] {
            let text = format!("SELECT k, c, d FROM t WHERE {condition} ALLOW FILTERING");
            let answer = client.query(&text);
            let mut rows = answer.rows;
            rows.sort();
            assert_eq!((answer.error, rows.join("; ")), (None, expect.into()), "{text}");
            if condition.split(" AND ").any(|part| !part.starts_with("token")) {
                let refused = client.query(&text.replace(" ALLOW FILTERING", "")).error;
                assert_eq!(refused.as_deref(), Some(REFUSED), "{text}");
            }
        }
        for (text, expect) in [
            (format!("SELECT c FROM t WHERE {one} AND v > 10 LIMIT 3 ALLOW FILTERING"), "2; 2; 1"),
            (format!("SELECT c FROM t WHERE {one} AND v < 12 ORDER BY c LIMIT 1 ALLOW FILTERING"), "0"),
            ("SELECT k, c FROM t WHERE k IN (1, 2) AND l = 'x' AND d = 'b' PER PARTITION LIMIT 2 ALLOW FILTERING".into(), "1 2; 1 1; 2 2; 2 1"),
            ("SELECT k, c FROM t WHERE k IN (1, 2) AND l = 'x' AND d = 'b' ORDER BY c LIMIT 3 ALLOW FILTERING".into(), "1 0; 2 0; 1 1"),
            ("SELECT count(*) FROM t WHERE d = 'b' ALLOW FILTERING".into(), "6"),
            ("SELECT count(w) FROM t WHERE d = 'b' ALLOW FILTERING".into(), "2"),
            ("SELECT DISTINCT k, l FROM t WHERE k = 2 ALLOW FILTERING".into(), "2 'x'"),
            ("SELECT DISTINCT k, l FROM t WHERE v = 2 ALLOW FILTERING".into(), "Invalid: SELECT DISTINCT with WHERE clause only supports restriction by partition key"),
            ("SELECT * FROM t WHERE v = null ALLOW FILTERING".into(), "Invalid: Invalid null value in condition for column v"),
            ("SELECT * FROM t WHERE none = 1 ALLOW FILTERING".into(), "Invalid: Undefined column name none"),
            ("SELECT * FROM t WHERE token(k, l) > 1 AND k = 1 ALLOW FILTERING".into(), "Invalid: Columns of the partition key cannot be restricted by both"),
            ("SELECT * FROM t WHERE k = 1 AND l = 'x' AND c = 1 AND c > 0 ALLOW FILTERING".into(), "Invalid: c cannot be restricted by more than one relation if it includes an Equal"),
            ("DELETE FROM t WHERE k > 1 AND l = 'x'".into(), "Invalid: Only EQ and IN relation are supported on the partition key"),
        ] {
            script(client, &[(&text, expect)]);
        }
        let prepared =
            client.prepare("SELECT c FROM t WHERE v = ? AND d IN ? AND (c, d) < ? ALLOW FILTERING");
        assert_eq!(prepared.markers, ["v int", "in(d) list<text>", "(c,d) tuple<int, text>"]);
        let list = [0, 0, 0, 1, 0, 0, 0, 1, b'a'];
        let tuple = [0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 1, b'a'];
        let eleven = 11_i32.to_be_bytes();
        let values = [&eleven[..], &list, &tuple].map(Value::Bytes);
        assert_eq!(client.execute(&prepared.id, &values).rows, ["1"]);
    });
}

#[test]
fn deleted_and_expired_values_satisfy_no_condition() {
    each(|_, client| {
        script(
            client,
            &[
                ("CREATE TABLE t (k int PRIMARY KEY, v int, w int)", "ok"),
                ("INSERT INTO t (k, v, w) VALUES (1, 1, 1)", "ok"),
                ("INSERT INTO t (k, v, w) VALUES (2, 1, 1)", "ok"),
                ("INSERT INTO t (k, v, w) VALUES (3, 1, 1)", "ok"),
                ("DELETE v FROM t WHERE k = 1", "ok"),
                ("DELETE FROM t WHERE k = 2", "ok"),
                ("SELECT k FROM t WHERE v = 1 ALLOW FILTERING", "3"),
                ("INSERT INTO t (k, v) VALUES (3, 1) USING TTL 1", "ok"),
            ],
        );
        tare_testkit::database::until("the value expires", || {
            let text = "SELECT k FROM t WHERE v = 1 ALLOW FILTERING";
            client.query(text).rows.is_empty().then_some(())
        });
        let rows = client.query("SELECT k FROM t WHERE w = 1 ALLOW FILTERING").rows;
        assert_eq!(rows.len(), 2, "{rows:?}");
    });
}

#[test]
fn pages_of_a_filter_end_after_a_bounded_number_of_rows() {
    const ROWS: usize = 150_000;
    each(|_, client| {
        script(client, &[("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))", "ok")]);
        for first in (0..ROWS).step_by(5_000) {
            let mut batch = String::from("BEGIN UNLOGGED BATCH ");
            for c in first..first + 5_000 {
                batch += &format!("INSERT INTO t (k, c, v) VALUES (0, {c}, {});", c % 1_000);
            }
            assert_eq!(client.query(&format!("{batch} APPLY BATCH")).error, None);
        }
        for condition in ["k = 0 AND v = 7", "v = 7"] {
            let text = format!("SELECT c FROM t WHERE {condition} ALLOW FILTERING");
            let settings = Settings { page_size: Some(5_000), ..Settings::default() };
            let first = client.query_with(&text, &settings, &[]);
            assert!(first.state.is_some(), "the first page looks at a part of the rows");
            let all: Vec<String> =
                (0..ROWS).filter(|c| c % 1_000 == 7).map(|c| c.to_string()).collect();
            assert_eq!(client.pages(&text, 5_000), all);
            assert_eq!(client.pages(&text, 20), all);
            assert_eq!(client.query(&text).rows, all, "without pages");
            let text = format!(
                "SELECT c FROM t WHERE {condition} PER PARTITION LIMIT 100 ALLOW FILTERING"
            );
            assert_eq!(client.pages(&text, 30), all[..100]);
            let text = format!("SELECT c FROM t WHERE {condition} LIMIT 110 ALLOW FILTERING");
            assert_eq!(client.pages(&text, 30), all[..110]);
            let text = format!("SELECT count(*) FROM t WHERE {condition} ALLOW FILTERING");
            assert_eq!(client.pages(&text, 30), ["150"]);
            let none = format!("SELECT c FROM t WHERE {condition} AND c < 0 ALLOW FILTERING");
            assert_eq!(client.pages(&none, 30), Vec::<String>::new());
        }
    });
}

#[test]
fn static_columns_and_collections_with_filters_transactions_and_groups() {
    each(|_, client| {
        script(
            client,
            &[
                ("CREATE TABLE u (k int, c int, s int static, v int, PRIMARY KEY (k, c))", "ok"),
                ("INSERT INTO u (k, c, s, v) VALUES (1, 1, 7, 5)", "ok"),
                ("INSERT INTO u (k, c, v) VALUES (1, 2, 6)", "ok"),
                ("INSERT INTO u (k, s) VALUES (2, 7)", "ok"),
                (
                    "SELECT k, c, s, v FROM u WHERE s = 7 AND k = 1 ALLOW FILTERING",
                    "1 1 7 5; 1 2 7 6",
                ),
                ("SELECT c FROM u WHERE k = 1 AND v = 6 ALLOW FILTERING", "2"),
                ("SELECT k, c FROM u WHERE k = 2 AND s = 7 ALLOW FILTERING", "2 null"),
                ("SELECT k, c FROM u WHERE k = 2 AND v = 7 ALLOW FILTERING", ""),
                ("SELECT k, s, max(v) FROM u WHERE k = 1 GROUP BY k", "1 7 6"),
                ("UPDATE u SET v = 1 WHERE k = 1 AND c = 1 IF v = 5 AND s = 7", "true"),
                ("ALTER TABLE u DROP v", "ok"),
                ("SELECT * FROM u WHERE k = 1", "1 1 7; 1 2 7"),
                ("SELECT * FROM u WHERE k = 2", "2 null 7"),
                ("CREATE TABLE m (k int PRIMARY KEY, v int, m map<int, int>, l list<int>)", "ok"),
                ("INSERT INTO m (k, v, m, l) VALUES (1, 1, {1: 1}, [4, 5]) IF NOT EXISTS", "true"),
                ("INSERT INTO m (k, v) VALUES (1, 2) IF NOT EXISTS", "false 1 [4, 5] {1: 1} 1"),
                ("UPDATE m SET m = {2: 2}, l = l + [6] WHERE k = 1 IF v = 1", "true"),
                ("UPDATE m SET m[3] = 3 WHERE k = 1 IF v = 1", "true"),
                ("SELECT l, m FROM m WHERE k = 1", "[4, 5, 6] {2: 2, 3: 3}"),
                ("UPDATE m SET v = 2 WHERE k = 1 IF m = {1: 1}", "false {2: 2, 3: 3}"),
                (
                    "SELECT k FROM m WHERE m = {1: 1} ALLOW FILTERING",
                    "Invalid: Collection column 'm' (map<int, int>) cannot be restricted",
                ),
                ("ALTER TABLE m DROP m", "ok"),
                ("SELECT * FROM m", "1 [4, 5, 6] 1"),
            ],
        );
    });
}
