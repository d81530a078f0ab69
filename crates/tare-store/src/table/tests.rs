use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::rc::Rc;

use super::*;
use crate::cells::{Cell, push};
use crate::entry::RangeTombstone;
use proptest::prelude::*;
use tare_std::rng::Rng;

/// A range tombstone that owns its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnedRange {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    timestamp: i64,
    deleted_s: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Partition {
    ranges: Vec<OwnedRange>,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

type Model = BTreeMap<(i64, Vec<u8>), Partition>;

/// Parameters of a random table.
#[derive(Clone, Copy, Debug)]
struct Shape {
    seed: u64,
    partitions: u64,
    rows_max: u64,
    value_max: u64,
    /// Number of distinct tokens; if it is small, neighbours share a token.
    tokens: u64,
    clustering_max: u64,
    repetitive: bool,
    compression: bool,
    filter: bool,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let sizes = (0u64..30, 1u64..20, 1u64..400, 1u64..2000, 0u64..6);
    (any::<u64>(), sizes, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(seed, sizes, repetitive, compression, filter)| {
            let (partitions, rows_max, value_max, tokens, clustering_max) = sizes;
            Shape {
                seed,
                partitions,
                rows_max,
                value_max,
                tokens,
                clustering_max,
                repetitive,
                compression,
                filter,
            }
        },
    )
}

fn bytes(rng: &mut Rng, length_max: u64, letters: u64) -> Vec<u8> {
    let length = rng.below(length_max + 1);
    (0..length).map(|_| u8::try_from(rng.below(letters)).unwrap()).collect()
}

fn draw(shape: &Shape) -> Model {
    let mut rng = Rng::new(shape.seed);
    let mut model = Model::new();
    for _ in 0..shape.partitions {
        let token = rng.below(shape.tokens).cast_signed() - 500;
        let key = bytes(&mut rng, 2, 256);
        let partition = model.entry((token, key)).or_default();
        // Some partitions, and some rows, are far longer than a block.
        let rows_max = if rng.below(20) == 0 { shape.rows_max * 20 } else { shape.rows_max };
        for _ in 0..rng.below(rows_max + 1) {
            let clustering = bytes(&mut rng, shape.clustering_max, 4);
            let value_max = if rng.below(200) == 0 { 20_000 } else { shape.value_max };
            let letters = if shape.repetitive { 2 } else { 256 };
            let value = bytes(&mut rng, value_max, letters);
            let timestamp = rng.below(1000).cast_signed();
            let mut cells = Vec::new();
            push(&mut cells, Cell::live(2, timestamp, &value));
            push(&mut cells, Cell::dead(3, timestamp, 77));
            partition.rows.insert(clustering, cells);
        }
        // A partition may be drawn twice.
        partition.ranges.clear();
        let mut bounds = std::collections::BTreeSet::new();
        for _ in 0..rng.below(4) / 2 * rng.below(60) {
            bounds.insert(bytes(&mut rng, shape.clustering_max + 1, 5));
        }
        let bounds: Vec<Vec<u8>> = bounds.into_iter().collect();
        let mut bounds = bounds.into_iter();
        while let Some(from) = bounds.next() {
            // Some ranges touch the next one, some leave a gap, and the last one may have no end.
            let to = if rng.below(2) > 0 { bounds.next() } else { bounds.clone().next() };
            if to.is_none() && rng.below(2) > 0 {
                break;
            }
            let timestamp = rng.below(2000).cast_signed();
            partition.ranges.push(OwnedRange { from, to, timestamp, deleted_s: 5 });
        }
    }
    model
}

/// Writes the model. Returns the file's bytes and the table, or nothing if the model is empty.
fn write(model: &Model, shape: &Shape) -> Option<(Vec<u8>, Table)> {
    let mut writer = TableWriter::new(WriterOptions {
        file: 7,
        table: 3,
        compression: shape.compression,
        filter_false_positives: if shape.filter { 0.01 } else { 1.0 },
        chunk_bytes: 16 << 10,
    });
    let mut file = Vec::new();
    let mut drain = |writer: &mut TableWriter| {
        while let Some((offset, chunk)) = writer.next_chunk() {
            assert_eq!(offset, file.len() as u64, "chunks come front to back");
            assert!(chunk.len().is_multiple_of(PAGE_BYTES));
            file.extend_from_slice(chunk.bytes());
            writer.recycle(chunk);
        }
    };
    for ((token, key), partition) in model {
        let ranges = partition.ranges.iter().map(borrow);
        writer.partition(*token, key, ranges);
        for (clustering, cells) in &partition.rows {
            writer.row(clustering, cells);
            drain(&mut writer);
        }
    }
    let table = writer.finish();
    drain(&mut writer);
    let table = table?;
    assert_eq!(table.file_bytes(), file.len() as u64);
    Some((file, table))
}

fn borrow(range: &OwnedRange) -> RangeTombstone<'_> {
    let OwnedRange { from, to, timestamp, deleted_s } = range;
    let (timestamp, deleted_s) = (*timestamp, *deleted_s);
    RangeTombstone { from, to: to.as_deref(), timestamp, deleted_s }
}

