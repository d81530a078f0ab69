//! Binds the values of a request to the markers of a statement, calls the statement's functions,
//! and builds keys and bounds from the results.

mod keys;

use tare_cql::request::Values;
use tare_cql::statement::{Function, function::CallContext};
use tare_cql::token::Token;
use tare_cql::types::Type;
use tare_cql::wire::{Reader, Value};

use crate::query::catalog::{Column, Table};
use crate::query::collections;
use crate::query::failure::Failure;
use crate::query::key_encoding;
use crate::query::plan::{Prepared, Source};
use crate::query::planner;
pub(crate) use keys::{OwnedSlice, after, without_static_row};

/// Values up to this number are bound without an allocation.
const BOUND_INLINE: usize = 32;
/// The values of a request by position.
pub(crate) struct BoundValues<'a> {
    inline: [Value<'a>; BOUND_INLINE],
    more: Vec<Value<'a>>,
    /// The values of `Source::Collection`, put in order, by the position of their markers.
    collections: Vec<(u16, Vec<u8>)>,
    /// The results of the calls of functions.
    calls: Vec<Option<Vec<u8>>>,
}

/// The key of a partition, and its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionKey {
    pub(crate) token: i64,
    pub(crate) key: Vec<u8>,
}

impl PartitionKey {
    pub(crate) fn of(key: Vec<u8>) -> Self {
        Self { token: Token::of(&key).0, key }
    }
}

impl<'a> BoundValues<'a> {
    /// Puts the values into the order of the markers, checks them, and calls the functions.
    #[inline]
    pub(crate) fn new(
        prepared: &Prepared,
        values: &Values<'a>,
        call_context: impl FnMut() -> CallContext,
    ) -> Result<Self, Failure> {
        let inline = [Value::Unset; BOUND_INLINE];
        let mut bound =
            Self { inline, more: Vec::new(), collections: Vec::new(), calls: Vec::new() };
        let markers = &prepared.markers;
        if values.is_named() {
            for (index, (name, _)) in markers.iter().enumerate() {
                let missing = || Failure::invalid(format!("no value is bound to {name}"));
                bound.put(index, values.get(name).ok_or_else(missing)?);
            }
        } else {
            if values.len() != markers.len() {
                let (given, wanted) = (values.len(), markers.len());
                return Err(Failure::Invalid(format!(
                    "there were {wanted} markers(?) in CQL but {given} bound variables"
                )));
            }
            values.iter().enumerate().for_each(|(index, value)| bound.put(index, value));
        }
        for (index, (name, kind)) in markers.iter().enumerate() {
            if let Value::Bytes(bytes) = bound.at(index) {
                planner::check_value(name, kind, bytes)?;
            }
        }
        if !prepared.collections.is_empty() {
            bound.put_in_order(prepared)?;
        }
        if !prepared.calls.is_empty() {
            bound.call(prepared, call_context)?;
        }
        Ok(bound)
    }

