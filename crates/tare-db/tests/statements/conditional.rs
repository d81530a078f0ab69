//! Lightweight transactions.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tare_cql::request::{BatchStatement, Settings};
use tare_cql::wire::{Consistency, Value};

use crate::server::{Client, Server};
use crate::{KEYSPACE, each, script};

/// The names of the columns and the rows of an answer.
#[track_caller]
fn answers(client: &mut Client, text: &str, names: &[&str], rows: &[&str]) {
    let answer = client.query(text);
    assert_eq!(answer.error, None, "{text}");
    assert_eq!((answer.names, answer.rows), (owned(names), owned(rows)), "{text}");
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[test]
fn writes_are_applied_if_their_conditions_hold() {
    each(|_, client| {
        let create = "CREATE TABLE t (k int, c int, w text, v int, PRIMARY KEY (k, c))";
        script(client, &[(create, "ok")]);
        let all = ["[applied]", "k", "c", "v", "w"];
        let one = &all[..1];
        let insert = "INSERT INTO t (k, c, v) VALUES (1, 2, 3) IF NOT EXISTS";
        answers(client, insert, one, &["true"]);
        answers(client, insert, &all, &["false 1 2 3 null"]);
        let exists = "UPDATE t SET w = 'x' WHERE k = 1 AND c = 2 IF EXISTS";
        answers(client, exists, one, &["true"]);
        answers(client, "UPDATE t SET w = 'x' WHERE k = 1 AND c = 9 IF EXISTS", one, &["false"]);
        answers(client, "DELETE FROM t WHERE k = 1 AND c = 9 IF EXISTS", one, &["false"]);
        script(client, &[("SELECT * FROM t", "1 2 3 'x'")]);
    });
}

#[test]
fn conditions_compare_the_values_of_a_row() {
    each(|_, client| {
        let create = "CREATE TABLE t (k int, c int, w text, v int, PRIMARY KEY (k, c))";
        let insert = "INSERT INTO t (k, c, v, w) VALUES (1, 2, 3, 'x')";
        script(client, &[(create, "ok"), (insert, "ok")]);
        let update =
            |condition: &str| format!("UPDATE t SET v = 3 WHERE k = 1 AND c = 2 IF {condition}");
        for (condition, names, row) in [
            ("v = 3", "", "true"),
            ("v = 4", "v", "false 3"),
            ("v != 3", "v", "false 3"),
            ("v != 4", "", "true"),
            ("v != null", "", "true"),
            ("v = null", "v", "false 3"),
            ("v < 3", "v", "false 3"),
            ("v <= 3", "", "true"),
            ("v > 2 AND v < 4", "", "true"),
            ("v >= 4", "v", "false 3"),
            ("v IN (1, 3)", "", "true"),
            ("v IN (1, null)", "v", "false 3"),
            ("v IN ()", "v", "false 3"),
            // The columns come in the order of the conditions, each once.
            ("w = 'x' AND v = 4 AND w > 'a'", "w v", "false 'x' 3"),
            ("w = 'x' AND v = 3", "", "true"),
        ] {
            let names: Vec<&str> =
                ["[applied]"].into_iter().chain(names.split_whitespace()).collect();
            answers(client, &update(condition), &names, &[row]);
        }
        let prepared =
            client.prepare("UPDATE t SET v = ? WHERE k = ? AND c = ? IF v IN ? AND w != ?");
        assert_eq!(prepared.markers, ["v int", "k int", "c int", "in(v) list<int>", "w text"]);
        assert_eq!(prepared.key_markers, [1]);
        let int = |value: i32| value.to_be_bytes();
        let list = [0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 3];
        let (nine, k, c) = (int(9), int(1), int(2));
        let values =
            |w| [Value::Bytes(&nine), Value::Bytes(&k), Value::Bytes(&c), Value::Bytes(&list), w];
        let refused = client.execute(&prepared.id, &values(Value::Bytes(b"x")));
        assert_eq!(
            (refused.names, refused.rows),
            (owned(&["[applied]", "v", "w"]), owned(&["false 3 'x'"]))
        );
        let unset = client.execute(&prepared.id, &values(Value::Unset)).error.unwrap();
        assert_eq!(unset, "Invalid: Invalid 'unset' value in condition");
        assert_eq!(client.execute(&prepared.id, &values(Value::Null)).rows, ["true"]);
    });
}

#[test]
fn a_row_that_does_not_exist_has_no_values() {
    each(|_, client| {
        let create = "CREATE TABLE t (k int, c int, w text, v int, PRIMARY KEY (k, c))";
        script(client, &[(create, "ok")]);
        let one = &["[applied]"];
        let none =
            |condition: &str| format!("UPDATE t SET v = 5 WHERE k = 7 AND c = 7 IF {condition}");
        answers(client, &none("v = 1"), one, &["false"]);
        answers(client, &none("v > 1"), one, &["false"]);
        answers(client, &none("v != 1"), one, &["true"]);
        answers(client, "DELETE v FROM t WHERE k = 7 AND c = 7 IF v = 5", one, &["true"]);
        answers(client, &none("v = null AND w IN ('a', null)"), one, &["true"]);
        answers(
            client,
            "DELETE FROM t WHERE k = 7 AND c = 7 IF v = 4",
            &["[applied]", "v"],
            &["false 5"],
        );
        answers(
            client,
            "DELETE FROM t WHERE k = 7 AND c = 7 IF v = 5 AND w = null",
            one,
            &["true"],
        );
        answers(
            client,
            "INSERT INTO t (k, c) VALUES (7, 7) IF NOT EXISTS USING TTL 100",
            one,
            &["true"],
        );
        script(client, &[("SELECT k, c, v, w FROM t", "7 7 null null")]);
    });
}

#[test]
fn statements_that_cannot_have_conditions_are_refused() {
    each(|_, client| {
        let create = "CREATE TABLE t (k int, c int, w text, v int, PRIMARY KEY (k, c))";
        script(client, &[(create, "ok")]);
        script(
            client,
            &[
                (
                    "UPDATE t SET v = 1 WHERE k = 1 AND c = 2 IF v < null",
                    "Invalid: Invalid comparison with null for operator \"<\"",
                ),
                (
                    "UPDATE t SET v = 1 WHERE k = 1 AND c = 2 IF c = 1",
                    "Invalid: PRIMARY KEY column 'c' cannot have IF conditions",
                ),
                (
                    "UPDATE t SET v = 1 WHERE k = 1 AND c = 2 IF none = 1",
                    "Invalid: Undefined column name none",
                ),
                (
                    "INSERT INTO t (k, c) VALUES (1, 1) IF NOT EXISTS USING TIMESTAMP 5",
                    "Invalid: Cannot provide custom timestamp for conditional updates",
                ),
                (
                    "UPDATE t USING TIMESTAMP 5 SET v = 1 WHERE k = 1 AND c = 1 IF EXISTS",
                    "Invalid: Cannot provide custom timestamp for conditional updates",
                ),
                (
                    "UPDATE t SET v = 1 WHERE k IN (1, 2) AND c = 1 IF EXISTS",
                    "Invalid: IN on the partition key is not supported with conditional updates",
                ),
                (
                    "UPDATE t SET v = 1 WHERE k = 1 AND c IN (1, 2) IF EXISTS",
                    "Invalid: IN on the clustering key columns is not supported with conditional",
                ),
                (
                    "DELETE FROM t WHERE k = 1 IF EXISTS",
                    "Invalid: DELETE statements must restrict all PRIMARY KEY columns with equality relations",
                ),
                (
                    "DELETE FROM t WHERE k = 1 AND c > 1 IF v = 1",
                    "Invalid: DELETE statements must restrict all PRIMARY KEY columns with equality relations",
                ),
            ],
        );
    });
}

#[test]
fn consistency_levels_of_transactions_are_checked() {
    each(|_, client| {
        script(client, &[("CREATE TABLE t (k int PRIMARY KEY, v int)", "ok")]);
        let insert = "INSERT INTO t (k, v) VALUES (1, 1) IF NOT EXISTS";
        let mut with = |text: &str, consistency, serial_consistency| {
            let settings = Settings { consistency, serial_consistency, ..Settings::default() };
            let answer = client.query_with(text, &settings, &[]);
            answer.error.unwrap_or_else(|| answer.rows.join("; "))
        };
        let (quorum, serial) = (Consistency::Quorum, Consistency::Serial);
        let not_serial = with(insert, quorum, Some(quorum));
        assert!(
            not_serial.starts_with("Invalid: Invalid consistency for conditional update"),
            "{not_serial}"
        );
        let commit = with(insert, serial, None);
        assert!(
            commit.starts_with("Invalid: SERIAL is not supported as conditional update commit"),
            "{commit}"
        );
        assert_eq!(with(insert, quorum, Some(Consistency::LocalSerial)), "true");
        assert_eq!(with("SELECT v FROM t WHERE k = 1", serial, None), "1");
        assert_eq!(with("SELECT v FROM t WHERE k = 1", Consistency::LocalSerial, None), "1");
        let plain = with("INSERT INTO t (k, v) VALUES (1, 1)", serial, None);
        assert!(plain.starts_with("Invalid: You must use conditional updates"), "{plain}");
    });
}

#[test]
fn batches_are_applied_as_a_whole() {
    each(|_, client| {
        let create = "CREATE TABLE t (k int, c int, v int, w int, PRIMARY KEY (k, c))";
        script(client, &[(create, "ok"), ("CREATE TABLE u (k int PRIMARY KEY)", "ok")]);
        let one = &["[applied]"];
        let batch = |statements: &str| format!("BEGIN BATCH {statements} APPLY BATCH");
        let text = batch(
            "INSERT INTO t (k, c, v) VALUES (1, 1, 1) IF NOT EXISTS; \
             INSERT INTO t (k, c, v) VALUES (1, 2, 2) IF NOT EXISTS; \
             INSERT INTO t (k, c, v) VALUES (1, 3, 3);",
        );
        answers(client, &text, one, &["true"]);
        let all = ["[applied]", "k", "c", "v", "w"];
        answers(client, &text, &all, &["false 1 1 1 null", "false 1 2 2 null"]);
        // Rows come in the order of their keys; rows without conditions are not shown.
        let text = batch(
            "UPDATE t SET v = 8 WHERE k = 1 AND c = 3; \
             UPDATE t SET v = 9 WHERE k = 1 AND c = 2 IF v = 2; \
             UPDATE t SET v = 9 WHERE k = 1 AND c = 1 IF w = 7;",
        );
        answers(
            client,
            &text,
            &["[applied]", "k", "c", "v", "w"],
            &["false 1 1 1 null", "false 1 2 2 null"],
        );
        script(client, &[("SELECT c, v FROM t WHERE k = 1", "1 1; 2 2; 3 3")]);
        let text = batch(
            "UPDATE t SET v = 9 WHERE k = 1 AND c = 2 IF v = 2; \
             DELETE FROM t WHERE k = 1 AND c > 2; DELETE FROM t WHERE k = 1 AND c = 1 IF EXISTS",
        );
        answers(client, &text, one, &["true"]);
        script(
            client,
            &[
                ("SELECT c, v FROM t WHERE k = 1", "2 9"),
                (
                    &batch(
                        "UPDATE t SET v = 1 WHERE k = 1 AND c = 2 IF EXISTS; UPDATE t SET v = 1 WHERE k = 2 AND c = 2",
                    ),
                    "Invalid: Batch with conditions cannot span multiple partitions",
                ),
                (
                    &batch(
                        "UPDATE t SET v = 1 WHERE k = 1 AND c = 2 IF EXISTS; INSERT INTO u (k) VALUES (1)",
                    ),
                    "Invalid: Batch with conditions cannot span multiple tables",
                ),
                (
                    "BEGIN BATCH USING TIMESTAMP 5 UPDATE t SET v = 1 WHERE k = 1 AND c = 2 IF EXISTS APPLY BATCH",
                    "Invalid: Cannot provide custom timestamp for conditional BATCH",
                ),
                (
                    &batch(
                        "UPDATE t SET v = 1 WHERE k = 1 AND c = 2 IF EXISTS; UPDATE t USING TIMESTAMP 5 SET v = 1 WHERE k = 1 AND c = 3",
                    ),
                    "Invalid: Cannot provide custom timestamp for conditional BATCH",
                ),
            ],
        );
        let prepared = client.prepare("UPDATE t SET v = ? WHERE k = 1 AND c = ? IF v = ?");
        let [two, nine, ten] = [2_i32, 9, 10].map(i32::to_be_bytes);
        let values = |old| [Value::Bytes(&ten), Value::Bytes(&two), Value::Bytes(old)];
        let many = |rows: i32| {
            let update = |c| format!("UPDATE t SET w = 1 WHERE k = 5 AND c = {c} IF w = 7;");
            batch(&(0..rows).map(update).collect::<String>())
        };
        answers(client, &many(256), one, &["false"]);
        let refused = "Invalid: batches with conditions on more than 256 rows are not supported";
        script(client, &[(&many(257), refused)]);
        let insert = "INSERT INTO t (k, c) VALUES (1, 7)";
        let mut send = |old| {
            client.batch(&[
                (BatchStatement::Text(insert), &[]),
                (BatchStatement::Prepared(&prepared.id), &values(old)),
            ])
        };
        let refused = send(&two);
        assert_eq!(refused.names, ["[applied]", "k", "c", "v"]);
        assert_eq!(refused.rows, ["false 1 2 9"]);
        assert_eq!(send(&nine).rows, ["true"]);
        script(client, &[("SELECT c, v FROM t WHERE k = 1", "2 10; 7 null")]);
    });
}

#[test]
fn transactions_are_visible_after_writes_with_timestamps_in_the_future() {
    each(|_, client| {
        let future = 4_000_000_000_000_000_i64;
        script(
            client,
            &[
                ("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))", "ok"),
                (
                    &format!("INSERT INTO t (k, c, v) VALUES (1, 1, 1) USING TIMESTAMP {future}"),
                    "ok",
                ),
                ("UPDATE t SET v = 2 WHERE k = 1 AND c = 1 IF v = 1", "true"),
                ("SELECT v FROM t WHERE k = 1 AND c = 1", "2"),
                ("DELETE FROM t WHERE k = 1 AND c = 1 IF v = 2", "true"),
                ("SELECT v FROM t WHERE k = 1 AND c = 1", ""),
                ("INSERT INTO t (k, c, v) VALUES (1, 1, 3) IF NOT EXISTS", "true"),
                ("SELECT v FROM t WHERE k = 1 AND c = 1", "3"),
                (&format!("DELETE FROM t USING TIMESTAMP {} WHERE k = 1", 2 * future), "ok"),
                ("INSERT INTO t (k, c, v) VALUES (1, 1, 4) IF NOT EXISTS", "true"),
                ("SELECT v FROM t WHERE k = 1 AND c = 1", "4"),
            ],
        );
    });
}

#[test]
fn conditions_test_static_columns() {
    each(|_, client| {
        let create = "CREATE TABLE t (k int, c int, s int static, r int static, v int, \
                      PRIMARY KEY (k, c))";
        script(client, &[(create, "ok")]);
        let one = &["[applied]"];
        let of_s = &["[applied]", "s"];
        let all = &["[applied]", "k", "c", "r", "s", "v"];
        // A partition without rows.
        answers(client, "UPDATE t SET s = 1 WHERE k = 1 IF EXISTS", one, &["false"]);
        answers(client, "UPDATE t SET s = 1 WHERE k = 1 IF s = 5", one, &["false"]);
        answers(client, "UPDATE t SET s = 1 WHERE k = 1 IF s = null", one, &["true"]);
        answers(client, "UPDATE t SET s = 2 WHERE k = 1 IF s > 1", of_s, &["false 1"]);
        answers(client, "UPDATE t SET s = 2 WHERE k = 1 IF EXISTS", one, &["true"]);
        let insert = "INSERT INTO t (k, s) VALUES (1, 9) IF NOT EXISTS";
        answers(client, insert, all, &["false 1 null null 2 null"]);
        // Rows with conditions on static columns, on their own, and on both.
        let row = "INSERT INTO t (k, c, v) VALUES (1, 1, 10) IF NOT EXISTS";
        answers(client, row, one, &["true"]);
        answers(client, row, all, &["false 1 1 null null 10"]);
        answers(client, insert, all, &["false 1 1 null 2 null"]);
        let update =
            |condition: &str| format!("UPDATE t SET v = 11 WHERE k = 1 AND c = 1 IF {condition}");
        answers(client, &update("s = 3"), of_s, &["false 2"]);
        answers(client, &update("s = 2"), one, &["true"]);
        answers(client, &update("s = 2 AND v = 0"), &["[applied]", "s", "v"], &["false 2 11"]);
        answers(client, &update("v = 11 AND s IN (1, 2)"), one, &["true"]);
        let missing = "UPDATE t SET v = 1 WHERE k = 1 AND c = 7 IF s = 3 AND v = 1";
        answers(client, missing, &["[applied]", "s", "v"], &["false 2 null"]);
        let both = "UPDATE t SET s = 4, v = 12 WHERE k = 1 AND c = 1 IF v = 11";
        answers(client, both, one, &["true"]);
        // Conditions on a row, for a write of static columns.
        let of_row = "UPDATE t SET s = 5 WHERE k = 1 AND c = 1 IF v = 12";
        answers(client, of_row, one, &["true"]);
        answers(
            client,
            "DELETE r FROM t WHERE k = 1 AND c = 1 IF v = 0",
            &["[applied]", "v"],
            &["false 12"],
        );
        script(client, &[("SELECT s, v FROM t", "5 12")]);
        answers(
            client,
            "INSERT INTO t (k, c, s) VALUES (1, 1, 3) IF NOT EXISTS",
            all,
            &["false 1 1 null 5 12"],
        );
        let batch = |conditions: [&str; 2]| {
            format!(
                "BEGIN BATCH UPDATE t SET s = 6 WHERE k = 1 IF s = {}; \
                 INSERT INTO t (k, c, v) VALUES (1, 2, 20); \
                 UPDATE t SET v = 13 WHERE k = 1 AND c = 1 IF v = {}; APPLY BATCH",
                conditions[0], conditions[1]
            )
        };
        answers(
            client,
            &batch(["5", "0"]),
            &["[applied]", "k", "c", "s", "v"],
            &["false 1 1 5 12"],
        );
        answers(client, &batch(["5", "12"]), one, &["true"]);
        script(client, &[("SELECT c, s, v FROM t", "1 6 13; 2 6 20")]);
        // The deletion of a partition.
        answers(client, "DELETE FROM t WHERE k = 1 IF s = 5", of_s, &["false 6"]);
        answers(client, "DELETE s FROM t WHERE k = 1 IF s = 6", one, &["true"]);
        answers(client, "DELETE FROM t WHERE k = 1 IF s = null", one, &["true"]);
        script(
            client,
            &[
                ("SELECT * FROM t", ""),
                (
                    "UPDATE t SET s = 1 WHERE k = 1 AND c = 1 IF s = 1",
                    "Invalid: Invalid restrictions on clustering columns since",
                ),
                (
                    "DELETE s FROM t WHERE k = 1 IF v = 1 AND s = 1",
                    "Invalid: DELETE statements must restrict all PRIMARY KEY columns",
                ),
                (
                    "UPDATE t SET s = 1 WHERE k = 1 IF v = 1",
                    "Invalid: Some clustering keys are missing: c",
                ),
                (
                    "DELETE FROM t WHERE k = 1 AND c = 1 IF s = 1",
                    "Invalid: Invalid restrictions on clustering columns since",
                ),
                (
                    "DELETE FROM t WHERE k = 1 IF s = 1 AND v = 1",
                    "Invalid: DELETE statements must restrict all PRIMARY KEY columns",
                ),
            ],
        );
    });
}

/// Makes a table with a row of collections.
fn make_collections(client: &mut Client) {
    let create = "CREATE TABLE t (k int PRIMARY KEY, m map<text, int>, l list<int>, s set<int>, \
                  fm frozen<map<text, int>>, fl frozen<list<int>>, v int)";
    let insert = "INSERT INTO t (k, m, l, s, fm, fl) \
                  VALUES (1, {'b': 2, 'a': 1}, [1, 2], {2, 1}, {'x': 9}, [7, 8])";
    script(client, &[(create, "ok"), (insert, "ok")]);
}

#[test]
fn conditions_test_collections_and_their_elements() {
    each(|_, client| {
        make_collections(client);
        let shown = [
            ("m", "{'a': 1, 'b': 2}"),
            ("l", "[1, 2]"),
            ("s", "{1, 2}"),
            ("fm", "{'x': 9}"),
            ("fl", "[7, 8]"),
        ];
        for (condition, holds) in [
            ("m['a'] = 1", true),
            ("m['a'] = 2", false),
            ("m['a'] != 2", true),
            ("m['a'] IN (5, 1)", true),
            ("m['a'] > 0 AND m['b'] < 3", true),
            ("m['none'] = null", true),
            ("m['none'] != 1", true),
            ("m['none'] < 1", false),
            ("m = {'a': 1, 'b': 2}", true),
            ("m = {'a': 1}", false),
            ("m > {'a': 1}", true),
            ("m != null", true),
            ("m IN ({}, {'b': 2, 'a': 1})", true),
            ("l[0] = 1", true),
            ("l[1] = 1", false),
            ("l[5] = null", true),
            ("l[1] IN (1, null, 2)", true),
            ("l = [1, 2]", true),
            ("l < [1, 3]", true),
            ("l >= [1, 2, 0]", false),
            ("l = []", false),
            ("l != []", true),
            ("s = {2, 1}", true),
            ("s = null", false),
            ("s > {1}", true),
            ("s IN ({1}, {2})", false),
            ("fm['x'] = 9", true),
            ("fm['y'] = 9", false),
            ("fl[1] >= 8", true),
            ("fl[2] = null", true),
            ("fl = [7, 8]", true),
        ] {
            let text = format!("UPDATE t SET v = 1 WHERE k = 1 IF {condition}");
            if holds {
                answers(client, &text, &["[applied]"], &["true"]);
                continue;
            }
            let name = condition.split(|c: char| !c.is_alphabetic()).next().unwrap();
            let (_, value) = shown.iter().find(|(known, _)| *known == name).unwrap();
            answers(client, &text, &["[applied]", name], &[&format!("false {value}")]);
        }
        // A collection without elements is null.
        let none = |condition: &str| format!("UPDATE t SET v = 1 WHERE k = 2 IF {condition}");
        for condition in ["m = {}", "l = null", "s IN (null)", "m['a'] = null", "l[0] = null"] {
            answers(client, &none(condition), &["[applied]"], &["true"]);
        }
        answers(client, &none("m != {}"), &["[applied]", "m"], &["false null"]);
        script(
            client,
            &[
                (&none("s[1] = 1"), "Invalid: Invalid element access syntax for set column s"),
                (
                    &none("v[1] = 1"),
                    "Invalid: Invalid element access syntax for non-collection column v",
                ),
                (&none("l[-1] = 1"), "Invalid: Invalid negative list index -1"),
                (&none("l[null] = 1"), "Invalid: Invalid null value for list element access"),
                (&none("m[null] = 1"), "Invalid: Invalid null value for map element access"),
                (&none("m < null"), "Invalid: Invalid comparison with null for operator \"<\""),
                (&none("s CONTAINS 1"), "Invalid: conditions with CONTAINS are not supported"),
            ],
        );
    });
}

#[test]
fn conditions_on_collections_can_be_bound() {
    each(|_, client| {
        make_collections(client);
        let prepared = client.prepare(
            "UPDATE t SET v = 1 WHERE k = 1 IF m[?] = ? AND l[?] IN ? AND s = ? AND l IN ?",
        );
        let markers = [
            "key(m) text",
            "value(m) int",
            "idx(l) int",
            "in(value(l)) list<int>",
            "s set<int>",
            "in(l) list<list<int>>",
        ];
        assert_eq!(prepared.markers, markers);
        let int = |value: i32| value.to_be_bytes();
        let list = |items: &[&[u8]]| {
            let mut out = i32::try_from(items.len()).unwrap().to_be_bytes().to_vec();
            for item in items {
                out.extend_from_slice(&i32::try_from(item.len()).unwrap().to_be_bytes());
                out.extend_from_slice(item);
            }
            out
        };
        let (one, two) = (int(1), int(2));
        // Sets come in any order.
        let (in_list, set) = (list(&[&two, &one]), list(&[&two, &one]));
        let lists = list(&[&list(&[&one, &two])]);
        let mut run = |element: &[u8]| {
            let values = [b"b", &two[..], element, &in_list, &set, &lists].map(Value::Bytes);
            client.execute(&prepared.id, &values)
        };
        assert_eq!(run(&int(1)).rows, ["true"]);
        let refused = run(&int(5));
        assert_eq!(refused.names, ["[applied]", "m", "l", "s"]);
        assert_eq!(refused.rows, ["false {'a': 1, 'b': 2} [1, 2] {1, 2}"]);
    });
}

const CLIENTS: usize = 8;
const COUNTERS: usize = 24;
/// Increments of each counter by each client, in one life of the server.
const INCREMENTS: usize = 3;
const LIVES: usize = 3;

/// Increments every counter by comparing and setting, in an order of the client's own.
fn increment(client: &mut Client, number: usize, life: usize) {
    for round in 0..INCREMENTS {
        for step in 0..COUNTERS {
            let k = (step * 5 + number * 7 + round) % COUNTERS;
            let own = format!("{life}-{number}-{round}");
            let mut seen =
                client.query(&format!("SELECT v FROM counts WHERE k = {k}")).rows[0].clone();
            loop {
                let next = seen.parse::<usize>().unwrap() + 1;
                let text = format!(
                    "UPDATE counts SET v = {next}, winner = '{own}' WHERE k = {k} IF v = {seen}"
                );
                let answer = client.query(&text);
                assert_eq!(answer.error, None, "{text}");
                if answer.rows == ["true"] {
                    break;
                }
                let now = answer.rows[0].strip_prefix("false ").unwrap().to_owned();
                assert_ne!(now, seen, "refused although the value is the expected one");
                seen = now;
            }
        }
    }
}

/// Many clients race on few rows. Meanwhile others write so much that memtables become tables, and
/// between two lives of the server all rows go to disk.
fn race(data: &Path, shards: usize, durability: &str) {
    let winners: Arc<Vec<AtomicUsize>> =
        Arc::new((0..LIVES * COUNTERS).map(|_| AtomicUsize::new(0)).collect());
    // The least that the shards start with.
    let memory = format!("memory={}", shards * (32 << 20));
    for life in 0..LIVES {
        let server = Server::start_with(data, shards, durability, &[&memory]);
        let mut client = server.connect();
        if life == 0 {
            assert_eq!(client.query(KEYSPACE).error, None);
            for table in [
                "counts (k int PRIMARY KEY, v int, winner text)",
                "once (k int PRIMARY KEY, winner int)",
                "filler (k int PRIMARY KEY, b blob)",
            ] {
                assert_eq!(client.query(&format!("CREATE TABLE ks.{table}")).error, None);
            }
            for k in 0..COUNTERS {
                client.query(&format!("INSERT INTO ks.counts (k, v) VALUES ({k}, 0)"));
            }
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let filler = scope.spawn(|| {
                let (mut client, blob) = (server.connect(), "ab".repeat(8 << 10));
                for k in 0.. {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    let answer = client.query(&format!(
                        "INSERT INTO ks.filler (k, b) VALUES ({}, 0x{blob})",
                        k % 4_000
                    ));
                    assert_eq!(answer.error, None);
                }
            });
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (server, winners) = (&server, Arc::clone(&winners));
                    scope.spawn(move || {
                        let mut client = server.connect();
                        client.query("USE ks");
                        for at in 0..COUNTERS {
                            let k = life * COUNTERS + at;
                            let text = format!(
                                "INSERT INTO once (k, winner) VALUES ({k}, {number}) IF NOT EXISTS"
                            );
                            match client.query(&text).rows[0].as_str() {
                                "true" => {
                                    winners[k].fetch_add(1, Ordering::Relaxed);
                                }
                                refused => assert!(
                                    refused.starts_with(&format!("false {k} ")),
                                    "{refused}"
                                ),
                            }
                        }
                        increment(&mut client, number, life);
                    })
                })
                .collect();
            let results: Vec<_> =
                clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            done.store(true, Ordering::Relaxed);
            filler.join().unwrap();
            assert!(results.iter().all(Result::is_ok));
        });
        let expect = ((life + 1) * CLIENTS * INCREMENTS).to_string();
        for k in 0..COUNTERS {
            let text = format!("SELECT v FROM ks.counts WHERE k = {k}");
            assert_eq!(client.query(&text).rows, [&*expect], "counter {k} in life {life}");
        }
        server.stop();
    }
    let wins: Vec<usize> = winners.iter().map(|wins| wins.load(Ordering::Relaxed)).collect();
    assert!(wins.iter().all(|wins| *wins == 1), "each key is inserted once: {wins:?}");
}

#[test]
fn exactly_one_of_racing_transactions_wins() {
    for shards in [1, 3] {
        for durability in ["100", "sync"] {
            race(tempfile::tempdir().unwrap().path(), shards, durability);
        }
    }
}