fn own(range: &RangeTombstone<'_>) -> OwnedRange {
    let RangeTombstone { from, to, timestamp, deleted_s } = *range;
    OwnedRange { from: from.to_vec(), to: to.map(<[u8]>::to_vec), timestamp, deleted_s }
}

fn reader(file: &[u8]) -> impl FnMut(u64, &mut [u8]) -> io::Result<usize> {
    |offset, buffer: &mut [u8]| {
        let from = usize::try_from(offset).unwrap().min(file.len());
        // Reads may be short.
        let length = buffer.len().min(file.len() - from).min(5000);
        buffer[..length].copy_from_slice(&file[from..from + length]);
        Ok(length)
    }
}

/// A source that has each block only at the second request.
struct DelayedSource<'a> {
    file: &'a [u8],
    held: BTreeMap<BlockAt, Rc<Block>>,
}

impl BlockSource for DelayedSource<'_> {
    fn get(&mut self, at: BlockAt) -> Result<Option<Rc<Block>>, TableError> {
        if let Some(block) = self.held.get(&at) {
            return Ok(Some(Rc::clone(block)));
        }
        let block = FileSource::new(reader(self.file)).block(at)?;
        self.held.insert(at, Rc::new(block));
        Ok(None)
    }

    fn expect(&mut self, _: BlockAt) {}
}

/// Repeats a step until no block is missing.
macro_rules! go {
    ($step:expr) => {
        loop {
            match $step {
                Ok(Step::Ready) => break Ok::<(), TableError>(()),
                Ok(Step::Missing) => {}
                Err(error) => break Err(error),
            }
        }
    };
}

/// Reads everything from front to back.
fn scan(table: &Rc<Table>, source: &mut impl BlockSource) -> Result<Model, TableError> {
    let mut model = Model::new();
    let mut cursor = Cursor::new(Rc::clone(table));
    go!(cursor.seek_partition(i64::MIN, &[], source))?;
    while let Some((token, key)) = cursor.partition() {
        let at = (token, key.to_vec());
        let mut partition = Partition::default();
        partition.ranges.extend(cursor.ranges().map(|range| own(&range)));
        go!(cursor.seek_row(Start::From(&[]), source))?;
        while let Some((clustering, cells)) = cursor.row() {
            partition.rows.insert(clustering.to_vec(), cells.to_vec());
            go!(cursor.advance(source))?;
        }
        model.insert(at, partition);
        go!(cursor.next_partition(source))?;
    }
    Ok(model)
}

/// The visible part of the model: empty partitions leave no trace.
fn visible(model: &Model) -> Model {
    let kept = model.iter().filter(|(_, p)| !p.rows.is_empty() || !p.ranges.is_empty());
    kept.map(|(at, partition)| (at.clone(), partition.clone())).collect()
}

/// The current row and at most `count` further rows in one direction.
fn rows(
    cursor: &mut Cursor,
    reversed: bool,
    count: usize,
    source: &mut impl BlockSource,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some((clustering, cells)) = cursor.row() {
        found.push((clustering.to_vec(), cells.to_vec()));
        if found.len() == count {
            break;
        }
        let step = if reversed { Cursor::retreat } else { Cursor::advance };
        go!(step(cursor, source)).unwrap();
    }
    found
}

