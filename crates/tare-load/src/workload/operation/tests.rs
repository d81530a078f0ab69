use super::*;
use crate::workload::keys::Keys;
use crate::workload::rows::{KeyType, Shape};
use crate::workload::{Query, parse};
use proptest::prelude::*;

const SHAPE: Shape = Shape { key_type: KeyType::Bigint, columns: 2, column_bytes: 20 };

fn workload(queries: Vec<Query>, rows: u64) -> Workload {
    let mut workload = Workload::plain(SHAPE, rows, 0.5, Keys::Uniform).unwrap();
    workload.queries = queries;
    workload
}

fn operations(queries: Vec<Query>, rows: u64, part: &str) -> Operations {
    Operations::new(&workload(queries, rows), 7, part.parse().unwrap())
}

#[test]
fn sequential_keys_visit_every_row() {
    let all = operations(vec![Query::new(QueryKind::Write, 1.0, Keys::Sequential)], 5, "1/1");
    assert_eq!((0..7).map(|index| all.row(index)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 0, 1]);
}

#[test]
fn blocks_have_exact_shares() {
    let kinds = [(QueryKind::Read, 95.0), (QueryKind::Update, 4.0), (QueryKind::Insert, 1.0)];
    let queries =
        kinds.iter().map(|&(kind, weight)| Query::new(kind, weight, Keys::Uniform)).collect();
    let all = operations(queries, 100, "1/1");
    let mut orders = Vec::new();
    for block in 0..3 {
        let kinds: Vec<u8> =
            (0..BLOCK).map(|place| all.derive(block * BLOCK + place).query).collect();
        let count = |kind| kinds.iter().filter(|query| **query == kind).count();
        assert_eq!([count(0), count(1), count(2)], [15_565, 655, 164]);
        // Neighbours are independent: pairs of rare kinds are as rare as chance makes them.
        let pairs = kinds.windows(2).filter(|pair| pair[0] != 0 && pair[1] != 0).count();
        assert!((20..65).contains(&pairs), "{pairs}");
        orders.push(kinds);
    }
    assert!(orders[0] != orders[1] && orders[1] != orders[2]);
}

#[test]
fn inserted_rows_follow_the_others_without_gaps() {
    let queries = vec![
        Query::new(QueryKind::Read, 0.9, Keys::Latest { exponent: 0.99 }),
        Query::new(QueryKind::Insert, 0.1, Keys::Uniform),
    ];
    for part in ["1/1", "1/3", "3/3"] {
        let all = operations(queries.clone(), 1_000, part);
        let part: Part = part.parse().unwrap();
        let mut inserted = Vec::new();
        let mut newest = 0;
        for index in 0..3 * BLOCK {
            let operation = all.derive(index);
            if operation.query == 1 {
                inserted.push((operation.row - 1_000 - part.index) / part.count);
            } else if operation.row >= 1_000 {
                // Only rows of blocks before the last one are read.
                let ordinal = (operation.row - 1_000 - part.index) / part.count;
                assert!(ordinal < all.inserts * (index / BLOCK).saturating_sub(1));
                newest = newest.max(ordinal);
            }
        }
        inserted.sort_unstable();
        assert!(inserted.into_iter().eq(0..3 * all.inserts));
        assert!(newest > all.inserts / 2, "{newest}");
    }
}

#[test]
fn misses_have_their_share() {
    let mut query = Query::new(QueryKind::Read, 1.0, Keys::Uniform);
    query.misses = 0.25;
    let all = operations(vec![query], 1_000, "1/1");
    let misses = (0..100_000).filter(|&index| all.derive(index).absent).count();
    assert!((24_300..25_700).contains(&misses), "{misses}");
}

#[test]
fn parts_are_read() {
    assert_eq!("2/5".parse::<Part>().unwrap().to_string(), "2/5");
    for bad in ["", "0/5", "6/5", "1", "a/b", "1/0", "1/9999999"] {
        assert_eq!(bad.parse::<Part>(), Err(PartError), "{bad}");
    }
}

#[test]
fn updates_choose_all_columns_equally() {
    let text = "[table]\nkeyspace = 'k'\nname = 't'\nrows = 10\n[[partition]]\nname = 'p'\n\
                type = 'int'\n[[column]]\nname = 'c'\ncount = 3\ntype = 'blob'\n\
                [[query]]\nkind = 'update'\ncolumns = 1\n";
    let workload = parse(text, "test.toml", "test").unwrap();
    let all = Operations::new(&workload, 1, Part::ALL);
    let mut seen = [0; 3];
    (0..3_000).for_each(|index| seen[all.derive(index).choice as usize] += 1);
    assert!(seen.iter().all(|count| (850..1_150).contains(count)), "{seen:?}");
}

proptest! {
    #[test]
    fn scatter_is_a_permutation(key: u64) {
        let mut seen: Vec<u64> = (0..BLOCK).map(|place| scatter(place, key)).collect();
        seen.sort_unstable();
        prop_assert!(seen.into_iter().eq(0..BLOCK));
    }

    #[test]
    fn parts_divide_the_rows(rows in 1u64..=1 << 62, count in 1u64..2_000) {
        let mut next = 0;
        for index in 0..count {
            let (first, length) = Part { index, count, draws_from_all: false }.of(rows);
            prop_assert_eq!(first, next);
            next += length;
        }
        prop_assert_eq!(next, rows);
    }

    #[test]
    fn operations_repeat_and_stay_in_their_part(index: u64, seed: u64, rows in 10u64..1 << 40) {
        let queries = vec![Query::new(QueryKind::Read, 1.0, Keys::Zipfian { exponent: 1.1 })];
        let workload = workload(queries, rows);
        for part in ["1/1", "2/3", "7/7"] {
            let part: Part = part.parse().unwrap();
            let all = Operations::new(&workload, seed, part);
            let (first, count) = part.of(rows);
            prop_assert!((first..first + count).contains(&all.row(index)));
            prop_assert_eq!(all.derive(index), all.derive(index));
        }
    }
}

#[test]
fn parts_of_one_load_keep_its_distribution() {
    let (rows, draws) = (1_000, 40_000);
    let gaussian = Keys::Gaussian { mean: 0.5, deviation: 0.1 };
    let mean_distance = |keys, part: Part| {
        let workload = workload(vec![Query::new(QueryKind::Read, 1.0, keys)], rows);
        let operations = Operations::new(&workload, 7, part);
        (0..draws).map(|index| operations.row(index).abs_diff(rows / 2) as f64).sum::<f64>()
            / draws as f64
    };
    let whole = mean_distance(gaussian, Part::ALL);
    for index in 0..3 {
        let part = mean_distance(gaussian, Part::of_one_load(index, 3));
        assert!((part / whole - 1.0).abs() < 0.05, "{part} {whole}");
    }
    // Sequential keys are divided: each loader passes over its own rows.
    let workload = workload(vec![Query::new(QueryKind::Read, 1.0, Keys::Sequential)], rows);
    let mut all: Vec<u64> = (0..3)
        .flat_map(|index| {
            let part = Part::of_one_load(index, 3);
            let operations = Operations::new(&workload, 7, part);
            (0..part.of(rows).1).map(move |index| operations.row(index)).collect::<Vec<_>>()
        })
        .collect();
    all.sort_unstable();
    assert_eq!(all, (0..rows).collect::<Vec<_>>());
}
