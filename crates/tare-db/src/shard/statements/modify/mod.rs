//! Runs INSERT, UPDATE, DELETE and batches: builds the mutations, sends them to the shards that own
//! them, and answers when all of those have them.
//!
//! The writes of one statement or batch to one shard are one entry of its log, so that a crash
//! keeps all of them or none. Between shards there is no such promise.

mod conditional;
mod elements;
mod payloads;
mod read_write;

use std::sync::Arc;

use tare_cql::request::{BatchKind, Settings, Values};
use tare_cql::response::{Reply, encode_void};
use tare_cql::token::Token;
use tare_cql::wire::{Consistency, Value};
use tare_store::cells::{self, Cell};
use tare_store::{Change, Mutation, RangeTombstone, Ticket};

use crate::node::config::Durability;
use crate::node::metrics::Operation;
use crate::query::bind::{BoundValues, OwnedSlice, PartitionKey, without_static_row};
use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::options::TTL_MAX_S;
use crate::query::payload::append;
use crate::query::plan::{Action, Batch, Modify, Partitions, Plan, Prepared, Rows, Slices, Source};
use crate::query::planner::check_batch;
use crate::query::read_task::Origin;
use crate::query::ring::owner;
use crate::query::row_change::RowChange;
use crate::query::row_operation::{self, RowOperation};
use crate::query::warning::Warnings;
use crate::query::write_time::WriteTime;
use crate::shard::message::Message;
use crate::shard::writes::WriteClient;
use crate::shard::{Conn, Shard};
use elements::put_changes;
use payloads::ShardPayloads;

impl Shard {
    #[inline]
    pub(crate) fn modify(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        modify: &Modify,
        bound: &BoundValues<'_>,
        settings: &Settings<'_>,
    ) -> Result<(), Failure> {
        let (Partitions::One(key_sources), Rows::One(row_sources), None) =
            (&modify.partitions, &modify.rows, &modify.statics)
        else {
            return self.modify_by_payloads(conn, reply, modify, bound, settings);
        };
        check_consistency(modify, settings)?;
        let stamp = self.stamp(modify, None, bound, settings)?;
        let mut key = std::mem::take(&mut self.scratch.key);
        let mut clustering = std::mem::take(&mut self.scratch.clustering);
        let mut row = std::mem::take(&mut self.scratch.cells);
        row.clear();
        let built = bound
            .key(&mut key, key_sources, &modify.table)
            .and_then(|()| bound.clustering(&mut clustering, row_sources, &modify.table));
        let result = built.and_then(|()| {
            self.put_cells(&mut row, modify, bound, stamp)?;
            if row.is_empty() {
                // All values are unset.
                encode_void(&mut conn.out, reply);
                return Ok(());
            }
            let change = Change::Row { clustering: &clustering, cells: &row };
            let token = Token::of(&key).0;
            let mutation = Mutation { table: modify.table.store, token, key: &key, change };
            self.write(conn, reply, &mutation)
        });
        (self.scratch.key, self.scratch.clustering, self.scratch.cells) = (key, clustering, row);
        result
    }

    /// Runs a statement that writes several rows, or that reads before it writes.
    pub(crate) fn modify_by_payloads(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        modify: &Modify,
        bound: &BoundValues<'_>,
        settings: &Settings<'_>,
    ) -> Result<(), Failure> {
        check_consistency(modify, settings)?;
        let stamp = self.stamp(modify, None, bound, settings)?;
        let mut payloads = ShardPayloads::default();
        self.collect(&mut payloads, modify, bound, stamp)?;
        self.write_payloads(conn, reply, payloads, Warnings::new())
    }

