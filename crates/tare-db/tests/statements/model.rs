//! Random statements against a simple model of a table, through a real server on one shard and on
//! three. In whatever order and with whatever timestamps rows are written, every kind of SELECT
//! returns the rows of the model, whole and page by page.
//!
//! The model keeps every write for ever and computes the visible rows from all of them.

mod conditional;
mod strategies;

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::fmt::Write;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use tare_cql::request::Settings;
use tare_cql::token::Token;

use crate::server::{Client, Server};
use conditional::Conditional;
use strategies::step;

/// Statements of one case at most, and cases on each server.
const STATEMENTS_MAX: usize = 40;
const CASES: u32 = 60;
/// Number of tables that exist over a restart.
const RESTART_TABLES: usize = 20;
const RESTARTS: usize = 5;

/// `(k int, c int DESC, d text ASC)`
type Key = (i32, i32, &'static str);

const TEXTS: [&str; 3] = ["", "a", "ab"];
const VALUES: usize = 2;
/// Keys of the map; their order is not that of their bytes.
const MAP_KEYS: std::ops::Range<i32> = -2..2;
const SELECTIONS: [&str; 5] = ["k, c, d, s, v, w, m, l", "k", "w", "d, v", "m, v"];

/// A bound on two columns, and whether it is inclusive.
type Edge = ((i32, &'static str), bool);

/// Some rows of a partition.
#[derive(Clone, Copy, Debug)]
enum Target {
    Partition,
    /// `c = x`
    Column(i32),
    /// `c > x` and so on: low and high bound, each with whether it is inclusive.
    Slice(Option<(i32, bool)>, Option<(i32, bool)>),
    /// `(c, d) > (x, y)` and so on, of columns in different orders.
    Tuples(Option<Edge>, Option<Edge>),
    /// `c = x AND d > y`
    Above(i32, &'static str),
    Row(i32, &'static str),
}

impl Target {
    fn holds(self, (_, c, d): Key) -> bool {
        match self {
            Self::Partition => true,
            Self::Column(x) => c == x,
            Self::Slice(low, high) => {
                low.is_none_or(|(x, with)| c > x || (with && c == x))
                    && high.is_none_or(|(x, with)| c < x || (with && c == x))
            }
            Self::Tuples(low, high) => {
                low.is_none_or(|(at, with)| (c, d) > at || (with && (c, d) == at))
                    && high.is_none_or(|(at, with)| (c, d) < at || (with && (c, d) == at))
            }
            Self::Above(x, y) => c == x && d > y,
            Self::Row(x, y) => c == x && d == y,
        }
    }

    /// Whether it is all rows, so that the static column belongs to it.
    fn is_whole(self) -> bool {
        self.condition().is_empty()
    }

    fn condition(self) -> String {
        match self {
            Self::Partition => String::new(),
            Self::Column(x) => format!(" AND c = {x}"),
            Self::Slice(low, high) => {
                let mut text = String::new();
                if let Some((x, with)) = low {
                    let _ = write!(text, " AND c {} {x}", if with { ">=" } else { ">" });
                }
                if let Some((x, with)) = high {
                    let _ = write!(text, " AND c {} {x}", if with { "<=" } else { "<" });
                }
                text
            }
            Self::Tuples(low, high) => {
                let edge = |edge: Option<Edge>, sign| match edge {
                    Some(((x, y), with)) => {
                        let equal = if with { "=" } else { "" };
                        format!(" AND (c, d) {sign}{equal} ({x}, '{y}')")
                    }
                    None => String::new(),
                };
                edge(low, '>') + &edge(high, '<')
            }
            Self::Above(x, y) => format!(" AND c = {x} AND d > '{y}'"),
            Self::Row(x, y) => format!(" AND c = {x} AND d = '{y}'"),
        }
    }
}

/// A map that is not frozen.
type Map = BTreeMap<i32, i32>;

/// A change of the map of a row.
#[derive(Clone, Debug)]
enum MapChange {
    Replace(Map),
    Add(Map),
    Put(i32, Option<i32>),
    Remove(Vec<i32>),
    Delete(i32),
    Clear,
}

impl MapChange {
    /// What the change writes to one entry; null deletes it.
    fn of_key(&self, key: i32) -> Option<Option<i32>> {
        match self {
            Self::Replace(map) | Self::Add(map) => map.get(&key).map(|value| Some(*value)),
            Self::Put(put, value) if *put == key => Some(*value),
            Self::Remove(keys) if keys.contains(&key) => Some(None),
            Self::Delete(deleted) if *deleted == key => Some(None),
            _ => None,
        }
    }

    /// The timestamp of the deletion of all older entries, if there is one.
    fn deletes(&self, timestamp: i64) -> Option<i64> {
        match self {
            Self::Replace(_) => Some(timestamp - 1),
            Self::Clear => Some(timestamp),
            _ => None,
        }
    }
}

fn map_literal(map: &Map) -> String {
    let entries: Vec<_> = map.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{{{}}}", entries.join(", "))
}

/// A change of the list of a row.
#[derive(Clone, Debug)]
enum ListChange {
    Replace(Vec<i32>),
    Append(Vec<i32>),
    Prepend(Vec<i32>),
    Set(usize, Option<i32>),
    Delete(usize),
    Discard(Vec<i32>),
    Clear,
}

impl ListChange {
    /// The timestamp of the deletion of all older elements, if there is one.
    fn deletes(&self, timestamp: i64) -> Option<i64> {
        match self {
            Self::Replace(_) => Some(timestamp - 1),
            Self::Clear => Some(timestamp),
            _ => None,
        }
    }
}

/// What a change writes to the elements of a list, by their places; null deletes an element.
type Elements = Vec<(i64, Option<i32>)>;

/// The order in which the writes of one element are reconciled, and the value of the write.
type ElementRank = (i64, bool, Option<[u8; 4]>, Option<i32>);

fn list_literal(list: &[i32]) -> String {
    format!("{list:?}")
}

/// The visible part of a row.
#[derive(Clone, Debug, Default)]
struct VisibleRow {
    values: [Option<i32>; VALUES],
    map: Map,
    /// The elements of the list by their places.
    list: BTreeMap<i64, i32>,
}

impl VisibleRow {
    fn map_text(&self) -> String {
        if self.map.is_empty() { "null".to_owned() } else { map_literal(&self.map) }
    }

    fn list(&self) -> Vec<i32> {
        self.list.values().copied().collect()
    }

    fn list_text(&self) -> String {
        if self.list.is_empty() { "null".to_owned() } else { list_literal(&self.list()) }
    }
}

/// A write.
#[derive(Clone, Debug)]
enum Change {
    Insert {
        key: Key,
        values: [Option<Option<i32>>; VALUES],
    },
    Update {
        key: Key,
        values: [Option<Option<i32>>; VALUES],
    },
    Clear {
        key: Key,
        column: usize,
    },
    Map {
        key: Key,
        change: MapChange,
    },
    /// The elements follow from the list as it is when the statement runs.
    List {
        key: Key,
        change: ListChange,
        elements: Elements,
    },
    Static {
        k: i32,
        value: Option<i32>,
    },
    Delete {
        k: i32,
        target: Target,
    },
}

#[derive(Clone, Debug)]
struct Stamped {
    timestamp: i64,
    change: Change,
}

#[derive(Clone, Debug)]
struct Query {
    /// The partitions of IN; `None` asks for all partitions.
    keys: Option<Vec<i32>>,
    target: Target,
    reversed: bool,
    per_partition: Option<usize>,
    limit: Option<usize>,
    page_size: i32,
    distinct: bool,
    /// Index of the selection in [`SELECTIONS`].
    selection: usize,
    /// `token(k) > token(x)`
    token_above: Option<i32>,
    /// What rows must satisfy besides; the query has ALLOW FILTERING.
    filter: Option<Filter>,
}

/// A condition that the order of the keys does not serve.
#[derive(Clone, Copy, Debug)]
enum Filter {
    /// A value in the column `v` or `w`, compared as by the sign.
    Value(usize, &'static str, i32),
    /// `d >= x`
    Text(&'static str),
    /// `k < x AND c = y`
    Keys(i32, i32),
}

impl Filter {
    fn holds(self, (k, c, d): Key, row: &VisibleRow) -> bool {
        match self {
            Self::Value(column, sign, wanted) => {
                row.values[column].is_some_and(|value| match sign {
                    "=" => value == wanted,
                    "<" => value < wanted,
                    _ => value >= wanted,
                })
            }
            Self::Text(wanted) => d >= wanted,
            Self::Keys(below, wanted) => k < below && c == wanted,
        }
    }

    fn condition(self) -> String {
        match self {
            Self::Value(column, sign, wanted) => {
                format!("{} {sign} {wanted}", column_name(column))
            }
            Self::Text(wanted) => format!("d >= '{wanted}'"),
            Self::Keys(below, wanted) => format!("k < {below} AND c = {wanted}"),
        }
    }

    /// Whether a query may have the filter beside its other conditions.
    fn fits(self, keys: bool, token: bool, target: Target) -> bool {
        match self {
            Self::Value(..) => true,
            // These restrict no column twice.
            Self::Text(_) => {
                matches!(target, Target::Partition | Target::Column(_) | Target::Slice(..))
            }
            Self::Keys(..) => !keys && !token && matches!(target, Target::Partition),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(Stamped),
    Batch(Vec<Stamped>),
    Query(Query),
    Conditional(Conditional),
}

fn column_name(column: usize) -> &'static str {
    ["v", "w"][column]
}

impl Stamped {
    fn statement(&self, timestamp: bool) -> String {
        let using = match timestamp {
            true => format!(" USING TIMESTAMP {}", self.timestamp),
            false => String::new(),
        };
        let literal = |value: &Option<i32>| value.map_or("null".into(), |value| value.to_string());
        match &self.change {
            Change::Insert { key: (k, c, d), values } => {
                let (mut names, mut terms) = (String::new(), String::new());
                for (column, value) in values.iter().enumerate() {
                    if let Some(value) = value {
                        let _ = write!(names, ", {}", column_name(column));
                        let _ = write!(terms, ", {}", literal(value));
                    }
                }
                format!("INSERT INTO t (k, c, d{names}) VALUES ({k}, {c}, '{d}'{terms}){using}")
            }
            Change::Update { key: (k, c, d), values } => {
                let sets = values.iter().enumerate().filter_map(|(column, value)| {
                    let value = literal(value.as_ref()?);
                    Some(format!("{} = {value}", column_name(column)))
                });
                let sets = sets.collect::<Vec<_>>().join(", ");
                format!("UPDATE t{using} SET {sets} WHERE k = {k} AND c = {c} AND d = '{d}'")
            }
            Change::Clear { key: (k, c, d), column } => {
                let name = column_name(*column);
                format!("DELETE {name} FROM t{using} WHERE k = {k} AND c = {c} AND d = '{d}'")
            }
            Change::Map { key: (k, c, d), change } => {
                let row = format!("WHERE k = {k} AND c = {c} AND d = '{d}'");
                let set = match change {
                    MapChange::Replace(map) => format!("m = {}", map_literal(map)),
                    MapChange::Add(map) => format!("m = m + {}", map_literal(map)),
                    MapChange::Put(key, value) => format!("m[{key}] = {}", literal(value)),
                    MapChange::Remove(keys) => {
                        let keys = keys.iter().map(i32::to_string).collect::<Vec<_>>();
                        format!("m -= {{{}}}", keys.join(", "))
                    }
                    MapChange::Delete(key) => {
                        return format!("DELETE m[{key}] FROM t{using} {row}");
                    }
                    MapChange::Clear => return format!("DELETE m FROM t{using} {row}"),
                };
                format!("UPDATE t{using} SET {set} {row}")
            }
            Change::List { key: (k, c, d), change, .. } => {
                let row = format!("WHERE k = {k} AND c = {c} AND d = '{d}'");
                let set = match change {
                    ListChange::Replace(list) => format!("l = {}", list_literal(list)),
                    ListChange::Append(list) => format!("l = l + {}", list_literal(list)),
                    ListChange::Prepend(list) => format!("l = {} + l", list_literal(list)),
                    ListChange::Set(at, value) => format!("l[{at}] = {}", literal(value)),
                    ListChange::Discard(list) => format!("l -= {}", list_literal(list)),
                    ListChange::Delete(at) => return format!("DELETE l[{at}] FROM t{using} {row}"),
                    ListChange::Clear => return format!("DELETE l FROM t{using} {row}"),
                };
                format!("UPDATE t{using} SET {set} {row}")
            }
            Change::Static { k, value } => {
                format!("UPDATE t{using} SET s = {} WHERE k = {k}", literal(value))
            }
            Change::Delete { k, target } => {
                format!("DELETE FROM t{using} WHERE k = {k}{}", target.condition())
            }
        }
    }
}

struct Model {
    writes: Vec<Stamped>,
    /// Whether the table has a static column.
    has_static: bool,
    /// The number of elements that were written to lists.
    elements: i64,
}

impl Model {
    fn new(has_static: bool) -> Self {
        Self { writes: Vec::new(), has_static, elements: 0 }
    }

    /// The change with the elements of the list that it writes, or the error of the statement.
    fn resolve(&mut self, change: &Change) -> Result<Change, String> {
        let Change::List { key, change, .. } = change else { return Ok(change.clone()) };
        let list = self.row(*key).unwrap_or_default().list;
        let at = |position: usize, what: &str| match list.keys().nth(position) {
            Some(place) => Ok(*place),
            None if list.is_empty() => {
                Err(format!("Invalid: Attempted to {what} list which is null"))
            }
            None => Err(format!(
                "Invalid: List index {position} out of bound, list has size {}",
                list.len()
            )),
        };
        let elements = match change {
            ListChange::Replace(values) | ListChange::Append(values) => self.places(values, 1),
            ListChange::Prepend(values) => {
                let values: Vec<i32> = values.iter().rev().copied().collect();
                self.places(&values, -1)
            }
            ListChange::Set(position, value) => {
                vec![(at(*position, "set an element on a")?, *value)]
            }
            ListChange::Delete(position) => {
                vec![(at(*position, "delete an element from a")?, None)]
            }
            ListChange::Discard(values) => {
                let found = list.iter().filter(|(_, value)| values.contains(value));
                found.map(|(place, _)| (*place, None)).collect()
            }
            ListChange::Clear => Vec::new(),
        };
        Ok(Change::List { key: *key, change: change.clone(), elements })
    }

    /// Elements after all others, or before them.
    fn places(&mut self, values: &[i32], sign: i64) -> Elements {
        let mut place = |value: &i32| {
            self.elements += 1;
            (sign * self.elements, Some(*value))
        };
        values.iter().map(&mut place).collect()
    }

    /// Whether the table takes such a change.
    fn takes(&self, change: &Change) -> bool {
        self.has_static || !matches!(change, Change::Static { .. })
    }

    /// The value of a cell, of which no write up to the time `hidden` counts. A deletion wins over
    /// a value of the same time.
    fn newest(&self, hidden: i64, cell: &dyn Fn(&Change) -> Option<Option<i32>>) -> Option<i32> {
        let writes = self.writes.iter().filter(|write| write.timestamp > hidden);
        let found = writes.filter_map(|w| cell(&w.change).map(|value| (w.timestamp, value)));
        let rank = |(timestamp, value): &(i64, Option<i32>)| {
            (*timestamp, value.is_none(), value.map(i32::to_be_bytes))
        };
        found.max_by_key(rank).and_then(|(_, value)| value)
    }

    /// The value of the static column of a partition.
    fn static_value(&self, of: i32) -> Option<i32> {
        let deletions = self.writes.iter().filter_map(|write| match &write.change {
            Change::Delete { k, target } if *k == of && target.is_whole() => Some(write.timestamp),
            _ => None,
        });
        self.newest(deletions.max().unwrap_or(i64::MIN), &|change| match change {
            Change::Static { k, value } if *k == of => Some(*value),
            _ => None,
        })
    }

    /// The number of rows of a partition in a result. A static value alone is one.
    fn count(&self, k: i32) -> usize {
        let rows = self.partition(k).len();
        if rows == 0 { usize::from(self.static_value(k).is_some()) } else { rows }
    }

    /// The visible part of a row, if it exists.
    fn row(&self, key: Key) -> Option<VisibleRow> {
        let hidden = self.writes.iter().filter_map(|write| match &write.change {
            Change::Delete { k, target } if *k == key.0 && target.holds(key) => {
                Some(write.timestamp)
            }
            _ => None,
        });
        let hidden = hidden.max().unwrap_or(i64::MIN);
        let newest = |cell: &dyn Fn(&Change) -> Option<Option<i32>>| self.newest(hidden, cell);
        let marker = newest(&|change| match change {
            Change::Insert { key: of, .. } if *of == key => Some(Some(0)),
            _ => None,
        });
        let value = |column: usize| {
            newest(&|change| match change {
                Change::Insert { key: of, values } | Change::Update { key: of, values }
                    if *of == key =>
                {
                    values[column]
                }
                Change::Clear { key: of, column: cleared } if *of == key && *cleared == column => {
                    Some(None)
                }
                _ => None,
            })
        };
        let values = [value(0), value(1)];
        let of_map = |write: &Stamped| match &write.change {
            Change::Map { key: of, change } if *of == key => change.deletes(write.timestamp),
            _ => None,
        };
        let emptied = self.writes.iter().filter_map(of_map).max().unwrap_or(i64::MIN).max(hidden);
        let mut map = Map::new();
        for entry in MAP_KEYS {
            let writes = self.writes.iter().filter(|write| write.timestamp > emptied);
            let of_entry = |write: &Stamped| match &write.change {
                Change::Map { key: of, change } if *of == key => {
                    change.of_key(entry).map(|value| (write.timestamp, value))
                }
                _ => None,
            };
            let rank = |(timestamp, value): &(i64, Option<i32>)| {
                (*timestamp, value.is_none(), value.map(i32::to_be_bytes))
            };
            let newest = writes.filter_map(of_entry).max_by_key(rank);
            map.extend(newest.and_then(|(_, value)| value).map(|value| (entry, value)));
        }
        let list = self.list(key, hidden);
        let has_elements = !map.is_empty() || !list.is_empty();
        let exists = marker.is_some() || values.iter().any(Option::is_some) || has_elements;
        exists.then_some(VisibleRow { values, map, list })
    }

    /// The visible elements of a list, of which nothing up to the time `hidden` counts.
    fn list(&self, key: Key, hidden: i64) -> BTreeMap<i64, i32> {
        let writes = || {
            self.writes.iter().filter_map(|write| match &write.change {
                Change::List { key: of, change, elements } if *of == key => {
                    Some((write.timestamp, change, elements))
                }
                _ => None,
            })
        };
        let emptied = writes().filter_map(|(timestamp, change, _)| change.deletes(timestamp)).max();
        let hidden = emptied.unwrap_or(i64::MIN).max(hidden);
        let mut cells: BTreeMap<i64, ElementRank> = BTreeMap::new();
        for (timestamp, _, elements) in writes().filter(|(timestamp, ..)| *timestamp > hidden) {
            for (place, value) in elements {
                let cell = (timestamp, value.is_none(), value.map(i32::to_be_bytes), *value);
                let known = cells.entry(*place).or_insert(cell);
                *known = (*known).max(cell);
            }
        }
        let visible = cells.into_iter().filter_map(|(place, (.., value))| Some((place, value?)));
        visible.collect()
    }

    fn partition(&self, k: i32) -> Vec<(Key, VisibleRow)> {
        let mut rows = Vec::new();
        for c in (0..4).rev() {
            for d in TEXTS {
                rows.extend(self.row((k, c, d)).map(|row| ((k, c, d), row)));
            }
        }
        rows
    }

    fn answer(&self, query: &Query) -> Vec<String> {
        let token = |k: &i32| Token::of(&k.to_be_bytes());
        let mut keys: Vec<i32> = (0..5).collect();
        match &query.keys {
            Some(wanted) => keys.retain(|k| wanted.contains(k)),
            None => {
                keys.sort_by_key(token);
                keys.retain(|k| query.token_above.is_none_or(|above| token(k) > token(&above)));
            }
        }
        let mut found = Vec::new();
        for k in keys {
            let mut rows = self.partition(k);
            let s = self.static_value(k);
            let is_alone = query.target.is_whole() && query.filter.is_none();
            let is_alone = is_alone && s.is_some() && rows.is_empty();
            let s = match self.has_static {
                true => format!(" {}", s.map_or("null".into(), |s| s.to_string())),
                false => String::new(),
            };
            if is_alone {
                let row = match (query.distinct, query.selection) {
                    (true, _) => format!("{k}{s}"),
                    (false, 1) => k.to_string(),
                    (false, 2) => "null".into(),
                    (false, 3 | 4) => "null null".into(),
                    _ => format!("{k} null null{s} null null null null"),
                };
                found.push((None, row));
            }
            rows.retain(|(key, _)| query.target.holds(*key));
            rows.retain(|(key, row)| query.filter.is_none_or(|f| f.holds(*key, row)));
            if query.reversed {
                rows.reverse();
            }
            let most = if query.distinct { Some(1) } else { query.per_partition };
            rows.truncate(most.unwrap_or(usize::MAX));
            for ((k, c, d), row) in rows {
                let (m, l) = (row.map_text(), row.list_text());
                let [v, w] = row.values.map(|value| value.map_or("null".into(), |v| v.to_string()));
                let row = match (query.distinct, query.selection) {
                    (true, _) => format!("{k}{s}"),
                    (false, 1) => k.to_string(),
                    (false, 2) => w,
                    (false, 3) => format!("'{d}' {v}"),
                    (false, 4) => format!("{m} {v}"),
                    _ => format!("{k} {c} '{d}'{s} {v} {w} {m} {l}"),
                };
                found.push((Some((c, d)), row));
            }
        }
        if query.is_merged() {
            // The static columns come before all rows, so last in the reversed order.
            found.sort_by_key(|(row, _)| (row.is_none(), row.map(|(c, d)| (c, Reverse(d)))));
        }
        found.truncate(query.limit.unwrap_or(usize::MAX));
        found.into_iter().map(|(_, row)| row).collect()
    }
}

impl Query {
    /// Whether the rows of several partitions come in one order.
    fn is_merged(&self) -> bool {
        self.reversed && self.keys.as_ref().is_some_and(|keys| keys.len() > 1)
    }

    fn statement(&self, has_static: bool) -> String {
        let what = if self.distinct { "DISTINCT k, s" } else { SELECTIONS[self.selection] };
        let what = if has_static { what.to_owned() } else { what.replace(", s", "") };
        let mut text = format!("SELECT {what} FROM t");
        match &self.keys {
            Some(keys) if keys.len() == 1 => {
                let _ = write!(text, " WHERE k = {}", keys[0]);
            }
            Some(keys) => {
                let keys = keys.iter().map(i32::to_string).collect::<Vec<_>>();
                let _ = write!(text, " WHERE k IN ({})", keys.join(", "));
            }
            None => {
                if let Some(above) = self.token_above {
                    let _ = write!(text, " WHERE token(k) > token({above})");
                }
            }
        }
        text.push_str(&self.target.condition());
        if let Some(filter) = self.filter {
            let word = if text.contains("WHERE") { "AND" } else { "WHERE" };
            let _ = write!(text, " {word} {}", filter.condition());
        }
        if self.reversed {
            text.push_str(" ORDER BY c ASC");
        }
        if let Some(limit) = self.per_partition.filter(|_| !self.distinct) {
            let _ = write!(text, " PER PARTITION LIMIT {limit}");
        }
        if let Some(limit) = self.limit {
            let _ = write!(text, " LIMIT {limit}");
        }
        if self.filter.is_some() {
            text.push_str(" ALLOW FILTERING");
        }
        text
    }
}

fn check(client: &mut Client, model: &Model, query: &Query) -> Result<(), TestCaseError> {
    let text = query.statement(model.has_static);
    let expect = model.answer(query);
    let whole = client.query(&text);
    prop_assert_eq!(&whole.error, &None, "{}", text);
    prop_assert_eq!(&whole.rows, &expect, "{}", text);
    if query.is_merged() {
        let settings = Settings { page_size: Some(query.page_size), ..Settings::default() };
        let answer = client.query_with(&text, &settings, &[]);
        let page = usize::try_from(query.page_size).unwrap_or(usize::MAX);
        if query.limit.is_some_and(|limit| limit <= page) {
            prop_assert_eq!(&answer.rows, &expect, "{} by {}", text, query.page_size);
            return Ok(());
        }
        let error = answer.error.unwrap_or_default();
        prop_assert!(error.starts_with("Invalid: Cannot page queries"), "{}: {}", text, error);
        return Ok(());
    }
    let pages = client.pages(&text, query.page_size);
    prop_assert_eq!(&pages, &expect, "{} by {}", text, query.page_size);
    Ok(())
}

fn run(client: &mut Client, model: &mut Model, steps: &[Step]) -> Result<(), TestCaseError> {
    for step in steps {
        let text = match step {
            Step::Write(write) if !model.takes(&write.change) => continue,
            Step::Write(write) => {
                let (text, timestamp) = (write.statement(true), write.timestamp);
                let error = client.query(&text).error;
                match model.resolve(&write.change) {
                    Ok(change) => {
                        prop_assert_eq!(error, None, "{}", text);
                        model.writes.push(Stamped { timestamp, change });
                    }
                    Err(expect) => prop_assert_eq!(error, Some(expect), "{}", text),
                }
                continue;
            }
            Step::Batch(writes) => {
                let mut writes = writes.clone();
                writes.retain(|write| model.takes(&write.change));
                // All statements see the lists as they were. Without those that would fail, which
                // other shards would not notice.
                let resolve = |write: &Stamped| match model.resolve(&write.change) {
                    Ok(change) => Some(Stamped { change, ..write.clone() }),
                    Err(_) => None,
                };
                let writes: Vec<Stamped> = writes.iter().filter_map(resolve).collect();
                let Some(Stamped { timestamp, .. }) = writes.first().cloned() else { continue };
                model.writes.extend_from_slice(&writes);
                let statements = writes.iter().map(|write| write.statement(false));
                let statements = statements.collect::<Vec<_>>().join("; ");
                format!("BEGIN BATCH USING TIMESTAMP {timestamp} {statements}; APPLY BATCH")
            }
            Step::Query(query) => {
                check(client, model, query)?;
                continue;
            }
            Step::Conditional(one) if one.needs_static() && !model.has_static => continue,
            Step::Conditional(conditional) => {
                conditional.run(client, model)?;
                continue;
            }
        };
        let error = client.query(&text).error;
        prop_assert_eq!(error, None, "{}", text);
    }
    let count = client.query("SELECT count(*) FROM t").rows;
    let expect: usize = (0..5).map(|k| model.count(k)).sum();
    prop_assert_eq!(count, [expect.to_string()]);
    Ok(())
}

fn make_table(client: &mut Client, keyspace: &str, has_static: bool) {
    let strategy = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    client.query(&format!("CREATE KEYSPACE {keyspace} WITH replication = {strategy}"));
    client.query(&format!("USE {keyspace}"));
    let s = if has_static { "s int static, " } else { "" };
    let create = format!(
        "CREATE TABLE t (k int, c int, d text, {s}v int, w int, m map<int, int>, \
         l list<int>, PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)"
    );
    assert_eq!(client.query(&create).error, None);
}

#[test]
fn every_select_agrees_with_the_model() {
    assert_eq!("a".cmp("ab"), Ordering::Less, "the order of TEXTS is that of the table");
    for (shards, has_static) in [(1, true), (1, false), (3, true), (3, false)] {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), shards, "100");
        let mut client = server.connect();
        make_table(&mut client, "ks", has_static);
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let steps = prop::collection::vec(step(), 1..STATEMENTS_MAX);
        let client = std::cell::RefCell::new(client);
        let result = TestRunner::new(config).run(&steps, |steps| {
            let mut client = client.borrow_mut();
            client.query("TRUNCATE t");
            run(&mut client, &mut Model::new(has_static), &steps)
        });
        if let Err(error) = result {
            panic!("{shards} shards: {error}");
        }
    }
}

/// Runs the same test with a restart between the writes, so that a part of them is read from disk.
#[test]
fn every_select_agrees_with_the_model_after_a_restart() {
    for shards in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        let mut models: Vec<Model> =
            (0..RESTART_TABLES).map(|number| Model::new(number % 2 == 0)).collect();
        let mut runner = TestRunner::new(Config::default());
        let mut random = |range| {
            let steps = prop::collection::vec(step(), range);
            steps.new_tree(&mut runner).unwrap().current()
        };
        for round in 0..RESTARTS {
            let server = Server::start(data.path(), shards, "100");
            let mut client = server.connect();
            for (number, model) in models.iter_mut().enumerate() {
                let keyspace = format!("ks{number}");
                match round {
                    0 => make_table(&mut client, &keyspace, model.has_static),
                    _ => drop(client.query(&format!("USE {keyspace}"))),
                }
                let result = run(&mut client, model, &random(10..30));
                if let Err(error) = result {
                    panic!(
                        "{shards} shards, round {round}, {keyspace}: {error}\n{:#?}",
                        model.writes
                    );
                }
            }
            server.stop();
        }
    }
}
