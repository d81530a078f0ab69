//! The second reading of a capture: the operations on one table.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use tare_cql::request::{BatchStatement, Request, Values};
use tare_cql::response::{Response, Rows};
use tare_cql::statement::Term;
use tare_cql::wire::Value;
use tare_load::workload::QueryKind;

use crate::cql::Message;
use crate::side::Side;
use crate::sizes::{ColumnSizes, Sizes};
use crate::statements::catalog::{Catalog, Keyspaces, Table};
use crate::statements::shape::{Key, Shape, Statement, TableId, statement};
use crate::tally::{Keys, LeftOut, Query, Timing, hash, push_part};
use crate::walk::{self, Event};

/// The most requests whose answers are awaited.
const PENDING_MAX: usize = 1 << 20;
/// The different statements of a query that are counted.
const STATEMENTS_MAX: usize = 1000;

/// A kind of query, with the number of columns that it writes.
pub(crate) type QueryId = (QueryKind, usize);

/// The operations on a table.
#[derive(Debug)]
pub(crate) struct Operations<'c> {
    catalog: &'c Catalog,
    id: &'c TableId,
    table: &'c Table,
    pub(crate) key: Key,
    keyspaces: Keyspaces,
    shapes: HashMap<Vec<u8>, Result<Shape, &'static str>>,
    pending: HashMap<(usize, i16), Pending>,
    pub(crate) queries: BTreeMap<QueryId, Query>,
    pub(crate) columns: BTreeMap<String, ColumnSizes>,
    /// Sizes of the values of key columns.
    pub(crate) key_sizes: BTreeMap<String, Sizes>,
    /// The partitions of all operations.
    pub(crate) partitions: Keys,
    pub(crate) timing: Timing,
    pub(crate) left_out: LeftOut,
    pub(crate) batches: u64,
    pub(crate) in_batches: u64,
    /// Requests on the table that the server refused.
    pub(crate) errors: u64,
}

#[derive(Debug)]
struct Pending {
    began_ns: u64,
    /// The query and the place of its key, for a read.
    query: Option<(QueryId, Option<usize>)>,
    result: Vec<String>,
}

impl<'c> Operations<'c> {
    pub(crate) fn new(catalog: &'c Catalog, id: &'c TableId, table: &'c Table) -> Self {
        Self {
            catalog,
            id,
            table,
            key: table.key(),
            keyspaces: Keyspaces::default(),
            shapes: HashMap::new(),
            pending: HashMap::new(),
            queries: BTreeMap::new(),
            columns: BTreeMap::new(),
            key_sizes: BTreeMap::new(),
            partitions: Keys::default(),
            timing: Timing::default(),
            left_out: LeftOut::default(),
            batches: 0,
            in_batches: 0,
            errors: 0,
        }
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let (connection, at_ns) = (event.connection, event.at_ns);
        match &event.message {
            walk::Message::Cql(Message::Request { stream, request }) => {
                self.request((connection, *stream), at_ns, request);
            }
            walk::Message::Cql(Message::Response { stream, response }) => {
                self.keyspaces.note(connection, response);
                self.response((connection, *stream), at_ns, response);
            }
            walk::Message::Cql(Message::Unreadable { side }) => {
                if *side == Side::Client {
                    self.left_out.add("of requests that Tare cannot read", 1);
                }
            }
            walk::Message::Ended => {
                let before = self.pending.len();
                self.pending.retain(|(pending, _), _| *pending != connection);
                self.timing.give_up((before - self.pending.len()) as u64);
            }
            walk::Message::Redis(_) => self.left_out.add("of Redis's protocol", 1),
        }
    }

