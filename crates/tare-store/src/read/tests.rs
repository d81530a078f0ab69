use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;

use super::merge::{Merge, Ranges};
use super::*;
use crate::cache::Cache;
use crate::cells::{self, Cell, Content, DELETION, Deletion, push};
use crate::entry::{Change, Mutation, RangeTombstone};
use crate::memtable::{Cursor, Memtable};
use crate::row_source::{Source, Step};
use crate::table::{Block, Table, TableWriter, WriterOptions};
use proptest::prelude::*;

const TABLE: u32 = 7;
/// The column that is a collection.
const COLLECTION: u16 = 4;

/// A mutation that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) token: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) change: Owned,
}

#[derive(Clone, Debug)]
pub(crate) enum Owned {
    Row { clustering: Vec<u8>, cells: Vec<u8> },
    Range { from: Vec<u8>, to: Option<Vec<u8>>, timestamp: i64, deleted_s: u32 },
}

impl Written {
    pub(crate) fn mutation(&self, table: u32) -> Mutation<'_> {
        let change = match &self.change {
            Owned::Row { clustering, cells } => Change::Row { clustering, cells },
            Owned::Range { from, to, timestamp, deleted_s } => Change::Range(RangeTombstone {
                from,
                to: to.as_deref(),
                timestamp: *timestamp,
                deleted_s: *deleted_s,
            }),
        };
        Mutation { table, token: self.token, key: &self.key, change }
    }
}

/// Few keys, timestamps and seconds, so that all kinds of conflicts occur.
fn keys() -> impl Strategy<Value = (i64, Vec<u8>)> {
    (-2i64..3, proptest::collection::vec(0u8..2, 1..3))
}

/// Clustering keys of one length, which are prefix-free, or none.
fn clusterings(clustered: bool) -> BoxedStrategy<Vec<u8>> {
    match clustered {
        true => proptest::collection::vec(0u8..6, 2..3).boxed(),
        false => Just(Vec::new()).boxed(),
    }
}

/// Bounds of ranges: any bytes.
fn bounds() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0u8..7, 0..3)
}

fn cells() -> impl Strategy<Value = Vec<u8>> {
    let content = (0u8..3, proptest::collection::vec(0u8..2, 0..3), 1u32..3, 1u32..6);
    let deletion = proptest::option::weighted(0.2, (0i64..8, 0u32..4));
    // Column 4 has elements, and sometimes a deletion of those that were there before.
    let place = prop_oneof![
        4 => (1u16..4).prop_map(|column| (column, None)),
        2 => proptest::collection::vec(0u8..2, 0..2).prop_map(|path| (COLLECTION, Some(path))),
    ];
    let columns = proptest::collection::btree_map(place, (0i64..8, content), 0..4);
    let emptied = proptest::option::weighted(0.3, (0i64..8, 0u32..4));
    (deletion, columns, emptied).prop_map(|(deletion, columns, emptied)| {
        let mut out = Vec::new();
        if let Some((timestamp, since_s)) = deletion {
            push(&mut out, Cell::dead(DELETION, timestamp, since_s));
        }
        let mut emptied = emptied;
        let hidden = emptied.map_or(-1, |(timestamp, _)| timestamp);
        for ((column, path), (timestamp, (kind, value, ttl_s, at_s))) in &columns {
            if *column == COLLECTION {
                if let Some((timestamp, since_s)) = emptied.take() {
                    push(&mut out, Cell::dead(COLLECTION, timestamp, since_s));
                }
                if *timestamp <= hidden {
                    continue;
                }
            }
            // Some rows fill a block.
            let value = &if value.len() == 2 { value.repeat(700) } else { value.clone() };
            let content = match kind {
                0 => Content::Live(value),
                1 => Content::Expiring { value, ttl_s: *ttl_s, expires_s: at_s + ttl_s },
                _ => Content::Dead { since_s: *at_s },
            };
            let (column, path, timestamp) = (*column, path.as_deref(), *timestamp);
            push(&mut out, Cell { column, path, timestamp, content });
        }
        if let Some((timestamp, since_s)) = emptied {
            push(&mut out, Cell::dead(COLLECTION, timestamp, since_s));
        }
        out
    })
}

