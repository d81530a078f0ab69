mod engine;

use super::disk::Disk;
use super::*;
use crate::cells::{Cell, Content, FIRST_COLUMN, push};
use crate::entry::{Change, Mutation};
use crate::io::{FileId, Files, OpKind};
use crate::log::Durability;
use crate::options::TableOptions;
use crate::recovery::{RecoveryError, TornTail};
use proptest::prelude::*;
use tare_std::rng::Rng;

const LIMITS: Limits = Limits {
    memtable_bytes: 1 << 30,
    cache_bytes: 1 << 20,
    background_bytes: 16 << 20,
    pending_bytes: 4 << 20,
    segment_bytes: 512 << 10,
    durability: Durability::Sync,
};
const NOW: Now = Now { monotonic_ns: 0, wall_s: 0 };

fn schema() -> BTreeMap<u32, TableOptions> {
    (0..10).map(|table| (table, TableOptions::default())).collect()
}

fn open(disk: &mut Disk) -> Result<(Store, Recovered), OpenError> {
    Store::open(disk, LIMITS, schema(), NOW)
}

fn token_of(key: u32) -> i64 {
    tare_std::rng::mix64(u64::from(key)).cast_signed()
}

fn write_to(
    store: &mut Store,
    (table, key): (u32, u32),
    timestamp: i64,
    content: Content<'_>,
) -> Result<Ticket, WriteError> {
    let mut cells = Vec::new();
    push(&mut cells, Cell { column: FIRST_COLUMN, path: None, timestamp, content });
    let change = Change::Row { clustering: b"", cells: &cells };
    let bytes = key.to_le_bytes();
    store.write(&[Mutation { table, token: token_of(key), key: &bytes, change }])
}

fn write(store: &mut Store, key: u32, timestamp: i64, value: &[u8]) -> Result<Ticket, WriteError> {
    write_to(store, (1, key), timestamp, Content::Live(value))
}

/// The row that the memtable has for a key.
fn read(store: &Store, key: u32) -> Option<(i64, Vec<u8>)> {
    let cursor = crate::memtable::Cursor::at(&store.memory, 1, token_of(key), &key.to_le_bytes())?;
    let (_, cells) = cursor.row()?;
    let cell = crate::cells::iter(cells).next()?;
    match cell.content {
        Content::Live(value) => Some((cell.timestamp, value.to_vec())),
        _ => None,
    }
}