    #[cold]
    fn put_in_order(&mut self, prepared: &Prepared) -> Result<(), Failure> {
        for &position in &prepared.collections {
            let (_, kind) = &prepared.markers[usize::from(position)];
            if let Value::Bytes(bytes) = self.at(usize::from(position)) {
                self.collections.push((position, collections::in_order(kind, bytes)?));
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        prepared: &Prepared,
        mut call_context: impl FnMut() -> CallContext,
    ) -> Result<(), Failure> {
        for call in &prepared.calls {
            let (argument, kind) = match &call.argument {
                Some((source, kind)) => match self.get(source) {
                    Value::Bytes(bytes) => (Some(bytes), kind),
                    Value::Null | Value::Unset => (None, kind),
                },
                None => (None, &Type::Blob),
            };
            let result = call.function.call(argument, kind, &call_context());
            if result.is_none() && argument.is_some() {
                let (name, kind) = (call.function.name(), call.function.returns());
                let what = match call.function {
                    Function::FromBlob(_) => format!(
                        "value is not a valid binary \
                         representation for type {kind}"
                    ),
                    _ => format!("value is out of range for type {kind}"),
                };
                return Err(Failure::Invalid(format!("In call to function system.{name}, {what}")));
            }
            self.calls.push(result);
        }
        Ok(())
    }

    #[inline]
    fn put(&mut self, index: usize, value: Value<'a>) {
        match self.inline.get_mut(index) {
            Some(slot) => *slot = value,
            None => self.more.push(value),
        }
    }

    #[inline]
    fn at(&self, index: usize) -> Value<'a> {
        match self.inline.get(index) {
            Some(value) => *value,
            None => self.more.get(index - BOUND_INLINE).copied().unwrap_or(Value::Unset),
        }
    }

    #[inline]
    pub(crate) fn get<'s>(&'s self, source: &'s Source) -> Value<'s> {
        match source {
            Source::Marker(index) => self.at(usize::from(*index)),
            Source::Collection(index) => {
                let found = self.collections.iter().find(|(position, _)| position == index);
                found.map_or_else(|| self.at(usize::from(*index)), |(_, v)| Value::Bytes(v))
            }
            Source::Literal(Some(bytes)) => Value::Bytes(bytes),
            Source::Literal(None) => Value::Null,
            Source::Call(index) => match self.calls.get(usize::from(*index)) {
                Some(Some(bytes)) => Value::Bytes(bytes),
                _ => Value::Null,
            },
        }
    }

    /// A value that must not be null or unset, such as a part of a key.
    #[inline]
    pub(crate) fn needed<'s>(
        &'s self,
        source: &'s Source,
        name: &str,
    ) -> Result<&'s [u8], Failure> {
        let message = match self.get(source) {
            Value::Bytes(bytes) => return Ok(bytes),
            Value::Null => format!("Invalid null value in condition for column {name}"),
            Value::Unset => format!("Invalid unset value for column {name}"),
        };
        Err(Failure::Invalid(message))
    }

    /// A valid part of a key.
    #[inline]
    fn key_value<'s>(&'s self, source: &'s Source, column: &Column) -> Result<&'s [u8], Failure> {
        let value = self.needed(source, &column.name)?;
        check_key_value(value, column)?;
        Ok(value)
    }

    /// An int that must be positive if there is one, such as that of LIMIT.
    #[inline]
    pub(crate) fn limit(&self, source: Option<&Source>) -> Result<Option<u64>, Failure> {
        match source.map(|source| self.get(source)) {
            Some(Value::Bytes(bytes)) => {
                let bytes = bytes.try_into();
                let bytes = bytes.map_err(|_| Failure::invalid("Invalid limit value"))?;
                match u64::try_from(i32::from_be_bytes(bytes)) {
                    Ok(limit) if limit > 0 => Ok(Some(limit)),
                    _ => Err(Failure::invalid("LIMIT must be strictly positive")),
                }
            }
            Some(Value::Null) => Err(Failure::invalid("Invalid null value of limit")),
            Some(Value::Unset) | None => Ok(None),
        }
    }

    /// Serialises the partition key into `key`, which is cleared first.
    #[inline]
    pub(crate) fn key(
        &self,
        key: &mut Vec<u8>,
        sources: &[Source],
        table: &Table,
    ) -> Result<(), Failure> {
        key.clear();
        let columns = sources.iter().zip(&table.partition);
        push_key(key, columns.map(|(source, column)| self.key_value(source, column)))
    }

    /// Builds a whole clustering key in `out`, which is cleared first.
    #[inline]
    pub(crate) fn clustering(
        &self,
        out: &mut Vec<u8>,
        sources: &[Source],
        table: &Table,
    ) -> Result<(), Failure> {
        out.clear();
        for (source, column) in sources.iter().zip(&table.clustering) {
            let value = self.key_value(source, column)?;
            key_encoding::push(out, &column.kind, column.descending, value);
        }
        Ok(())
    }
}

#[inline]
fn check_key_value(value: &[u8], column: &Column) -> Result<(), Failure> {
    if key_encoding::is_too_long(&column.kind, value) {
        return Err(Failure::Invalid(format!(
            "{}: a {} of a key has at most {} bytes",
            column.name,
            column.kind,
            key_encoding::NUMBER_BYTES_MAX
        )));
    }
    Ok(())
}

/// Appends a partition key: a single component as it is, several as Cassandra's CompositeType.
#[inline]
fn push_key<'v>(
    key: &mut Vec<u8>,
    mut values: impl ExactSizeIterator<Item = Result<&'v [u8], Failure>>,
) -> Result<(), Failure> {
    if values.len() == 1
        && let Some(value) = values.next()
    {
        let value = value?;
        if value.is_empty() {
            return Err(Failure::invalid("Key may not be empty"));
        }
        key.extend_from_slice(value);
        return Ok(());
    }
    values.try_for_each(|value| {
        let value = value?;
        if tare_cql::token::append_key_part(key, value) {
            return Ok(());
        }
        let length = value.len();
        Err(Failure::Invalid(format!("Key length of {length} is longer than maximum of 65535")))
    })
}

/// The items of a valid list: a count, then `[bytes]` for each.
pub(crate) fn list(bytes: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut reader = Reader::new(bytes);
    let count = reader.count("number of items").unwrap_or(0);
    (0..count).map_while(move |_| reader.bytes("item").ok())
}
