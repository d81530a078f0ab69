use super::*;
use crate::types::Duration;
use crate::types::Type;
use proptest::prelude::*;

#[track_caller]
fn parsed(text: &str) -> Parsed {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn table(name: &str) -> TableName {
    match name.split_once('.') {
        Some((keyspace, table)) => {
            TableName { keyspace: Some(keyspace.to_owned()), table: table.to_owned() }
        }
        None => TableName { keyspace: None, table: name.to_owned() },
    }
}

#[test]
fn create_keyspace() {
    let Statement::CreateKeyspace(create) = parsed(
        "CREATE KEYSPACE IF NOT EXISTS Ks WITH REPLICATION = {'class': 'SimpleStrategy', \
         'replication_factor': 1} AND durable_writes = true;",
    )
    .statement
    else {
        panic!("no CREATE KEYSPACE")
    };
    assert_eq!(create.keyspace, "ks");
    assert!(create.if_not_exists);
    assert_eq!(
        create.options,
        [
            (
                "replication".to_owned(),
                Literal::Map(vec![
                    (Literal::Text("class".into()), Literal::Text("SimpleStrategy".into())),
                    (Literal::Text("replication_factor".into()), Literal::Integer(1)),
                ])
            ),
            ("durable_writes".to_owned(), Literal::Boolean(true)),
        ]
    );
}

#[test]
fn create_table() {
    let Statement::CreateTable(create) = parsed(
        r#"create table ks."T" (a int, "B" text, c blob, d frozen<map<text, list<int>>>,
           primary key ((a, "B"), c)) with clustering order by (c desc) and comment = 'it''s'"#,
    )
    .statement
    else {
        panic!("no CREATE TABLE")
    };
    assert_eq!(create.table, table("ks.T"));
    assert_eq!(create.partition_key, ["a", "B"]);
    assert_eq!(create.clustering, [("c".to_owned(), Order::Descending)]);
    assert_eq!(create.columns[3].1.to_string(), "frozen<map<text, list<int>>>");
    assert_eq!(create.options, [("comment".to_owned(), Literal::Text("it's".into()))]);

    let Statement::CreateTable(create) =
        parsed("CREATE TABLE t (key blob PRIMARY KEY,\n, \"C0\" blob,) WITH compression = {}")
            .statement
    else {
        panic!("no CREATE TABLE")
    };
    assert_eq!(create.partition_key, ["key"]);
    assert_eq!(create.options, [("compression".to_owned(), Literal::Map(Vec::new()))]);
}

fn modify(text: &str) -> Modify {
    match parsed(text).statement {
        Statement::Modify(modify) => modify,
        other => panic!("{text}: {other:?}"),
    }
}

fn integer(value: i128) -> Term {
    Term::Literal(Literal::Integer(value))
}

fn column(name: &str) -> Subject {
    Subject::Column(name.into())
}

#[test]
fn insert_and_its_markers() {
    let text =
        "INSERT INTO ks.t (k, a, b, c) VALUES (?, :A, 0xCAFE, -1.5e3) USING TTL ? AND TIMESTAMP 7";
    assert_eq!(parsed(text).markers, [None, Some("a".to_owned()), None]);
    let Modify::Insert(insert) = modify(text) else { panic!("no INSERT") };
    assert_eq!(insert.values[1], Term::Marker(1));
    assert_eq!(insert.values[2], Term::Literal(Literal::Blob(vec![0xca, 0xfe])));
    assert_eq!(insert.values[3], Term::Literal(Literal::Float("-1.5e3".into())));
    assert_eq!(insert.using.ttl_s, Some(Term::Marker(2)));
    assert_eq!(insert.using.timestamp_us, Some(integer(7)));
}

