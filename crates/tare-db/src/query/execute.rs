//! Runs planned statements: values are bound, then what does the work is called.

use std::sync::Arc;

use tare_cql::request::{Parameters, Settings};
use tare_cql::response::Reply;
use tare_cql::statement::function::Moment;
use tare_std::rng::mix64;

use crate::query::bind::Bound;
use crate::query::failure::Failure;
use crate::query::plan::{Plan, Prepared};
use crate::shard::{Conn, Shard};

impl Shard {
    pub(crate) fn run_statement(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        prepared: &Arc<Prepared>,
        parameters: &Parameters<'_>,
    ) -> Result<(), Failure> {
        let settings = &parameters.settings;
        let bound = Bound::new(prepared, &parameters.values, || self.moment())?;
        match &prepared.plan {
            Plan::Modify(modify) => self.modify(conn, reply, modify, &bound, settings),
            Plan::Select(select) => {
                self.telemetry.counters.reads += 1;
                self.select(conn, reply, (prepared, select), &bound, settings)
            }
            Plan::Batch(batch) => self.batch_statement(conn, reply, batch, &bound, settings),
            Plan::System(select) => self.system(conn, reply, select, &bound, settings),
            Plan::Other(statement, keyspace) => {
                self.schema_statement(conn, reply, statement, keyspace.as_deref())
            }
        }
    }

    /// The server's own time of writing: never twice the same on one shard.
    #[inline]
    pub(crate) fn timestamp(&mut self) -> i64 {
        self.writes.next_timestamp(self.clock)
    }

    /// Seconds since the Unix epoch when the turn began; a client may say what time it is.
    #[inline]
    pub(crate) fn now_s(&self, settings: &Settings<'_>) -> u32 {
        match settings.now_s {
            Some(now_s) => u32::try_from(now_s).unwrap_or(0),
            None => self.now.wall_s,
        }
    }

    /// What functions without arguments say now.
    #[inline]
    pub(crate) fn moment(&mut self) -> Moment {
        let wall_us = self.timestamp();
        // Different for each shard, server and call, which is all that is asked of them.
        let host = u64::from_le_bytes(self.shared.node.host_id[..8].try_into().unwrap_or_default());
        let first = mix64(host ^ mix64(wall_us.cast_unsigned()) ^ (self.number as u64) << 56);
        Moment { wall_us, unique: [first, mix64(first)] }
    }
}
