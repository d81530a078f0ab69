//! Tests flush, compaction, manifest and recovery together, on a disk in memory that can crash
//! between any two operations.

use super::*;
use crate::read::merge::Merge;
use crate::read::stored::Stored;
use crate::row_source::{Source, Step};
use crate::table::{Block, BlockAt, BlockSource, Cursor, TableError};

const SMALL: Limits = Limits { memtable_bytes: 512 << 10, segment_bytes: 512 << 10, ..LIMITS };

/// Reads blocks directly from the disk.
struct DirectSource<'a>(&'a Disk);

impl BlockSource for DirectSource<'_> {
    fn get(&mut self, at: BlockAt) -> Result<Option<Rc<Block>>, TableError> {
        let mut bytes = vec![0; at.bytes()];
        let file = FileId::Table(at.file);
        crate::io::read_full(self.0, file, at.offset(), &mut bytes).unwrap();
        Block::decode(at, &bytes).map(|block| Some(Rc::new(block)))
    }

    fn expect(&mut self, _: BlockAt) {}
}

type Contents = BTreeMap<u32, (i64, Option<Vec<u8>>)>;

/// All rows of a table, from memtables and table files, merged here without the read path.
fn contents(store: &Store, disk: &Disk, table: u32) -> Contents {
    let mut blocks = DirectSource(disk);
    let mut all = Contents::new();
    let mut add = |key: &[u8], cells: &[u8]| {
        let key = u32::from_le_bytes(key.try_into().unwrap());
        let cell = crate::cells::iter(cells).next().unwrap();
        let value = match cell.content {
            Content::Live(value) => Some(value.to_vec()),
            _ => None,
        };
        let new = (cell.timestamp, value);
        let old = all.entry(key).or_insert_with(|| new.clone());
        if old.0 < new.0 {
            *old = new;
        }
    };
    let memtables = [&store.memory].into_iter().chain(store.frozen.iter().map(|m| &**m));
    for memtable in memtables {
        let mut cursor = crate::memtable::Cursor::new(memtable, table);
        while let Some((_, key)) = cursor.partition() {
            if let Some((_, cells)) = cursor.row() {
                add(key, cells);
            }
            cursor.next_partition();
        }
    }
    let mut sources = Vec::new();
    for file in store.table_files.get(&table).into_iter().flatten() {
        let mut stored = Stored::new(Cursor::new(Rc::clone(file)));
        assert_eq!(stored.open(i64::MIN, &[], &mut blocks).unwrap(), Step::Ready);
        sources.push(stored);
    }
    let mut merge = Merge::new(sources);
    while let Some((_, key)) = merge.partition() {
        if let Some((_, cells)) = merge.row() {
            add(key, cells);
        }
        assert_eq!(merge.next_partition(&mut blocks).unwrap(), Step::Ready);
    }
    all
}

/// Works and carries operations out until there is nothing to do, or until an operation fails.
fn settle(store: &mut Store, disk: &mut Disk, now: Now) -> Result<(), StoreError> {
    loop {
        let mut worked = store.work(now);
        while let Some(op) = store.next_op(now) {
            worked = true;
            store.complete(disk.carry_out(op), now)?;
        }
        if !worked {
            return Ok(());
        }
    }
}

fn value(key: u32, timestamp: i64, length: usize) -> Vec<u8> {
    let seed = u64::from(key) << 32 ^ timestamp.cast_unsigned();
    let mut rng = Rng::new(seed);
    (0..length).map(|_| u8::try_from(rng.below(256)).unwrap()).collect()
}

/// Writes many rows, and settles from time to time.
fn fill(store: &mut Store, disk: &mut Disk, keys: std::ops::Range<u32>, timestamp: i64) {
    for key in keys {
        write(store, key, timestamp, &value(key, timestamp, 2000)).unwrap();
        if key % 16 == 0 {
            settle(store, disk, NOW).unwrap();
        }
    }
    settle(store, disk, NOW).unwrap();
}

fn table_files(disk: &Disk) -> u64 {
    disk.names().iter().filter(|file| matches!(file, FileId::Table(_))).count() as u64
}