/// Carries out all operations. The last failure is the result.
fn drain(store: &mut Store, disk: &mut Disk) -> Result<(), StoreError> {
    let mut result = Ok(());
    while let Some(op) = store.next_op(NOW) {
        let completion = disk.carry_out(op);
        result = store.complete(completion, NOW).and(result);
    }
    result
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The model is a map; writes, operations and crashes come in any order. After a crash every
    /// durable write is there, and none that was never written.
    #[test]
    fn no_durable_write_is_lost(seed: u64) {
        let mut rng = Rng::new(seed);
        let mut disk = Disk::default();
        let mut history: BTreeMap<u32, Vec<(i64, Vec<u8>)>> = BTreeMap::new();
        let mut clock = 0;
        for _ in 0..rng.below(4) + 1 {
            let durability = match rng.below(2) {
                0 => Durability::Sync,
                _ => Durability::Periodic { period_ns: 10 },
            };
            let limits = Limits { durability, ..LIMITS };
            let (mut store, _) = Store::open(&mut disk, limits, schema(), NOW).unwrap();
            for (key, writes) in &mut history {
                let now = read(&store, *key);
                // The surviving value is one of the writes; the later ones are gone.
                let kept = now.and_then(|now| writes.iter().position(|write| *write == now));
                writes.truncate(kept.map_or(0, |at| at + 1));
            }
            let mut tickets: Vec<(Ticket, u32, i64)> = Vec::new();
            let mut now = NOW;
            for _ in 0..rng.below(60) {
                match rng.below(6) {
                    0..4 => {
                        clock += 1;
                        let key = u32::try_from(rng.below(20)).unwrap();
                        let length = [3, 300, 40_000][usize::try_from(rng.below(3)).unwrap()];
                        let value = vec![u8::try_from(clock & 0xff).unwrap(); length];
                        let ticket = write(&mut store, key, clock, &value).unwrap();
                        history.entry(key).or_default().push((clock, value));
                        tickets.push((ticket, key, clock));
                    }
                    _ => {
                        now.monotonic_ns += rng.below(4);
                        for _ in 0..rng.below(5) {
                            if let Some(op) = store.next_op(now) {
                                store.complete(disk.carry_out(op), now).unwrap();
                            }
                        }
                    }
                }
            }
            let durable = store.durable();
            if rng.below(4) == 0 {
                store.close(false);
                drain(&mut store, &mut disk).unwrap();
                prop_assert!(store.is_closed());
            }
            disk.crash(&mut rng);
            let mut copy = disk.clone();
            let (after, _) = open(&mut copy).unwrap();
            for (ticket, key, timestamp) in tickets {
                if ticket.0 < durable {
                    let found = read(&after, key).map(|(found, _)| found);
                    prop_assert!(found >= Some(timestamp), "key {} lost {}", key, timestamp);
                }
            }
            for (key, writes) in &history {
                if let Some(now) = read(&after, *key) {
                    prop_assert!(writes.contains(&now));
                }
            }
        }
    }

    /// After a clean stop every byte counts: a flip anywhere in a group is an error that names the
    /// place.
    #[test]
    fn damage_after_a_clean_stop_is_an_error(at: proptest::sample::Index, bit in 0u8..8) {
        let mut disk = stopped_cleanly();
        let used = 3 * 4096 + 100;
        let at = at.index(used);
        let sound = open(&mut disk.clone()).unwrap().1.entries;
        disk.bytes_mut(FileId::Log(0))[at] ^= 1 << bit;
        match open(&mut disk) {
            Err(OpenError::Log(RecoveryError::Damaged { file, offset, .. })) => {
                prop_assert_eq!(file, "00000000.log");
                prop_assert!(offset <= at as u64);
            }
            Err(OpenError::Log(RecoveryError::Version { .. })) => prop_assert_eq!(at, 7),
            // Only a flip in the padding may go unnoticed.
            Ok((_, found)) => prop_assert_eq!(found.entries, sound),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

fn stopped_cleanly() -> Disk {
    let mut disk = Disk::default();
    let (mut store, _) = open(&mut disk).unwrap();
    for group in 0..3 {
        for key in 0..12 {
            write(&mut store, group * 12 + key, 1, &[7; 290]).unwrap();
        }
        drain(&mut store, &mut disk).unwrap();
    }
    store.close(false);
    drain(&mut store, &mut disk).unwrap();
    disk
}

#[test]
fn clean_stop_and_torn_tail_are_distinguished() {
    let mut disk = stopped_cleanly();
    let log = FileId::Log(0);
    let (mut store, found) = open(&mut disk).unwrap();
    assert_eq!((found.entries, found.torn), (36, None));
    let after = write(&mut store, 500, 1, b"after").unwrap();
    assert_eq!(after, Ticket(4), "the closing group counts too");

    // Without the closing group the last group may be torn: it is cut, for good.
    let mut torn = stopped_cleanly();
    torn.bytes_mut(log)[3 * 4096..].fill(0);
    torn.bytes_mut(log)[2 * 4096 + 50] ^= 1;
    let (mut store, found) = open(&mut torn).unwrap();
    let tail = TornTail { file: "00000000.log".into(), offset: 2 * 4096 };
    assert_eq!((found.entries, found.torn), (24, Some(tail)));
    assert_eq!(write(&mut store, 500, 1, b"after").unwrap(), Ticket(2));
    drain(&mut store, &mut torn).unwrap();
    let (store, found) = open(&mut torn).unwrap();
    assert_eq!((found.entries, found.torn), (25, None));
    assert_eq!(read(&store, 500), Some((1, b"after".to_vec())));

    // So is a group whose head cannot be read, so that it does not come back.
    let mut headless = stopped_cleanly();
    headless.bytes_mut(log)[3 * 4096..].fill(0);
    headless.bytes_mut(log)[2 * 4096] ^= 1;
    let (mut store, found) = open(&mut headless).unwrap();
    assert_eq!((found.entries, found.torn), (24, None));
    write(&mut store, 500, 1, b"after").unwrap();
    drain(&mut store, &mut headless).unwrap();
    assert_eq!(headless.length(log).unwrap(), 2 * 4096);
    assert_eq!(open(&mut headless).unwrap().1.entries, 25);

    // The first group was durable when the second was written.
    let mut damaged = stopped_cleanly();
    damaged.bytes_mut(log)[50] ^= 1;
    let Err(OpenError::Log(RecoveryError::Damaged { file, offset, sequence })) = open(&mut damaged)
    else {
        panic!("the damage was not found");
    };
    assert_eq!((&*file, offset, sequence), ("00000000.log", 0, 0));
}

#[test]
fn entries_of_dropped_tables_are_skipped() {
    let mut disk = Disk::default();
    let (mut store, _) = open(&mut disk).unwrap();
    write_to(&mut store, (9, 1), 1, Content::Live(b"a")).unwrap();
    write(&mut store, 1, 1, b"b").unwrap();
    let mut fewer = schema();
    fewer.remove(&9);
    store.schema(fewer.clone());
    assert_eq!(store.memory.tables().collect::<Vec<_>>(), [1]);
    drain(&mut store, &mut disk).unwrap();
    let (store, found) = Store::open(&mut disk, LIMITS, fewer, NOW).unwrap();
    assert_eq!((store.memory.tables().collect::<Vec<_>>(), found.entries), (vec![1], 2));
}

#[test]
fn full_disk_refuses_writes_until_there_is_room() {
    let mut disk = Disk::default();
    disk.full = true;
    let (mut store, _) = open(&mut disk).unwrap();
    write(&mut store, 1, 1, b"a").unwrap();
    assert!(drain(&mut store, &mut disk).is_err(), "who waits has to be told");
    let refused = write(&mut store, 2, 1, b"b").unwrap_err().to_string();
    assert!(refused.contains("refused until there is room"), "{refused}");
    assert_eq!(read(&store, 1), Some((1, b"a".to_vec())), "reads go on");
    disk.full = false;
    assert!(store.next_op(NOW).is_none(), "a full disk is left alone for a while");
    let later = Now { monotonic_ns: store.next_due_ns().unwrap(), ..NOW };
    let made = disk.carry_out(store.next_op(later).unwrap());
    store.complete(made, later).unwrap();
    drain(&mut store, &mut disk).unwrap();
    write(&mut store, 2, 1, b"b").unwrap();
    assert_eq!(store.durable(), 1);
}

/// The next segment is created ahead, so a disk that is full while the log has room stops no write.
#[test]
fn full_disk_does_not_stop_writes_that_fit() {
    let mut disk = Disk::default();
    let (mut store, _) = open(&mut disk).unwrap();
    write(&mut store, 0, 1, &[1; 1000]).unwrap();
    drain(&mut store, &mut disk).unwrap();
    disk.full = true;
    let mut taken = 0;
    while write(&mut store, taken, 1, &[1; 100_000]).is_ok() {
        drain(&mut store, &mut disk).unwrap();
        taken += 1;
    }
    assert!(taken >= 8, "two segments of 512 KiB take {taken} rows of 100 kB");
    assert!(!store.log.is_dirty(), "all that was taken is durable");
    disk.crash(&mut Rng::new(1));
    assert_eq!(open(&mut disk).unwrap().1.entries, u64::from(taken) + 1);
}

#[test]
fn limits_and_failures_refuse_writes() {
    let mut disk = Disk::default();
    let limits = Limits { pending_bytes: 20_000, ..LIMITS };
    let (mut store, _) = Store::open(&mut disk, limits, schema(), NOW).unwrap();
    let refused = (0..100).find_map(|key| write(&mut store, key, 1, &[0; 1000]).err());
    assert!(matches!(refused, Some(WriteError::Log(LogError::Behind { .. }))), "{refused:?}");

    let (mut store, _) = open(&mut disk).unwrap();
    write(&mut store, 1, 1, b"a").unwrap();
    let failed = loop {
        let op = store.next_op(NOW).unwrap();
        let is_write = matches!(op.kind, OpKind::Write { .. });
        let mut completion = disk.carry_out(op);
        if is_write {
            completion.result = Err(std::io::Error::other("sync failed"));
            break store.complete(completion, NOW);
        }
        store.complete(completion, NOW).unwrap();
    };
    assert!(failed.is_err() && store.is_poisoned());
    let refused = write(&mut store, 2, 1, b"b").unwrap_err();
    assert!(matches!(refused, WriteError::Log(LogError::Poisoned { .. })), "{refused}");
    assert!(store.next_op(NOW).is_none(), "a failed sync is never tried again");
    assert_eq!(read(&store, 1), Some((1, b"a".to_vec())), "reads go on");
    let long = vec![0; KEY_BYTES_MAX + 1];
    let change = Change::Row { clustering: b"", cells: b"" };
    let mutation = Mutation { table: 1, token: 0, key: &long, change };
    assert!(matches!(store.write(&[mutation]), Err(WriteError::KeyTooLong { .. })));
}

#[test]
fn entry_larger_than_a_segment_fits() {
    let mut disk = Disk::default();
    let (mut store, _) = open(&mut disk).unwrap();
    let value = vec![9; 2 << 20];
    write(&mut store, 1, 1, &value).unwrap();
    write(&mut store, 2, 1, b"small").unwrap();
    drain(&mut store, &mut disk).unwrap();
    let (store, found) = open(&mut disk).unwrap();
    assert_eq!(found.entries, 2);
    assert_eq!(read(&store, 1), Some((1, value)));
}

#[test]
fn log_of_another_version_is_refused() {
    let mut disk = stopped_cleanly();
    let log = disk.bytes_mut(FileId::Log(0));
    log[7] = b'9';
    let Err(OpenError::Log(RecoveryError::Version { file, found, .. })) = open(&mut disk) else {
        panic!("the log was not refused");
    };
    assert_eq!((&*file, &*found), ("00000000.log", "TareLog9"));
}