#[test]
fn update_delete_and_batch() {
    let Modify::Update(update) = modify(
        "UPDATE t USING TIMESTAMP ? AND TTL 5 SET a = ?, b = now() WHERE k = 1 AND (c, d) = (1, ?)",
    ) else {
        panic!("no UPDATE")
    };
    let set = |column: &str, value| Assignment {
        column: column.into(),
        change: ColumnChange::Set(value),
    };
    assert_eq!(update.assignments[0], set("a", Term::Marker(1)));
    assert_eq!(update.assignments[1], set("b", Term::Call(Function::Now, Vec::new())));
    assert_eq!(update.relations[1].subject, Subject::Columns(vec!["c".into(), "d".into()]));
    assert_eq!(update.using.timestamp_us, Some(Term::Marker(0)));

    let Modify::Delete(delete) = modify("DELETE a, b FROM t USING TIMESTAMP 3 WHERE k IN (1, 2)")
    else {
        panic!("no DELETE")
    };
    let whole = |name: &str| Deletion { column: name.into(), element: None };
    assert_eq!(delete.columns, ["a", "b"].map(whole));
    assert_eq!(delete.relations[0].test, Test::In(vec![integer(1), integer(2)]));
    let Modify::Delete(delete) = modify("DELETE FROM t WHERE k = 1 AND c >= ? AND c < 5") else {
        panic!("no DELETE")
    };
    assert!(delete.columns.is_empty());
    let test = Test::Compare(Comparison::GreaterOrEqual, Term::Marker(0));
    assert_eq!(delete.relations[1], Relation { subject: column("c"), test });

    let parsed = parsed(
        "BEGIN UNLOGGED BATCH USING TIMESTAMP ? INSERT INTO t (k) VALUES (?); \
         UPDATE t SET a = 1 WHERE k = ? DELETE FROM t WHERE k = 2; APPLY BATCH;",
    );
    assert_eq!(parsed.markers.len(), 3);
    let Statement::Batch(batch) = parsed.statement else { panic!("no batch") };
    assert_eq!(batch.statements.len(), 3);
    assert_eq!(batch.timestamp_us, Some(Term::Marker(0)));
    assert_eq!(batch.kind, BatchKind::Unlogged);
    for (text, kind) in [
        ("BEGIN BATCH APPLY BATCH", BatchKind::Logged),
        ("BEGIN LOGGED BATCH APPLY BATCH", BatchKind::Logged),
        ("BEGIN COUNTER BATCH APPLY BATCH", BatchKind::Counter),
    ] {
        let Statement::Batch(batch) = self::parsed(text).statement else { panic!("no batch") };
        assert_eq!(batch.kind, kind, "{text}");
    }
}

#[test]
fn changes_of_collections() {
    let set = |text: &str| {
        let Modify::Update(update) = modify(&format!("UPDATE t SET {text} WHERE k = 1")) else {
            panic!("no UPDATE")
        };
        let [Assignment { column, change }] = &update.assignments[..] else { panic!("{text}") };
        assert_eq!(column, "c");
        change.clone()
    };
    let list = || Term::Literal(Literal::List(vec![Literal::Integer(1)]));
    assert_eq!(set("c = c + [1]"), ColumnChange::Add(list()));
    assert_eq!(set("\"c\" += ?"), ColumnChange::Add(Term::Marker(0)));
    assert_eq!(set("c = [1] + c"), ColumnChange::Prepend(list()));
    assert_eq!(set("c = c - [1]"), ColumnChange::Remove(list()));
    assert_eq!(set("c -= :gone"), ColumnChange::Remove(Term::Marker(0)));
    assert_eq!(set("c = c -1"), ColumnChange::Add(integer(-1)));
    assert_eq!(set("c = c -?"), ColumnChange::Remove(Term::Marker(0)));
    assert_eq!(set("c = -1"), ColumnChange::Set(integer(-1)));
    let change = ColumnChange::SetElement { key: Term::Marker(0), value: integer(2) };
    assert_eq!(set("c[?] = 2"), change);
    let Modify::Delete(delete) = modify("DELETE a, c[?] FROM t WHERE k = 1") else {
        panic!("no DELETE")
    };
    assert_eq!(delete.columns[0].element, None);
    assert_eq!(delete.columns[1].element, Some(Term::Marker(0)));
}

