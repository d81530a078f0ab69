//! Runs planned statements: values bound, the owning shard found, rows written and read.

use std::sync::Arc;

use tare_cql::request::{BatchKind, Parameters, Settings, Values};
use tare_cql::response::{Reply, RowsWriter, encode_void};
use tare_cql::token::Token;
use tare_cql::wire::Value;
use tare_std::rng::mix64;
use tare_store::cells::{self, Cell, Content};
use tare_store::entry::{KEY_BYTES_MAX, encode_payload, payload_bytes};
use tare_store::{Change, Mutation, Position, RowRead};

use crate::bind::{Bound, build_clustering, build_key};
use crate::config::Durability;
use crate::failure::Failure;
use crate::message::{Message, Origin, Paging, Read, Scan};
use crate::metrics::Operation;
use crate::plan::{Insert, Items, Plan, Prepared, Select, SystemSelect};
use crate::rows::{self, Collected, Cursor, Outcome, Range};
use crate::shard::{Conn, Shard, Waiter};
use crate::system;

/// Which shard owns a token. Mixed again, so that the tokens of one shard stay evenly spread.
#[inline]
pub(crate) fn owner(token: i64, shards: usize) -> usize {
    if shards == 1 {
        return 0;
    }
    let product = u128::from(mix64(token.cast_unsigned())) * shards as u128;
    usize::try_from(product >> 64).unwrap_or(0)
}

impl Shard {
    pub(crate) fn run_statement(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        prepared: &Arc<Prepared>,
        parameters: &Parameters<'_>,
    ) -> Result<(), Failure> {
        let bound = Bound::new(&prepared.markers, &parameters.values)?;
        match &prepared.plan {
            Plan::Insert(insert) => self.insert(conn, reply, insert, &bound, parameters),
            Plan::Select(select) => {
                self.state.metrics.reads += 1;
                self.select(conn, reply, prepared, select, &bound, parameters)
            }
            Plan::System(select) => self.system(conn, reply, select, &bound),
            Plan::Other(statement) => self.schema_statement(conn, reply, statement),
        }
    }

    #[inline]
    fn insert(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        insert: &Insert,
        bound: &Bound<'_>,
        parameters: &Parameters<'_>,
    ) -> Result<(), Failure> {
        let timestamp = match insert.timestamp.as_ref().map(|source| bound.get(source)) {
            Some(Value::Bytes(bytes)) => bytes
                .try_into()
                .map(i64::from_be_bytes)
                .map_err(|_| Failure::invalid("a timestamp is a bigint"))?,
            Some(Value::Null) => return Err(Failure::invalid("the timestamp is null")),
            Some(Value::Unset) | None => {
                parameters.settings.timestamp_us.unwrap_or_else(|| self.timestamp())
            }
        };
        let table = &insert.table;
        let mut key = std::mem::take(&mut self.state.key);
        let mut clustering = std::mem::take(&mut self.state.clustering);
        let mut row = std::mem::take(&mut self.state.cells);
        row.clear();
        let mut build = || {
            build_key(&mut key, &insert.key, table, bound)?;
            build_clustering(&mut clustering, &table.clustering, &insert.clustering, bound)?;
            cells::push(&mut row, Cell::live(cells::MARKER, timestamp, &[]));
            for (column, source) in &insert.cells {
                let content = match bound.get(source) {
                    Value::Bytes(bytes) => Content::Live(bytes),
                    Value::Null => Content::Dead { since_s: self.state.now.wall_s },
                    Value::Unset => continue,
                };
                cells::push(&mut row, Cell { column: *column, timestamp, content });
            }
            Ok(())
        };
        let result = build().and_then(|()| {
            let token = Token::of(&key).0;
            let change = Change::Row { clustering: &clustering, cells: &row };
            let mutation = Mutation { table: table.store, token, key: &key, change };
            self.write(conn, reply, &mutation)
        });
        (self.state.key, self.state.clustering, self.state.cells) = (key, clustering, row);
        result
    }

