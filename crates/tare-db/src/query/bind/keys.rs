//! Builds keys and bounds from conditions: combinations of values, slices of partitions and parts
//! of the ring.

use tare_cql::statement::Comparison;
use tare_cql::token::Token;
use tare_cql::wire::Reader;
use tare_store::read::successor;

use super::{BoundValues, PartitionKey, check_key_value, list, push_key};
use crate::query::catalog::{Column, Table};
use crate::query::failure::Failure;
use crate::query::filter::BoundTest;
use crate::query::key_encoding;
use crate::query::plan::{
    Filter, FilterTest, KeyCondition, KeyValues, SliceBound, Slices, TokenBound, TokenValue, Tuple,
};

/// Keys that the IN conditions of one statement may combine to.
const COMBINATIONS_MAX: usize = 65_535;

/// Clustering keys from the first, inclusive, to the second, exclusive.
pub(crate) type OwnedSlice = (Vec<u8>, Option<Vec<u8>>);

impl BoundValues<'_> {
    /// All values that a condition allows, each with one part for every column.
    fn key_values<'s>(
        &'s self,
        condition: &'s KeyCondition,
        columns: &[Column],
    ) -> Result<Vec<Vec<&'s [u8]>>, Failure> {
        match &condition.values {
            KeyValues::Listed(tuples) => {
                tuples.iter().map(|tuple| self.parts(tuple, columns)).collect()
            }
            KeyValues::Marker(source) => {
                let name = columns.first().map_or("", |column| &column.name);
                let items = list(self.needed(source, name)?);
                let item = |item: Option<&'s [u8]>| {
                    let null = || {
                        Failure::invalid(format!(
                            "Invalid null value in condition for column {name}"
                        ))
                    };
                    let bytes = item.ok_or_else(null)?;
                    match columns {
                        [column] => {
                            check_key_value(bytes, column)?;
                            Ok(vec![bytes])
                        }
                        columns => parts_of(bytes, columns),
                    }
                };
                items.map(item).collect()
            }
        }
    }

    fn parts<'s>(&'s self, tuple: &'s Tuple, columns: &[Column]) -> Result<Vec<&'s [u8]>, Failure> {
        match tuple {
            Tuple::Parts(sources) => {
                let parts = sources.iter().zip(columns);
                parts.map(|(source, column)| self.key_value(source, column)).collect()
            }
            Tuple::Whole(source) => {
                let name = columns.first().map_or("", |column| &column.name);
                parts_of(self.needed(source, name)?, columns)
            }
        }
    }

    /// Every combination of the values of the first columns.
    fn combinations<'s>(
        &'s self,
        conditions: &'s [KeyCondition],
        columns: &[Column],
    ) -> Result<Vec<Vec<&'s [u8]>>, Failure> {
        let mut all: Vec<Vec<&[u8]>> = vec![Vec::new()];
        let mut next = 0;
        for condition in conditions {
            let values = self.key_values(condition, &columns[next..next + condition.columns])?;
            next += condition.columns;
            if all.len().saturating_mul(values.len()) > COMBINATIONS_MAX {
                return Err(Failure::Invalid(format!(
                    "the IN conditions make more than {COMBINATIONS_MAX} combinations"
                )));
            }
            let with = |known: &Vec<&'s [u8]>| {
                let known = known.clone();
                values.iter().map(move |more| [&known[..], more].concat()).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        Ok(all)
    }

    /// The keys of all partitions that the conditions allow, each once, in the order of their
    /// values.
    pub(crate) fn keys(
        &self,
        conditions: &[KeyCondition],
        table: &Table,
    ) -> Result<Vec<PartitionKey>, Failure> {
        let mut keys = Vec::new();
        for values in self.combinations(conditions, &table.partition)? {
            let mut order = Vec::new();
            for (value, column) in values.iter().zip(&table.partition) {
                key_encoding::push(&mut order, &column.kind, false, value);
            }
            let mut key = Vec::new();
            push_key(&mut key, values.into_iter().map(Ok))?;
            keys.push((order, PartitionKey::of(key)));
        }
        keys.sort_by(|(a, _), (b, _)| a.cmp(b));
        keys.dedup_by(|(a, _), (b, _)| a == b);
        Ok(keys.into_iter().map(|(_, key)| key).collect())
    }

    /// The prefixes of clustering keys that the conditions allow, each once, ascending.
    pub(crate) fn prefixes(
        &self,
        conditions: &[KeyCondition],
        table: &Table,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let mut prefixes = Vec::new();
        for values in self.combinations(conditions, &table.clustering)? {
            let mut prefix = Vec::new();
            push_values(&mut prefix, &table.clustering, &values);
            prefixes.push(prefix);
        }
        prefixes.sort();
        prefixes.dedup();
        Ok(prefixes)
    }

    /// The test of a filter, with its values.
    pub(crate) fn filter<P>(&self, filter: &Filter<P>) -> Result<BoundTest, Failure> {
        let columns = &filter.columns;
        let key = |values: Vec<&[u8]>| {
            let mut key = Vec::new();
            push_values(&mut key, columns, &values);
            key
        };
        Ok(match &filter.test {
            FilterTest::Any(condition) => {
                let keys = self.key_values(condition, columns)?.into_iter().map(key);
                BoundTest::any(keys.collect())
            }
            FilterTest::Compare(comparison, tuple) => {
                BoundTest::Compare(*comparison, key(self.parts(tuple, columns)?))
            }
        })
    }

    /// The slices of a partition, ascending. None of them is empty.
    pub(crate) fn slices(
        &self,
        slices: &Slices,
        table: &Table,
    ) -> Result<Vec<OwnedSlice>, Failure> {
        let first: usize = slices.equal.iter().map(|condition| condition.columns).sum();
        let columns = &table.clustering[first..];
        let mut rest = vec![(Vec::new(), None)];
        for (bound, is_low) in [(&slices.low, true), (&slices.high, false)] {
            if let Some(bound) = bound {
                rest = intersection(&rest, &self.beyond(bound, is_low, columns)?);
            }
        }
        let mut found = Vec::new();
        for prefix in self.prefixes(&slices.equal, table)? {
            for (from, to) in &rest {
                let to = match to {
                    Some(to) => Some([&prefix[..], to].concat()),
                    None => after(prefix.clone()),
                };
                found.push(([&prefix[..], from].concat(), to));
            }
        }
        Ok(found)
    }

    /// The slices of the clustering key's remaining columns that lie above (or below) a bound,
    /// ascending. `(a, b) > (1, 2)` means `a > 1`, or `a = 1` with `b > 2`: two slices, which touch
    /// and become one if `a` and `b` have the same order.
    fn beyond(
        &self,
        bound: &SliceBound,
        is_low: bool,
        columns: &[Column],
    ) -> Result<Vec<OwnedSlice>, Failure> {
        let columns = &columns[..bound.columns];
        let mut slices = Vec::new();
        let mut same = Vec::new();
        for (column, part) in columns.iter().zip(self.parts(&bound.values, columns)?) {
            let above = after(same.clone());
            let from = same.clone();
            key_encoding::push(&mut same, &column.kind, column.descending, part);
            match is_low != column.descending {
                // No key may follow all keys with this prefix.
                true => slices.extend(after(same.clone()).map(|from| (from, above))),
                false => slices.push((from, Some(same.clone()))),
            }
        }
        if bound.inclusive {
            slices.push((same.clone(), after(same)));
        }
        slices.retain(is_filled);
        slices.sort();
        slices.dedup_by(|next, slice| {
            let touches = slice.1.as_ref() == Some(&next.0);
            if touches {
                slice.1 = next.1.take();
            }
            touches
        });
        Ok(slices)
    }

    /// The first and the last token of a part of the ring; `None` if the part is empty.
    pub(crate) fn tokens(
        &self,
        bounds: &[TokenBound],
        table: &Table,
    ) -> Result<Option<(i64, i64)>, Failure> {
        let (mut first, mut last) = (i64::MIN, i64::MAX);
        for TokenBound { comparison, value } in bounds {
            let token = match value {
                TokenValue::Number(source) => {
                    let bytes = self.needed(source, "partition key token")?.try_into();
                    i64::from_be_bytes(bytes.map_err(|_| Failure::invalid("a token is a bigint"))?)
                }
                TokenValue::Of(sources) => {
                    let mut key = Vec::new();
                    self.key(&mut key, sources, table)?;
                    Token::of(&key).0
                }
            };
            let below = token.checked_sub(1);
            let above = token.checked_add(1);
            match comparison {
                Comparison::Equal => (first, last) = (first.max(token), last.min(token)),
                Comparison::GreaterOrEqual => first = first.max(token),
                Comparison::Greater => match above {
                    Some(above) => first = first.max(above),
                    None => return Ok(None),
                },
                // The least token is both the start and the end of the ring.
                Comparison::Less | Comparison::LessOrEqual if token == i64::MIN => {}
                Comparison::LessOrEqual => last = last.min(token),
                Comparison::Less => last = last.min(below.unwrap_or(token)),
            }
        }
        Ok((first <= last).then_some((first, last)))
    }
}