fn written(clustered: bool) -> impl Strategy<Value = Written> {
    let row = (clusterings(clustered), cells())
        .prop_map(|(c, cells)| Owned::Row { clustering: c, cells });
    let range = (bounds(), proptest::option::of(bounds()), 0i64..8, 0u32..4).prop_map(
        |(from, to, timestamp, deleted_s)| Owned::Range { from, to, timestamp, deleted_s },
    );
    let change = prop_oneof![5 => row, 1 => range];
    (keys(), change).prop_map(|((token, key), change)| Written { token, key, change })
}

/// Mutations of a table with or without clustering keys.
pub(crate) fn histories() -> impl Strategy<Value = Vec<Written>> {
    any::<bool>().prop_flat_map(|clustered| proptest::collection::vec(written(clustered), 0..80))
}

type RowKey = (i64, Vec<u8>, Vec<u8>);

/// The expected answer: every visible row with its cells, computed from the whole history.
pub(crate) fn naive(history: &[Written], now_s: u32) -> BTreeMap<RowKey, Vec<u8>> {
    let mut keys = BTreeSet::new();
    for write in history {
        if let Owned::Row { clustering, .. } = &write.change {
            keys.insert((write.token, write.key.clone(), clustering.clone()));
        }
    }
    let mut rows = BTreeMap::new();
    for row in keys {
        let mut hidden = None;
        let mut winners: BTreeMap<(u16, Option<&[u8]>), Cell<'_>> = BTreeMap::new();
        for write in history.iter().filter(|w| (w.token, &w.key) == (row.0, &row.1)) {
            match &write.change {
                Owned::Range { from, to, timestamp, .. } => {
                    if *from <= row.2 && to.as_ref().is_none_or(|to| row.2 < *to) {
                        hidden = hidden.max(Some(*timestamp));
                    }
                }
                Owned::Row { clustering, cells } if *clustering == row.2 => {
                    for cell in cells::iter(cells) {
                        if cell.column == DELETION {
                            hidden = hidden.max(Some(cell.timestamp));
                            continue;
                        }
                        let winner = winners.entry((cell.column, cell.path)).or_insert(cell);
                        if order(&cell) > order(winner) {
                            *winner = cell;
                        }
                    }
                }
                Owned::Row { .. } => {}
            }
        }
        let mut out = Vec::new();
        let emptied = winners.get(&(COLLECTION, None)).map(|deletion| deletion.timestamp);
        for cell in winners.into_values() {
            let hidden = if cell.path.is_some() { hidden.max(emptied) } else { hidden };
            if cell.is_live(now_s) && hidden.is_none_or(|hidden| cell.timestamp > hidden) {
                push(&mut out, cell);
            }
        }
        if !out.is_empty() {
            rows.insert(row, out);
        }
    }
    rows
}

/// The latest timestamp of all that was written to a row.
fn latest(history: &[Written], (token, key, clustering): (i64, &[u8], &[u8])) -> Option<i64> {
    let writes = history.iter().filter(|write| (write.token, &*write.key) == (token, key));
    let of_row = writes.filter_map(|write| match &write.change {
        Owned::Row { clustering: of, cells } if of == clustering => {
            cells::iter(cells).map(|cell| cell.timestamp).max()
        }
        Owned::Range { from, to, timestamp, .. }
            if **from <= *clustering && to.as_ref().is_none_or(|to| *clustering < **to) =>
        {
            Some(*timestamp)
        }
        Owned::Row { .. } | Owned::Range { .. } => None,
    });
    of_row.max()
}

fn order<'a>(cell: &Cell<'a>) -> (i64, u8, u32, &'a [u8], u32) {
    let (kind, at_s, value, ttl_s) = match cell.content {
        Content::Live(value) => (0, 0, value, 0),
        Content::Expiring { value, ttl_s, expires_s } => (1, expires_s, value, ttl_s),
        Content::Dead { since_s } => (2, since_s, &[][..], 0),
    };
    (cell.timestamp, kind, at_s, value, ttl_s)
}