/// The number of rows.
fn rows(store: &Store, disk: &Disk) -> u32 {
    u32::try_from(contents(store, disk, 1).len()).unwrap()
}

#[test]
fn flushed_rows_survive_a_restart_without_their_log() {
    let mut disk = Disk::default();
    let (mut store, _) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
    fill(&mut store, &mut disk, 0..400, 1);
    let statistics = store.statistics();
    assert!(statistics.flushes >= 2 && statistics.tables >= 1, "{statistics:?}");
    assert!(statistics.write_amplification() > 1.5, "{statistics:?}");
    let before = contents(&store, &disk, 1);
    assert_eq!(before.len(), 400);
    drop(store);
    disk.crash(&mut Rng::new(1));
    let (mut store, found) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
    assert!(found.entries < 300, "{found:?}");
    assert_eq!(contents(&store, &disk, 1), before);
    store.close(true);
    settle(&mut store, &mut disk, NOW).unwrap();
    assert!(store.is_closed());
    let (store, found) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
    assert_eq!((found.entries, store.memory.bytes()), (0, 0));
    assert_eq!(contents(&store, &disk, 1), before);
    assert_eq!(table_files(&disk), store.statistics().tables);
}

/// A server with little memory recovers the log of a server with much memory.
#[test]
fn log_longer_than_memory_is_flushed_during_recovery() {
    let mut disk = Disk::default();
    let (mut store, _) = open(&mut disk).unwrap();
    fill(&mut store, &mut disk, 0..1000, 1);
    assert_eq!(store.statistics().tables, 0);
    let before = contents(&store, &disk, 1);
    let (mut store, found) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
    assert_eq!(found.entries, 1000);
    assert!(store.used_bytes() < SMALL.memtable_bytes);
    assert_eq!(contents(&store, &disk, 1), before);
    fill(&mut store, &mut disk, 1000..1100, 1);
    assert_eq!(contents(&store, &disk, 1).len(), 1100);
    disk.crash(&mut Rng::new(1));
    let (store, found) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
    assert!(found.entries < 500, "what was flushed is not replayed: {found:?}");
    assert_eq!(contents(&store, &disk, 1).len(), 1100);
}

/// A server crashes after each operation in turn: the durable rows are there, and no row that was
/// never written.
#[test]
fn crash_between_any_two_operations_loses_nothing() {
    const OPS_MAX: u64 = 5000;
    let mut crashes = 0;
    let mut at = 1;
    loop {
        let mut disk = Disk::default();
        let mut rng = Rng::new(at);
        let (mut store, _) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
        let mut tickets: Vec<(Ticket, u32, i64)> = Vec::new();
        let mut dropped = false;
        'load: for timestamp in 1..=3 {
            for key in 0..200 {
                let ticket = write(&mut store, key, timestamp, &value(key, timestamp, 3000));
                tickets.push((ticket.unwrap(), key, timestamp));
                if key % 16 > 0 {
                    continue;
                }
                if timestamp == 2 && key == 128 {
                    write_to(&mut store, (2, key), 1, Content::Live(b"of a table that is dropped"))
                        .unwrap();
                }
                loop {
                    let mut worked = store.work(NOW);
                    while let Some(op) = store.next_op(NOW) {
                        worked = true;
                        store.complete(disk.carry_out(op), NOW).unwrap();
                        if disk.carried_out == at {
                            break 'load;
                        }
                    }
                    if !worked {
                        break;
                    }
                }
            }
            if timestamp == 2 {
                let mut fewer = schema();
                fewer.remove(&2);
                store.schema(fewer);
                dropped = true;
            }
        }
        let done = disk.carried_out < at;
        let (durable, statistics) = (store.durable(), store.statistics());
        drop(store);
        disk.crash(&mut rng);
        let mut options = schema();
        if dropped {
            options.remove(&2);
        }
        let (mut store, _) = Store::open(&mut disk, SMALL, options, NOW).unwrap();
        let check = |store: &Store, disk: &Disk| {
            let found = contents(store, disk, 1);
            for (ticket, key, timestamp) in &tickets {
                if ticket.0 < durable {
                    let after = found.get(key).map(|(after, _)| *after);
                    assert!(after >= Some(*timestamp), "op {at}: key {key} lost {timestamp}");
                }
            }
            for (key, (timestamp, bytes)) in found {
                assert_eq!(bytes, Some(value(key, timestamp, 3000)), "op {at}: key {key}");
            }
        };
        check(&store, &disk);
        // The store keeps working, through another restart.
        settle(&mut store, &mut disk, NOW).unwrap();
        check(&store, &disk);
        store.close(true);
        settle(&mut store, &mut disk, NOW).unwrap();
        assert!(store.is_closed(), "op {at}");
        let (store, found) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
        assert_eq!(found.torn, None);
        check(&store, &disk);
        assert_eq!(table_files(&disk), store.statistics().tables, "op {at}: leftovers");
        crashes += 1;
        if done {
            let Statistics { flushes, compactions, .. } = statistics;
            assert!(flushes > 4 && compactions > 0, "{statistics:?}");
            break;
        }
        // Crash after each of the first operations, then after some of the later ones.
        at += if at < 100 { 1 } else { 1 + at / 50 };
        assert!(at < OPS_MAX);
    }
    assert!(crashes > 100, "{crashes}");
}