/// Excludes the row with the static columns, whose clustering key is empty.
pub(crate) fn without_static_row(slices: &mut [OwnedSlice]) {
    // No key begins below this.
    slices.iter_mut().filter(|(from, _)| from.is_empty()).for_each(|(from, _)| from.push(0));
}

fn push_values(out: &mut Vec<u8>, columns: &[Column], values: &[&[u8]]) {
    for (value, column) in values.iter().zip(columns) {
        key_encoding::push(out, &column.kind, column.descending, value);
    }
}

fn is_filled((from, to): &OwnedSlice) -> bool {
    to.as_ref().is_none_or(|to| to > from)
}

/// The intersection of two ascending lists of slices.
fn intersection(some: &[OwnedSlice], others: &[OwnedSlice]) -> Vec<OwnedSlice> {
    let common = |(from, to): &OwnedSlice, (other_from, other_to): &OwnedSlice| {
        let to = [to, other_to].into_iter().flatten().min();
        (from.max(other_from).clone(), to.cloned())
    };
    let pairs = some.iter().flat_map(|slice| others.iter().map(move |other| common(slice, other)));
    pairs.filter(is_filled).collect()
}

/// The least key above all keys with a prefix; `None` if there is none.
pub(crate) fn after(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    successor(&mut prefix).then_some(prefix)
}

/// The parts of a valid tuple.
fn parts_of<'b>(bytes: &'b [u8], columns: &[Column]) -> Result<Vec<&'b [u8]>, Failure> {
    let mut reader = Reader::new(bytes);
    let mut parts = Vec::new();
    for column in columns {
        let name = &column.name;
        let part = reader.bytes("part of a tuple").map_err(|_| {
            Failure::Invalid(format!("Expected {} elements in a tuple", columns.len()))
        })?;
        let null = || format!("Invalid null value in condition for column {name}");
        let part = part.ok_or_else(|| Failure::Invalid(null()))?;
        check_key_value(part, column)?;
        parts.push(part);
    }
    Ok(parts)
}