    /// Runs the writes of a BATCH message.
    pub(crate) fn batch(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        kind: BatchKind,
        items: &[(Arc<Prepared>, Values<'_>)],
        settings: &Settings<'_>,
    ) -> Result<(), Failure> {
        check_batch(kind, false, items.iter().flat_map(|(prepared, _)| prepared.plan.writes()))?;
        if items.iter().any(|(prepared, _)| matches!(prepared.plan, Plan::Conditional(_))) {
            return self.conditional_batch(conn, reply, items, settings);
        }
        let settings = self.with_timestamp(settings);
        let mut payloads = ShardPayloads::default();
        for (prepared, values) in items {
            let (Plan::Modify(modify) | Plan::ReadWrite(modify)) = &prepared.plan else {
                return Err(not_a_write());
            };
            check_consistency(modify, &settings)?;
            let bound = BoundValues::new(prepared, values, || self.call_context())?;
            let stamp = self.stamp(modify, None, &bound, &settings)?;
            self.collect(&mut payloads, modify, &bound, stamp)?;
        }
        let writes = items.iter().flat_map(|(prepared, _)| prepared.plan.writes());
        let tables = writes.map(|modify| &*modify.table);
        let warnings = payloads.warnings(kind != BatchKind::Logged, tables);
        self.write_payloads(conn, reply, payloads, warnings)
    }

    /// Runs a batch that is one statement.
    pub(crate) fn batch_statement(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        batch: &Batch,
        bound: &BoundValues<'_>,
        settings: &Settings<'_>,
    ) -> Result<(), Failure> {
        let settings = self.with_timestamp(settings);
        let mut payloads = ShardPayloads::default();
        for modify in &batch.statements {
            check_consistency(modify, &settings)?;
            let stamp = self.stamp(modify, batch.timestamp.as_ref(), bound, &settings)?;
            self.collect(&mut payloads, modify, bound, stamp)?;
        }
        let tables = batch.statements.iter().map(|modify| &*modify.table);
        let warnings = payloads.warnings(batch.kind != BatchKind::Logged, tables);
        self.write_payloads(conn, reply, payloads, warnings)
    }

    /// Gives all writes of a batch the same time.
    fn with_timestamp<'s>(&mut self, settings: &Settings<'s>) -> Settings<'s> {
        let timestamp_us = settings.timestamp_us.unwrap_or_else(|| self.timestamp());
        Settings { timestamp_us: Some(timestamp_us), ..*settings }
    }

    #[inline]
    fn stamp(
        &mut self,
        modify: &Modify,
        of_batch: Option<&Source>,
        bound: &BoundValues<'_>,
        settings: &Settings<'_>,
    ) -> Result<WriteTime, Failure> {
        let source = modify.timestamp.as_ref().or(of_batch);
        let timestamp = match source.map(|source| bound.get(source)) {
            Some(Value::Bytes(bytes)) => bytes
                .try_into()
                .map(i64::from_be_bytes)
                .map_err(|_| Failure::invalid("Invalid timestamp value"))?,
            Some(Value::Null) => return Err(Failure::invalid("Invalid null value of timestamp")),
            Some(Value::Unset) | None => match settings.timestamp_us {
                Some(timestamp) => timestamp,
                None => self.timestamp(),
            },
        };
        let now_s = self.now_s(settings);
        let ttl_s = ttl_s(modify, bound)?;
        Ok(WriteTime { timestamp, now_s, ttl_s })
    }

    /// Appends the cells that a statement puts into each of its rows.
    #[inline]
    fn put_cells(
        &mut self,
        row: &mut Vec<u8>,
        modify: &Modify,
        bound: &BoundValues<'_>,
        time: WriteTime,
    ) -> Result<(), Failure> {
        put_cells(row, &modify.action, bound, time);
        if modify.collections.is_empty() {
            return Ok(());
        }
        put_changes(row, &modify.collections, bound, time, || self.call_context())
    }

    /// Adds the mutations of a statement to the payloads of the shards that own them.
    fn collect(
        &mut self,
        payloads: &mut ShardPayloads,
        modify: &Modify,
        bound: &BoundValues<'_>,
        stamp: WriteTime,
    ) -> Result<(), Failure> {
        if let Some(statics) = &modify.statics {
            self.collect(payloads, statics, bound, stamp)?;
        }
        let targets = targets(modify, bound)?;
        let operations = row_operation::bind(&modify.operations, bound)?;
        let shards = self.shared.mailboxes.len();
        let mut cells = Vec::new();
        if !modify.is_counter {
            self.put_cells(&mut cells, modify, bound, stamp)?;
            if !cells.is_empty() {
                targets.collect(payloads, (&modify.table, shards), &cells, stamp)?;
                cells.clear();
            }
            if operations.is_empty() {
                return Ok(());
            }
        } else {
            // The timestamps are added to that of the shard that owns the counter.
            self.put_cells(&mut cells, modify, bound, WriteTime { timestamp: 0, ..stamp })?;
            if cells.is_empty() && operations.is_empty() {
                return Ok(());
            }
        }
        targets.collect_late(payloads, (&modify.table, shards), (&cells, &operations), stamp)
    }

