use std::io;

use super::*;
use crate::cells::{Cell, push};
use crate::log::Job;
use crate::recovery::TornTail;
use proptest::prelude::*;
use tare_std::rng::Rng;

/// A disk in memory that knows what has been synced.
#[derive(Clone, Debug, Default)]
struct Disk {
    segments: BTreeMap<u64, Vec<u8>>,
    /// Writes since the last sync, which a crash may lose in part and out of order.
    unsynced: Vec<(u64, usize, Vec<u8>)>,
    full: bool,
}

impl Segments for Disk {
    fn list(&self) -> io::Result<Vec<u64>> {
        Ok(self.segments.keys().copied().collect())
    }

    fn create(&mut self, segment: u64, size_bytes: u64) -> io::Result<()> {
        if self.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.segments.insert(segment, vec![0; usize::try_from(size_bytes).unwrap()]);
        Ok(())
    }

    fn read_at(&self, segment: u64, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = &self.segments[&segment];
        let from = usize::try_from(offset).unwrap().min(bytes.len());
        // Short reads must be met with patience.
        let length = buffer.len().min(bytes.len() - from).min(70_000);
        buffer[..length].copy_from_slice(&bytes[from..from + length]);
        Ok(length)
    }

    fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()> {
        self.segments.get_mut(&segment).unwrap().truncate(usize::try_from(length).unwrap());
        Ok(())
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.segments.remove(&segment);
        Ok(())
    }

    fn name(&self, segment: u64) -> String {
        format!("{segment}.log")
    }
}

impl Disk {
    fn run(&mut self, job: &Job) {
        if let Some(chunk) = &job.chunk {
            let at = usize::try_from(job.offset).unwrap();
            self.unsynced.push((job.segment, at, chunk.bytes().to_vec()));
        }
        if job.sync {
            for (segment, at, bytes) in std::mem::take(&mut self.unsynced) {
                self.segments.get_mut(&segment).unwrap()[at..at + bytes.len()]
                    .copy_from_slice(&bytes);
            }
        }
    }

    /// What is left after the power went: of what was not synced, any blocks in any order.
    fn crash(&mut self, rng: &mut Rng) {
        for (segment, at, bytes) in std::mem::take(&mut self.unsynced) {
            let file = self.segments.get_mut(&segment).unwrap();
            for (index, block) in bytes.chunks(512).enumerate() {
                if rng.below(3) > 0 {
                    let from = at + index * 512;
                    file[from..from + block.len()].copy_from_slice(block);
                }
            }
        }
    }
}

const LIMITS: Limits =
    Limits { memory_bytes: 1 << 30, pending_bytes: 4 << 20, segment_bytes: 512 << 10 };

fn open(disk: &mut Disk) -> Result<(Store, Recovered), RecoveryError> {
    Store::open(disk, LIMITS, |table| table != 99)
}

fn write(store: &mut Store, key: u32, timestamp: i64, value: &[u8]) -> Result<Ticket, WriteError> {
    let mut cells = Vec::new();
    push(&mut cells, Cell { column: 1, timestamp, value: Some(value) });
    let token = tare_std::rng::mix64(u64::from(key)).cast_signed();
    let key = key.to_le_bytes();
    store.write(&Mutation { table: 1, token, key: &key, clustering: b"", cells: &cells })
}

fn read(store: &Store, key: u32) -> Option<(i64, Vec<u8>)> {
    let token = tare_std::rng::mix64(u64::from(key)).cast_signed();
    let row = store.table(1)?.get(token, &key.to_le_bytes())?.row(b"")?;
    let cell = crate::cells::iter(row).next()?;
    Some((cell.timestamp, cell.value?.to_vec()))
}

