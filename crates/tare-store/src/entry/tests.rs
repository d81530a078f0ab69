use super::*;
use crate::cells::{Cell, push};
use proptest::prelude::*;

type Owned = (u32, i64, Vec<u8>, Vec<u8>, Option<(Option<Vec<u8>>, i64, u32)>);

fn mutations() -> impl Strategy<Value = Vec<Owned>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let range = proptest::option::of((proptest::option::of(bytes()), any::<i64>(), any::<u32>()));
    proptest::collection::vec((any::<u32>(), any::<i64>(), bytes(), bytes(), range), 1..4)
}

fn borrowed<'a>(owned: &'a Owned, row: &'a [u8]) -> Mutation<'a> {
    let (table, token, key, clustering, range) = owned;
    let change = match range {
        None => Change::Row { clustering, cells: row },
        Some((to, timestamp, deleted_s)) => Change::Range(RangeTombstone {
            from: clustering,
            to: to.as_deref(),
            timestamp: *timestamp,
            deleted_s: *deleted_s,
        }),
    };
    Mutation { table: *table, token: *token, key, change }
}

fn entry(mutations: &[Mutation<'_>]) -> Vec<u8> {
    let length = payload_bytes(mutations);
    let mut out = vec![0; bytes(length)];
    encode_entry(mutations, &mut out);
    let mut payload = vec![0; length];
    encode_payload(mutations, &mut payload);
    let mut again = vec![0; out.len()];
    encode_encoded(&payload, &mut again);
    assert_eq!(out, again);
    out
}

proptest! {
    #[test]
    fn entries_round_trip_and_damage_is_detected(
        owned in mutations(),
        value in proptest::collection::vec(any::<u8>(), 0..40),
        flip: proptest::sample::Index,
    ) {
        let mut row = Vec::new();
        push(&mut row, Cell::live(2, 7, &value));
        let mutations: Vec<_> = owned.iter().map(|owned| borrowed(owned, &row)).collect();
        let mut bytes = entry(&mutations);
        let read: Vec<_> = Entries::new(&bytes).flatten().flatten().collect();
        prop_assert_eq!(read, mutations);
        let at = flip.index(bytes.len());
        bytes[at] ^= 1;
        prop_assert!(matches!(Entries::new(&bytes).last(), Some(None)));
    }

    #[test]
    fn arbitrary_payloads_are_decoded_or_refused(bytes in proptest::collection::vec(0u8..4, 0..80)) {
        let read: Vec<_> = Mutations::new(&bytes).collect();
        let length = payload_bytes(&read);
        let mut again = vec![0; length];
        encode_payload(&read, &mut again);
        prop_assert!(bytes.starts_with(&again));
    }
}

#[test]
fn entry_without_a_mutation_is_damaged() {
    assert!(matches!(Entries::new(&entry(&[])).next(), Some(None)));
}

#[test]
fn group_head_is_checked() {
    let head = GroupHead { sequence: 3, durable: 2, length: 99 };
    let mut bytes = head.encode();
    assert_eq!(GroupHead::decode(&bytes), Some(head));
    for at in 0..GROUP_HEAD_BYTES {
        bytes[at] ^= 0x10;
        assert_eq!(GroupHead::decode(&bytes), None, "byte {at}");
        bytes[at] ^= 0x10;
    }
}