    #[inline]
    fn write(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        mutation: &Mutation<'_>,
    ) -> Result<(), Failure> {
        let owner = owner(mutation.token, self.shared.mailboxes.len());
        self.telemetry.counters.writes += 1;
        if owner != self.number {
            let mut payload = Vec::new();
            append(&mut payload, mutation)?;
            self.send_write(conn, reply, owner, payload);
            return Ok(());
        }
        let ticket = self.store.write(std::slice::from_ref(mutation))?;
        if self.acknowledge(ticket, WriteClient::Local { conn: conn.id, reply }) {
            encode_void(&mut conn.out, reply);
        }
        Ok(())
    }

    /// Whether a write can be answered now. Otherwise its client is answered when it is durable.
    #[inline]
    fn acknowledge(&mut self, ticket: Ticket, waiter: WriteClient) -> bool {
        match self.settings.durability {
            Durability::Periodic(_) => {
                self.telemetry.answered(Operation::Write);
                true
            }
            Durability::Sync => {
                self.answer_when_durable(ticket, waiter);
                false
            }
        }
    }

    fn send_write(&mut self, conn: &Conn, reply: Reply, shard: usize, payload: Vec<u8>) {
        let origin = Origin { shard: self.number, conn: conn.id, reply };
        self.connections.unanswered += 1;
        self.post(shard, Message::Write { origin, payload });
    }

    /// Writes for a client of a sibling.
    pub(crate) fn write_for(&mut self, origin: Origin, payload: &[u8]) {
        self.refresh();
        let result = match self.store.write_payload(payload) {
            Ok(ticket) => match self.acknowledge(ticket, WriteClient::Remote(origin)) {
                true => Ok(()),
                false => return,
            },
            Err(error) => Err(error.into()),
        };
        let Origin { shard, conn, reply } = origin;
        self.post(shard, Message::Written { conn, reply, result });
    }
}

/// What a statement writes to: rows by their clustering keys, or ranges of rows, in each of the
/// partitions.
struct Targets {
    keys: Vec<PartitionKey>,
    rows: Vec<Vec<u8>>,
    ranges: Vec<OwnedSlice>,
}

impl Targets {
    /// Adds the mutations that write these cells.
    fn collect(
        &self,
        payloads: &mut ShardPayloads,
        (table, shards): (&Table, usize),
        cells: &[u8],
        stamp: WriteTime,
    ) -> Result<(), Failure> {
        let WriteTime { timestamp, now_s: deleted_s, .. } = stamp;
        for PartitionKey { token, key } in &self.keys {
            let shard = owner(*token, shards);
            payloads.note_partition(*token);
            let mut add = |change| {
                payloads.add(shard, &Mutation { table: table.store, token: *token, key, change })
            };
            for clustering in &self.rows {
                add(Change::Row { clustering, cells })?;
            }
            for (from, to) in &self.ranges {
                let to = to.as_deref();
                add(Change::Range(RangeTombstone { from, to, timestamp, deleted_s }))?;
            }
        }
        Ok(())
    }

    /// Adds changes that need what their shards have stored.
    fn collect_late(
        &self,
        payloads: &mut ShardPayloads,
        (table, shards): (&Arc<Table>, usize),
        (cells, operations): (&[u8], &[RowOperation]),
        time: WriteTime,
    ) -> Result<(), Failure> {
        for key in &self.keys {
            let shard = owner(key.token, shards);
            payloads.note_partition(key.token);
            let mut add = |change| payloads.add_late(shard, (table, key), change, time.now_s);
            for clustering in &self.rows {
                let (cells, operations) = (cells.to_vec(), operations.to_vec());
                add(RowChange::Row { clustering: clustering.clone(), cells, operations, time })?;
            }
            for slice in &self.ranges {
                add(RowChange::Range { slice: slice.clone(), deleted_s: time.now_s })?;
            }
        }
        Ok(())
    }
}

