//! Runs SELECT on system tables: computes all rows, then filters them. The rows are few, so each
//! page computes them again and skips those of earlier pages.

use std::borrow::Cow;

use tare_cql::request::Settings;
use tare_cql::response::{Reply, RowsWriter};
use tare_cql::statement::function::CallContext;
use tare_cql::token::{Token, append_key_part};
use tare_cql::types::Type;

use super::{Node, Value, rows};
use crate::query::bind::BoundValues;
use crate::query::catalog::Catalog;
use crate::query::failure::Failure;
use crate::query::paging_state::PagingState;
use crate::query::plan::{SystemItem, SystemItems, SystemSelect};
use crate::query::read_task::write_count;

/// Appends the rows of a system table, computed from the schema and the node.
pub(crate) fn select(
    out: &mut Vec<u8>,
    reply: Reply,
    select: &SystemSelect,
    (catalog, node): (&Catalog, &Node),
    (bound, settings, call_context): (&BoundValues<'_>, &Settings<'_>, &CallContext),
) -> Result<(), Failure> {
    let mut rows = rows(select.table, catalog, node);
    for filter in &select.filters {
        let test = bound.filter(filter)?;
        rows.retain(|row| filter.accepts(&test, |at| row[*at].as_deref().map(Cow::Borrowed)));
    }
    let limit = bound.limit(select.limit.as_ref())?.unwrap_or(u64::MAX);
    let SystemItems::Columns(items) = &select.items else {
        write_count(out, reply, &select.columns, rows.len() as u64);
        return Ok(());
    };
    let project = |row: &Vec<Value>| {
        items.iter().map(|item| value(item, row, call_context)).collect::<Vec<Value>>()
    };
    let mut found: Vec<Vec<Value>> = rows.iter().map(project).collect();
    if select.distinct {
        found.dedup();
    }
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let passed = PagingState::of(settings)?.map_or(0, |state| state.in_partition);
    let passed = usize::try_from(passed).unwrap_or(usize::MAX);
    let page = settings.page_size.and_then(|rows| usize::try_from(rows).ok());
    let page = page.filter(|rows| *rows > 0).unwrap_or(usize::MAX);
    let end = passed.saturating_add(page);
    let next = PagingState { in_partition: end as u64, ..PagingState::default() };
    let state = (end < found.len()).then(|| next.encode());
    let columns = &select.columns;
    let mut writer = RowsWriter::begin(out, reply, columns, state.as_deref());
    for row in found.iter().skip(passed).take(page) {
        row.iter().for_each(|cell| writer.cell(cell.as_deref()));
        writer.end_row();
    }
    writer.finish();
    Ok(())
}

fn value(item: &SystemItem, row: &[Value], call_context: &CallContext) -> Value {
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
                Some(inner) => (value(&inner.0, row, call_context), &inner.1),
                None => (None, &Type::Blob),
            };
            function.call(argument.as_deref(), kind, call_context)
        }
    }
}