#[test]
fn tables_of_similar_size_are_compacted() {
    let mut disk = Disk::default();
    let (mut store, _) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
    for timestamp in 1..=8 {
        fill(&mut store, &mut disk, 0..150, timestamp);
    }
    let statistics = store.statistics();
    assert!(statistics.compactions >= 1, "{statistics:?}");
    assert!(statistics.tables < 4, "{statistics:?}");
    assert_eq!(table_files(&disk), statistics.tables, "the inputs have been removed");
    let found = contents(&store, &disk, 1);
    assert_eq!(found.len(), 150);
    for (key, (timestamp, bytes)) in found {
        assert_eq!((timestamp, bytes), (8, Some(value(key, 8, 2000))));
    }
    assert_eq!(store.tables_of_size(1).iter().sum::<usize>() as u64, statistics.tables);
}

#[test]
fn flushes_wait_while_a_table_with_too_many_files_is_compacted() {
    let mut disk = Disk::default();
    let mut rare = schema();
    rare.values_mut().for_each(|options| options.compaction_min = 100);
    let (mut store, _) = Store::open(&mut disk, SMALL, rare, NOW).unwrap();
    let mut timestamp = 0;
    while store.statistics().tables < 24 {
        timestamp += 1;
        fill(&mut store, &mut disk, 0..150, timestamp);
    }
    drop(store);
    let (mut store, _) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
    while store.background.compactions() == 0 {
        assert!(store.work(NOW));
    }
    let mut key = 0;
    while store.frozen.is_empty() {
        write(&mut store, key, timestamp + 1, &value(key, timestamp + 1, 2000)).unwrap();
        key += 1;
    }
    while !store.frozen.is_empty() {
        let worked = store.work(NOW);
        let op = store.next_op(NOW);
        assert!(worked || op.is_some(), "{:?}", store.statistics());
        if let Some(op) = op {
            store.complete(disk.carry_out(op), NOW).unwrap();
        }
    }
    let Statistics { tables, compactions, .. } = store.statistics();
    assert_eq!((tables, compactions), (2, 1), "the table of the flush, and that of the others");
}

#[test]
fn deletions_are_purged_after_their_grace_period() {
    let day = 86_400;
    let wall_s = 100 * day;
    let count = |wall_s: u32| {
        let now = Now { monotonic_ns: 0, wall_s };
        let mut disk = Disk::default();
        let (mut store, _) = Store::open(&mut disk, SMALL, schema(), now).unwrap();
        for round in 0..4 {
            for key in 0..150 {
                let content = match key % 3 {
                    0 => Content::Live(&[7; 2000]),
                    1 if round < 3 => Content::Live(&[7; 2000]),
                    1 => Content::Dead { since_s: 100 * day },
                    _ => Content::Expiring { value: &[7; 2000], ttl_s: day, expires_s: 101 * day },
                };
                write_to(&mut store, (1, key), round, content).unwrap();
            }
            settle(&mut store, &mut disk, now).unwrap();
            if !store.memory.is_empty() {
                store.freeze();
                settle(&mut store, &mut disk, now).unwrap();
            }
        }
        assert_eq!(store.statistics().tables, 1, "{:?}", store.statistics());
        let found = contents(&store, &disk, 1);
        let live = found.values().filter(|(_, value)| value.is_some()).count();
        (found.len(), live)
    };
    assert_eq!(count(wall_s), (150, 50), "the expiring ones have no live cell");
    assert_eq!(count(wall_s + 9 * day), (150, 50));
    assert_eq!(count(wall_s + 12 * day), (50, 50));
}

