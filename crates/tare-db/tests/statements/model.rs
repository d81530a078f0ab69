//! Random statements against a simple model of a table, through a real server on one shard and on
//! three. In whatever order and with whatever timestamps rows are written, every kind of SELECT
//! returns the rows of the model, whole and page by page.
//!
//! The model keeps every write for ever and computes the visible rows from all of them.

use std::cmp::{Ordering, Reverse};
use std::fmt::Write;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use tare_cql::request::Settings;
use tare_cql::token::Token;

use crate::server::{Client, Server};

/// Statements of one case at most, and cases on each server.
const STATEMENTS_MAX: usize = 40;
const CASES: u32 = 100;
/// Number of tables that exist over a restart.
const RESTART_TABLES: usize = 20;
const RESTARTS: usize = 5;

/// `(k int, c int DESC, d text ASC)`
type Key = (i32, i32, &'static str);

const TEXTS: [&str; 3] = ["", "a", "ab"];
const VALUES: usize = 2;
const SELECTIONS: [&str; 4] = ["k, c, d, v, w", "k", "w", "d, v"];

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

/// A write.
#[derive(Clone, Debug)]
enum Change {
    Insert { key: Key, values: [Option<Option<i32>>; VALUES] },
    Update { key: Key, values: [Option<Option<i32>>; VALUES] },
    Clear { key: Key, column: usize },
    Delete { k: i32, target: Target },
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
    fn holds(self, (k, c, d): Key, values: [Option<i32>; VALUES]) -> bool {
        match self {
            Self::Value(column, sign, wanted) => values[column].is_some_and(|value| match sign {
                "=" => value == wanted,
                "<" => value < wanted,
                _ => value >= wanted,
            }),
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

/// A write that is applied if its condition holds.
#[derive(Clone, Debug)]
struct Conditional {
    change: Change,
    /// Without a value the condition is that the row exists, or not if the change is an INSERT.
    value: Option<(usize, Option<i32>)>,
}

impl Conditional {
    fn key(&self) -> Key {
        match &self.change {
            Change::Insert { key, .. } | Change::Update { key, .. } | Change::Clear { key, .. } => {
                *key
            }
            Change::Delete { k, target: Target::Row(c, d) } => (*k, *c, *d),
            Change::Delete { .. } => unreachable!("a condition is on one row"),
        }
    }

    fn condition(&self) -> String {
        match (&self.change, self.value) {
            (Change::Insert { .. }, _) => "IF NOT EXISTS".into(),
            (_, None) => "IF EXISTS".into(),
            (_, Some((column, value))) => {
                let value = value.map_or("null".into(), |value| value.to_string());
                format!("IF {} = {value}", column_name(column))
            }
        }
    }

    fn holds(&self, row: Option<[Option<i32>; VALUES]>) -> bool {
        match (&self.change, self.value) {
            (Change::Insert { .. }, _) => row.is_none(),
            (_, None) => row.is_some(),
            (_, Some((column, value))) => row.and_then(|values| values[column]) == value,
        }
    }

    /// Runs the write and checks its answer.
    fn run(&self, client: &mut Client, model: &mut Model) -> Result<(), TestCaseError> {
        // The server's time is later than all timestamps of the test.
        let timestamp = 1_000 + i64::try_from(model.writes.len()).unwrap_or(i64::MAX);
        let write = Stamped { timestamp, change: self.change.clone() };
        let text = format!("{} {}", write.statement(false), self.condition());
        let row = model.row(self.key());
        let answer = client.query(&text);
        prop_assert_eq!(&answer.error, &None, "{}", text);
        let show = |value: Option<i32>| value.map_or("null".into(), |value| value.to_string());
        let expect = match (self.holds(row), row, self.value) {
            (true, ..) => "true".to_owned(),
            (false, None, _) => "false".to_owned(),
            (false, Some(values), Some((column, _)))
                if !matches!(self.change, Change::Insert { .. }) =>
            {
                format!("false {}", show(values[column]))
            }
            (false, Some([v, w]), _) => {
                let (k, c, d) = self.key();
                format!("false {k} {c} '{d}' {} {}", show(v), show(w))
            }
        };
        prop_assert_eq!(&answer.rows, &[expect], "{}", text);
        if self.holds(row) {
            model.writes.push(write);
        }
        Ok(())
    }
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
            Change::Delete { k, target } => {
                format!("DELETE FROM t{using} WHERE k = {k}{}", target.condition())
            }
        }
    }
}

#[derive(Default)]
struct Model {
    writes: Vec<Stamped>,
}

impl Model {
    /// The visible part of a row: its values, if it exists.
    fn row(&self, key: Key) -> Option<[Option<i32>; VALUES]> {
        let hidden = self.writes.iter().filter_map(|write| match &write.change {
            Change::Delete { k, target } if *k == key.0 && target.holds(key) => {
                Some(write.timestamp)
            }
            _ => None,
        });
        let hidden = hidden.max().unwrap_or(i64::MIN);
        // Each write to a cell: its time and value. A deletion wins over a value of the same time.
        let newest = |cell: &dyn Fn(&Change) -> Option<Option<i32>>| {
            let writes = self.writes.iter().filter(|write| write.timestamp > hidden);
            let found = writes.filter_map(|w| cell(&w.change).map(|value| (w.timestamp, value)));
            let rank = |value: &Option<i32>| (value.is_none(), value.map(i32::to_be_bytes));
            found
                .max_by(|a, b| a.0.cmp(&b.0).then_with(|| rank(&a.1).cmp(&rank(&b.1))))
                .and_then(|(_, value)| value)
        };
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
        (marker.is_some() || values.iter().any(Option::is_some)).then_some(values)
    }

    fn partition(&self, k: i32) -> Vec<(Key, [Option<i32>; VALUES])> {
        let mut rows = Vec::new();
        for c in (0..4).rev() {
            for d in TEXTS {
                rows.extend(self.row((k, c, d)).map(|values| ((k, c, d), values)));
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
            rows.retain(|(key, _)| query.target.holds(*key));
            rows.retain(|(key, values)| query.filter.is_none_or(|f| f.holds(*key, *values)));
            if query.reversed {
                rows.reverse();
            }
            let most = if query.distinct { Some(1) } else { query.per_partition };
            rows.truncate(most.unwrap_or(usize::MAX));
            for ((k, c, d), values) in rows {
                let [v, w] = values.map(|value| value.map_or("null".into(), |v| v.to_string()));
                let row = match (query.distinct, query.selection) {
                    (true, _) | (false, 1) => k.to_string(),
                    (false, 2) => w,
                    (false, 3) => format!("'{d}' {v}"),
                    _ => format!("{k} {c} '{d}' {v} {w}"),
                };
                found.push(((k, c, d), row));
            }
        }
        if query.is_merged() {
            found.sort_by_key(|((_, c, d), _)| (*c, Reverse(*d)));
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

    fn statement(&self) -> String {
        let what = if self.distinct { "DISTINCT k" } else { SELECTIONS[self.selection] };
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
        2 => (0..4, target()).prop_map(|(k, target)| Change::Delete { k, target }),
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
    let value = prop::option::of((0..VALUES, prop::option::of(0..3)));
    (change(), value).prop_map(|(mut change, value)| {
        if let Change::Delete { target, .. } = &mut change {
            *target = Target::Row(1, TEXTS[1]);
        }
        Conditional { change, value }
    })
}

fn step() -> impl Strategy<Value = Step> {
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

fn check(client: &mut Client, model: &Model, query: &Query) -> Result<(), TestCaseError> {
    let text = query.statement();
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
            Step::Write(write) => {
                model.writes.push(write.clone());
                write.statement(true)
            }
            Step::Batch(writes) => {
                model.writes.extend_from_slice(writes);
                let statements = writes.iter().map(|write| write.statement(false));
                let statements = statements.collect::<Vec<_>>().join("; ");
                let timestamp = writes[0].timestamp;
                format!("BEGIN BATCH USING TIMESTAMP {timestamp} {statements}; APPLY BATCH")
            }
            Step::Query(query) => {
                check(client, model, query)?;
                continue;
            }
            Step::Conditional(conditional) => {
                conditional.run(client, model)?;
                continue;
            }
        };
        let error = client.query(&text).error;
        prop_assert_eq!(error, None, "{}", text);
    }
    let count = client.query("SELECT count(*) FROM t").rows;
    let expect: usize = (0..5).map(|k| model.partition(k).len()).sum();
    prop_assert_eq!(count, [expect.to_string()]);
    Ok(())
}

fn make_table(client: &mut Client, keyspace: &str) {
    let strategy = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    client.query(&format!("CREATE KEYSPACE {keyspace} WITH replication = {strategy}"));
    client.query(&format!("USE {keyspace}"));
    let create = "CREATE TABLE t (k int, c int, d text, v int, w int, PRIMARY KEY (k, c, d)) \
                  WITH CLUSTERING ORDER BY (c DESC, d ASC)";
    assert_eq!(client.query(create).error, None);
}

#[test]
fn every_select_agrees_with_the_model() {
    assert_eq!("a".cmp("ab"), Ordering::Less, "the order of TEXTS is that of the table");
    for shards in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), shards, "100");
        let mut client = server.connect();
        make_table(&mut client, "ks");
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let steps = prop::collection::vec(step(), 1..STATEMENTS_MAX);
        let client = std::cell::RefCell::new(client);
        let result = TestRunner::new(config).run(&steps, |steps| {
            let mut client = client.borrow_mut();
            client.query("TRUNCATE t");
            run(&mut client, &mut Model::default(), &steps)
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
        let mut models: Vec<Model> = (0..RESTART_TABLES).map(|_| Model::default()).collect();
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
                    0 => make_table(&mut client, &keyspace),
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
