//! Writes with conditions, and their answers by the model.

use proptest::prelude::*;

use super::{
    Change, Key, Map, Model, Stamped, Target, VisibleRow, column_name, list_literal, map_literal,
};
use crate::server::Client;

/// A write that is applied if its condition holds. An INSERT always has IF NOT EXISTS.
#[derive(Clone, Debug)]
pub(super) struct Conditional {
    pub(super) change: Change,
    pub(super) test: Test,
}

/// The condition of another statement.
#[derive(Clone, Debug)]
pub(super) enum Test {
    Exists,
    Value(usize, Option<i32>),
    Map(Map),
    Entry(i32, Option<i32>),
    List(Vec<i32>),
    Element(usize, Option<i32>),
    Static(Option<i32>),
}

impl Test {
    fn condition(&self) -> String {
        match self {
            Self::Exists => "IF EXISTS".into(),
            Self::Value(column, value) => {
                format!("IF {} = {}", column_name(*column), or_null(*value))
            }
            Self::Map(map) => format!("IF m = {}", map_literal(map)),
            Self::Entry(key, value) => format!("IF m[{key}] = {}", or_null(*value)),
            Self::List(list) => format!("IF l = {}", list_literal(list)),
            Self::Element(at, value) => format!("IF l[{at}] = {}", or_null(*value)),
            Self::Static(value) => format!("IF s = {}", or_null(*value)),
        }
    }

    fn holds(&self, row: Option<&VisibleRow>, of_partition: Option<i32>) -> bool {
        let none = VisibleRow::default();
        let found = row.unwrap_or(&none);
        match self {
            Self::Exists => row.is_some(),
            Self::Value(column, value) => found.values[*column] == *value,
            Self::Map(map) => found.map == *map,
            Self::Entry(key, value) => found.map.get(key).copied() == *value,
            Self::List(list) => found.list() == *list,
            Self::Element(at, value) => found.list().get(*at).copied() == *value,
            Self::Static(value) => of_partition == *value,
        }
    }

    /// The column that the answer shows.
    fn shown(&self, row: &VisibleRow) -> Option<String> {
        match self {
            Self::Value(column, _) => Some(or_null(row.values[*column])),
            Self::Map(_) | Self::Entry(..) => Some(row.map_text()),
            Self::List(_) | Self::Element(..) => Some(row.list_text()),
            Self::Exists | Self::Static(_) => None,
        }
    }
}

fn or_null(value: Option<i32>) -> String {
    value.map_or("null".into(), |value| value.to_string())
}

impl Conditional {
    /// The row, or only the partition of a static column.
    fn key(&self) -> (i32, Option<Key>) {
        match &self.change {
            Change::Insert { key, .. }
            | Change::Update { key, .. }
            | Change::Clear { key, .. }
            | Change::Map { key, .. }
            | Change::List { key, .. } => (key.0, Some(*key)),
            Change::Delete { k, target: Target::Row(c, d) } => (*k, Some((*k, *c, *d))),
            Change::Static { k, .. } => (*k, None),
            Change::Delete { .. } => unreachable!("a condition is on one row"),
        }
    }

    /// Whether a table without static columns can have it.
    pub(super) fn needs_static(&self) -> bool {
        let is_insert = matches!(self.change, Change::Insert { .. });
        let of_static = matches!(self.change, Change::Static { .. });
        of_static || !is_insert && matches!(self.test, Test::Static(_))
    }

    /// Runs the write and checks its answer.
    pub(super) fn run(&self, client: &mut Client, model: &mut Model) -> Result<(), TestCaseError> {
        // The server's time is later than all timestamps of the test.
        let timestamp = 1_000 + i64::try_from(model.writes.len()).unwrap_or(i64::MAX);
        let write = Stamped { timestamp, change: self.change.clone() };
        let (k, key) = self.key();
        let row = key.and_then(|key| model.row(key));
        let of_partition = model.static_value(k);
        let is_insert = matches!(self.change, Change::Insert { .. });
        let (condition, holds) = match (is_insert, key, &self.test) {
            (true, ..) => ("IF NOT EXISTS".into(), row.is_none()),
            (_, None, Test::Exists) => (self.test.condition(), of_partition.is_some()),
            (.., test) => (test.condition(), test.holds(row.as_ref(), of_partition)),
        };
        let text = format!("{} {condition}", write.statement(false));
        let answer = client.query(&text);
        if holds {
            match model.resolve(&self.change) {
                Ok(change) => model.writes.push(Stamped { timestamp, change }),
                Err(error) => {
                    prop_assert_eq!(answer.error, Some(error), "{}", text);
                    return Ok(());
                }
            }
        }
        prop_assert_eq!(&answer.error, &None, "{}", text);
        let expect = match holds {
            true => "true".to_owned(),
            false => self.refusal(model, row.as_ref(), is_insert),
        };
        prop_assert_eq!(&answer.rows, &[expect], "{}", text);
        Ok(())
    }

    /// The answer to a write that is not applied.
    fn refusal(&self, model: &Model, row: Option<&VisibleRow>, is_insert: bool) -> String {
        let (k, key) = self.key();
        let s = model.static_value(k);
        let first = model.partition(k).first().map(|(key, _)| *key);
        let whole = |(k, c, d): Key, values: String| {
            // Static columns are read if the statement writes or tests them.
            let s = if model.has_static { " null" } else { "" };
            format!("false {k} {c} '{d}'{s} {values}")
        };
        match (key, &self.test) {
            (Some(key), test) if is_insert || matches!(test, Test::Exists) => match row {
                Some(row) => {
                    let [v, w] = row.values.map(or_null);
                    let (l, m) = (row.list_text(), row.map_text());
                    whole(key, format!("{l} {m} {v} {w}"))
                }
                None => "false".into(),
            },
            (_, Test::Static(_)) => match first.is_some() || s.is_some() {
                true => format!("false {}", or_null(s)),
                false => "false".into(),
            },
            // The static column is null.
            (None, _) => match first {
                Some(first) => whole(first, "null null null null".into()),
                None => "false".into(),
            },
            (Some(_), test) => match row.and_then(|row| test.shown(row)) {
                Some(shown) => format!("false {shown}"),
                None => "false".into(),
            },
        }
    }
}
