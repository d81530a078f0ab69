use super::*;

fn column(name: &str, kind: Type, number: u16) -> Column {
    Column { name: name.into(), kind, number, descending: false }
}

fn table(name: &str, store: u32) -> Table {
    Table {
        keyspace: "ks".into(),
        name: name.into(),
        id: hash_uuid(&[name.as_bytes()]),
        store,
        partition: vec![column("k", Type::Blob, 2)],
        clustering: vec![],
        statics: vec![],
        regular: vec![column("v", Type::Text, 3)],
        dropped: Vec::new(),
        options: TableOptions::default(),
    }
}

fn fill(shared: &SharedCatalog) {
    let changes = [
        Change::CreateKeyspace { name: "ks".into(), keyspace: Keyspace::default() },
        Change::CreateTable { table: table("a", 0) },
        Change::CreateTable { table: table("b", 1) },
        Change::DropTable { keyspace: "ks".into(), name: "a".into() },
        Change::Truncate { keyspace: "ks".into(), name: "b".into(), store: 2 },
    ];
    for change in changes {
        assert!(shared.change(|_| Ok::<_, JournalError>(Some(change))).unwrap());
    }
}

#[test]
fn schema_and_version_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("schema.log");
    let shared = SharedCatalog::open(&path).unwrap();
    fill(&shared);
    let before = shared.current();
    assert_eq!(shared.epoch(), 5);
    let live: Vec<_> = before.options().into_keys().collect();
    assert_eq!((live, before.next_store), (vec![2], 3));
    assert!(before.table("ks", "a").is_none() && before.table("ks", "b").is_some());
    drop(shared);
    assert_eq!(SharedCatalog::open(&path).unwrap().current(), before);
}

#[test]
fn torn_line_is_cut_and_damaged_line_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("schema.log");
    fill(&SharedCatalog::open(&path).unwrap());
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let catalog = SharedCatalog::open(&path).unwrap().current();
    assert!(catalog.options().contains_key(&1), "the truncation was torn");
    assert!(std::fs::read(&path).unwrap().ends_with(b"\n"));

    let mut damaged = whole;
    damaged[20] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    let error = SharedCatalog::open(&path).unwrap_err();
    assert!(matches!(error, JournalError::Damaged { line: 1, .. }), "{error}");
}