/// A history spread over sources of both kinds, and what a reader of them needs.
struct SourceSet {
    active: Memtable,
    frozen: Vec<Rc<Memtable>>,
    tables: Vec<Rc<Table>>,
    files: BTreeMap<u64, Vec<u8>>,
    /// A cache so small that blocks are evicted and read again.
    cache: Cache,
    pins: Pins,
    scratch: Scratch,
}

fn distribute(history: &[Written], seed: u64, count: u64) -> SourceSet {
    let random = |number| tare_std::rng::mix64(seed ^ number);
    let mut memtables: Vec<Memtable> = (0..count).map(|_| Memtable::default()).collect();
    for (index, write) in (0u64..).zip(history) {
        let to = usize::try_from(random(index) % count).unwrap();
        memtables[to].apply(&write.mutation(TABLE));
        memtables[to].apply(&write.mutation(TABLE + 1));
    }
    let active = memtables.pop().unwrap();
    let (mut frozen, mut tables, mut files) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (number, memtable) in (0u64..).zip(memtables) {
        if random(1 << 32 | number).is_multiple_of(3) {
            frozen.push(Rc::new(memtable));
        } else if let Some((table, bytes)) = stored(&memtable, number) {
            tables.push(Rc::new(table));
            files.insert(number, bytes);
        }
    }
    tables.sort_by_key(|table| std::cmp::Reverse(table.statistics().timestamp_max));
    let (cache, pins, scratch) = (Cache::new(16 << 10), Pins::default(), Scratch::default());
    SourceSet { active, frozen, tables, files, cache, pins, scratch }
}

/// Writes a memtable's rows into a table file.
fn stored(memtable: &Memtable, file: u64) -> Option<(Table, Vec<u8>)> {
    let filter_false_positives = 0.01;
    let mut writer = TableWriter::new(WriterOptions {
        file,
        table: TABLE,
        compression: file.is_multiple_of(2),
        filter_false_positives,
        chunk_bytes: 16 << 10,
    });
    let mut cursor = Cursor::new(memtable, TABLE);
    while let Some((token, key)) = cursor.partition() {
        let mut ranges = Ranges::default();
        cursor.ranges(|range| ranges.add(&range));
        writer.partition(token, key, ranges.iter());
        while let Some((clustering, cells)) = cursor.row() {
            writer.row(clustering, cells);
            cursor.next_row();
        }
        cursor.next_partition();
    }
    let table = writer.finish();
    let mut bytes = Vec::new();
    while let Some((_, chunk)) = writer.next_chunk() {
        bytes.extend_from_slice(chunk.bytes());
    }
    Some((table?, bytes))
}

impl SourceSet {
    /// Reads until no block is missing any more.
    fn read(
        &mut self,
        mut read: impl FnMut(&Sources<'_>, &mut Cached<'_>, &mut Scratch) -> Result<End, ReadError>,
    ) -> End {
        loop {
            let sources =
                Sources { active: &self.active, frozen: &self.frozen, tables: &self.tables };
            let blocks = &mut Cached { cache: &mut self.cache, pins: &mut self.pins };
            match read(&sources, blocks, &mut self.scratch).unwrap() {
                End::Missing => self.fetch(),
                end => return end,
            }
        }
    }

    fn fetch(&mut self) {
        let mut count = 0;
        while let Some(at) = self.pins.next_wanted() {
            let from = usize::try_from(at.offset()).unwrap();
            let raw = &self.files[&at.file][from..from + at.bytes()];
            let block = Rc::new(Block::decode(at, raw).unwrap());
            self.cache.insert(at, Rc::clone(&block));
            let fetch = Rc::new(Fetch::new(at));
            fetch.finish(Ok(block));
            self.pins.wait_for(fetch);
            count += 1;
        }
        assert!(count > 0 && self.pins.is_ready(), "what is missing is noted");
    }
}