    #[inline]
    fn write(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        mutation: &Mutation<'_>,
    ) -> Result<(), Failure> {
        let shards = self.common.mailboxes.len();
        let owner = owner(mutation.token, shards);
        self.state.metrics.writes += 1;
        if owner != self.number {
            if mutation.longest_key_bytes() > KEY_BYTES_MAX {
                return Err(Failure::invalid("a key is longer than 65,535 bytes"));
            }
            let mutations = std::slice::from_ref(mutation);
            let mut payload = vec![0; payload_bytes(mutations)];
            encode_payload(mutations, &mut payload);
            let origin = Origin { shard: self.number, conn: conn.id, reply };
            self.state.remote += 1;
            self.post(owner, Message::Write { origin, payload });
            return Ok(());
        }
        let ticket = self.store.write(std::slice::from_ref(mutation))?;
        match self.durability {
            Durability::Periodic(_) => {
                self.answered(Operation::Write);
                encode_void(&mut conn.out, reply);
            }
            Durability::Sync => {
                self.tell_when_durable(ticket, Waiter::Here { conn: conn.id, reply });
            }
        }
        Ok(())
    }

    /// Writes mutations for a client of a sibling.
    pub(crate) fn write_for(&mut self, origin: Origin, payload: &[u8]) {
        self.refresh();
        let result = match self.store.write_payload(payload) {
            Ok(ticket) if self.durability == Durability::Sync => {
                self.tell_when_durable(ticket, Waiter::There(origin));
                return;
            }
            Ok(_) => {
                self.answered(Operation::Write);
                Ok(())
            }
            Err(error) => Err(error.into()),
        };
        let Origin { shard, conn, reply } = origin;
        self.post(shard, Message::Written { conn, reply, result });
    }

    fn select(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        prepared: &Arc<Prepared>,
        select: &Select,
        bound: &Bound<'_>,
        parameters: &Parameters<'_>,
    ) -> Result<(), Failure> {
        let origin = Origin { shard: self.number, conn: conn.id, reply };
        if select.key.is_empty() {
            let paging = paging(select, bound, parameters)?;
            let shard = paging.after.as_ref().map_or(0, |after| usize::from(after.shard));
            let found = Collected::default();
            let prepared = Arc::clone(prepared);
            let scan = Box::new(Scan { origin, prepared, paging, found, shard });
            self.state.remote += 1;
            self.pass_on(scan);
            return Ok(());
        }
        let mut key = std::mem::take(&mut self.state.key);
        let mut clustering = std::mem::take(&mut self.state.clustering);
        let columns = &select.table.clustering;
        let built = build_key(&mut key, &select.key, &select.table, bound)
            .and_then(|()| build_clustering(&mut clustering, columns, &select.clustering, bound));
        let result = built.and_then(|()| {
            let token = Token::of(&key).0;
            let owner = owner(token, self.common.mailboxes.len());
            let whole = select.clustering.len() == columns.len() && select.limit.is_none();
            if let (true, Items::Columns(items)) = (whole && owner == self.number, &select.items) {
                let read = RowRead {
                    table: select.table.store,
                    token,
                    key: &key,
                    clustering: &clustering,
                    columns: None,
                    now_s: self.state.now.wall_s,
                };
                let to = (reply, &mut conn.out);
                self.state.answered[Operation::Read as usize] += 1;
                return rows::answer_row(select, items, &mut self.store, &read, to);
            }
            let paging = paging(select, bound, parameters)?;
            let (key, clustering) = (key.clone(), clustering.clone());
            let prepared = Arc::clone(prepared);
            let read = Read { origin, prepared, token, key, clustering, paging };
            if owner == self.number {
                self.answered(Operation::Read);
                self.read(&read, &mut conn.out);
            } else {
                self.state.remote += 1;
                self.post(owner, Message::Read(Box::new(read)));
            }
            Ok(())
        });
        (self.state.key, self.state.clustering) = (key, clustering);
        result
    }

    /// Reads a partition for a client of a sibling.
    pub(crate) fn read_for(&mut self, read: &Read) {
        self.refresh();
        let mut frame = Vec::new();
        self.answered(Operation::Read);
        self.read(read, &mut frame);
        let Origin { shard, conn, .. } = read.origin;
        self.post(shard, Message::Answer { conn, frame });
    }