#[test]
fn dropped_table_leaves_no_file() {
    let mut disk = Disk::default();
    let (mut store, _) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
    fill(&mut store, &mut disk, 0..300, 1);
    assert!(table_files(&disk) > 0);
    let held = store.table_files[&1][0].clone();
    let mut fewer = schema();
    fewer.remove(&1);
    store.schema(fewer.clone());
    assert!(contents(&store, &disk, 1).is_empty());
    settle(&mut store, &mut disk, NOW).unwrap();
    assert_eq!(table_files(&disk), 1, "one is in use");
    drop(held);
    settle(&mut store, &mut disk, NOW).unwrap();
    assert_eq!(table_files(&disk), 0);
    // The same applies to a table that was dropped while the server was down.
    fill(&mut store, &mut disk, 0..300, 1);
    let (mut store, _) = Store::open(&mut disk, SMALL, fewer, NOW).unwrap();
    settle(&mut store, &mut disk, NOW).unwrap();
    assert_eq!(table_files(&disk), 0);
}

#[test]
fn full_disk_stops_flushes_until_there_is_room() {
    let mut disk = Disk::default();
    // The log has room for more than memory.
    let limits = Limits { segment_bytes: 4 << 20, ..SMALL };
    let (mut store, _) = Store::open(&mut disk, limits, schema(), NOW).unwrap();
    settle(&mut store, &mut disk, NOW).unwrap();
    disk.full = true;
    let mut key = 0;
    let refused = loop {
        assert!(key < 10_000);
        if let Err(refused) = write(&mut store, key, 1, &value(key, 1, 2000)) {
            break refused.to_string();
        }
        key += 1;
        settle(&mut store, &mut disk, NOW).unwrap();
    };
    assert!(refused.contains("they cannot be flushed (no storage space)"), "{refused}");
    assert_eq!(store.statistics().disk_full, 1);
    assert_eq!(rows(&store, &disk), key, "reads go on");
    disk.full = false;
    let later = Now { monotonic_ns: 10_000_000_000, ..NOW };
    settle(&mut store, &mut disk, later).unwrap();
    write(&mut store, key, 1, &value(key, 1, 2000)).unwrap();
    settle(&mut store, &mut disk, later).unwrap();
    assert_eq!((store.statistics().disk_full, store.frozen.len()), (0, 0));
    disk.crash(&mut Rng::new(1));
    let (store, _) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
    assert_eq!(rows(&store, &disk), key + 1);
}

/// After any failure of an operation that makes a table or a manifest durable, nothing is promised
/// and no durable row is lost.
#[test]
fn failed_flush_refuses_writes_for_good() {
    let mut kinds = BTreeSet::new();
    for fail_at in 1.. {
        let mut disk = Disk::default();
        let (mut store, _) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
        let mut seen = 0;
        let mut failed = None;
        let mut key = 0;
        while failed.is_none() && key < 300 {
            write(&mut store, key, 1, &value(key, 1, 2000)).unwrap();
            key += 1;
            loop {
                let mut worked = store.work(NOW);
                while let Some(op) = store.next_op(NOW) {
                    worked = true;
                    let ours = !matches!(op.file, FileId::Log(_));
                    seen += u64::from(ours);
                    let fails = ours && seen == fail_at;
                    let kind = (op.file, std::mem::discriminant(&op.kind));
                    let mut completion = disk.carry_out(op);
                    if fails {
                        kinds.insert(format!("{kind:?}"));
                        completion.result = Err(std::io::Error::other("input/output error"));
                    }
                    if let Err(error) = store.complete(completion, NOW) {
                        failed = Some(error.to_string());
                        break;
                    }
                }
                if !worked || failed.is_some() {
                    break;
                }
            }
        }
        let Some(failed) = failed else {
            assert!(fail_at > 6, "create, writes, sync, and the manifest's three: {kinds:?}");
            return;
        };
        assert!(failed.contains("input/output error"), "{failed}");
        assert!(store.is_poisoned() && store.next_op(NOW).is_none() && !store.work(NOW));
        assert!(write(&mut store, 1, 2, b"no").is_err());
        let durable = store.durable();
        assert!(durable > 0);
        drop(store);
        disk.crash(&mut Rng::new(fail_at));
        let (store, _) = Store::open(&mut disk, SMALL, schema(), NOW).unwrap();
        assert!(rows(&store, &disk) + 1 >= key, "failure {fail_at}");
    }
}

