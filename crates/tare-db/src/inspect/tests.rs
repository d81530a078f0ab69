//! Tests against a data directory of format version 1, kept in `fixtures/store-v1`, which every
//! later version has to open. `SNAPSHOTS=overwrite` writes a new one, which is right only before a
//! version is released.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;

use tare_cql::types::Type;
use tare_store::cells::{Cell, Content, DELETION, FIRST_COLUMN, MARKER, iter, push};
use tare_store::{
    Change as Write, Durability, End, Files, Limits, Mutation, Now, PartitionRead, Pins,
    RangeTombstone, Slice, Store,
};

use super::*;
use crate::node::directory::ShardFiles;
use crate::query::catalog::journal::{self, Journal};
use crate::query::catalog::{Catalog, Change, Column, Keyspace, Table};
use crate::query::key_encoding;
use crate::query::options::TableOptions;

const NOW: Now = Now { monotonic_ns: 0, wall_s: 1000 };
const LIMITS: Limits = Limits {
    memtable_bytes: 16 << 20,
    cache_bytes: 1 << 20,
    background_bytes: 16 << 20,
    pending_bytes: 4 << 20,
    segment_bytes: 512 << 10,
    durability: Durability::Sync,
};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/store-v1")
}

fn column(name: &str, kind: Type, number: u16) -> Column {
    Column { name: name.into(), kind, number: FIRST_COLUMN + number, descending: false }
}

fn tables() -> [Table; 2] {
    let options = TableOptions::default();
    let events = Table {
        keyspace: "ks".into(),
        name: "events".into(),
        id: [1; 16],
        store: 0,
        partition: vec![column("k", Type::Int, 0)],
        clustering: vec![
            column("day", Type::Int, 1),
            Column { descending: true, ..column("name", Type::Text, 2) },
        ],
        statics: vec![],
        regular: vec![column("n", Type::Bigint, 3), column("v", Type::Text, 4)],
        dropped: Vec::new(),
        options: options.clone(),
    };
    let users = Table {
        name: "users".into(),
        id: [2; 16],
        store: 1,
        partition: vec![column("a", Type::Text, 0), column("b", Type::Int, 1)],
        clustering: vec![],
        statics: vec![],
        regular: vec![column("v", Type::Blob, 2)],
        ..events.clone()
    };
    [events, users]
}

/// A shard's store with its files. Calls drive it until nothing is left to do.
struct Shard {
    store: Store,
    files: ShardFiles,
}

impl Shard {
    fn open(data: &Path) -> Self {
        let mut catalog = Catalog::default();
        journal::read(&data.join("schema.log"), |change, bytes| catalog.apply(&change, bytes))
            .unwrap();
        let mut files = ShardFiles::new(data.join("shard-0"), false);
        let (store, _) = Store::open(&mut files, LIMITS, catalog.options(), NOW).unwrap();
        Self { store, files }
    }

    fn settle(&mut self) {
        loop {
            let mut idle = !self.store.work(NOW);
            while let Some(op) = self.store.next_op(NOW) {
                idle = false;
                let completion = self.files.carry_out(op);
                self.store.complete(completion, NOW).unwrap();
            }
            if idle {
                return;
            }
        }
    }

    fn write(&mut self, table: u32, (token, key): (i64, &[u8]), change: Write<'_>) {
        self.store.write(&[Mutation { table, token, key, change }]).unwrap();
    }