    fn request(&mut self, key: (usize, i16), at_ns: u64, request: &Request<'_>) {
        match request {
            Request::Execute { id, parameters } => {
                let Some(known) = self.catalog.prepared.get(*id) else {
                    self.left_out.add("of statements prepared before the capture", 1);
                    return;
                };
                if let Some(pending) = self.operation(id, known, parameters.values) {
                    self.begin(key, at_ns, pending, 1);
                }
            }
            Request::Query { statement: text, parameters } => {
                let found = statement(text, self.keyspaces.of(key.0));
                if let Some(pending) = self.operation(&[], &found, parameters.values) {
                    self.begin(key, at_ns, pending, 1);
                }
            }
            Request::Batch(batch) => {
                let mut operations = 0;
                for item in batch.items() {
                    let done = match item.statement {
                        BatchStatement::Prepared(id) => match self.catalog.prepared.get(id) {
                            Some(known) => self.operation(id, known, item.values),
                            None => {
                                self.left_out.add("of statements prepared before the capture", 1);
                                None
                            }
                        },
                        BatchStatement::Text(text) => {
                            let found = statement(text, self.keyspaces.of(key.0));
                            self.operation(&[], &found, item.values)
                        }
                    };
                    operations += u64::from(done.is_some());
                }
                if operations > 0 {
                    self.batches += 1;
                    self.in_batches += operations;
                    let pending = Pending { began_ns: at_ns, query: None, result: Vec::new() };
                    self.begin(key, at_ns, pending, operations);
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, key: (usize, i16), at_ns: u64, pending: Pending, operations: u64) {
        self.timing.begin(key.0, at_ns, operations);
        if self.pending.len() < PENDING_MAX {
            let known = self.pending.insert(key, Pending { began_ns: at_ns, ..pending });
            // Its answer is missing, and the client uses the stream again.
            self.timing.give_up(u64::from(known.is_some()));
        }
    }

    /// Counts an operation. Returns `None` if it is no part of the workload.
    fn operation(
        &mut self,
        id: &[u8],
        statement: &Statement,
        values: Values<'_>,
    ) -> Option<Pending> {
        if statement.table.as_ref() != Some(self.id) {
            self.left_out.add(other_table(statement), 1);
            return None;
        }
        let shape = match self.shapes.get(id) {
            Some(known) => known.clone(),
            None => {
                let shape = statement.shape(&self.key);
                if !id.is_empty() {
                    self.shapes.insert(id.to_vec(), shape.clone());
                }
                shape
            }
        };
        let shape = match shape {
            Ok(shape) => shape,
            Err(why) => {
                self.left_out.add(why, 1);
                return None;
            }
        };
        let values = positions(values, &statement.markers);
        let text = if id.is_empty() { 0 } else { hash(id) };
        Some(self.count(&shape, text, &statement.result, &values))
    }

    fn count(
        &mut self,
        shape: &Shape,
        statement: u64,
        result: &[String],
        values: &[Option<&[u8]>],
    ) -> Pending {
        let mut key = Vec::new();
        for (name, term) in &shape.partition {
            let bytes = self.bytes(Some(name), term, values);
            if let Some(bytes) = &bytes {
                self.key_sizes.entry(name.clone()).or_default().size(bytes.len() as u64);
            }
            push_part(&mut key, bytes.as_deref().unwrap_or_default());
        }
        if !shape.partition.is_empty() {
            self.partitions.add(&key);
        }
        for (place, term) in shape.row.iter().flatten().enumerate() {
            let name = self.key.clustering.get(place).cloned();
            let bytes = self.bytes(name.as_ref(), term, values);
            if let (Some(bytes), Some(name)) = (&bytes, name) {
                self.key_sizes.entry(name).or_default().size(bytes.len() as u64);
            }
            push_part(&mut key, bytes.as_deref().unwrap_or_default());
        }
        let mut written = 0;
        for (name, term) in &shape.written {
            if !self.is_column(name) {
                continue;
            }
            written += 1;
            let bytes = self.bytes(Some(name), term, values).map(Cow::into_owned);
            let column = self.columns.entry(name.clone()).or_default();
            if let Some(bytes) = bytes {
                column.written.value(&bytes);
            }
        }
        let query_id = (shape.kind, written);
        let query = self.queries.entry(query_id).or_default();
        query.operations += 1;
        if query.statements.len() < STATEMENTS_MAX {
            query.statements.insert(statement);
        }
        let place = query.keys.add(&key);
        let reads = shape.kind.reads();
        Pending {
            began_ns: 0,
            query: reads.then_some((query_id, place)),
            result: if reads { result.to_vec() } else { Vec::new() },
        }
    }

    /// Whether a column can be one of a workload, outside the key.
    fn is_column(&self, name: &str) -> bool {
        let known = self.table.types.get(name);
        known.is_some_and(crate::spec::is_loadable) && !self.table.is_static(name)
    }

    /// Returns the bytes of a value; `None` for null, or where they are not known.
    fn bytes<'v>(
        &self,
        column: Option<&String>,
        term: &Term,
        values: &[Option<&'v [u8]>],
    ) -> Option<Cow<'v, [u8]>> {
        match term {
            Term::Marker(place) => values.get(*place).copied().flatten().map(Cow::Borrowed),
            Term::Literal(literal) => {
                let kind = column.and_then(|name| self.table.types.get(name));
                let encoded = kind.and_then(|kind| literal.encode(kind).ok());
                let bytes = encoded.unwrap_or_else(|| Some(format!("{literal:?}").into_bytes()));
                bytes.map(Cow::Owned)
            }
            Term::Token(terms) | Term::Tuple(terms) => {
                let mut all = Vec::new();
                for term in terms {
                    let bytes = self.bytes(None, term, values);
                    push_part(&mut all, bytes.as_deref().unwrap_or_default());
                }
                Some(Cow::Owned(all))
            }
            Term::Call(..) => None,
        }
    }

    fn response(&mut self, key: (usize, i16), at_ns: u64, response: &Response<'_>) {
        let Some(pending) = self.pending.remove(&key) else { return };
        self.timing.end(pending.began_ns, at_ns);
        if let Response::Error(_) = response {
            self.errors += 1;
        }
        let (Some((query, place)), Response::Rows(rows)) = (pending.query, response) else {
            return;
        };
        let Some(query) = self.queries.get_mut(&query) else { return };
        query.answered += 1;
        if rows.is_empty() {
            query.empty += 1;
            place.into_iter().for_each(|place| query.keys.remove(place));
        } else {
            query.rows.size(rows.len() as u64);
        }
        self.cells(rows, &pending.result);
    }

    /// Notes the sizes of cells that were read.
    fn cells(&mut self, rows: &Rows<'_>, result: &[String]) {
        let names: Vec<String> = match rows.metadata.columns {
            Some(columns) => columns.map(|column| column.name.to_string()).collect(),
            None => result.to_vec(),
        };
        if names.len() != rows.metadata.column_count {
            return;
        }
        // The first rows of an answer stand for all.
        for row in rows.iter().take(100) {
            for (name, cell) in names.iter().zip(row.cells()) {
                let is_key =
                    self.key.partition.contains(name) || self.key.clustering.contains(name);
                if let (Some(cell), false, true) = (cell, is_key, self.is_column(name)) {
                    self.columns.entry(name.clone()).or_default().read.value(cell);
                }
            }
        }
    }
}

fn other_table(statement: &Statement) -> String {
    match &statement.table {
        Some(table) if table.is_system() => "of drivers on the server's own tables".into(),
        Some(table) => format!("on the table {table}"),
        None => match &statement.form {
            crate::statements::shape::Form::Refused(why) => (*why).into(),
            _ => "on a table whose keyspace is not known".into(),
        },
    }
}

/// Returns the values by the positions of their markers.
fn positions<'v>(values: Values<'v>, markers: &[Option<String>]) -> Vec<Option<&'v [u8]>> {
    let bytes = |value| match value {
        Value::Bytes(bytes) => Some(bytes),
        Value::Null | Value::Unset => None,
    };
    if values.is_named() {
        let named = |name: &Option<String>| values.get(name.as_deref()?).and_then(bytes);
        return markers.iter().map(named).collect();
    }
    values.iter().map(bytes).collect()
}
