use super::*;
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
        parsed("CREATE TABLE t (key blob PRIMARY KEY, \"C0\" blob) WITH compression = {}")
            .statement
    else {
        panic!("no CREATE TABLE")
    };
    assert_eq!(create.partition_key, ["key"]);
    assert_eq!(create.options, [("compression".to_owned(), Literal::Map(Vec::new()))]);
}

#[test]
fn insert_and_its_markers() {
    let insert = parsed(
        "INSERT INTO ks.t (k, a, b, c) VALUES (?, :A, 0xCAFE, -1.5e3) USING TTL ? AND TIMESTAMP 7",
    );
    assert_eq!(insert.markers, [None, Some("a".to_owned()), None]);
    assert_eq!(
        insert.marker_targets(),
        [MarkerTarget::Column("k"), MarkerTarget::Column("a"), MarkerTarget::Ttl]
    );
    let Statement::Insert(insert) = insert.statement else { panic!("no INSERT") };
    assert_eq!(insert.values[2], Term::Literal(Literal::Blob(vec![0xca, 0xfe])));
    assert_eq!(insert.values[3], Term::Literal(Literal::Float(-1500.0)));
    assert_eq!(insert.timestamp_us, Some(Term::Literal(Literal::Integer(7))));
}

#[test]
fn select_forms() {
    for (text, targets) in [
        ("SELECT * FROM system.local WHERE key='local'", vec![]),
        ("select cluster_name from system.local", vec![]),
        ("SELECT a, b AS bee FROM t WHERE k = ? AND c >= ? LIMIT ?", vec!["k", "c", "[limit]"]),
        ("SELECT a FROM t WHERE k IN ? ALLOW FILTERING", vec!["in(k)"]),
        ("SELECT a FROM t WHERE k IN (?, 1, :x)", vec!["k", "k"]),
        ("SELECT count(*) FROM t", vec![]),
        ("SELECT COUNT(1) AS n FROM t ORDER BY c DESC, d LIMIT 10", vec![]),
        ("SELECT DISTINCT k FROM t -- comment", vec![]),
        ("SELECT distinct FROM t /* twice */ // here", vec![]),
        ("SELECT json, key, type, values FROM t BYPASS CACHE", vec![]),
        ("SELECT k FROM t WHERE u = 123e4567-e89b-12d3-a456-426614174000 AND s = $$it's$$", vec![]),
    ] {
        let select = parsed(text);
        let names: Vec<_> = select.marker_targets().iter().map(ToString::to_string).collect();
        assert_eq!(names, targets, "{text}");
        assert_eq!(select.markers.len(), targets.len(), "{text}");
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
fn errors_name_place_or_thing() {
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
        ("BEGIN BATCH", "batches are not supported"),
        ("UPDATE t SET a = 1", "UPDATE statements are not supported"),
        ("CREATE INDEX ON t (a)", "indexes are not supported"),
        ("CREATE TABLE t (a int PRIMARY KEY, c counter)", "counters are not supported"),
        (
            "INSERT INTO t (a) VALUES (1) IF NOT EXISTS",
            "lightweight transactions (IF NOT EXISTS) are not supported",
        ),
        ("INSERT INTO t (a) VALUES (now())", "calls of now() are not supported"),
        ("INSERT INTO t (a) VALUES ([?])", "bind markers within collections are not supported"),
        ("SELECT * FROM t WHERE token(k) > 1", "ranges of token() are not supported"),
        ("SELECT * FROM t WHERE k CONTAINS 1", "relations with CONTAINS are not supported"),
        ("INSERT INTO t (a) VALUES (1h30m)", "duration literals are not supported"),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn nesting_is_limited() {
    for open in ["[", "{", "("] {
        let text = format!("INSERT INTO t (a) VALUES ({}", open.repeat(100_000));
        assert!(parse(&text).unwrap_err().to_string().contains("nested"), "{open}");
    }
    let text = format!("CREATE TABLE t (a {}", "list<".repeat(100_000));
    assert!(parse(&text).unwrap_err().to_string().contains("nested"));
}

/// Words and signs of CQL in any order: deeper into the parser than arbitrary text comes.
fn soup() -> impl Strategy<Value = String> {
    let words = [
        "SELECT", "INSERT", "INTO", "CREATE", "TABLE", "KEYSPACE", "FROM", "WHERE", "VALUES", "IN",
        "PRIMARY", "KEY", "WITH", "AND", "LIMIT", "USING", "TTL", "a", "\"B\"", "'c'", "0xff",
        "12", "-1.5e", "?", ":n", "(", ")", "<", ">", "{", "}", "[", "]", ",", ".", "=", "*", ":",
        ";", "list", "map", "int", "count", "/*", "--", "\n", "$$", "'", "\"", "ä",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..40)
        .prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_soup_makes_the_parser_panic(text in soup()) {
        let _ = parse(&text);
    }

    #[test]
    fn no_cut_makes_the_parser_panic(cut in 0..160_usize) {
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
