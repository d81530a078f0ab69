//! Runs SELECT on the tables of the system: all rows are made up, then those that are not wanted
//! are left out. They are few: each page makes them up again and passes over those before it.

use std::cmp::Ordering;

use tare_cql::request::Settings;
use tare_cql::response::{Reply, RowsWriter};
use tare_cql::statement::{Comparison, function::Moment};
use tare_cql::token::{Token, append_key_part};
use tare_cql::types::Type;

use super::{Value, rows};
use crate::query::bind::{Bound, list};
use crate::query::cursor::Cursor;
use crate::query::failure::Failure;
use crate::query::ordered;
use crate::query::plan::{Filter, FilterTest, SystemItem, SystemItems, SystemSelect};
use crate::query::read_task::write_count;
use crate::shard::{Conn, Shard};

impl Shard {
    pub(crate) fn system(
        &mut self,
        conn: &mut Conn,
        reply: Reply,
        select: &SystemSelect,
        bound: &Bound<'_>,
        settings: &Settings<'_>,
    ) -> Result<(), Failure> {
        let mut node = self.shared.node.clone();
        if node.address.ip().is_unspecified() {
            // Listening everywhere, the server is where the client has found it.
            node.address = conn.local.unwrap_or(node.address);
        }
        let moment = self.moment();
        let mut rows = rows(select.table, &self.schema.catalog, &node);
        for filter in &select.filters {
            let accepts = filter_of(filter, select.table.columns[filter.column].name, bound)?;
            rows.retain(|row| row[filter.column].as_deref().is_some_and(&accepts));
        }
        let limit = bound.limit(select.limit.as_ref())?.unwrap_or(u64::MAX);
        let SystemItems::Columns(items) = &select.items else {
            write_count(&mut conn.out, reply, &select.columns, rows.len() as u64);
            return Ok(());
        };
        let project = |row: &Vec<Value>| {
            items.iter().map(|item| value(item, row, &moment)).collect::<Vec<Value>>()
        };
        let mut found: Vec<Vec<Value>> = rows.iter().map(project).collect();
        if select.distinct {
            found.dedup();
        }
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let passed = Cursor::of(settings)?.map_or(0, |cursor| cursor.in_partition);
        let passed = usize::try_from(passed).unwrap_or(usize::MAX);
        let page = settings.page_size.and_then(|rows| usize::try_from(rows).ok());
        let page = page.filter(|rows| *rows > 0).unwrap_or(usize::MAX);
        let end = passed.saturating_add(page);
        let next = Cursor { in_partition: end as u64, ..Cursor::default() };
        let state = (end < found.len()).then(|| next.encode());
        let columns = &select.columns;
        let mut writer = RowsWriter::begin(&mut conn.out, reply, columns, state.as_deref());
        for row in found.iter().skip(passed).take(page) {
            row.iter().for_each(|cell| writer.cell(cell.as_deref()));
            writer.end_row();
        }
        writer.finish();
        Ok(())
    }
}

/// Tells whether a value fulfils a condition.
type Accepts<'f> = Box<dyn Fn(&[u8]) -> bool + 'f>;

fn filter_of<'f>(
    filter: &'f Filter,
    name: &str,
    bound: &'f Bound<'_>,
) -> Result<Accepts<'f>, Failure> {
    let kind = &filter.kind;
    Ok(match &filter.test {
        FilterTest::Compare(comparison, source) => {
            let wanted = bound.needed(source, name)?;
            Box::new(move |value| {
                let order = compare(kind, value, wanted);
                match comparison {
                    Comparison::Equal => order == Ordering::Equal,
                    Comparison::Less => order == Ordering::Less,
                    Comparison::LessOrEqual => order != Ordering::Greater,
                    Comparison::Greater => order == Ordering::Greater,
                    Comparison::GreaterOrEqual => order != Ordering::Less,
                }
            })
        }
        FilterTest::InMarker(source) => {
            let wanted: Vec<_> = list(bound.needed(source, name)?).flatten().collect();
            Box::new(move |value| wanted.contains(&value))
        }
        FilterTest::In(sources) => {
            let wanted = sources.iter().map(|source| bound.needed(source, name));
            let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
            Box::new(move |value| wanted.contains(&value))
        }
    })
}

fn compare(kind: &Type, a: &[u8], b: &[u8]) -> Ordering {
    if !ordered::is_orderable(kind) {
        return a.cmp(b);
    }
    let key = |value: &[u8]| {
        let mut key = Vec::new();
        ordered::push(&mut key, kind, false, value);
        key
    };
    key(a).cmp(&key(b))
}

fn value(item: &SystemItem, row: &[Value], moment: &Moment) -> Value {
    match item {
        SystemItem::Column(position) => row[*position].clone(),
        SystemItem::Null => None,
        SystemItem::Token(positions) => {
            let mut key = Vec::new();
            for position in positions {
                let part = row[*position].as_deref().unwrap_or_default();
                if positions.len() == 1 {
                    key.extend_from_slice(part);
                } else if !append_key_part(&mut key, part) {
                    return None;
                }
            }
            Some(Token::of(&key).0.to_be_bytes().to_vec())
        }
        SystemItem::Call(function, argument) => {
            let (argument, kind) = match argument {
                Some(inner) => (value(&inner.0, row, moment), &inner.1),
                None => (None, &Type::Blob),
            };
            function.call(argument.as_deref(), kind, moment)
        }
    }
}
