//! Tests whether the values of a row satisfy a condition. Values are compared by their key
//! encodings, whose bytes have the order of the values.
//!
//! Limits: a decimal or varint that is too long for a key satisfies no condition.

use std::borrow::Cow;

use tare_cql::statement::Comparison;

use crate::query::key_encoding;
use crate::query::plan::Filter;

/// The test of a filter with its values, which are encoded as keys of ascending columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BoundTest {
    /// One of these keys, ascending.
    Any(Vec<Vec<u8>>),
    Compare(Comparison, Vec<u8>),
}

impl BoundTest {
    /// A test for any of these keys.
    pub(crate) fn any(mut keys: Vec<Vec<u8>>) -> Self {
        keys.sort();
        Self::Any(keys)
    }

    fn accepts(&self, key: &[u8]) -> bool {
        match self {
            Self::Any(keys) => keys.binary_search_by(|known| (**known).cmp(key)).is_ok(),
            Self::Compare(comparison, wanted) => holds(*comparison, key, wanted),
        }
    }
}

/// Whether a comparison of two keys holds.
pub(crate) fn holds(comparison: Comparison, key: &[u8], wanted: &[u8]) -> bool {
    match comparison {
        Comparison::Equal => key == wanted,
        Comparison::Less => key < wanted,
        Comparison::LessOrEqual => key <= wanted,
        Comparison::Greater => key > wanted,
        Comparison::GreaterOrEqual => key >= wanted,
    }
}

impl<P> Filter<P> {
    /// Whether a row satisfies the filter; `value` returns the row's values.
    pub(crate) fn accepts<'v>(
        &self,
        test: &BoundTest,
        value: impl Fn(&P) -> Option<Cow<'v, [u8]>>,
    ) -> bool {
        let mut key = Vec::new();
        for (place, column) in self.places.iter().zip(&self.columns) {
            match value(place) {
                Some(value) if !key_encoding::is_too_long(&column.kind, &value) => {
                    key_encoding::push(&mut key, &column.kind, false, &value);
                }
                _ => return false,
            }
        }
        test.accepts(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_compare_whole_keys() {
        let any = BoundTest::any(vec![vec![3], vec![1, 2], vec![]]);
        for (key, expect) in
            [(&[][..], true), (&[1], false), (&[1, 2], true), (&[3], true), (&[4], false)]
        {
            assert_eq!(any.accepts(key), expect, "{key:?}");
        }
        for (comparison, expect) in [
            (Comparison::Equal, [false, true, false]),
            (Comparison::Less, [true, false, false]),
            (Comparison::LessOrEqual, [true, true, false]),
            (Comparison::Greater, [false, false, true]),
            (Comparison::GreaterOrEqual, [false, true, true]),
        ] {
            let test = BoundTest::Compare(comparison, vec![5]);
            assert_eq!([4, 5, 6].map(|key| test.accepts(&[key])), expect, "{comparison:?}");
        }
    }
}
