//! Groups of rows: aggregates of all rows, or of the rows between which the columns of GROUP BY do
//! not change. The rows come in the order of their keys, so that only one group is open at a time.
//!
//! A page ends between two groups, so that a paging state need not hold a part of one.

use std::borrow::Cow;
use std::cmp::Ordering;

use tare_cql::statement::Aggregate;
use tare_cql::types::Type;
use tare_cql::wire::put_bytes;
use tare_store::Row;
use tare_store::read::Next;

use super::project::value;
use super::{ANSWER_BYTES_MAX, PAGE_BYTES_MAX, ReadOptions, ResultPage};
use crate::query::catalog::Table;
use crate::query::filter::BoundTest;
use crate::query::key_encoding;
use crate::query::plan::{GroupBy, GroupItem, Groups, Items, Select};

/// The group whose rows are coming.
#[derive(Debug)]
pub(super) struct OpenGroup {
    /// Partition key and first columns of the clustering key of its rows.
    key: Vec<u8>,
    prefix: Vec<u8>,
    /// One for each item.
    results: Vec<Accumulator>,
}

/// What is known of an item after some rows.
#[derive(Debug)]
enum Accumulator {
    /// The value in the first row; the outer `None` before there was one.
    First(Option<Option<Vec<u8>>>),
    Count(u64),
    /// The value and its key encoding.
    Best(Option<(Vec<u8>, Vec<u8>)>),
    Integers {
        sum: i128,
        count: i128,
    },
    Floats {
        sum: f64,
        count: f64,
    },
}

impl ResultPage {
    /// Takes a row into its group, unless a limit or a filter excludes it. Returns where the walk
    /// goes next.
    pub(super) fn take_grouped(
        &mut self,
        (select, tests): (&Select, &[BoundTest]),
        groups: &Groups,
        options: &ReadOptions,
        row: &Row<'_>,
    ) -> Next {
        let is_wanted = super::accepts(select, tests, options, row);
        let prefix = groups.prefix(&select.table, row.clustering);
        let is_open = self.group.as_ref().is_some_and(|group| match groups.by {
            GroupBy::All => true,
            _ => group.key == row.key && group.prefix == prefix,
        });
        let last = self.last.get_or_insert_default();
        let is_same = last.token == row.token && last.key == row.key;
        // PER PARTITION LIMIT counts groups, or rows if all of them are one group.
        let is_counted = !is_open || groups.by == GroupBy::All;
        if is_wanted && is_counted {
            if is_same && last.in_partition >= options.per_partition_rows {
                return Next::Partition;
            }
            let bytes_max = if options.is_paged { PAGE_BYTES_MAX } else { ANSWER_BYTES_MAX };
            if self.rows >= options.rows_left {
                return Next::Stop;
            }
            if self.rows >= options.page_rows || self.cells.len() >= bytes_max {
                self.more = true;
                return Next::Stop;
            }
        }
        self.seen += 1;
        last.move_to(row, is_same);
        if !is_wanted {
            return Next::Row;
        }
        last.in_partition += u64::from(is_counted);
        if !is_open {
            self.close_group(groups);
            self.rows += 1;
            let (key, prefix) = (row.key.to_vec(), prefix.to_vec());
            self.group = Some(OpenGroup { key, prefix, results: groups.results() });
        }
        if let Some(group) = &mut self.group {
            for (item, result) in groups.items.iter().zip(&mut group.results) {
                result.add(item, &select.table, row, options);
            }
        }
        Next::Row
    }

    /// Appends the last group. All rows together are a group even if there are none.
    pub(super) fn finish_groups(&mut self, select: &Select) {
        let Items::Groups(groups) = &select.items else { return };
        self.close_group(groups);
        if self.rows == 0 && groups.by == GroupBy::All {
            self.rows = 1;
            for (item, result) in groups.items.iter().zip(groups.results()) {
                put_bytes(&mut self.cells, result.value(item).as_deref());
            }
        }
    }

    fn close_group(&mut self, groups: &Groups) {
        let Some(group) = self.group.take() else { return };
        for (item, result) in groups.items.iter().zip(group.results) {
            put_bytes(&mut self.cells, result.value(item).as_deref());
        }
    }
}

