//! Runs a planned statement: binds its values, then calls the code for its kind.

mod modify;
mod schema;
mod select;

use std::sync::Arc;

use tare_cql::request::{Parameters, Settings};
use tare_cql::response::Reply;
use tare_cql::statement::function::CallContext;
use tare_std::rng::mix64;

use crate::query::bind::BoundValues;
use crate::query::failure::Failure;
use crate::query::plan::{Plan, Prepared};
use crate::query::system;
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
        let bound = BoundValues::new(prepared, &parameters.values, || self.call_context())?;
        match &prepared.plan {
            Plan::Modify(modify) => self.modify(conn, reply, modify, &bound, settings),
            Plan::ReadWrite(modify) => {
                self.modify_by_payloads(conn, reply, modify, &bound, settings)
            }
            Plan::Select(select) => {
                self.telemetry.counters.reads += 1;
                self.select(conn, reply, (prepared, select), &bound, settings)
            }
            Plan::Batch(batch) => self.batch_statement(conn, reply, batch, &bound, settings),
            Plan::Conditional(conditional) => {
                self.conditional_statement(conn, reply, conditional, &bound, settings)
            }
            Plan::System(select) => {
                let mut node = self.shared.node.clone();
                if node.address.ip().is_unspecified() {
                    // A server that listens on all addresses reports the one that the client has
                    // connected to.
                    node.address = conn.local.unwrap_or(node.address);
                }
                let call_context = self.call_context();
                let schema = (&*self.schema.catalog, &node);
                system::select(
                    &mut conn.out,
                    reply,
                    select,
                    schema,
                    (&bound, settings, &call_context),
                )
            }
            Plan::Other(statement, keyspace) => {
                self.schema_statement(conn, reply, statement, keyspace.as_deref())
            }
        }
    }

    /// A timestamp of the server for a write, in microseconds. A shard gives none twice.
    #[inline]
    pub(crate) fn timestamp(&mut self) -> i64 {
        self.writes.next_timestamp(self.clock)
    }

    /// Seconds since the Unix epoch at the start of the iteration, unless the request sets the
    /// time.
    #[inline]
    pub(crate) fn now_s(&self, settings: &Settings<'_>) -> u32 {
        match settings.now_s {
            Some(now_s) => u32::try_from(now_s).unwrap_or(0),
            None => self.now.wall_s,
        }
    }

    /// The time and the random bits for functions without arguments.
    #[inline]
    pub(crate) fn call_context(&mut self) -> CallContext {
        let wall_us = self.timestamp();
        // The bits only have to differ between shards, servers and calls.
        let host = u64::from_le_bytes(self.shared.node.host_id[..8].try_into().unwrap_or_default());
        let first = mix64(host ^ mix64(wall_us.cast_unsigned()) ^ (self.number as u64) << 56);
        CallContext { wall_us, unique: [first, mix64(first)] }
    }
}
