//! Runs SELECT on tables of clients. The read of one whole row goes straight from the store into
//! the connection's buffer; every other read is a [`ReadTask`].

use std::sync::Arc;

use tare_cql::request::Settings;
use tare_cql::response::{Reply, RowsWriter};
use tare_cql::statement::function::CallContext;
use tare_cql::token::Token;
use tare_cql::wire::Consistency;
use tare_store::{End, Pins, RowRead};

use crate::node::metrics::Operation;
use crate::query::bind::{BoundValues, OwnedSlice, PartitionKey, after, without_static_row};
use crate::query::failure::Failure;
use crate::query::paging_state::PagingState;
use crate::query::plan::{Items, Partitions, Prepared, Rows, Select};
use crate::query::read_task::{self, Origin, ReadOptions, ReadTarget, ReadTask, Step};
use crate::query::ring::owner;
use crate::shard::message::Message;
use crate::shard::reads::Suspended;
use crate::shard::{Conn, Shard};

/// The whole key of one row.
struct OneRow<'a> {
    token: i64,
    key: &'a [u8],
    clustering: &'a [u8],
}

impl Shard {
    pub(crate) fn select(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        (prepared, select): (&Arc<Prepared>, &Select),
        bound: &BoundValues<'_>,
        settings: &Settings<'_>,
    ) -> Result<(), Failure> {
        if settings.consistency == Consistency::Any {
            return Err(Failure::invalid("ANY ConsistencyLevel is only supported for writes"));
        }
        select.replicas.check(settings.consistency)?;
        let options = self.read_options(select, bound, settings)?;
        if let (Partitions::One(key_sources), Rows::One(row_sources), None) =
            (&select.partitions, &select.rows, settings.paging_state)
            && !select.reads_statics()
        {
            let mut key = std::mem::take(&mut self.scratch.key);
            let mut clustering = std::mem::take(&mut self.scratch.clustering);
            let built = bound
                .key(&mut key, key_sources, &select.table)
                .and_then(|()| bound.clustering(&mut clustering, row_sources, &select.table));
            let result = built.and_then(|()| {
                let row = OneRow { token: Token::of(&key).0, key: &key, clustering: &clustering };
                self.select_row(conn, reply, (prepared, select), &row, options)
            });
            (self.scratch.key, self.scratch.clustering) = (key, clustering);
            return result;
        }
        let after = PagingState::of(settings)?;
        let target = self.read_target(select, bound, options.now_s)?;
        let rows_left =
            after.as_ref().map_or(options.rows_left, |after| after.left.min(options.rows_left));
        let options = ReadOptions { rows_left, ..options };
        let origin = Origin { shard: self.number, conn: conn.id, reply };
        let tests = select.filters.iter().map(|filter| bound.filter(filter));
        let tests = tests.collect::<Result<_, _>>()?;
        let task = ReadTask::new(origin, Arc::clone(prepared), target, options, after)?;
        self.start(conn, task.with_tests(tests))
    }

    fn read_options(
        &mut self,
        select: &Select,
        bound: &BoundValues<'_>,
        settings: &Settings<'_>,
    ) -> Result<ReadOptions, Failure> {
        let counts = select.items.is_one_row();
        let rows = settings.page_size.and_then(|rows| u64::try_from(rows).ok());
        let limit = bound.limit(select.limit.as_ref())?;
        let page = rows.filter(|rows| *rows > 0 && !counts);
        // A result that fits into one page needs no pages, which drivers ask for by default.
        let page = page.filter(|rows| !select.merged || limit.is_none_or(|limit| limit > *rows));
        if page.is_some() && select.merged {
            return Err(Failure::invalid(
                "Cannot page queries with both ORDER BY and a IN restriction on the partition key; \
                 you must either remove the ORDER BY or the IN and sort client side, or disable \
                 paging for this query",
            ));
        }
        let per_partition = match select.distinct {
            true => Some(1),
            false => bound.limit(select.per_partition_limit.as_ref())?,
        };
        let call_context = match select.calls {
            true => self.call_context(),
            false => CallContext::default(),
        };
        Ok(ReadOptions {
            page_rows: page.unwrap_or(u64::MAX),
            is_paged: page.is_some(),
            // LIMIT counts rows of the result, and the result of a count is one row.
            rows_left: limit.filter(|_| !counts).unwrap_or(u64::MAX),
            per_partition_rows: per_partition.unwrap_or(u64::MAX),
            now_s: self.now_s(settings),
            call_context,
        })
    }

    fn read_target(
        &self,
        select: &Select,
        bound: &BoundValues<'_>,
        now_s: u32,
    ) -> Result<ReadTarget, Failure> {
        let table = &select.table;
        let keys = match &select.partitions {
            Partitions::One(sources) => {
                let mut key = Vec::new();
                bound.key(&mut key, sources, table)?;
                vec![PartitionKey::of(key)]
            }
            Partitions::Some(conditions) => bound.keys(conditions, table)?,
            Partitions::Tokens(bounds) => match bound.tokens(bounds, table)? {
                Some(tokens) => return Ok(read_task::ring(table, tokens, now_s)),
                None => Vec::new(),
            },
        };
        let mut slices: Vec<OwnedSlice> = match &select.rows {
            Rows::One(sources) => {
                let mut clustering = Vec::new();
                bound.clustering(&mut clustering, sources, table)?;
                vec![(clustering.clone(), after(clustering))]
            }
            Rows::Slices(slices) => bound.slices(slices, table)?,
        };
        if !table.statics.is_empty() {
            without_static_row(&mut slices);
        }
        Ok(ReadTarget::Partitions { keys, at: 0, slices })
    }

