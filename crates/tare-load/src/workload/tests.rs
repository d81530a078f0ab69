use super::shipped::{ALL, REFUSED};
use super::*;
use crate::workload::column::row_start;
use crate::workload::rows::Shape;
use crate::workload::table::RowPosition;
use proptest::prelude::*;

const SPEC: &str = r#"title = "everything"

[table]
keyspace = "ks"
name = "Things"
rows = 1_000
rows_per_partition = 30
interleave = 4
replication = 3

[[partition]]
name = "day"
type = "date"

[[partition]]
name = "shop"
type = "text"
prefix = "s-"
size = 8

[[clustering]]
name = "hour"
type = "int"

[[clustering]]
name = "id"
type = "timeuuid"
values = 5

[[column]]
name = "note"
type = "text"
size = "uniform:30:60"
compressed_to = "50%"

[[column]]
name = "amount"
type = "smallint"
values = "uniform:1:9"

[[query]]
kind = "slice"
weight = 3
keys = "zipfian:1.2"
limit = "uniform:1:10"

[[query]]
kind = "read"
misses = 0.1
"#;

fn read(text: &str) -> Result<Workload, String> {
    parse(text, "spec.toml", "spec").map_err(|error| error.to_string())
}

#[test]
fn workload_file_becomes_statements() {
    let workload = read(SPEC).unwrap();
    let table = &workload.table;
    assert_eq!(
        table.schema(),
        [
            "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 3}",
            "CREATE TABLE IF NOT EXISTS ks.\"Things\" (day date, shop text, hour int, id timeuuid, \
             note text, amount smallint, PRIMARY KEY ((day, shop), hour, id))"
        ]
    );
    assert_eq!(
        workload.statements(),
        [
            "INSERT INTO ks.\"Things\" (day, shop, hour, id, note, amount) VALUES (?, ?, ?, ?, ?, ?)",
            "SELECT day, shop, hour, id, note, amount FROM ks.\"Things\" WHERE day = ? AND shop = ? \
             AND (hour, id) >= (?, ?) LIMIT ?",
            "SELECT note, amount FROM ks.\"Things\" WHERE day = ? AND shop = ? AND hour = ? AND id = ?",
        ]
    );
    assert_eq!(
        table.scan().split_once(" WHERE ").unwrap().1,
        "token(day, shop) >= token(?, ?) LIMIT ?"
    );
    assert_eq!(
        table.update([1].into_iter()).split_once(" WHERE ").unwrap().0,
        "UPDATE ks.\"Things\" SET amount = ?"
    );
    assert!(table.delete().starts_with("DELETE FROM ks.\"Things\" WHERE day = ?"));
    // Four partitions are filled side by side.
    let place = |row| table.place(row);
    assert_eq!(place(1), RowPosition { partition: 1, row: 0 });
    assert_eq!(place(4), RowPosition { partition: 0, row: 1 });
    assert_eq!(place(121), RowPosition { partition: 5, row: 0 });
    assert_eq!(workload.queries[0].kind, QueryKind::Slice);
    assert_eq!(workload.queries[1].misses, 0.1);
}

#[test]
fn errors_have_line_and_column() {
    let check = |from: &str, to: &str, expect: &str| {
        assert!(SPEC.contains(from), "{from}");
        let error = read(&SPEC.replacen(from, to, 1)).unwrap_err();
        let first = error.lines().next().unwrap();
        assert_eq!(first, expect, "{from} -> {to}");
    };
    check(
        "rows = 1_000",
        "row = 1_000",
        "spec.toml:6:1: unknown key \"row\" in [table]; did you mean \"rows\"?",
    );
    check(
        "\"smallint\"",
        "\"smalint\"",
        "spec.toml:38:8: unknown value \"smalint\" for \"type\"; did you mean \"smallint\"?",
    );
    check(
        "\"smallint\"",
        "\"counter\"",
        "spec.toml:38:8: \"counter\" is no valid value for \"type\": tare load cannot derive or verify \
         the value of a counter, so counters are not supported",
    );
    check(
        "\"timeuuid\"",
        "\"uuid\"",
        "spec.toml:27:8: \"uuid\" is no valid value for \"type\": a uuid has no order of its own; take a \
         timeuuid",
    );
}

