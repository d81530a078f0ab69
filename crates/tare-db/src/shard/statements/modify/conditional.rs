//! Runs writes with conditions: `query::conditional` says how they keep their order.

use std::sync::Arc;

use tare_cql::request::{Settings, Values};
use tare_cql::response::Reply;
use tare_cql::statement::function::CallContext;
use tare_cql::wire::Consistency;
use tare_store::{Pins, Ticket};

use super::elements::put_changes;
use super::{Targets, put_cells, targets, ttl_s};
use crate::node::config::Durability;
use crate::node::metrics::Operation;
use crate::query::bind::BoundValues;
use crate::query::conditional::{ConditionalBuilder, ConditionalWrite};
use crate::query::failure::Failure;
use crate::query::payload::check_bytes;
use crate::query::plan::{Condition, Conditional, Modify, Plan, Prepared};
use crate::query::planner::CONDITIONAL_TIMESTAMP;
use crate::query::read_task::Origin;
use crate::query::ring::owner;
use crate::query::row_change::RowChange;
use crate::query::row_operation;
use crate::query::write_time::WriteTime;
use crate::shard::message::Message;
use crate::shard::reads::Suspended;
use crate::shard::{Conn, Shard};

/// The result of a try.
enum Attempt {
    /// Blocks are missing; nothing was written.
    Missing,
    /// The answer, and the ticket that must be durable before it is sent.
    Decided(Vec<u8>, Option<Ticket>),
}

impl Shard {
    /// Runs a statement with conditions.
    pub(crate) fn conditional_statement(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        conditional: &Conditional,
        bound: &BoundValues<'_>,
        settings: &Settings<'_>,
    ) -> Result<(), Failure> {
        let mut builder = ConditionalBuilder::new(conditional.is_batch, self.now_s(settings));
        for (modify, condition) in &conditional.statements {
            add(&mut builder, modify, condition.as_ref(), bound, settings, || self.call_context())?;
        }
        self.begin_conditional(conn, reply, builder)
    }