    fn row(&mut self, table: u32, partition: (i64, &[u8]), clustering: &[u8], cells: &[Cell<'_>]) {
        let mut bytes = Vec::new();
        cells.iter().for_each(|cell| push(&mut bytes, *cell));
        self.write(table, partition, Write::Row { clustering, cells: &bytes });
    }

    fn close(mut self, flush: bool) {
        self.settle();
        self.store.close(flush);
        self.settle();
        assert!(self.store.is_closed());
    }

    /// Columns and values of each row of a partition.
    fn read(&mut self, table: u32, (token, key): (i64, &[u8])) -> BTreeMap<Vec<u8>, String> {
        let mut found = BTreeMap::new();
        let mut pins = Pins::default();
        loop {
            let read = PartitionRead {
                table,
                token,
                key,
                slices: &[Slice::ALL],
                reversed: false,
                after: None,
                now_s: NOW.wall_s,
            };
            let end = self.store.read(&read, &mut pins, |row| {
                let values = iter(row.cells).filter_map(|cell| {
                    Some(format!("{}:{}", cell.column, String::from_utf8_lossy(cell.value()?)))
                });
                let values: Vec<String> = values.collect();
                found.insert(row.clustering.to_vec(), values.join(" "));
                ControlFlow::Continue(())
            });
            if end.unwrap() != End::Missing {
                return found;
            }
            self.settle();
        }
    }
}

fn clustering(day: i32, name: &str) -> Vec<u8> {
    let mut key = Vec::new();
    key_encoding::push(&mut key, &Type::Int, false, &day.to_be_bytes());
    key_encoding::push(&mut key, &Type::Text, true, name.as_bytes());
    key
}

fn value(column: u16, timestamp: i64, value: &[u8]) -> Cell<'_> {
    Cell { column: FIRST_COLUMN + column, path: None, timestamp, content: Content::Live(value) }
}

const FIRST: (i64, &[u8]) = (-7, &[0, 0, 0, 1]);
const SECOND: (i64, &[u8]) = (40, &[0, 0, 0, 2]);
const USER: (i64, &[u8]) = (3, b"\x00\x03ann\x00\x00\x04\x00\x00\x00\x05\x00");

/// Writes the fixture: rows of every kind in tables, and some later ones in the log alone.
fn make(data: &Path) {
    let _ = fs::remove_dir_all(data);
    fs::create_dir_all(data.join("shard-0")).unwrap();
    fs::write(data.join("shards"), "1\n").unwrap();
    let mut schema = Journal::open(&data.join("schema.log"), |_, _| {}).unwrap();
    let keyspace = Keyspace { durable_writes: true, ..Keyspace::default() };
    schema.append(&Change::CreateKeyspace { name: "ks".into(), keyspace }).unwrap();
    for table in tables() {
        schema.append(&Change::CreateTable { table }).unwrap();
    }
    let mut shard = Shard::open(data);
    let marker = Cell { column: MARKER, path: None, timestamp: 10, content: Content::Live(b"") };
    for day in 0..4 {
        for name in ["a", "b'c", ""] {
            let cells = [marker, value(4, 10, b"text")];
            shard.row(0, FIRST, &clustering(day, name), &cells);
        }
    }
    let expiring = |expires_s| Content::Expiring { value: b"short", ttl_s: 60, expires_s };
    let lives =
        Cell { column: FIRST_COLUMN + 4, path: None, timestamp: 11, content: expiring(2000) };
    let expired = Cell { content: expiring(900), ..lives };
    shard.row(0, FIRST, &clustering(5, "lives"), &[lives]);
    shard.row(0, FIRST, &clustering(5, "expired"), &[expired]);
    let gone = Cell {
        column: DELETION,
        path: None,
        timestamp: 20,
        content: Content::Dead { since_s: 500 },
    };
    shard.row(0, FIRST, &clustering(0, "a"), &[gone]);
    let dead = Content::Dead { since_s: 500 };
    let dead = Cell { column: FIRST_COLUMN + 4, path: None, timestamp: 20, content: dead };
    shard.row(0, FIRST, &clustering(1, "a"), &[dead]);
    let (from, to) = (clustering(2, ""), clustering(3, "\u{10ffff}"));
    let from = &from[..5];
    let range = RangeTombstone { from, to: Some(&to[..5]), timestamp: 20, deleted_s: 500 };
    shard.write(0, FIRST, Write::Range(range));
    let range = RangeTombstone { from: &[], to: None, timestamp: 9, deleted_s: 400 };
    shard.write(0, SECOND, Write::Range(range));
    // Longer than a block, and some of it compresses.
    let noise: Vec<u8> =
        (0..1500u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_be_bytes()).collect();
    for day in 0..40 {
        let long = "ab".repeat(200);
        let n = i64::from(day).to_be_bytes();
        let cells = [value(3, 10, &n), value(4, 10, long.as_bytes())];
        shard.row(0, SECOND, &clustering(day, "x"), &cells);
    }
    shard.row(1, USER, b"", &[marker, value(2, 10, &noise)]);
    shard.close(true);
    let mut shard = Shard::open(data);
    shard.row(0, SECOND, &clustering(100, "in the log"), &[marker, value(4, 30, b"late")]);
    shard.close(false);
    cut_zeros(&data.join("shard-0"));
}