    /// The hot path: reads one row without an allocation.
    #[inline]
    fn select_row(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        (prepared, select): (&Arc<Prepared>, &Select),
        row: &OneRow<'_>,
        options: ReadOptions,
    ) -> Result<(), Failure> {
        let OneRow { token, key, clustering } = *row;
        let is_here = owner(token, self.shared.mailboxes.len()) == self.number;
        let mut pins = Pins::default();
        let mut waits = false;
        if let (true, Items::Columns(items)) = (is_here && !self.reads.queues(), &select.items) {
            let read = RowRead {
                table: select.table.store,
                token,
                key,
                clustering,
                columns: select.cells.as_deref(),
                now_s: options.now_s,
            };
            let mut writer = RowsWriter::begin(&mut conn.out, reply, &select.columns, None);
            let result = self.store.read_row(&read, &mut pins, |row| {
                if !select.table.has_row(row.cells) {
                    return;
                }
                writer.row(|out| {
                    read_task::put_row(
                        out,
                        items,
                        &select.table,
                        &row,
                        (options.now_s, &options.call_context),
                    );
                });
            });
            match result {
                Ok(End::Missing) => {
                    writer.abort();
                    waits = true;
                }
                Ok(End::Done | End::Stopped | End::Paused) => {
                    writer.finish();
                    self.telemetry.answered(Operation::Read);
                    return Ok(());
                }
                Err(error) => {
                    writer.abort();
                    return Err(error.into());
                }
            }
        }
        let key = PartitionKey { token, key: key.to_vec() };
        let target = ReadTarget::Row { key, clustering: clustering.to_vec() };
        let origin = Origin { shard: self.number, conn: conn.id, reply };
        let mut task = ReadTask::new(origin, Arc::clone(prepared), target, options, None)?;
        if waits {
            task.begun_ns = self.now.monotonic_ns;
            self.suspend(Suspended::Read(Box::new(task), pins))?;
            self.connections.unanswered += 1;
            return Ok(());
        }
        self.start(conn, task)
    }

    /// Begins a task here or at the shard that owns its rows.
    fn start(&mut self, conn: &mut Conn, mut task: ReadTask) -> Result<(), Failure> {
        let mut pins = Pins::default();
        task.begun_ns = self.now.monotonic_ns;
        let shards = self.shared.mailboxes.len();
        let shard = task.first_shard(shards);
        if shard == self.number && self.reads.queues() {
            self.queue(Box::new(task))?;
            self.connections.unanswered += 1;
            return Ok(());
        }
        let step = match shard == self.number {
            true => task.step(&mut self.store, &mut pins, (self.number, shards))?,
            false => Step::MoveTo(shard),
        };
        if step == Step::Answer {
            self.telemetry.answered(Operation::Read);
            task.answer(&mut conn.out);
        } else {
            self.dispatch(Box::new(task), pins, step)?;
            self.connections.unanswered += 1;
        }
        Ok(())
    }

    /// Goes on with a task that has come from another shard, or lets it queue.
    pub(crate) fn take_over(&mut self, task: Box<ReadTask>) {
        if !self.reads.queues() {
            return self.advance(task, Pins::default());
        }
        let origin = task.origin;
        if let Err(failure) = self.queue(task) {
            self.fail(origin, &failure);
        }
    }

    /// Goes on with a task that waited.
    pub(crate) fn advance(&mut self, mut task: Box<ReadTask>, mut pins: Pins) {
        self.refresh();
        let shards = self.shared.mailboxes.len();
        let origin = task.origin;
        let step = task.step(&mut self.store, &mut pins, (self.number, shards));
        let result = step.map_err(Failure::from);
        if let Err(failure) = result.and_then(|step| self.dispatch(task, pins, step)) {
            self.fail(origin, &failure);
        }
    }

    /// Answers the client of a task that failed.
    fn fail(&mut self, origin: Origin, failure: &Failure) {
        self.telemetry.counters.errors += 1;
        self.deliver(origin, |out| failure.encode(out, origin.reply));
    }

    /// Acts on the result of a step. A task that is refused is dropped; the caller, who may hold
    /// the client's connection, reports the failure.
    fn dispatch(
        &mut self,
        mut task: Box<ReadTask>,
        mut pins: Pins,
        step: Step,
    ) -> Result<(), Failure> {
        match step {
            Step::Answer => {
                self.telemetry.answered_late(self.clock, Operation::Read, task.begun_ns);
                self.deliver(task.origin, |out| task.answer(out));
            }
            Step::Yield => {
                // The pins also know which dead rows the task has passed.
                pins.forget_done();
                self.reads.push_runnable(Suspended::Read(task, pins));
            }
            Step::MoveTo(shard) => self.post(shard, Message::Read(task)),
            Step::Missing => {
                if task.has_moved() {
                    pins.forget_done();
                }
                self.suspend(Suspended::Read(task, pins))?;
            }
        }
        Ok(())
    }

    /// Hands an answer to its client, which may be connected to a sibling.
    pub(crate) fn deliver(&mut self, origin: Origin, write: impl FnOnce(&mut Vec<u8>)) {
        let Origin { shard, conn, .. } = origin;
        if shard != self.number {
            let mut frame = Vec::new();
            write(&mut frame);
            return self.post(shard, Message::Answer { conn, frame });
        }
        self.connections.unanswered -= 1;
        if let Some(found) = self.connections.get_mut(conn) {
            write(&mut found.out);
            self.connections.mark_dirty(conn);
        }
    }
}