#[test]
fn types_are_parsed_as_they_are_printed() {
    for name in ["int", "list<text>", "frozen<set<int>>", "map<int, frozen<list<set<blob>>>>"] {
        assert_eq!(parse_type(name).unwrap().to_string(), name);
    }
    for wrong in ["", "list", "list<int", "int int", "nothing", "'a.Class'"] {
        assert!(parse_type(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn select_forms() {
    for (text, markers) in [
        ("SELECT * FROM system.local WHERE key='local'", 0),
        ("select cluster_name from system.local", 0),
        ("SELECT a, b AS bee FROM t WHERE k = ? AND c >= ? LIMIT ?", 3),
        ("SELECT a FROM t WHERE k IN ? ALLOW FILTERING", 1),
        ("SELECT a FROM t WHERE k IN (?, 1, :x)", 2),
        ("SELECT a FROM t WHERE (c, d) > (?, 2) AND (c, d) <= ?", 2),
        ("SELECT a FROM t WHERE (c, d) IN ((?, 2), ?)", 2),
        ("SELECT a FROM t WHERE (c, d) IN ?", 1),
        ("SELECT a FROM t WHERE token(k, l) > ? AND token(k, l) <= token(1, ?)", 2),
        ("SELECT a FROM t WHERE k = 1 ORDER BY c DESC PER PARTITION LIMIT ? LIMIT ?", 2),
        ("SELECT count(*) FROM t", 0),
        ("SELECT COUNT(1) AS n FROM t ORDER BY c DESC, d LIMIT 10", 0),
        ("SELECT count(a) FROM t", 0),
        (
            "SELECT writetime(a), TTL(a) AS t, token(k, l), system.now(), toDate(toTimestamp(u)) FROM t",
            0,
        ),
        ("SELECT DISTINCT k FROM t -- comment", 0),
        ("SELECT distinct FROM t /* twice */ // here", 0),
        ("SELECT json, key, type, ttl, token_, count, writetime FROM t BYPASS CACHE", 0),
        ("SELECT k FROM t WHERE k = ? USING TIMEOUT 30000ms", 1),
        ("SELECT k FROM t WHERE u = 123e4567-e89b-12d3-a456-426614174000 AND s = $$it's$$", 0),
    ] {
        let select = parsed(text);
        assert_eq!(select.markers.len(), markers, "{text}");
    }
    let Statement::Select(select) = parsed(
        "SELECT a, count(*), count(b), writetime(a), token(k, l), toDate(toTimestamp(u)) FROM t",
    )
    .statement
    else {
        panic!("no SELECT")
    };
    let Selection::Items(items) = select.selection else { panic!("no items") };
    let names: Vec<_> = items.iter().map(|selector| selector.item.to_string()).collect();
    let expect = [
        "a",
        "count",
        "system.count(b)",
        "writetime(a)",
        "system.token(k, l)",
        "system.todate(system.totimestamp(u))",
    ];
    assert_eq!(names, expect);
}

#[test]
fn literals_keep_their_spelling() {
    for (text, literal) in [
        (
            "1h30m",
            Literal::Duration(Duration { nanoseconds: 5_400_000_000_000, ..Default::default() }),
        ),
        (
            "P1Y2DT3S",
            Literal::Duration(Duration { months: 12, days: 2, nanoseconds: 3_000_000_000 }),
        ),
        (
            "-P0000-00-01T00:00:02",
            Literal::Duration(Duration { months: 0, days: -1, nanoseconds: -2_000_000_000 }),
        ),
        ("-2w", Literal::Duration(Duration { days: -14, ..Default::default() })),
        ("1.10", Literal::Float("1.10".into())),
        ("-NaN", Literal::Float("NaN".into())),
        ("-Infinity", Literal::Float("-Infinity".into())),
        ("3e7", Literal::Float("3e7".into())),
    ] {
        let Modify::Insert(insert) = modify(&format!("INSERT INTO t (a) VALUES ({text})")) else {
            panic!("no INSERT")
        };
        assert_eq!(insert.values, [Term::Literal(literal)], "{text}");
    }
    let huge = "9".repeat(50);
    let Modify::Insert(insert) = modify(&format!("INSERT INTO t (a) VALUES ({huge})")) else {
        panic!("no INSERT")
    };
    assert_eq!(insert.values, [Term::Literal(Literal::BigInteger(huge))]);
}

#[test]
fn alter_and_describe() {
    for (text, statement) in [
        (
            "ALTER KEYSPACE IF EXISTS ks WITH durable_writes = false",
            Statement::AlterKeyspace(AlterKeyspace {
                keyspace: "ks".into(),
                if_exists: true,
                options: vec![("durable_writes".into(), Literal::Boolean(false))],
            }),
        ),
        (
            "ALTER TABLE ks.t ADD a int, b text",
            Statement::AlterTable(AlterTable {
                table: table("ks.t"),
                if_exists: false,
                change: TableChange::Add {
                    columns: vec![("a".into(), Type::Int), ("b".into(), Type::Text)],
                    statics: Vec::new(),
                    if_not_exists: false,
                },
            }),
        ),
        (
            "ALTER TABLE t ADD IF NOT EXISTS (a int static)",
            Statement::AlterTable(AlterTable {
                table: table("t"),
                if_exists: false,
                change: TableChange::Add {
                    columns: vec![("a".into(), Type::Int)],
                    statics: vec!["a".into()],
                    if_not_exists: true,
                },
            }),
        ),
        (
            "ALTER TABLE t WITH gc_grace_seconds = 5 AND comment = 'c'",
            Statement::AlterTable(AlterTable {
                table: table("t"),
                if_exists: false,
                change: TableChange::Options(vec![
                    ("gc_grace_seconds".into(), Literal::Integer(5)),
                    ("comment".into(), Literal::Text("c".into())),
                ]),
            }),
        ),
    ] {
        assert_eq!(parsed(text).statement, statement, "{text}");
    }
    let keyspace =
        |name: Option<&str>, only| DescribeTarget::Keyspace { name: name.map(str::to_owned), only };
    for (text, target, internals) in [
        ("DESCRIBE CLUSTER", DescribeTarget::Cluster, false),
        ("desc schema with internals", DescribeTarget::Schema { full: false }, true),
        ("DESC FULL SCHEMA", DescribeTarget::Schema { full: true }, false),
        ("DESCRIBE KEYSPACES", DescribeTarget::Keyspaces, false),
        ("DESCRIBE TABLES;", DescribeTarget::Tables, false),
        ("DESCRIBE TYPES", DescribeTarget::Nothing, false),
        ("DESCRIBE KEYSPACE", keyspace(None, false), false),
        ("DESCRIBE ONLY KEYSPACE \"Ks\"", keyspace(Some("Ks"), true), false),
        ("DESCRIBE TABLE ks.t", DescribeTarget::Table(table("ks.t")), false),
        (
            "DESCRIBE INDEX ks.i",
            DescribeTarget::Other { kind: "index", name: table("ks.i") },
            false,
        ),
        ("DESCRIBE ks", DescribeTarget::Any(table("ks")), false),
        ("DESCRIBE ks.t WITH INTERNALS", DescribeTarget::Any(table("ks.t")), true),
    ] {
        assert_eq!(
            parsed(text).statement,
            Statement::Describe(Describe { target, internals }),
            "{text}"
        );
    }
}

#[test]
fn other_statements() {
    for (text, statement) in [
        ("USE Ks", Statement::Use { keyspace: "ks".into() }),
        ("use \"Ks\";", Statement::Use { keyspace: "Ks".into() }),
        ("TRUNCATE t", Statement::Truncate { table: table("t") }),
        ("TRUNCATE TABLE ks.t", Statement::Truncate { table: table("ks.t") }),
        (
            "DROP KEYSPACE IF EXISTS ks",
            Statement::DropKeyspace { keyspace: "ks".into(), if_exists: true },
        ),
        ("DROP TABLE ks.t", Statement::DropTable { table: table("ks.t"), if_exists: false }),
    ] {
        assert_eq!(parsed(text).statement, statement, "{text}");
    }
}

#[test]
fn errors_name_the_position_or_the_feature() {
    for (text, message) in [
        ("", "line 1:0 no viable alternative at input '<EOF>'"),
        ("FOO bar", "line 1:0 no viable alternative at input 'FOO'"),
        ("SELECT * FORM t", "line 1:9 mismatched input 'FORM' expecting from"),
        ("SELECT *\nFROM t WHERE", "line 2:12 no viable alternative at input '<EOF>'"),
        ("SELECT a FROM t WHERE k = 'ä", "line 1:26 string literal has no end"),
        ("SELECT ä FROM t", "line 1:7 no viable alternative at character 'ä'"),
        ("USE ks x", "line 1:7 extraneous input 'x' expecting EOF"),
        ("USE select", "line 1:4 no viable alternative at input 'select'"),
        ("CREATE TABLE t (a int)", "line 1:22 mismatched input '<EOF>' expecting PRIMARY KEY"),
        ("INSERT INTO t (a) VALUES (0xABC)", "line 1:26 no viable alternative at input '0xABC'"),
        ("BEGIN BATCH", "line 1:11 no viable alternative at input '<EOF>'"),
        ("UPDATE t SET a = 1", "line 1:18 mismatched input '<EOF>' expecting where"),
        ("UPDATE t SET c = c + 1 + 2 WHERE k = 1", "arithmetic operators are not supported"),
        ("UPDATE t SET c = 1 + d WHERE k = 1", "arithmetic operators are not supported"),
        ("UPDATE t SET c.f = 2 WHERE k = 1", "assignments to fields of a column are not supported"),
        ("DELETE c.f FROM t WHERE k = 1", "deletions of fields of a column are not supported"),
        ("UPDATE t SET c[1 = 2 WHERE k = 1", "line 1:17 mismatched input '=' expecting ]"),
        (
            "UPDATE t SET c = 1 WHERE k = 1 IF c.f = 1",
            "conditions on fields of a column are not supported",
        ),
        (
            "UPDATE t SET c = 1 WHERE k = 1 IF c CONTAINS 1",
            "conditions with CONTAINS are not supported",
        ),
        (
            "INSERT INTO t (a) VALUES (1) IF EXISTS",
            "line 1:32 mismatched input 'EXISTS' expecting not",
        ),
        ("DELETE FROM t WHERE k = 1 IF c", "line 1:30 no viable alternative at input '<EOF>'"),
        (
            "ALTER TABLE t DROP a USING TIMESTAMP 5",
            "USING clauses of ALTER TABLE DROP are not supported",
        ),
        ("ALTER TABLE t DROP COMPACT STORAGE", "tables with compact storage are not supported"),
        ("SELECT JSON * FROM t", "SELECT JSON statements are not supported"),
        ("SELECT CAST(a AS text) FROM t", "casts are not supported"),
        ("SELECT max(now()) FROM t", "aggregates of calls are not supported"),
        ("SELECT a FROM t GROUP a", "line 1:22 mismatched input 'a' expecting by"),
        ("CREATE MATERIALIZED VIEW v AS SELECT", "materialized views are not supported"),
        ("CREATE INDEX ON t (a)", "indexes are not supported"),
        ("INSERT INTO t (a) VALUES (f())", "calls of f() are not supported"),
        ("INSERT INTO t (a) VALUES ([?])", "bind markers within collections are not supported"),
        ("SELECT * FROM t WHERE k CONTAINS 1", "relations with CONTAINS are not supported"),
        ("INSERT INTO t (a) VALUES (1h30x)", "line 1:26 no viable alternative at input '1h30x'"),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn conditions_of_lightweight_transactions() {
    let condition = |text: &str| match modify(text) {
        Modify::Insert(insert) => insert.condition,
        Modify::Update(update) => update.condition,
        Modify::Delete(delete) => delete.condition,
    };
    let insert = "INSERT INTO t (a) VALUES (1)";
    assert_eq!(condition(insert), None);
    let not_exists = Some(Condition::NotExists);
    assert_eq!(condition(&format!("{insert} IF NOT EXISTS")), not_exists);
    assert_eq!(condition(&format!("{insert} IF NOT EXISTS USING TTL 5")), not_exists);
    assert_eq!(condition("DELETE FROM t WHERE k = 1 IF EXISTS"), Some(Condition::Exists));
    let compared = |comparison, term| ColumnTest::Is(Test::Compare(comparison, term));
    let column =
        |column: &str, test| ColumnCondition { column: column.into(), element: None, test };
    assert_eq!(
        condition("DELETE FROM t WHERE k = 1 IF m[?] IN (1) AND l[0] != 2"),
        Some(Condition::Columns(vec![
            ColumnCondition {
                element: Some(Term::Marker(0)),
                ..column("m", ColumnTest::Is(Test::In(vec![integer(1)])))
            },
            ColumnCondition {
                element: Some(integer(0)),
                ..column("l", ColumnTest::IsNot(integer(2)))
            },
        ]))
    );
    assert_eq!(
        condition(
            "UPDATE t SET a = 1 WHERE k = 1 IF b = ? AND b != 2 AND \"C\" >= 3 AND d IN (4) AND e IN ?"
        ),
        Some(Condition::Columns(vec![
            column("b", compared(Comparison::Equal, Term::Marker(0))),
            column("b", ColumnTest::IsNot(integer(2))),
            column("C", compared(Comparison::GreaterOrEqual, integer(3))),
            column("d", ColumnTest::Is(Test::In(vec![integer(4)]))),
            column("e", ColumnTest::Is(Test::InMarker(1))),
        ]))
    );
}

#[test]
fn groups_and_aggregates() {
    let text =
        "SELECT k, max(v), system.avg(w) AS a, count(*) FROM t WHERE k = 1 GROUP BY k, c LIMIT 1";
    let Statement::Select(select) = parsed(text).statement else { panic!("no SELECT") };
    assert_eq!(select.group_by, ["k", "c"]);
    let Selection::Items(items) = select.selection else { panic!("no items") };
    let items: Vec<SelectItem> = items.into_iter().map(|selector| selector.item).collect();
    let expect = [
        SelectItem::Column("k".into()),
        SelectItem::Aggregate(Aggregate::Max, "v".into()),
        SelectItem::Aggregate(Aggregate::Avg, "w".into()),
        SelectItem::CountRows,
    ];
    assert_eq!(items, expect);
    assert_eq!(items[1].to_string(), "system.max(v)");
}

fn is_nested_too_deep(text: &str) -> bool {
    let problem = |error| match error {
        ParseError::Syntax { problem, .. } => Some(problem),
        ParseError::Unsupported { .. } => None,
    };
    matches!(parse(text).map_err(problem), Err(Some(SyntaxProblem::Nesting { .. })))
}

#[test]
fn nesting_is_limited() {
    for open in ["[", "{", "("] {
        let text = format!("INSERT INTO t (a) VALUES ({}", open.repeat(100_000));
        assert!(is_nested_too_deep(&text), "{open}");
    }
    let text = format!("CREATE TABLE t (a {}", "list<".repeat(100_000));
    assert!(is_nested_too_deep(&text));
}

/// Words and marks of CQL in any order, which get deeper into the parser than arbitrary text.
fn token_soup() -> impl Strategy<Value = String> {
    let words = [
        "SELECT",
        "INSERT",
        "UPDATE",
        "DELETE",
        "BEGIN",
        "BATCH",
        "APPLY",
        "ALTER",
        "ADD",
        "SET",
        "token",
        "now",
        "DESCRIBE",
        "ORDER",
        "BY",
        "PER",
        "PARTITION",
        "INTO",
        "CREATE",
        "TABLE",
        "KEYSPACE",
        "FROM",
        "WHERE",
        "VALUES",
        "IN",
        "PRIMARY",
        "KEY",
        "WITH",
        "AND",
        "LIMIT",
        "USING",
        "TTL",
        "a",
        "\"B\"",
        "'c'",
        "0xff",
        "12",
        "-1.5e",
        "?",
        ":n",
        "(",
        ")",
        "<",
        ">",
        "{",
        "}",
        "[",
        "]",
        ",",
        ".",
        "=",
        "*",
        ":",
        ";",
        "list",
        "map",
        "int",
        "count",
        "/*",
        "--",
        "\n",
        "$$",
        "'",
        "\"",
        "ä",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..40)
        .prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in ".{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn random_tokens_do_not_panic(text in token_soup()) {
        let _ = parse(&text);
    }

    #[test]
    fn truncated_statements_do_not_panic(cut in 0..160_usize) {
        let text = "INSERT INTO ks.\"T\" (a, b, c, d) VALUES (?, :x, {'a': [0xff, -1.5e3]}, \
                    123e4567-e89b-12d3-a456-426614174000) USING TTL ? AND TIMESTAMP $$x$$";
        let _ = parse(&text[..cut.min(text.len())]);
    }

    #[test]
    fn strings_and_names_round_trip(text in "\\PC{0,40}", name in "[a-zA-Z ä\"]{1,10}") {
        let statement = format!(
            "SELECT a FROM \"{}\" WHERE k = '{}'",
            name.replace('"', "\"\""),
            text.replace('\'', "''")
        );
        let Statement::Select(select) = parsed(&statement).statement else { panic!("no SELECT") };
        prop_assert_eq!(select.table.table, name);
        prop_assert_eq!(
            &select.relations[0].test,
            &Test::Compare(Comparison::Equal, Term::Literal(Literal::Text(text)))
        );
    }
}