impl Groups {
    /// The part of a clustering key that the rows of a group share.
    fn prefix<'k>(&self, table: &Table, clustering: &'k [u8]) -> &'k [u8] {
        let GroupBy::Clustering(columns) = self.by else { return &[] };
        let mut rest = clustering;
        for column in &table.clustering[..columns] {
            rest = key_encoding::skip(&column.kind, column.descending, rest).unwrap_or_default();
        }
        &clustering[..clustering.len() - rest.len()]
    }

    fn results(&self) -> Vec<Accumulator> {
        let result = |item: &GroupItem| match item {
            GroupItem::First(_) => Accumulator::First(None),
            GroupItem::Count | GroupItem::CountOf(_) => Accumulator::Count(0),
            GroupItem::Fold(Aggregate::Min | Aggregate::Max, ..) => Accumulator::Best(None),
            GroupItem::Fold(Aggregate::Sum | Aggregate::Avg, _, kind) => match kind {
                Type::Float | Type::Double => Accumulator::Floats { sum: 0.0, count: 0.0 },
                _ => Accumulator::Integers { sum: 0, count: 0 },
            },
        };
        self.items.iter().map(result).collect()
    }
}

impl Accumulator {
    fn add(&mut self, item: &GroupItem, table: &Table, row: &Row<'_>, options: &ReadOptions) {
        let now = (options.now_s, &options.call_context);
        let of = |item| value(item, table, row, now);
        match (self, item) {
            (Self::First(first), GroupItem::First(item)) => {
                first.get_or_insert_with(|| of(item).map(Cow::into_owned));
            }
            (Self::Count(count), GroupItem::Count) => *count += 1,
            (Self::Count(count), GroupItem::CountOf(item)) => {
                *count += u64::from(of(item).is_some());
            }
            (Self::Best(best), GroupItem::Fold(aggregate, item, kind)) => {
                let Some(value) = of(item) else { return };
                if key_encoding::is_too_long(kind, &value) {
                    return;
                }
                let mut key = Vec::new();
                key_encoding::push(&mut key, kind, false, &value);
                let wanted = match aggregate {
                    Aggregate::Max => Ordering::Greater,
                    _ => Ordering::Less,
                };
                if best.as_ref().is_none_or(|(known, _)| key.cmp(known) == wanted) {
                    *best = Some((key, value.into_owned()));
                }
            }
            (Self::Integers { sum, count }, GroupItem::Fold(_, item, _)) => {
                if let Some(number) = of(item).and_then(|value| integer(&value)) {
                    *sum += number;
                    *count += 1;
                }
            }
            (Self::Floats { sum, count }, GroupItem::Fold(_, item, _)) => {
                if let Some(number) = of(item).and_then(|value| float(&value)) {
                    *sum += number;
                    *count += 1.0;
                }
            }
            _ => unreachable!("a result is of the kind of its item"),
        }
    }

    fn value(self, item: &GroupItem) -> Option<Vec<u8>> {
        match (self, item) {
            (Self::First(first), _) => first.flatten(),
            (Self::Count(count), _) => Some(count.to_be_bytes().to_vec()),
            (Self::Best(best), _) => best.map(|(_, value)| value),
            (Self::Integers { sum, count }, GroupItem::Fold(aggregate, _, kind)) => {
                let number = match aggregate {
                    Aggregate::Avg => sum.checked_div(count).unwrap_or(0),
                    _ => sum,
                };
                // A sum that does not fit wraps around, as in Cassandra.
                let bytes = number.to_be_bytes();
                Some(bytes[bytes.len() - integer_bytes(kind)..].to_vec())
            }
            (Self::Floats { sum, count }, GroupItem::Fold(aggregate, _, kind)) => {
                let number = match aggregate {
                    Aggregate::Avg if count > 0.0 => sum / count,
                    _ => sum,
                };
                Some(match kind {
                    #[expect(clippy::cast_possible_truncation, reason = "a float is rounded")]
                    Type::Float => (number as f32).to_be_bytes().to_vec(),
                    _ => number.to_be_bytes().to_vec(),
                })
            }
            (Self::Integers { .. } | Self::Floats { .. }, _) => None,
        }
    }
}

/// The length of a value of an integer type in bytes.
fn integer_bytes(kind: &Type) -> usize {
    match kind {
        Type::Tinyint => 1,
        Type::Smallint => 2,
        Type::Int => 4,
        _ => 8,
    }
}

/// A number of an integer type; `None` if the value is empty.
fn integer(value: &[u8]) -> Option<i128> {
    Some(match *value {
        [a] => i128::from(i8::from_be_bytes([a])),
        [a, b] => i128::from(i16::from_be_bytes([a, b])),
        [a, b, c, d] => i128::from(i32::from_be_bytes([a, b, c, d])),
        _ => i128::from(i64::from_be_bytes(value.try_into().ok()?)),
    })
}

/// A number of a floating-point type; `None` if the value is empty.
fn float(value: &[u8]) -> Option<f64> {
    match *value {
        [a, b, c, d] => Some(f64::from(f32::from_be_bytes([a, b, c, d]))),
        _ => Some(f64::from_be_bytes(value.try_into().ok()?)),
    }
}