/// Compares reads of parts of one partition with the model.
fn check_partition(
    rng: &mut Rng,
    cursor: &mut Cursor,
    expected: &Partition,
    find: Option<(i64, &[u8])>,
    source: &mut impl BlockSource,
) {
    let copied = |(clustering, cells): (&Vec<u8>, &Vec<u8>)| (clustering.clone(), cells.clone());
    for _ in 0..4 {
        let bound = bytes(rng, 7, 5);
        let count = 1 + usize::try_from(rng.below(200)).unwrap();
        let (start, reversed, wanted): (_, _, Vec<_>) = match rng.below(3) {
            0 => {
                let rows = expected.rows.range(bound.clone()..).map(copied);
                (Start::From(&bound), false, rows.take(count).collect())
            }
            1 => {
                let range = (Bound::Unbounded, Bound::Excluded(bound.clone()));
                let rows = expected.rows.range(range).rev().map(copied);
                (Start::Before(Some(&bound)), true, rows.take(count).collect())
            }
            _ => {
                let rows = expected.rows.iter().rev().map(copied);
                (Start::Before(None), true, rows.take(count).collect())
            }
        };
        match find {
            Some((token, key)) => go!(cursor.find(token, key, start, source)).unwrap(),
            None => go!(cursor.seek_row(start, source)).unwrap(),
        }
        let ranges: Vec<_> = cursor.ranges().map(|range| own(&range)).collect();
        assert_eq!(ranges, expected.ranges);
        assert_eq!(rows(cursor, reversed, count, source), wanted, "{start:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_way_of_reading_agrees_with_the_model(shape in shapes()) {
        let model = draw(&shape);
        let expected = visible(&model);
        let Some((file, written)) = write(&model, &shape) else {
            prop_assert!(expected.is_empty());
            return Ok(());
        };
        let table = Rc::new(Table::open(7, file.len() as u64, reader(&file)).unwrap());
        prop_assert_eq!(table.footer(), written.footer());
        prop_assert_eq!(table.clustering_bounds(), written.clustering_bounds());
        prop_assert_eq!(&scan(&table, &mut FileSource::new(reader(&file))).unwrap(), &expected);

        let mut rng = Rng::new(shape.seed ^ 1);
        let mut source = DelayedSource { file: &file, held: BTreeMap::new() };
        for ((token, key), partition) in &expected {
            source.held.clear();
            let may = table.may_contain(*token, &mut FileSource::new(reader(&file))).unwrap();
            prop_assert_eq!(may, Some(true));
            let mut cursor = Cursor::new(Rc::clone(&table));
            let find = Some((*token, &**key));
            check_partition(&mut rng, &mut cursor, partition, find, &mut source);
            prop_assert_eq!(cursor.partition(), find);
        }
        for _ in 0..15 {
            let token = rng.below(shape.tokens + 2).cast_signed() - 501;
            let key = bytes(&mut rng, 2, 256);
            source.held.clear();
            let mut cursor = Cursor::new(Rc::clone(&table));
            go!(cursor.find(token, &key, Start::From(&[]), &mut source)).unwrap();
            let at = (token, key);
            prop_assert_eq!(cursor.partition().is_some(), expected.contains_key(&at));
            // The walk from there covers some partitions.
            go!(cursor.seek_partition(at.0, &at.1, &mut source)).unwrap();
            for ((token, key), partition) in expected.range(at..).take(3) {
                prop_assert_eq!(cursor.partition(), Some((*token, &**key)));
                check_partition(&mut rng, &mut cursor, partition, None, &mut source);
                go!(cursor.next_partition(&mut source)).unwrap();
            }
        }

        let found: Vec<_> = Verify::open(7, file.len() as u64, reader(&file)).unwrap().collect();
        prop_assert!(found.is_empty(), "{:?}", found);
    }

    #[test]
    fn flipped_bit_is_found_and_never_served(shape in shapes(), flips: [prop::sample::Index; 4]) {
        let shape = Shape { partitions: shape.partitions.min(8), ..shape };
        let model = draw(&shape);
        let Some((mut file, _)) = write(&model, &shape) else { return Ok(()) };
        for flip in flips {
            let bit = flip.index(file.len() * 8);
            file[bit / 8] ^= 1 << (bit % 8);
            let length = file.len() as u64;
            let answer = Table::open(7, length, reader(&file)).and_then(|table| {
                scan(&Rc::new(table), &mut FileSource::new(reader(&file)))
            });
            match answer {
                Ok(answer) => {
                    // The scan did not need the block; the verification does.
                    prop_assert_eq!(answer, visible(&model));
                    let found = Verify::open(7, length, reader(&file)).unwrap().count();
                    prop_assert!(found > 0);
                }
                Err(TableError::Damaged { file: 7, offset, .. }) => {
                    let offset = usize::try_from(offset).unwrap();
                    prop_assert!(offset <= bit / 8, "{} for {}", offset, bit / 8);
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
            file[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        shape in shapes(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let shape = Shape { partitions: shape.partitions.min(8), ..shape };
        let Some((mut file, table)) = write(&draw(&shape), &shape) else { return Ok(()) };
        let blocks = blocks_of(&table, &file);
        for (place, by) in changes {
            let at = place.index(file.len());
            file[at] = file[at].wrapping_add(by);
        }
        // Damage with valid checksums.
        for at in blocks {
            let from = usize::try_from(at.offset()).unwrap();
            let crc = crc32c::crc32c(&file[from + 4..from + at.bytes()]);
            file[from..from + 4].copy_from_slice(&crc.to_le_bytes());
        }
        let length = file.len() as u64;
        if let Ok(table) = Table::open(7, length, reader(&file)) {
            let table = Rc::new(table);
            let _ = scan(&table, &mut FileSource::new(reader(&file)));
            let mut cursor = Cursor::new(table);
            for token in -500..-495 {
                let mut source = FileSource::new(reader(&file));
                let _ = go!(cursor.find(token, b"", Start::Before(None), &mut source));
                let _ = cursor.ranges().count();
                for _ in 0..100 {
                    if cursor.row().is_none() || cursor.retreat(&mut source).is_err() {
                        break;
                    }
                }
            }
            let _ = Verify::open(7, length, reader(&file)).map(Iterator::count);
        }
    }
}

/// The positions of the blocks of a file.
fn blocks_of(table: &Table, file: &[u8]) -> Vec<BlockAt> {
    let mut found = Vec::new();
    let mut page = 0;
    while u64::from(page) * PAGE_BYTES as u64 != table.file_bytes() {
        let from = page as usize * PAGE_BYTES;
        let pages = block::pages_of(u32_at(file, from + 16) as usize);
        found.push(BlockAt { file: 7, page, pages });
        page += pages;
    }
    found
}

#[test]
fn window_reads_many_blocks_at_once() {
    let shape = Shape {
        seed: 5,
        partitions: 600,
        rows_max: 10,
        value_max: 300,
        tokens: 1 << 40,
        clustering_max: 5,
        repetitive: false,
        compression: true,
        filter: true,
    };
    let model = draw(&shape);
    let (file, table) = write(&model, &shape).unwrap();
    let table = Rc::new(table);
    let mut window = Window::new(256 << 10);
    let mut cursor = Cursor::new(Rc::clone(&table)).with_read_ahead(64);
    let mut reads = 0;
    let mut read = |window: &mut Window| {
        let (offset, length) = window.wanted().unwrap();
        let from = usize::try_from(offset).unwrap();
        assert!(length <= 256 << 10 || length.is_multiple_of(PAGE_BYTES));
        window.feed(&file[from..from + length]).unwrap();
        reads += 1;
    };
    macro_rules! through {
        ($step:expr) => {
            while $step.unwrap() == Step::Missing {
                read(&mut window);
            }
        };
    }
    through!(cursor.seek_partition(i64::MIN, &[], &mut window));
    let mut partitions = 0;
    while cursor.partition().is_some() {
        partitions += 1;
        through!(cursor.seek_row(Start::From(&[]), &mut window));
        while cursor.row().is_some() {
            through!(cursor.advance(&mut window));
        }
        through!(cursor.next_partition(&mut window));
    }
    assert_eq!(partitions, visible(&model).len());
    let pages = file.len() / PAGE_BYTES;
    assert!(reads < pages / 16, "{reads} reads for {pages} pages");
}

#[test]
fn filter_avoids_useless_reads() {
    let mut model = Model::new();
    let mut rng = Rng::new(2);
    for _ in 0..20_000 {
        let partition = Partition { rows: [(vec![], vec![])].into(), ..Partition::default() };
        model.insert((rng.next_u64().cast_signed(), vec![1]), partition);
    }
    let shape = Shape {
        seed: 0,
        partitions: 0,
        rows_max: 0,
        value_max: 0,
        tokens: 0,
        clustering_max: 0,
        repetitive: false,
        compression: true,
        filter: true,
    };
    let (file, table) = write(&model, &shape).unwrap();
    let mut source = FileSource::new(reader(&file));
    let tries = 20_000;
    let hits = (0..tries)
        .filter(|_| {
            table.may_contain(rng.next_u64().cast_signed(), &mut source).unwrap() == Some(true)
        })
        .count();
    assert!(hits < tries / 60, "{hits} of {tries}");
}

#[test]
fn rows_that_compress_take_fewer_pages() {
    let pages = |repetitive, compression| {
        let shape = Shape {
            seed: 9,
            partitions: 400,
            rows_max: 4,
            value_max: 400,
            tokens: 1 << 40,
            clustering_max: 3,
            repetitive,
            compression,
            filter: true,
        };
        write(&draw(&shape), &shape).unwrap().0.len() / PAGE_BYTES
    };
    let (tried, plain) = (pages(true, true), pages(true, false));
    assert!(tried * 5 < plain * 4, "{tried} pages for {plain}");
    let (tried, plain) = (pages(false, true), pages(false, false));
    assert!(tried <= plain + plain / 20, "{tried} pages for {plain}");
}

/// After many groups that LZ4 does not make smaller, few are tried, and one that it does ends that.
#[test]
fn rows_that_compress_are_found_after_many_that_do_not() {
    let shape = |repetitive, compression| Shape {
        seed: 9,
        partitions: 2000,
        rows_max: 4,
        value_max: 400,
        tokens: 1 << 40,
        clustering_max: 3,
        repetitive,
        compression,
        filter: true,
    };
    let mut model = draw(&shape(false, true));
    let last = model.last_key_value().unwrap().0.0;
    let repetitive = draw(&shape(true, true));
    model.extend(
        repetitive
            .clone()
            .into_iter()
            .map(|((token, key), partition)| ((last + 1000 + token, key), partition)),
    );
    let pages =
        |model, compression| write(model, &shape(true, compression)).unwrap().0.len() / PAGE_BYTES;
    let saved = pages(&model, false) - pages(&model, true);
    let alone = pages(&repetitive, false) - pages(&repetitive, true);
    assert!(saved * 10 > alone * 9, "{saved} pages saved, {alone} without the rows before");
}

#[test]
fn errors_name_file_and_offset() {
    let at = BlockAt { file: 12, page: 2, pages: 1 };
    let error = Block::decode(at, &[0; PAGE_BYTES]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("00000012.table") && text.contains("offset 8192"), "{text}");
    let TableError::Damaged { file, offset, damage } = error else { panic!("{text}") };
    assert_eq!((file, offset, damage), (12, 8192, Damage::Checksum));
    let Err(TableError::Damaged { damage, .. }) = Table::open(3, 5000, |_, _| Ok(0)) else {
        panic!("a file without bytes was opened");
    };
    assert_eq!(damage, Damage::Short);
    let unreadable = Table::open(3, 4096, |_, _| Err(io::Error::other("no")));
    let Err(TableError::Read { file, offset, .. }) = unreadable else {
        panic!("a file that cannot be read was opened");
    };
    assert_eq!((file, offset), (3, 0));
}

#[test]
fn token_is_in_the_range_that_is_guessed_for_it() {
    let mut rng = Rng::new(7);
    // Even, few distinct, and all in one corner with one far away.
    let draws: [fn(&mut Rng) -> i64; 3] = [
        |rng| rng.next_u64().cast_signed(),
        |rng| rng.below(5).cast_signed(),
        |rng| if rng.below(50) == 0 { i64::MAX } else { i64::MIN + rng.below(9).cast_signed() },
    ];
    for draw in draws {
        for count in [0, 1, 15, 16, 17, 300] {
            let mut tokens: Vec<i64> = (0..count).map(|_| draw(&mut rng)).collect();
            tokens.sort_unstable();
            let others = (0..50).map(|_| draw(&mut rng)).chain([i64::MIN, 0, i64::MAX]);
            for token in tokens.iter().copied().chain(others) {
                let near = data::range_of_token(tokens.len(), token, |at| tokens[at]);
                assert!(tokens[..near.start].iter().all(|&before| before < token));
                assert!(tokens[near.end..].iter().all(|&after| after > token));
            }
        }
    }
    let even: Vec<i64> = (0..1000).map(|at| i64::MIN + (at << 53)).collect();
    let near = data::range_of_token(even.len(), even[700], |at| even[at]);
    assert!(near.len() < 8, "{near:?}");
}
