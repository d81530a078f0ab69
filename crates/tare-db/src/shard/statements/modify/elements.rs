//! The cells that a statement writes into columns that are not frozen.

use tare_cql::statement::Function;
use tare_cql::statement::function::CallContext;
use tare_cql::types::Type;
use tare_cql::wire::Value;
use tare_store::cells::{self, Cell, Content, PATH_BYTES_MAX};

use crate::query::bind::BoundValues;
use crate::query::collections::key_of;
use crate::query::failure::Failure;
use crate::query::key_encoding;
use crate::query::plan::{CollectionChange, CollectionWrite};
use crate::query::write_time::WriteTime;

/// Time UUIDs of prepended elements count back from 2010-01-01, in microseconds, so that they come
/// before those of appended ones, as in Cassandra (its `Lists`).
const PREPENDING_FROM_US: i64 = 1_262_304_000_000_000;

/// Adds the cells of changes to a row.
pub(super) fn put_changes(
    row: &mut Vec<u8>,
    writes: &[CollectionWrite],
    bound: &BoundValues<'_>,
    time: WriteTime,
    mut context: impl FnMut() -> CallContext,
) -> Result<(), Failure> {
    let (mut part, mut merged) = (Vec::new(), Vec::new());
    for write in writes {
        part.clear();
        let mut change = Change { column: write.column, time, cells: &mut part };
        change.put(write, bound, &mut context)?;
        cells::merge(row, &part, &mut merged);
        std::mem::swap(row, &mut merged);
    }
    Ok(())
}

/// The cells of one change, in order.
struct Change<'o> {
    column: u16,
    time: WriteTime,
    cells: &'o mut Vec<u8>,
}

impl Change<'_> {
    fn put(
        &mut self,
        write: &CollectionWrite,
        bound: &BoundValues<'_>,
        context: &mut impl FnMut() -> CallContext,
    ) -> Result<(), Failure> {
        let kind = &write.kind;
        match &write.change {
            CollectionChange::Set(source) => match bound.get(source) {
                Value::Unset => Ok(()),
                value => {
                    self.empty();
                    self.add(kind, bytes_of(value), context)
                }
            },
            CollectionChange::Add(source) => self.add(kind, bytes_of(bound.get(source)), context),
            CollectionChange::Prepend(source) => {
                self.prepend(kind, bytes_of(bound.get(source)), context)
            }
            CollectionChange::Remove(source, kind) => {
                for (kind, key) in parts(kind, bytes_of(bound.get(source))) {
                    self.element(&key_of(kind, key)?, self.time.dead())?;
                }
                Ok(())
            }
            CollectionChange::Put { key: (key, kind), value } => {
                let key = match bound.get(key) {
                    Value::Bytes(key) => key_of(kind, key)?,
                    Value::Null => return Err(Failure::invalid("Invalid null map key")),
                    Value::Unset => return Err(Failure::invalid("Invalid unset map key")),
                };
                match bound.get(value) {
                    Value::Bytes(value) => self.element(&key, self.time.content(value)),
                    Value::Null => self.element(&key, self.time.dead()),
                    Value::Unset => Ok(()),
                }
            }
            CollectionChange::Delete(key, kind) => match bound.get(key) {
                Value::Bytes(key) => self.element(&key_of(kind, key)?, self.time.dead()),
                Value::Null => Err(Failure::invalid("Invalid null value for an element")),
                Value::Unset => Err(Failure::invalid("Invalid unset value for an element")),
            },
        }
    }

    /// Deletes what was written before. The new elements have a later timestamp.
    fn empty(&mut self) {
        if let Some(timestamp) = self.time.timestamp.checked_sub(1) {
            cells::push(self.cells, Cell::dead(self.column, timestamp, self.time.now_s));
        }
    }

    fn add(
        &mut self,
        kind: &Type,
        value: &[u8],
        context: &mut impl FnMut() -> CallContext,
    ) -> Result<(), Failure> {
        let parts = parts(kind, value);
        match kind {
            Type::Set(_) => {
                for (kind, element) in parts {
                    self.element(&key_of(kind, element)?, self.time.content(&[]))?;
                }
            }
            Type::Map(..) => {
                for entry in parts.chunks(2) {
                    if let [(kind, key), (_, value)] = entry {
                        self.element(&key_of(kind, key)?, self.time.content(value))?;
                    }
                }
            }
            _ => {
                for (_, element) in parts {
                    self.element(&list_path(&context()), self.time.content(element))?;
                }
            }
        }
        Ok(())
    }

    /// Writes the elements of a list before all others.
    fn prepend(
        &mut self,
        kind: &Type,
        value: &[u8],
        context: &mut impl FnMut() -> CallContext,
    ) -> Result<(), Failure> {
        let mut elements = Vec::new();
        // The later a path is made, the further in front it is.
        for (_, element) in parts(kind, value).into_iter().rev() {
            let context = context();
            let wall_us = 2 * PREPENDING_FROM_US - context.wall_us;
            elements.push((list_path(&CallContext { wall_us, ..context }), element));
        }
        for (path, element) in elements.iter().rev() {
            self.element(path, self.time.content(element))?;
        }
        Ok(())
    }

    fn element(&mut self, path: &[u8], content: Content<'_>) -> Result<(), Failure> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Failure::Invalid(format!(
                "an element of a set or a key of a map has at most {PATH_BYTES_MAX} bytes, this one \
                 has {}",
                path.len()
            )));
        }
        let Self { column, time: WriteTime { timestamp, .. }, .. } = *self;
        cells::push(self.cells, Cell { column, path: Some(path), timestamp, content });
        Ok(())
    }
}

fn bytes_of(value: Value<'_>) -> &[u8] {
    match value {
        Value::Bytes(bytes) => bytes,
        Value::Null | Value::Unset => &[],
    }
}

/// The parts of a collection; there are none in no bytes.
fn parts<'t, 'v>(kind: &'t Type, bytes: &'v [u8]) -> Vec<(&'t Type, &'v [u8])> {
    let parts = kind.parts(bytes).into_iter();
    parts.map(|(kind, part)| (kind, part.unwrap_or_default())).collect()
}

/// The path of a list element that is written at this moment.
fn list_path(context: &CallContext) -> Vec<u8> {
    let uuid = Function::Now.call(None, &Type::Blob, context).unwrap_or_default();
    let mut path = Vec::new();
    key_encoding::push(&mut path, &Type::Timeuuid, false, &uuid);
    path
}