/// Ascending slices without overlap, from any bounds.
pub(crate) fn slices_of(bounds: &BTreeSet<Vec<u8>>, open_end: bool) -> Vec<Slice<'_>> {
    let bounds: Vec<_> = bounds.iter().map(Vec::as_slice).collect();
    bounds
        .chunks(2)
        .filter_map(|pair| match pair {
            [from, to] => Some(Slice { from, to: Some(to) }),
            [from] => open_end.then_some(Slice { from, to: None }),
            _ => None,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// The answer does not depend on how the writes are spread over sources.
    #[test]
    fn scan_agrees_with_the_model(
        history in histories(),
        seed: u64,
        sources in 1u64..5,
        now_s in 0u32..8,
        steps in 1u32..40,
        stop_every in 1usize..9,
        to_token in -2i64..4,
    ) {
        let mut sources = distribute(&history, seed, sources);
        let expect: Vec<_> =
            naive(&history, now_s).into_iter().filter(|(key, _)| key.0 <= to_token).collect();
        let position = Position::at_token(i64::MIN);
        let mut scan = Scan { table: TABLE, position, to_token, now_s, steps };
        let mut found = Vec::new();
        loop {
            let end = sources.read(|sources, blocks, scratch| {
                sources.scan(&mut scan, blocks, scratch, |row| {
                    let key = (row.token, row.key.to_vec(), row.clustering.to_vec());
                    found.push((key, row.cells.to_vec()));
                    if found.len().is_multiple_of(stop_every) { Next::Stop } else { Next::Row }
                })
            });
            match end {
                End::Done => break,
                End::Stopped | End::Paused => {}
                End::Missing => unreachable!(),
            }
        }
        prop_assert_eq!(found, expect.clone());

        // One row of each partition.
        let position = Position::at_token(i64::MIN);
        let mut scan = Scan { table: TABLE, position, to_token, now_s, steps: u32::MAX };
        let mut firsts = Vec::new();
        let end = sources.read(|sources, blocks, scratch| {
            sources.scan(&mut scan, blocks, scratch, |row| {
                firsts.push((row.token, row.key.to_vec(), row.clustering.to_vec()));
                Next::Partition
            })
        });
        prop_assert_eq!(end, End::Done);
        let mut wanted: Vec<_> = expect.into_iter().map(|(key, _)| key).collect();
        wanted.dedup_by(|b, a| (a.0, &a.1) == (b.0, &b.1));
        prop_assert_eq!(firsts, wanted);
    }

    #[test]
    fn partition_read_agrees_with_the_model(
        history in histories(),
        seed: u64,
        sources in 1u64..5,
        now_s in 0u32..8,
        key in keys(),
        cuts in proptest::collection::btree_set(bounds(), 0..5),
        open_end: bool,
        reversed: bool,
        page in 1usize..6,
    ) {
        let mut sources = distribute(&history, seed, sources);
        let slices = slices_of(&cuts, open_end);
        let mut expect: Vec<_> = naive(&history, now_s)
            .into_iter()
            .filter(|((token, k, c), _)| {
                let inside = |s: &Slice<'_>| s.from <= &c[..] && s.to.is_none_or(|to| &c[..] < to);
                (*token, k) == (key.0, &key.1) && slices.iter().any(inside)
            })
            .map(|((_, _, clustering), cells)| (clustering, cells))
            .collect();
        if reversed {
            expect.reverse();
        }
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        loop {
            let mut left = page;
            let end = sources.read(|sources, blocks, scratch| {
                let after = found.last().map(|(clustering, _)| clustering.clone());
                let (token, key) = (key.0, &key.1[..]);
                let (slices, after) = (&slices[..], after.as_deref());
                let read =
                    PartitionRead { table: TABLE, token, key, slices, reversed, after, now_s };
                sources.read(&read, blocks, scratch, |row| {
                    found.push((row.clustering.to_vec(), row.cells.to_vec()));
                    left -= 1;
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
            });
            match end {
                End::Done => break,
                End::Stopped => {}
                end => prop_assert!(false, "{:?}", end),
            }
        }
        prop_assert_eq!(found, expect);
    }

    #[test]
    fn row_read_agrees_with_the_model(
        history in histories(),
        seed: u64,
        sources in 1u64..7,
        now_s in 0u32..8,
        columns in proptest::option::of(proptest::collection::btree_set(1u16..5, 0..4)),
    ) {
        let mut sources = distribute(&history, seed, sources);
        let rows = naive(&history, now_s);
        let columns: Option<Vec<u16>> = columns.map(|columns| columns.into_iter().collect());
        let wanted = |bytes: &[u8]| {
            let mut out = Vec::new();
            let is_wanted = |c: &Cell<'_>| columns.as_ref().is_none_or(|w| w.contains(&c.column));
            cells::iter(bytes).filter(is_wanted).for_each(|cell| push(&mut out, cell));
            out
        };
        for write in &history {
            let Owned::Row { clustering, .. } = &write.change else { continue };
            let (token, key, columns) = (write.token, &write.key, columns.as_deref());
            let read = RowRead { table: TABLE, token, key, clustering, columns, now_s };
            let mut found = None;
            let end = sources.read(|sources, blocks, scratch| {
                sources.read_row(&read, blocks, scratch, |row| found = Some(wanted(row.cells)))
            });
            prop_assert_eq!(end, End::Done);
            sources.pins.clear();
            let expect = rows.get(&(token, key.clone(), clustering.clone()));
            prop_assert_eq!(found, expect.map(|cells| wanted(cells)));
            let (mut whole, read) = (None, RowRead { columns: None, ..read });
            sources.read(|sources, blocks, scratch| {
                sources.read_row_with_latest(&read, blocks, scratch, |row, latest| {
                    whole = Some((row.map(|row| row.cells.to_vec()), latest));
                })
            });
            sources.pins.clear();
            let latest = latest(&history, (token, key, clustering));
            prop_assert_eq!(whole, Some((expect.cloned(), latest)));
        }
    }

    /// A compaction of the sources gives the same answers as the sources.
    #[test]
    fn compaction_keeps_all_answers(
        history in histories(),
        seed: u64,
        sources in 1u64..5,
        now_s in 0u32..8,
        gc_before_s in 0u32..5,
        purges: bool,
    ) {
        let mut memtables: Vec<_> = (0..sources).map(|_| Memtable::default()).collect();
        for (index, write) in (0u64..).zip(&history) {
            let to = usize::try_from(tare_std::rng::mix64(seed ^ index) % sources).unwrap();
            memtables[to].apply(&write.mutation(TABLE));
        }
        let timestamp_below = if purges { i64::MAX } else { i64::MIN };
        let purge = cells::Purge { now_s, gc_before_s, timestamp_below };
        let cursors = memtables.iter().map(|memtable| Cursor::new(memtable, TABLE)).collect();
        let mut merge: Merge<_, ()> = Merge::new(cursors);
        let (mut kept, mut out) = (Memtable::default(), Vec::new());
        let mut ranges = Ranges::default();
        while let Some((token, key)) = merge.partition() {
            merge.ranges_into(&mut ranges);
            ranges.retain(|deletion| !purge.allows(deletion));
            for range in ranges.iter() {
                let change = Change::Range(range);
                kept.apply(&Mutation { table: TABLE, token, key, change });
            }
            let key = key.to_vec();
            while let Some((clustering, cells)) = merge.row() {
                cells::compact(cells, merge.covering(clustering), &purge, &mut out);
                if !out.is_empty() {
                    let change = Change::Row { clustering, cells: &out };
                    kept.apply(&Mutation { table: TABLE, token, key: &key, change });
                }
                prop_assert_eq!(merge.next_row(&mut ()).unwrap(), Step::Ready);
            }
            prop_assert_eq!(merge.next_partition(&mut ()).unwrap(), Step::Ready);
        }
        let expect: Vec<_> = naive(&history, now_s).into_iter().collect();
        let (mut found, mut part) = (Vec::new(), Vec::new());
        let mut cursor = Cursor::new(&kept, TABLE);
        while let Some((token, key)) = cursor.partition() {
            let key = key.to_vec();
            while let Some((clustering, cells)) = cursor.row() {
                let cells = match cells::visible(cells, cursor.covering(clustering), now_s, &mut part) {
                    cells::Visibility::Full => cells,
                    cells::Visibility::Partial => &part,
                    cells::Visibility::Empty => &[],
                };
                if !cells.is_empty() {
                    found.push(((token, key.clone(), clustering.to_vec()), cells.to_vec()));
                }
                cursor.next_row();
            }
            cursor.next_partition();
        }
        prop_assert_eq!(found, expect);
    }

    #[test]
    fn overlapping_ranges_keep_the_strongest_deletion(
        added in proptest::collection::vec(
            (bounds(), proptest::option::of(bounds()), 0i64..5, 0u32..3), 0..12),
        probes in proptest::collection::vec(bounds(), 1..20),
    ) {
        let mut ranges = Ranges::default();
        let mut memtable = Memtable::default();
        for (from, to, timestamp, deleted_s) in &added {
            let (timestamp, deleted_s) = (*timestamp, *deleted_s);
            let range = RangeTombstone { from, to: to.as_deref(), timestamp, deleted_s };
            ranges.add(&range);
            let change = Change::Range(range);
            memtable.apply(&Mutation { table: TABLE, token: 0, key: b"k", change });
        }
        for probe in &probes {
            let covers = |(from, to, ..): &&(Vec<u8>, Option<Vec<u8>>, i64, u32)| {
                from <= probe && to.as_ref().is_none_or(|to| probe < to)
            };
            let of = |&(_, _, timestamp, deleted_s): &_| Deletion { timestamp, deleted_s };
            let expect = added.iter().filter(covers).map(of).max();
            prop_assert_eq!(ranges.covering(probe), expect);
            let cursor = Cursor::at(&memtable, TABLE, 0, b"k");
            prop_assert_eq!(cursor.and_then(|cursor| cursor.covering(probe)), expect);
        }
        let listed: Vec<_> = ranges.iter().collect();
        for pair in listed.windows(2) {
            prop_assert!(pair[0].to.is_some_and(|to| to <= pair[1].from));
        }
        if let Some(cursor) = Cursor::at(&memtable, TABLE, 0, b"k") {
            let mut again = Ranges::default();
            cursor.ranges(|range| again.add(&range));
            prop_assert_eq!(again.iter().collect::<Vec<_>>(), listed);
        }
    }
}

/// Dead rows are passed once, however often the read is interrupted, and the read yields to others.
#[test]
fn read_of_many_dead_rows_pauses() {
    let mut history = Vec::new();
    let rows = walk::STEPS * 2 + 10;
    for number in 0..rows {
        let (mut cells, is_last) = (Vec::new(), number + 1 == rows);
        let content = if is_last { Content::Live(b"v") } else { Content::Dead { since_s: 1 } };
        push(&mut cells, Cell { column: 2, path: None, timestamp: 1, content });
        let change = Owned::Row { clustering: number.to_be_bytes().to_vec(), cells };
        history.push(Written { token: 1, key: b"k".to_vec(), change });
    }
    for count in [1, 3] {
        let mut sources = distribute(&history, 2, count);
        let slices = &[Slice::ALL];
        let read = PartitionRead {
            table: TABLE,
            token: 1,
            key: b"k",
            slices,
            reversed: false,
            after: None,
            now_s: 5,
        };
        let (mut found, mut ends) = (0, Vec::new());
        while ends.last() != Some(&End::Done) {
            ends.push(sources.read(|sources, blocks, scratch| {
                sources.read(&read, blocks, scratch, |_| {
                    found += 1;
                    ControlFlow::Continue(())
                })
            }));
        }
        assert_eq!(found, 1);
        // A missing block interrupts the read too.
        assert!(count > 1 || ends.len() == 3, "two pauses and the end: {ends:?}");
    }
}

#[test]
fn successor_ends_the_slice_of_a_prefix() {
    let check = |prefix: &[u8], expect: Option<&[u8]>| {
        let mut key = prefix.to_vec();
        let found = successor(&mut key);
        assert_eq!(found.then_some(&key[..]), expect, "{prefix:?}");
    };
    check(&[], None);
    check(&[1, 2], Some(&[1, 3]));
    check(&[1, 0xff, 0xff], Some(&[2]));
    check(&[0xff, 0xff], None);
}