    fn read(&mut self, read: &Read, out: &mut Vec<u8>) {
        let Plan::Select(select) = &read.prepared.plan else { return };
        let Read { token, key, clustering: prefix, paging, .. } = read;
        let mut found = Collected::default();
        let range = Range::Partition { token: *token, key, prefix };
        let rows = wanted(select, paging);
        let what = (select.table.store, self.state.now.wall_s);
        let outcome = match rows {
            0 => Ok(Outcome::Done),
            _ => rows::read(&mut self.store, what, range, paging.after.as_ref(), rows, |row| {
                found.add(select, row)
            }),
        };
        match outcome {
            Ok(outcome) => {
                finish(select, paging, &found, outcome, self.number, (read.origin.reply, out));
            }
            Err(failure) => failure.encode(out, read.origin.reply),
        }
    }

    /// Takes the next step of a scan that is at this shard.
    pub(crate) fn step_scan(&mut self) -> bool {
        let Some(mut scan) = self.state.scans.pop_front() else { return false };
        self.refresh();
        let prepared = Arc::clone(&scan.prepared);
        let Plan::Select(select) = &prepared.plan else { return true };
        let Scan { found, paging, .. } = &mut *scan;
        let rows = wanted(select, paging).saturating_sub(found.rows);
        let what = (select.table.store, self.state.now.wall_s);
        let read = match rows {
            0 => Ok(Outcome::Done),
            _ => {
                let after = paging.after.as_ref();
                rows::read(&mut self.store, what, Range::All, after, rows, |row| {
                    found.add(select, row)
                })
            }
        };
        let outcome = match read {
            Ok(outcome) => outcome,
            Err(failure) => {
                let mut frame = Vec::new();
                failure.encode(&mut frame, scan.origin.reply);
                self.answer_scan(scan.origin, frame);
                return true;
            }
        };
        let full =
            found.rows >= wanted(select, paging) || found.cells.len() >= rows::ANSWER_BYTES_MAX;
        match outcome {
            Outcome::More(position) if !full => {
                // Only a pause, for the sake of others.
                let left = paging.left;
                let shard = u16::try_from(self.number).unwrap_or(u16::MAX);
                paging.after = Some(Cursor { shard, left, position });
                self.state.scans.push_back(scan);
            }
            Outcome::Done if !full && self.number + 1 < self.common.mailboxes.len() => {
                paging.after = None;
                scan.shard = self.number + 1;
                self.pass_on(scan);
            }
            outcome => {
                let mut frame = Vec::new();
                let to = (scan.origin.reply, &mut frame);
                let end = match outcome {
                    // The page is full and so is this shard: the next page starts at the next.
                    Outcome::Done if full && self.number + 1 < self.common.mailboxes.len() => {
                        Outcome::More(Position::at_token(i64::MIN))
                    }
                    outcome => outcome,
                };
                let shard = match &end {
                    Outcome::More(position) if *position == Position::at_token(i64::MIN) => {
                        self.number + 1
                    }
                    _ => self.number,
                };
                finish(select, &scan.paging, &scan.found, end, shard, to);
                self.answer_scan(scan.origin, frame);
            }
        }
        true
    }

    /// Brings the answer of a scan to whoever asked for it.
    fn answer_scan(&mut self, origin: Origin, frame: Vec<u8>) {
        let Origin { shard, conn, .. } = origin;
        if shard != self.number {
            self.post(shard, Message::Answer { conn, frame });
            return;
        }
        self.state.remote -= 1;
        if let Some(conn) = self.conn(conn) {
            conn.out.extend_from_slice(&frame);
            let id = conn.id;
            self.mark_dirty(id);
        }
    }

    fn pass_on(&mut self, scan: Box<Scan>) {
        if scan.shard == self.number {
            self.state.scans.push_back(scan);
        } else {
            let last = self.common.mailboxes.len() - 1;
            self.post(scan.shard.min(last), Message::Scan(scan));
        }
    }

