//! Random statements.

use proptest::prelude::*;

use super::conditional::{Conditional, Test};
use super::{
    Change, Filter, Key, ListChange, MAP_KEYS, MapChange, Query, SELECTIONS, Stamped, Step, TEXTS,
    Target, VALUES,
};

fn filter() -> impl Strategy<Value = Filter> {
    let sign = prop::sample::select(vec!["=", "<", ">="]);
    prop_oneof![
        (0..VALUES, sign, 0..3).prop_map(|(column, sign, x)| Filter::Value(column, sign, x)),
        text().prop_map(Filter::Text),
        (0..5, 0..4).prop_map(|(below, c)| Filter::Keys(below, c)),
    ]
}

fn text() -> impl Strategy<Value = &'static str> {
    prop::sample::select(TEXTS.to_vec())
}

fn key() -> impl Strategy<Value = Key> {
    (0..4, 0..4, text())
}

fn target() -> impl Strategy<Value = Target> {
    let edge = || prop::option::of((0..4, any::<bool>()));
    let tuple = || prop::option::of(((0..4, text()), any::<bool>()));
    prop_oneof![
        Just(Target::Partition),
        (0..4).prop_map(Target::Column),
        (edge(), edge()).prop_map(|(low, high)| Target::Slice(low, high)),
        (tuple(), tuple()).prop_map(|(low, high)| Target::Tuples(low, high)),
        (0..4, text()).prop_map(|(x, y)| Target::Above(x, y)),
        (0..4, text()).prop_map(|(x, y)| Target::Row(x, y)),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let value = || prop::option::of(prop::option::weighted(0.8, 0..3));
    let values = move || [value(), value()];
    prop_oneof![
        4 => (key(), values()).prop_map(|(key, values)| Change::Insert { key, values }),
        3 => (key(), values(), 0..3).prop_map(|(key, mut values, value)| {
            // SET needs at least one assignment.
            values[0].get_or_insert(Some(value));
            Change::Update { key, values }
        }),
        1 => (key(), 0..VALUES).prop_map(|(key, column)| Change::Clear { key, column }),
        2 => (0..4, prop::option::weighted(0.8, 0..3))
            .prop_map(|(k, value)| Change::Static { k, value }),
        4 => (key(), map_change()).prop_map(|(key, change)| Change::Map { key, change }),
        6 => (0..2, 0..2, list_change()).prop_map(|(k, c, change)| {
            // Few rows, so that the lists have elements.
            Change::List { key: (k, c, "a"), change, elements: Vec::new() }
        }),
        2 => (0..4, target()).prop_map(|(k, target)| Change::Delete { k, target }),
    ]
}

fn map_change() -> impl Strategy<Value = MapChange> {
    let map = || prop::collection::btree_map(MAP_KEYS, 0..3, 0..4);
    prop_oneof![
        map().prop_map(MapChange::Replace),
        map().prop_map(MapChange::Add),
        (MAP_KEYS, prop::option::weighted(0.8, 0..3)).prop_map(|(k, v)| MapChange::Put(k, v)),
        prop::collection::vec(MAP_KEYS, 0..3).prop_map(MapChange::Remove),
        MAP_KEYS.prop_map(MapChange::Delete),
        Just(MapChange::Clear),
    ]
}

fn list_change() -> impl Strategy<Value = ListChange> {
    let list = |least| prop::collection::vec(0..3, least..4);
    prop_oneof![
        1 => list(0).prop_map(ListChange::Replace),
        4 => list(1).prop_map(ListChange::Append),
        3 => list(1).prop_map(ListChange::Prepend),
        4 => (0..4_usize, prop::option::weighted(0.8, 0..3))
            .prop_map(|(at, value)| ListChange::Set(at, value)),
        2 => (0..3_usize).prop_map(ListChange::Delete),
        2 => list(0).prop_map(ListChange::Discard),
        1 => Just(ListChange::Clear),
    ]
}

fn query() -> impl Strategy<Value = Query> {
    let keys = prop::option::weighted(0.7, prop::collection::vec(0..5, 1..4));
    let some = || prop::option::weighted(0.3, 1..6_usize);
    let flags = (any::<bool>(), prop::bool::weighted(0.2));
    let filter = prop::option::weighted(0.3, filter());
    let more = (prop::option::of(0..5), 0..SELECTIONS.len(), filter);
    (keys, target(), some(), some(), 1..6, flags, more).prop_map(
        |(
            keys,
            target,
            per_partition,
            limit,
            page_size,
            (reversed, distinct),
            (token_above, selection, filter),
        )| {
            // Without a partition there are no conditions on its rows.
            let target = if keys.is_none() || distinct { Target::Partition } else { target };
            let reversed = reversed && keys.is_some() && !distinct;
            let token = keys.is_none() && token_above.is_some();
            let filter = filter.filter(|f| !distinct && f.fits(keys.is_some(), token, target));
            Query {
                keys,
                target,
                reversed,
                per_partition,
                limit,
                page_size,
                distinct,
                selection,
                token_above,
                filter,
            }
        },
    )
}

fn conditional() -> impl Strategy<Value = Conditional> {
    let value = || prop::option::of(0..3);
    let test = prop_oneof![
        Just(Test::Exists),
        (0..VALUES, value()).prop_map(|(column, value)| Test::Value(column, value)),
        prop::collection::btree_map(MAP_KEYS, 0..3, 0..2).prop_map(Test::Map),
        (MAP_KEYS, value()).prop_map(|(key, value)| Test::Entry(key, value)),
        prop::collection::vec(0..3, 0..2).prop_map(Test::List),
        (0..2_usize, value()).prop_map(|(at, value)| Test::Element(at, value)),
        value().prop_map(Test::Static),
    ];
    (change(), test).prop_map(|(mut change, test)| {
        if let Change::Delete { target, .. } = &mut change {
            *target = Target::Row(1, TEXTS[1]);
        }
        // A static column alone has no conditions on rows, and a row is not deleted on conditions
        // on static columns alone.
        let test = match (&change, test) {
            (Change::Delete { .. }, Test::Static(_)) => Test::Exists,
            (Change::Static { .. }, Test::Exists) => Test::Exists,
            (Change::Static { value, .. }, Test::Value(..) | Test::Map(_) | Test::List(_)) => {
                Test::Static(*value)
            }
            (Change::Static { .. }, Test::Entry(_, value) | Test::Element(_, value)) => {
                Test::Static(value)
            }
            (_, test) => test,
        };
        Conditional { change, test }
    })
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let write =
        || (0..6_i64, change()).prop_map(|(timestamp, change)| Stamped { timestamp, change });
    prop_oneof![
        6 => write().prop_map(Step::Write),
        1 => (0..6_i64, prop::collection::vec(write(), 1..5)).prop_map(|(timestamp, mut writes)| {
            writes.iter_mut().for_each(|write| write.timestamp = timestamp);
            Step::Batch(writes)
        }),
        4 => query().prop_map(Step::Query),
        1 => conditional().prop_map(Step::Conditional),
    ]
}