fn drain(store: &mut Store, disk: &mut Disk, sync: bool) {
    while let Some(job) = store.log_mut().next_job(disk, true, sync).unwrap() {
        disk.run(&job);
        store.log_mut().complete(job, Ok(())).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The model is a map; writes, group writes, syncs and crashes come in any order. After a
    /// crash every write that was durable is there, and nothing that was never written.
    #[test]
    fn no_durable_write_is_lost(seed: u64) {
        let mut rng = Rng::new(seed);
        let mut disk = Disk::default();
        let mut history: BTreeMap<u32, Vec<(i64, Vec<u8>)>> = BTreeMap::new();
        let mut clock = 0;
        for _ in 0..rng.below(4) + 1 {
            let (mut store, _) = open(&mut disk).unwrap();
            for (key, writes) in &mut history {
                let now = read(&store, *key);
                // What survived is one of the writes; what came after it is gone.
                let kept = now.and_then(|now| writes.iter().position(|write| *write == now));
                writes.truncate(kept.map_or(0, |at| at + 1));
            }
            let mut tickets: Vec<(Ticket, u32, i64)> = Vec::new();
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
                    4 => {
                        let flush = rng.below(2) == 0;
                        let sync = rng.below(2) == 0;
                        if let Some(job) =
                            store.log_mut().next_job(&mut disk, flush, sync).unwrap()
                        {
                            disk.run(&job);
                            store.log_mut().complete(job, Ok(())).unwrap();
                        }
                    }
                    _ => drain(&mut store, &mut disk, true),
                }
            }
            let durable = store.log().durable();
            if rng.below(4) == 0 {
                drain(&mut store, &mut disk, true);
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

    /// After a clean stop every byte counts: a flip anywhere in a group is an error that says
    /// where, never silence.
    #[test]
    fn damage_after_a_clean_stop_is_an_error(at: proptest::sample::Index, bit in 0u8..8) {
        let mut disk = stopped_cleanly();
        let used = 3 * 4096 + 100;
        let at = at.index(used);
        let sound = open(&mut disk.clone()).unwrap().1.entries;
        disk.segments.get_mut(&0).unwrap()[at] ^= 1 << bit;
        match open(&mut disk) {
            Err(RecoveryError::Damaged { file, offset, .. }) => {
                prop_assert_eq!(file, "0.log");
                prop_assert!(offset <= at as u64);
            }
            // Only padding may change unseen.
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
        drain(&mut store, &mut disk, true);
    }
    store.log_mut().seal_closing_group();
    drain(&mut store, &mut disk, true);
    disk
}

#[test]
fn a_clean_stop_and_a_torn_tail_are_told_apart() {
    let mut disk = stopped_cleanly();
    let (_, found) = open(&mut disk).unwrap();
    assert_eq!((found.entries, found.torn, found.next_sequence), (36, None, 4));

    // Without the closing group the last group may have been torn: cut, and cut for good.
    let mut torn = disk.clone();
    torn.segments.get_mut(&0).unwrap()[3 * 4096..].fill(0);
    torn.segments.get_mut(&0).unwrap()[2 * 4096 + 50] ^= 1;
    let (mut store, found) = open(&mut torn).unwrap();
    let tail = TornTail { file: "0.log".into(), offset: 2 * 4096 };
    assert_eq!((found.entries, found.torn, found.next_sequence), (24, Some(tail), 2));
    write(&mut store, 500, 1, b"after").unwrap();
    drain(&mut store, &mut torn, true);
    let (store, found) = open(&mut torn).unwrap();
    assert_eq!((found.entries, found.torn), (25, None));
    assert_eq!(read(&store, 500), Some((1, b"after".to_vec())));

    // The first group was durable when the second was written.
    let mut damaged = disk.clone();
    damaged.segments.get_mut(&0).unwrap()[50] ^= 1;
    let error = open(&mut damaged).unwrap_err().to_string();
    assert!(error.starts_with("commit log 0.log is damaged at offset 0: group 0"), "{error}");
}

#[test]
fn entries_of_dead_tables_are_passed_over() {
    let mut disk = Disk::default();
    let (mut store, _) = open(&mut disk).unwrap();
    let dead = Mutation { table: 99, token: 0, key: b"k", clustering: b"", cells: b"" };
    store.write(&dead).unwrap();
    assert!(store.table(99).is_some() && store.used_bytes() > 0);
    store.retain(|table| table != 99);
    assert!(store.table(99).is_none() && store.used_bytes() == 0);
    drain(&mut store, &mut disk, true);
    let (store, found) = open(&mut disk).unwrap();
    assert!(store.table(99).is_none() && found.entries == 1);
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let mut disk = Disk { full: true, ..Disk::default() };
    let (mut store, _) = open(&mut disk).unwrap();
    write(&mut store, 1, 1, b"a").unwrap();
    assert!(store.log_mut().next_job(&mut disk, true, true).is_err());
    let refused = write(&mut store, 2, 1, b"b").unwrap_err().to_string();
    assert!(refused.contains("refused until there is room"), "{refused}");
    assert_eq!(read(&store, 1), Some((1, b"a".to_vec())), "reads go on");
    disk.full = false;
    drain(&mut store, &mut disk, true);
    write(&mut store, 2, 1, b"b").unwrap();
    assert_eq!(store.log().durable(), 1);
}

#[test]
fn limits_and_failures_refuse_writes() {
    let mut disk = Disk::default();
    let limits = Limits { memory_bytes: 10_000, pending_bytes: 20_000, segment_bytes: 1 << 20 };
    let (mut store, _) = Store::open(&mut disk, limits, |_| true).unwrap();
    let refused = (0..100).find_map(|key| write(&mut store, key, 1, &[0; 1000]).err());
    assert!(matches!(refused, Some(WriteError::MemoryFull { .. })), "{refused:?}");
    let (mut store, _) =
        Store::open(&mut disk, Limits { memory_bytes: 1 << 30, ..limits }, |_| true).unwrap();
    let refused = (0..100).find_map(|key| write(&mut store, key, 1, &[0; 1000]).err());
    assert!(matches!(refused, Some(WriteError::Log(LogError::Behind { .. }))), "{refused:?}");

    let (mut store, _) = open(&mut disk).unwrap();
    write(&mut store, 1, 1, b"a").unwrap();
    let job = store.log_mut().next_job(&mut disk, true, true).unwrap().unwrap();
    let failed = store.log_mut().complete(job, Err(io::Error::other("sync failed")));
    assert!(failed.is_err() && store.log().is_poisoned());
    let refused = write(&mut store, 2, 1, b"b").unwrap_err();
    assert!(matches!(refused, WriteError::Log(LogError::Poisoned { .. })), "{refused}");
    assert_eq!(read(&store, 1), Some((1, b"a".to_vec())), "reads go on");
    let long = vec![0; KEY_BYTES_MAX + 1];
    let mutation = Mutation { table: 1, token: 0, key: &long, clustering: b"", cells: b"" };
    assert!(matches!(store.write(&mutation), Err(WriteError::KeyTooLong { .. })));
}

#[test]
fn an_entry_larger_than_a_group_and_a_segment_fits() {
    let mut disk = Disk::default();
    let (mut store, _) = open(&mut disk).unwrap();
    let value = vec![9; 2 << 20];
    write(&mut store, 1, 1, &value).unwrap();
    write(&mut store, 2, 1, b"small").unwrap();
    drain(&mut store, &mut disk, true);
    let (store, found) = open(&mut disk).unwrap();
    assert_eq!(found.entries, 2);
    assert_eq!(read(&store, 1), Some((1, value)));
}
