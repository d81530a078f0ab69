use super::*;
use proptest::prelude::*;

fn blob(size: Distribution, random_share: f64) -> Column {
    Column::new("c".into(), Type::Blob, Content::Blob { size, random_share }, 3)
}

fn text(size: Distribution, random_share: f64) -> Column {
    Column::new("c".into(), Type::Text, Content::Text { size, random_share }, 3)
}

fn bytes(column: &Column, row: u64, version: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    column.put(row, version, &mut bytes);
    bytes
}

#[test]
fn values_compress_as_requested() {
    for share in [0.2, 0.33, 0.5, 0.75, 1.0] {
        for make in [blob, text] {
            for size in [
                Distribution::Fixed(100),
                Distribution::Fixed(1_000),
                Distribution::Uniform(100, 700),
            ] {
                let column = make(size, share);
                // Blocks of 16 KiB, as tables have them.
                let (mut raw, mut compressed, mut block) = (0, 0, Vec::new());
                for row in 0..2_000 {
                    column.put(row_start(1, row), 0, &mut block);
                    if block.len() > 16 << 10 {
                        raw += block.len();
                        compressed += lz4_flex::block::compress(&block).len();
                        block.clear();
                    }
                }
                let ratio = compressed as f64 / raw as f64;
                assert!((ratio - share).abs() < 0.03, "{size} at {share}: {ratio}");
            }
        }
    }
}

#[test]
fn short_values_have_one_version() {
    for (column, expect) in [
        (blob(Distribution::Fixed(15), 1.0), false),
        (blob(Distribution::Fixed(16), 1.0), true),
        (text(Distribution::Fixed(23), 1.0), false),
        (text(Distribution::Uniform(24, 30), 1.0), true),
        (blob(Distribution::Fixed(34), 0.5), false),
    ] {
        assert_eq!(column.has_versions(), expect, "{column:?}");
        assert_eq!(bytes(&column, 5, 0) != bytes(&column, 5, 9), expect);
        let told = expect.then_some(9);
        assert_eq!(column.check(5, &bytes(&column, 5, 9)), Verdict::Right(told));
    }
}

#[test]
fn numbers_keep_their_range() {
    let form = Form::of(&Type::Int, 0, "").unwrap();
    let range = Some(Distribution::Uniform(5, 9));
    let column = Column::new("n".into(), Type::Int, Content::Number { form, range }, 0);
    let seen: std::collections::BTreeSet<Vec<u8>> =
        (0..200).map(|row| bytes(&column, row_start(1, row), 0)).collect();
    let expect: Vec<Vec<u8>> = (5i32..=9).map(|n| n.to_be_bytes().to_vec()).collect();
    assert!(seen.into_iter().eq(expect));
}

proptest! {
    #[test]
    fn values_reveal_version_and_any_change(
        row: u64, version: u64, size in 0u64..200, more in 0u64..50, share in 0.0f64..1.2, flip: u64,
    ) {
        for column in [blob(Distribution::Uniform(size, size + more), share), text(Distribution::Fixed(size), share)] {
            let mut value = bytes(&column, row, version);
            prop_assert!(column.kind.validate(&value).is_ok());
            prop_assert!((size..=size + more).contains(&(value.len() as u64)));
            let told = column.has_versions().then_some(version);
            prop_assert_eq!(column.check(row, &value), Verdict::Right(told));
            if value.is_empty() {
                continue;
            }
            prop_assert_eq!(column.check(row, &value[1..]), Verdict::Wrong);
            let bit = usize::try_from(flip % (value.len() as u64 * 8)).unwrap();
            value[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(column.check(row, &value), Verdict::Wrong);
        }
    }
}