/// Reads the value of a row, and carries out the operations that it waits for.
fn read_row(store: &mut Store, disk: &mut Disk, key: u32) -> Option<Vec<u8>> {
    use crate::read::{End, RowRead};
    let bytes = key.to_le_bytes();
    let (token, columns) = (token_of(key), Some(&[FIRST_COLUMN][..]));
    let read = RowRead { table: 1, token, key: &bytes, clustering: b"", columns, now_s: 0 };
    let mut pins = Pins::default();
    for _ in 0..100 {
        let mut found = None;
        let end = store.read_row(&read, &mut pins, |row| {
            let cell = crate::cells::iter(row.cells).next().unwrap();
            let Content::Live(value) = cell.content else { panic!("{cell:?}") };
            found = Some(value.to_vec());
        });
        match end.unwrap() {
            End::Missing => drain(store, disk).unwrap(),
            _ => return found,
        }
    }
    panic!("the read of {key} does not end")
}

#[test]
fn row_read_costs_one_block_with_cached_filters_and_indexes() {
    const ROWS: u32 = 3000;
    let mut disk = Disk::default();
    // A tenth of the data.
    let limits = Limits { cache_bytes: 640 << 10, ..SMALL };
    let (mut store, _) = Store::open(&mut disk, limits, schema(), NOW).unwrap();
    fill(&mut store, &mut disk, 0..ROWS, 1);
    let tables = store.statistics().tables;
    assert!(tables > 1 && store.statistics().table_bytes > 6 << 20, "{:?}", store.statistics());
    let mut rng = Rng::new(5);
    let mut pass = |store: &mut Store, reads: u64| {
        let before = store.statistics();
        for _ in 0..reads {
            let key = u32::try_from(rng.below(u64::from(ROWS))).unwrap();
            assert_eq!(read_row(store, &mut disk, key), Some(value(key, 1, 2000)));
        }
        (before, store.statistics())
    };
    pass(&mut store, 200);
    let reads = 2000;
    let (before, after) = pass(&mut store, reads);
    assert_eq!(after.index_blocks_fetched, before.index_blocks_fetched);
    assert_eq!(after.filter_blocks_fetched, before.filter_blocks_fetched);
    let lookups = |of: fn(&crate::Statistics) -> u64| of(&after) - of(&before);
    let blocks = lookups(|statistics| statistics.blocks_fetched);
    let false_positives = lookups(|statistics| statistics.lookups_in_vain);
    assert!(blocks <= reads + false_positives && blocks > reads / 2, "{blocks} blocks");
    assert_eq!(lookups(|statistics| statistics.fetched_bytes), blocks * 4096);
    // Each lookup requests these blocks once, however often its read had to wait: a filter, and
    // unless the filter excludes the row, an index block and a data block.
    let asked = lookups(|statistics| statistics.cache_hits + statistics.cache_misses);
    let passed = lookups(|statistics| statistics.lookups_found + statistics.lookups_in_vain);
    let denied = lookups(|statistics| statistics.lookups_denied);
    assert!(asked <= denied + 3 * passed, "{asked} blocks asked for, {denied} denied");
    let in_memory = reads - lookups(|statistics| statistics.lookups_found);
    assert!(in_memory < reads / 5, "{in_memory} rows were in memory");
    assert!(lookups(|statistics| statistics.lookups_denied) > 0 && false_positives < reads / 20);
}