/// Shortens the segments of the log to what was written.
fn cut_zeros(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let length = used_bytes(&file).unwrap();
            file.set_len(length).unwrap();
        }
    }
}

/// A copy that may be changed.
fn copy() -> tempfile::TempDir {
    let data = tempfile::tempdir().unwrap();
    fs::create_dir(data.path().join("shard-0")).unwrap();
    for folder in ["", "shard-0"] {
        for entry in fs::read_dir(fixture().join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                let to = data.path().join(folder).join(entry.file_name());
                fs::copy(entry.path(), to).unwrap();
            }
        }
    }
    data
}

fn findings(data: &Path) -> (CheckSummary, Vec<String>) {
    let mut found = Vec::new();
    let checked = check(data, &mut |finding| {
        let cause = std::error::Error::source(finding).map(ToString::to_string);
        found.push(format!("{finding}: {}", cause.unwrap_or_default()));
    });
    (checked.unwrap(), found)
}

fn table_files(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("shard-0")).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "table"));
    found.sort();
    found
}

#[test]
fn data_of_version_1_is_read() {
    // Not with the golden files: this fixture is data of an old version, and stays as it is.
    if std::env::var_os("TARE_STORE_FIXTURE").is_some_and(|how| how == "write") {
        make(&fixture());
    }
    let data = copy();
    let (checked, found) = findings(data.path());
    assert_eq!(found, [""; 0]);
    assert_eq!((checked.shards, checked.tables, checked.damages), (1, 2, 0));
    assert_eq!((checked.partitions, checked.log_entries), (3, 60));

    for (format, name) in [(Format::Text, "dump.txt"), (Format::Json, "dump.json")] {
        let mut printed = Vec::new();
        for path in table_files(data.path()) {
            dump(&path, format, &mut printed).unwrap();
        }
        tare_testkit::golden(&fixture().join(name), String::from_utf8(printed).unwrap());
    }

    let mut shard = Shard::open(data.path());
    let first = shard.read(0, FIRST);
    let rows: Vec<(Vec<u8>, &str)> = vec![
        (clustering(0, "b'c"), "1: 6:text"),
        (clustering(0, ""), "1: 6:text"),
        (clustering(1, "b'c"), "1: 6:text"),
        (clustering(1, "a"), "1:"),
        (clustering(1, ""), "1: 6:text"),
        (clustering(3, "b'c"), "1: 6:text"),
        (clustering(3, "a"), "1: 6:text"),
        (clustering(3, ""), "1: 6:text"),
        (clustering(5, "lives"), "6:short"),
    ];
    let rows: BTreeMap<_, _> = rows.into_iter().map(|(key, row)| (key, row.to_string())).collect();
    assert_eq!(first, rows);
    let second = shard.read(0, SECOND);
    assert_eq!(second.len(), 41);
    assert_eq!(second[&clustering(100, "in the log")], "1: 6:late");
    assert_eq!(shard.read(1, USER).len(), 1);
    shard.close(true);
    let (checked, found) = findings(data.path());
    assert_eq!((checked.damages, found), (0, vec![]), "after more was flushed");
}