fn targets(modify: &Modify, bound: &BoundValues<'_>) -> Result<Targets, Failure> {
    let table = &modify.table;
    let keys = match &modify.partitions {
        Partitions::One(sources) => {
            let mut key = Vec::new();
            bound.key(&mut key, sources, table)?;
            vec![PartitionKey::of(key)]
        }
        Partitions::Some(conditions) => bound.keys(conditions, table)?,
        Partitions::Tokens(_) => return Err(Failure::invalid("a write names its partitions")),
    };
    let (rows, ranges) = match (&modify.rows, &modify.action) {
        (Rows::One(sources), _) => {
            let mut clustering = Vec::new();
            bound.clustering(&mut clustering, sources, table)?;
            (vec![clustering], Vec::new())
        }
        (Rows::Slices(slices), Action::Remove) => {
            let mut ranges = bound.slices(slices, table)?;
            // Only the deletion of a whole partition deletes its static columns.
            if !table.statics.is_empty() && *slices != Slices::default() {
                without_static_row(&mut ranges);
            }
            (Vec::new(), ranges)
        }
        // The planner has checked that the keys are whole.
        (Rows::Slices(slices), _) => (bound.prefixes(&slices.equal, table)?, Vec::new()),
    };
    Ok(Targets { keys, rows, ranges })
}

fn not_a_write() -> Failure {
    Failure::invalid(
        "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.",
    )
}

#[inline]
fn check_consistency(modify: &Modify, settings: &Settings<'_>) -> Result<(), Failure> {
    if matches!(settings.consistency, Consistency::Serial | Consistency::LocalSerial) {
        return Err(Failure::invalid(match modify.is_counter {
            true => "Counter operations are inherently non-serializable",
            false => "You must use conditional updates for serializable writes",
        }));
    }
    if settings.consistency == Consistency::Any && modify.is_counter {
        return Err(Failure::Invalid(format!(
            "Consistency level ANY is not yet supported for counter table {}",
            modify.table.name
        )));
    }
    modify.replicas.check(settings.consistency)
}

/// Seconds to live of the cells that a statement writes; 0 means for ever.
#[inline]
fn ttl_s(modify: &Modify, bound: &BoundValues<'_>) -> Result<u32, Failure> {
    let Action::Set { ttl: Some(source), .. } = &modify.action else {
        return Ok(modify.default_ttl_s);
    };
    match bound.get(source) {
        Value::Bytes(bytes) => {
            let bytes = bytes.try_into().map_err(|_| Failure::invalid("Invalid TTL value"))?;
            let asked = i32::from_be_bytes(bytes);
            let Ok(ttl_s) = u32::try_from(asked) else {
                return Err(Failure::Invalid(format!(
                    "A TTL must be greater or equal to 0, but was {asked}"
                )));
            };
            if ttl_s > TTL_MAX_S {
                return Err(Failure::Invalid(format!(
                    "ttl is too large. requested ({asked}) maximum ({TTL_MAX_S})"
                )));
            }
            Ok(ttl_s)
        }
        // As in Cassandra, null removes the default and unset keeps it.
        Value::Null => Ok(0),
        Value::Unset => Ok(modify.default_ttl_s),
    }
}

/// Appends the cells that an action puts into each of its rows.
#[inline]
fn put_cells(row: &mut Vec<u8>, action: &Action, bound: &BoundValues<'_>, time: WriteTime) {
    let WriteTime { timestamp, now_s, .. } = time;
    let live = |column, value| Cell { column, path: None, timestamp, content: time.content(value) };
    match action {
        Action::Set { marks, cells, .. } => {
            if *marks {
                cells::push(row, live(cells::MARKER, &[]));
            }
            for (column, source) in cells {
                match bound.get(source) {
                    Value::Bytes(value) => cells::push(row, live(*column, value)),
                    Value::Null => cells::push(row, Cell::dead(*column, timestamp, now_s)),
                    Value::Unset => {}
                }
            }
        }
        Action::Clear(columns) => {
            for column in columns {
                cells::push(row, Cell::dead(*column, timestamp, now_s));
            }
        }
        Action::Remove => cells::push(row, Cell::dead(cells::DELETION, timestamp, now_s)),
    }
}