    fn system(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        select: &SystemSelect,
        bound: &Bound<'_>,
    ) -> Result<(), Failure> {
        let (keyspace, name) = (&select.keyspace, &select.table);
        let table = tare_cql::system_schema::table(keyspace, name)
            .ok_or_else(|| Failure::Invalid(format!("table {keyspace}.{name} does not exist")))?;
        let mut node = self.common.node.clone();
        if node.address.ip().is_unspecified() {
            // Listening everywhere, the server is where the client has found it.
            node.address = conn.local.unwrap_or(node.address);
        }
        let mut rows = system::rows(table, &self.state.catalog, &node);
        for (column, source) in &select.filters {
            let wanted = bound.needed(source, table.columns[*column].name)?;
            rows.retain(|row| row[*column].as_deref() == Some(wanted));
        }
        let mut writer = RowsWriter::begin(&mut conn.out, reply, &select.columns, None);
        match &select.items {
            Some(items) => {
                for row in &rows {
                    items.iter().for_each(|&column| writer.cell(row[column].as_deref()));
                    writer.end_row();
                }
            }
            None => {
                writer.cell(Some(&(rows.len() as u64).to_be_bytes()));
                writer.end_row();
            }
        }
        writer.finish();
        Ok(())
    }

    /// Runs the writes of a batch.
    #[expect(clippy::unused_self, reason = "batches are not written yet")]
    pub(crate) fn batch(
        &mut self,
        _: &mut Conn,
        _: Reply,
        _: BatchKind,
        items: &[(Arc<Prepared>, Values<'_>)],
        _: &Settings<'_>,
    ) -> Result<(), Failure> {
        let message = format!("BATCH ({} statements) is not supported", items.len());
        Err(Failure::Invalid(message))
    }

    /// The server's own time of writing: never twice the same on one shard.
    fn timestamp(&mut self) -> i64 {
        self.state.last_timestamp = self.clock.wall_us().max(self.state.last_timestamp + 1);
        self.state.last_timestamp
    }
}

fn paging(
    select: &Select,
    bound: &Bound<'_>,
    parameters: &Parameters<'_>,
) -> Result<Paging, Failure> {
    let settings = &parameters.settings;
    let broken = || Failure::Protocol("the paging state is not one of this server".into());
    let state = settings.paging_state.map(|state| Cursor::decode(state).ok_or_else(broken));
    let after = state.transpose()?;
    let limit = match select.limit.as_ref().map(|source| bound.get(source)) {
        Some(Value::Bytes(bytes)) => {
            let bytes = bytes.try_into().map_err(|_| Failure::invalid("LIMIT is an int"))?;
            let limit = u64::try_from(i32::from_be_bytes(bytes)).unwrap_or(0);
            if limit == 0 {
                return Err(Failure::invalid("LIMIT must be positive"));
            }
            limit
        }
        Some(Value::Null) => return Err(Failure::invalid("LIMIT is null")),
        Some(Value::Unset) | None => u64::MAX,
    };
    let page = settings.page_size.and_then(|rows| u64::try_from(rows).ok()).filter(|&r| r > 0);
    let left = after.as_ref().map_or(limit, |after| after.left);
    Ok(Paging {
        // A cursor without a key means: from the start of its shard.
        after,
        page: page.unwrap_or(u64::MAX),
        left,
        pages: page.is_some(),
    })
}

/// Rows that this answer may have.
fn wanted(select: &Select, paging: &Paging) -> u64 {
    match select.items {
        Items::Count => u64::MAX,
        Items::Columns(_) => paging.page.min(paging.left),
    }
}

/// Writes the answer, with a paging state if there is more and the client may have it.
fn finish(
    select: &Select,
    paging: &Paging,
    found: &Collected,
    outcome: Outcome,
    shard: usize,
    to: (Reply, &mut Vec<u8>),
) {
    let left = paging.left.saturating_sub(found.rows);
    let cursor = match outcome {
        Outcome::More(position) if left > 0 => {
            let shard = u16::try_from(shard).unwrap_or(u16::MAX);
            Some(Cursor { shard, left, position })
        }
        _ => None,
    };
    if cursor.is_some() && !paging.pages {
        let message = "the result is too long for one answer; ask for pages or use LIMIT";
        return Failure::invalid(message).encode(to.1, to.0);
    }
    found.answer(select, cursor.as_ref(), to);
}
