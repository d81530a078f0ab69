use super::*;
use crate::cells::{Cell, push};
use proptest::prelude::*;

fn row(timestamp: i64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push(&mut out, Cell { column: 1, timestamp, value: Some(value) });
    out
}

/// Tokens that fill few buckets, so that splits at every depth and collisions occur.
fn tokens() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        -3i64..3,
        Just(i64::MIN),
        Just(i64::MAX),
        (0u32..64).prop_map(|b| 1 << b)
    ]
}

proptest! {
    #[test]
    fn the_table_is_a_map_ordered_by_token_and_key(
        writes in proptest::collection::vec((tokens(), 0u8..4, 0u8..3, 0i64..4, any::<u8>()), 0..400),
        clustered: bool,
        from in tokens(),
    ) {
        let mut table = Table::default();
        let mut model = BTreeMap::<(i64, Vec<u8>, Vec<u8>), (i64, Vec<u8>)>::new();
        let mut scratch = Vec::new();
        let mut bytes = 0;
        for (token, key, clustering, timestamp, value) in writes {
            let clustering = if clustered { vec![1, clustering] } else { vec![] };
            let (key, value) = (vec![key], vec![value]);
            bytes += table.apply(token, &key, &clustering, &row(timestamp, &value), &mut scratch);
            let new = (timestamp, value);
            let old = model.entry((token, key, clustering)).or_insert_with(|| new.clone());
            if new > *old {
                *old = new;
            }
        }
        let flat = |p: &Partition| {
            let key = (p.token(), p.key().to_vec());
            let rows = p.rows().map(|(c, cells)| (key.0, key.1.clone(), c.to_vec(), cells.to_vec()));
            rows.collect::<Vec<_>>()
        };
        let expect: Vec<_> = model
            .iter()
            .map(|((t, k, c), (ts, v))| (*t, k.clone(), c.clone(), row(*ts, v)))
            .collect();
        prop_assert_eq!(table.iter().flat_map(flat).collect::<Vec<_>>(), expect.clone());
        let tail: Vec<_> = expect.iter().filter(|row| row.0 >= from).cloned().collect();
        prop_assert_eq!(table.iter_from(from).flat_map(flat).collect::<Vec<_>>(), tail);
        for (token, key, clustering, cells) in &expect {
            prop_assert_eq!(table.get(*token, key).unwrap().row(clustering), Some(&cells[..]));
        }
        prop_assert!(table.get(77, b"none").is_none());
        let all: usize = table.iter().map(partition_bytes).sum();
        prop_assert_eq!(usize::try_from(bytes).unwrap(), all);
        prop_assert_eq!(table.len(), table.iter().count() as u64);
    }
}

#[test]
fn spread_tokens_keep_buckets_small() {
    let mut table = Table::default();
    let mut rng = tare_std::rng::Rng::new(5);
    for _ in 0..50_000 {
        table.apply(rng.next_u64().cast_signed(), b"k", b"", b"", &mut Vec::new());
    }
    let longest = table.buckets.iter().map(|bucket| bucket.partitions.len()).max();
    assert!(longest <= Some(BUCKET_MAX), "{longest:?}");
    assert!(table.buckets.len() < 50_000 / 8, "{}", table.buckets.len());
}