#[test]
fn elements_of_collections_are_checked_and_printed() {
    let data = tempfile::tempdir().unwrap();
    fs::create_dir_all(data.path().join("shard-0")).unwrap();
    fs::write(data.path().join("shards"), "1\n").unwrap();
    let mut schema = Journal::open(&data.path().join("schema.log"), |_, _| {}).unwrap();
    schema
        .append(&Change::CreateKeyspace { name: "ks".into(), keyspace: Keyspace::default() })
        .unwrap();
    let kind = tare_cql::statement::parse_type("map<int, text>").unwrap();
    let [events, _] = tables();
    let table = Table { regular: vec![column("m", kind, 3)], ..events };
    schema.append(&Change::CreateTable { table }).unwrap();
    let mut shard = Shard::open(data.path());
    let mut path = Vec::new();
    key_encoding::push(&mut path, &Type::Int, false, &(-1_i32).to_be_bytes());
    let element = Cell { path: Some(&path), ..value(3, 10, b"x") };
    let emptied = Cell::dead(FIRST_COLUMN + 3, 9, 500);
    shard.row(0, FIRST, &clustering(1, "a"), &[emptied, element]);
    shard.close(true);
    let (checked, found) = findings(data.path());
    assert_eq!((checked.tables, checked.damages, found), (1, 0, vec![]));
    let file = &table_files(data.path())[0];
    let mut text = Vec::new();
    dump(file, Format::Text, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let row = "day = 1, name = 'a': m deleted @ 9, at 500 s; m[-1] = 'x' @ 10";
    assert!(text.contains(row), "{text}");
    let mut json = Vec::new();
    dump(file, Format::Json, &mut json).unwrap();
    let json = String::from_utf8(json).unwrap();
    let cell = r#"{"column":"m","element":"-1","timestamp":10,"value":"'x'"}"#;
    assert!(json.contains(cell), "{json}");
    // By its version, programs that know no elements refuse the file.
    let bytes = fs::read(file).unwrap();
    assert!(bytes.windows(8).any(|window| window == b"TareTab3"));
}

#[test]
fn damage_is_reported_with_its_place() {
    let data = copy();
    let flip = |path: &Path, at: usize| {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 4;
        fs::write(path, bytes).unwrap();
    };
    let path = &table_files(data.path())[0];
    let name = path.file_name().unwrap().to_str().unwrap().to_string();
    flip(path, 4096 + 77);
    let (checked, found) = findings(data.path());
    assert_eq!(checked.damages, 1, "{found:?}");
    assert!(found[0].contains("shard-0") && found[0].contains(&name), "{found:?}");
    assert!(found[0].contains("at offset 0:"), "{found:?}");
    let failed = dump(path, Format::Text, &mut Vec::new()).unwrap_err();
    assert!(matches!(failed, InspectError::Table { .. }), "{failed}");
    flip(path, 4096 + 77);

    flip(&data.path().join("shard-0/manifest"), 20);
    assert_eq!(findings(data.path()).0.damages, 1);
    flip(&data.path().join("shard-0/manifest"), 20);
    flip(&data.path().join("schema.log"), 20);
    assert!(findings(data.path()).1[0].contains("damaged at line 1"));
    flip(&data.path().join("schema.log"), 20);
    assert_eq!(findings(data.path()).0.damages, 0);

    fs::copy(path, data.path().join("shard-0/00000099.table")).unwrap();
    let (checked, found) = findings(data.path());
    assert_eq!(checked.damages, 0);
    assert!(found[0].contains("note: ") && found[0].contains("00000099.table"), "{found:?}");
    fs::remove_file(path).unwrap();
    let (checked, found) = findings(data.path());
    assert_eq!(checked.damages, 1, "{found:?}");
    assert!(found.iter().any(|found| found.contains("which does not exist")), "{found:?}");
    // A file that cannot be opened does not keep the others from being checked.
    std::os::unix::fs::symlink(path, path).unwrap();
    let (checked, found) = findings(data.path());
    assert_eq!((checked.damages, checked.tables), (1, 2), "{found:?}");
    assert!(found.iter().any(|found| found.contains("cannot open")), "{found:?}");
}

#[test]
fn reserved_space_after_a_table_is_not_read() {
    let data = copy();
    let path = &table_files(data.path())[0];
    // Page by page it would take hours.
    OpenOptions::new().write(true).open(path).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(findings(data.path()).0.damages, 0);
}

#[test]
fn unreadable_files_are_reported() {
    let here = tempfile::tempdir().unwrap();
    assert!(matches!(check(here.path(), &mut |_| {}), Err(InspectError::NoData { .. })));
    let data = copy();
    let _lock = crate::node::directory::lock(data.path()).unwrap();
    let refused = check(data.path(), &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("in use by another server"), "{refused}");
    let log = data.path().join("shard-0/00000000.log");
    let refused = dump(&log, Format::Text, &mut Vec::new()).unwrap_err();
    assert!(matches!(refused, InspectError::NoTable { .. }), "{refused}");
}