    /// Runs a BATCH message of which a statement has conditions.
    pub(super) fn conditional_batch(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        items: &[(Arc<Prepared>, Values<'_>)],
        settings: &Settings<'_>,
    ) -> Result<(), Failure> {
        let mut builder = ConditionalBuilder::new(true, self.now_s(settings));
        for (prepared, values) in items {
            let bound = BoundValues::new(prepared, values, || self.call_context())?;
            match &prepared.plan {
                Plan::Modify(modify) | Plan::ReadWrite(modify) => {
                    add(&mut builder, modify, None, &bound, settings, || self.call_context())?
                }
                Plan::Conditional(Conditional { statements, is_batch: false }) => {
                    for (modify, condition) in statements {
                        add(&mut builder, modify, condition.as_ref(), &bound, settings, || {
                            self.call_context()
                        })?;
                    }
                }
                _ => return Err(super::not_a_write()),
            }
        }
        self.begin_conditional(conn, reply, builder)
    }

    /// Begins a transaction here or at the shard that owns its partition.
    fn begin_conditional(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        builder: ConditionalBuilder,
    ) -> Result<(), Failure> {
        let origin = Origin { shard: self.number, conn: conn.id, reply };
        let write = Box::new(builder.finish(origin, self.now.monotonic_ns)?);
        self.telemetry.counters.writes += 1;
        let owner = owner(write.token(), self.shared.mailboxes.len());
        if owner != self.number {
            self.post(owner, Message::Conditional(write));
            self.connections.unanswered += 1;
            return Ok(());
        }
        let mut pins = Vec::new();
        match self.try_conditional(&write, &mut pins)? {
            Attempt::Decided(frame, None) => {
                self.telemetry.answered(Operation::Write);
                conn.out.extend_from_slice(&frame);
                return Ok(());
            }
            Attempt::Decided(frame, Some(ticket)) => {
                self.answer_late(ticket, origin, frame, write.begun_ns);
            }
            Attempt::Missing => self.suspend(Suspended::Conditional(write, pins))?,
        }
        self.connections.unanswered += 1;
        Ok(())
    }

    /// Tries a transaction that waited, or that has come from another shard.
    pub(crate) fn advance_conditional(
        &mut self,
        write: Box<ConditionalWrite>,
        mut pins: Vec<Pins>,
    ) {
        self.refresh();
        let (origin, begun_ns) = (write.origin, write.begun_ns);
        let result = self.try_conditional(&write, &mut pins).and_then(|attempt| {
            match attempt {
                Attempt::Decided(frame, None) => {
                    self.telemetry.answered_late(self.clock, Operation::Write, begun_ns);
                    self.deliver(origin, |out| out.extend_from_slice(&frame));
                }
                Attempt::Decided(frame, Some(ticket)) => {
                    self.answer_late(ticket, origin, frame, begun_ns);
                }
                Attempt::Missing => self.suspend(Suspended::Conditional(write, pins))?,
            }
            Ok(())
        });
        if let Err(failure) = result {
            self.telemetry.counters.errors += 1;
            self.deliver(origin, |out| failure.encode(out, origin.reply));
        }
    }

    /// Reads, decides and writes without anything between.
    fn try_conditional(
        &mut self,
        write: &ConditionalWrite,
        pins: &mut Vec<Pins>,
    ) -> Result<Attempt, Failure> {
        let Some(read) = write.read(&mut self.store, pins)? else { return Ok(Attempt::Missing) };
        let mut ticket = None;
        if read.holds {
            let timestamp = self.timestamp().max(read.latest.saturating_add(1));
            ticket = write.apply(&mut self.store, &read, timestamp)?;
        }
        let waits = self.settings.durability == Durability::Sync;
        Ok(Attempt::Decided(write.answer(&read), ticket.filter(|_| waits)))
    }
}

/// Adds a statement to a transaction.
fn add(
    builder: &mut ConditionalBuilder,
    modify: &Modify,
    condition: Option<&Condition>,
    bound: &BoundValues<'_>,
    settings: &Settings<'_>,
    mut context: impl FnMut() -> CallContext,
) -> Result<(), Failure> {
    check_consistency(modify, settings)?;
    if modify.timestamp.is_some() {
        return Err(Failure::invalid(CONDITIONAL_TIMESTAMP));
    }
    let targets = targets(modify, bound)?;
    builder.enter(&modify.table, &targets.keys)?;
    if targets.rows.iter().any(|clustering| !clustering.is_empty()) {
        builder.name_rows();
    }
    if let Some(condition) = condition {
        let clustering = targets.rows.first().map_or(&[][..], |clustering| clustering);
        builder.check(clustering, condition, bound)?;
        let is_static = targets.rows.iter().any(Vec::is_empty);
        if modify.statics.is_some() || is_static && !modify.table.statics.is_empty() {
            builder.show_statics();
        }
    }
    put(builder, modify, targets, bound, &mut context)?;
    match &modify.statics {
        Some(statics) => {
            let targets = super::targets(statics, bound)?;
            put(builder, statics, targets, bound, &mut context)
        }
        None => Ok(()),
    }
}

/// Adds the changes of a statement to a transaction.
fn put(
    builder: &mut ConditionalBuilder,
    modify: &Modify,
    Targets { rows, ranges, .. }: Targets,
    bound: &BoundValues<'_>,
    context: impl FnMut() -> CallContext,
) -> Result<(), Failure> {
    let now_s = builder.now_s();
    // Timestamps are added to that of the transaction when it is applied.
    let time = WriteTime { timestamp: 0, now_s, ttl_s: ttl_s(modify, bound)? };
    let mut cells = Vec::new();
    put_cells(&mut cells, &modify.action, bound, time);
    put_changes(&mut cells, &modify.collections, bound, time, context)?;
    let operations = row_operation::bind(&modify.operations, bound)?;
    if cells.is_empty() && operations.is_empty() {
        return Ok(());
    }
    let rows = rows.into_iter().map(|clustering| {
        let (cells, operations) = (cells.clone(), operations.clone());
        RowChange::Row { clustering, cells, operations, time }
    });
    let ranges = ranges.into_iter().map(|slice| RowChange::Range { slice, deleted_s: now_s });
    for change in rows.chain(ranges) {
        check_bytes(builder.change(change)?)?;
    }
    Ok(())
}

fn check_consistency(modify: &Modify, settings: &Settings<'_>) -> Result<(), Failure> {
    let is_serial = |level| matches!(level, Consistency::Serial | Consistency::LocalSerial);
    let serial = settings.serial_consistency.unwrap_or(Consistency::Serial);
    if !is_serial(serial) {
        return Err(Failure::invalid(
            "Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL",
        ));
    }
    modify.replicas.check(serial)?;
    if is_serial(settings.consistency) {
        return Err(Failure::Invalid(format!(
            "{} is not supported as conditional update commit consistency. Use ANY if you mean \
             \"make sure it is accepted but I don't care how many replicas commit it for \
             non-SERIAL reads\"",
            settings.consistency.name()
        )));
    }
    modify.replicas.check(settings.consistency)
}