#[test]
fn wrong_values_are_refused() {
    let check = |from: &str, to: &str, expect: &str| {
        assert!(SPEC.contains(from), "{from}");
        let error = read(&SPEC.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(expect), "{from} -> {to}: {error}");
    };
    check("keys = \"zipfian:1.2\"", "keys = \"zipf\"", "unknown distribution of keys \"zipf\"");
    check("limit = \"uniform:1:10\"", "limit = 0", "from 1 to 10000");
    check("limit = \"uniform:1:10\"\n", "", "lacks the key \"limit\"");
    check("kind = \"read\"", "kind = \"write\"", "only reads can miss");
    check("kind = \"read\"", "kind = \"reed\"", "did you mean \"read\"?");
    check("values = \"uniform:1:9\"", "values = 40_000", "takes numbers up to 32767");
    check("values = \"uniform:1:9\"", "size = 5", "a smallint has no size of its own");
    check("values = 5", "values = 50", "from 1 to 30");
    check("name = \"amount\"", "name = \"note\"", "another column has this name");
    check("name = \"amount\"", "name = \"a b\"", "letters, digits and underscores");
    check("compressed_to = \"50%\"", "compressed_to = \"10%\"", "fewer than 8 bytes");
    check("type = \"date\"", "type = \"date\"\nhashed = true", "only the first column is hashed");
    check("title = ", "title = = ", "not valid TOML");
    check("[[column]]\nname = \"note\"", "[[colum]]\nname = \"note\"", "did you mean \"column\"?");
    let tiny =
        SPEC.replacen("\"date\"", "\"tinyint\"", 1).replacen("rows = 1_000", "rows = 5_000", 1);
    assert!(read(&tiny).unwrap_err().contains("have room for 1770 of the 5000 rows"));
}

#[test]
fn shipped_workloads_parse() {
    for shipped in ALL {
        let workload = shipped.read().unwrap_or_else(|error| panic!("{error}"));
        assert!(!workload.title.is_empty() && workload.has_versions(), "{}", shipped.name);
        assert!(shipped.text.starts_with("# ") && shipped.text.contains("# Source: "));
        assert!(REFUSED.iter().all(|refused| refused.name != shipped.name));
    }
    let stress = shipped::find("mixed").unwrap().read().unwrap();
    assert_eq!(
        stress.table.insert(),
        "INSERT INTO keyspace1.standard1 (key, \"C0\", \"C1\", \"C2\", \"C3\", \"C4\") VALUES (?, ?, ?, ?, ?, ?)"
    );
    assert_eq!(stress.table.row_bytes_most(), 5 * 34);
    let update = shipped::find("ycsb-a").unwrap().read().unwrap();
    assert_eq!(update.statements().len(), 1 + 1 + 10);
}

#[test]
fn study_rows_match_earlier_versions() {
    // Data written by one version must verify under the next.
    let shape = Shape { key_type: KeyType::Bigint, columns: 2, column_bytes: 9 };
    let workload = Workload::plain(shape, 10, 0.5, Keys::Uniform).unwrap();
    let mut bytes = Vec::new();
    for column in &workload.table.columns {
        column.put(row_start(1, 2), 0, &mut bytes);
    }
    assert_eq!(
        bytes,
        [
            3, 41, 99, 73, 150, 149, 45, 233, 114, //
            86, 169, 106, 246, 146, 145, 213, 98, 217
        ]
    );
    assert_eq!(workload.table.full_name(), "tare.row2x9");
}

proptest! {
    #[test]
    fn key_determines_row(row in 0u64..1 << 30) {
        let mut tables = vec![read(SPEC).unwrap().table];
        tables.extend(ALL.iter().map(|shipped| shipped.read().unwrap().table));
        for table in tables {
            let place = table.place(row);
            prop_assert_eq!(table.row_at(place), Some(row));
            let mut cells: Vec<Vec<u8>> = Vec::new();
            for index in 0..table.partition.len() {
                let mut cell = Vec::new();
                table.put_partition(index, place.partition, &mut cell);
                cells.push(cell);
            }
            for index in 0..table.clustering.len() {
                let mut cell = Vec::new();
                table.put_clustering(index, place.row, &mut cell);
                cells.push(cell);
            }
            let mut all = cells.iter().map(|cell| Some(cell.as_slice()));
            prop_assert_eq!(table.place_of(&mut all), Some(place));
            let mut changed = cells.clone();
            changed[0].push(0);
            let mut all = changed.iter().map(|cell| Some(cell.as_slice()));
            prop_assert_eq!(table.place_of(&mut all), None);
            let key = if let [one] = table.partition.as_slice() {
                prop_assert!(one.kind.validate(&cells[0]).is_ok());
                cells[0].clone()
            } else {
                let mut key = Vec::new();
                for cell in &cells[..table.partition.len()] {
                    prop_assert!(tare_cql::token::append_key_part(&mut key, cell));
                }
                key
            };
            prop_assert_eq!(table.token(place.partition), tare_cql::token::Token::of(&key));
        }
    }
}
