//! Binds the values of a request to the markers of a statement, and builds keys from them.

use tare_cql::request::Values;
use tare_cql::types::Type;
use tare_cql::wire::Value;

use crate::catalog::{Column, Table};
use crate::failure::Failure;
use crate::ordered;
use crate::plan::Source;
use crate::planner;

/// Values that are bound without an allocation.
const BOUND_INLINE: usize = 32;

/// The values of a request by position.
pub(crate) struct Bound<'a> {
    inline: [Value<'a>; BOUND_INLINE],
    more: Vec<Value<'a>>,
}

impl<'a> Bound<'a> {
    /// Brings the values into the order of the markers. Their lengths were not checked yet.
    #[inline]
    pub(crate) fn new(markers: &[(String, Type)], values: &Values<'a>) -> Result<Self, Failure> {
        let mut bound = Self { inline: [Value::Unset; BOUND_INLINE], more: Vec::new() };
        if values.is_named() {
            for (index, (name, _)) in markers.iter().enumerate() {
                let missing = || Failure::invalid(format!("no value is bound to {name}"));
                bound.put(index, values.get(name).ok_or_else(missing)?);
            }
        } else {
            if values.len() != markers.len() {
                let (given, wanted) = (values.len(), markers.len());
                let message = format!("{given} values are bound to {wanted} markers");
                return Err(Failure::Invalid(message));
            }
            values.iter().enumerate().for_each(|(index, value)| bound.put(index, value));
        }
        for (index, (name, kind)) in markers.iter().enumerate() {
            if let Value::Bytes(bytes) = bound.at(index) {
                planner::check_value(name, kind, bytes)?;
            }
        }
        Ok(bound)
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
            Source::Literal(Some(bytes)) => Value::Bytes(bytes),
            Source::Literal(None) => Value::Null,
        }
    }

    /// A value that must be there, such as one of a key.
    #[inline]
    pub(crate) fn needed<'s>(
        &'s self,
        source: &'s Source,
        name: &str,
    ) -> Result<&'s [u8], Failure> {
        match self.get(source) {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Null => Err(Failure::Invalid(format!("{name} is part of the key: not null"))),
            Value::Unset => Err(Failure::Invalid(format!("{name} is part of the key: not unset"))),
        }
    }
}

/// Serialises the partition key: one component as it is, several as Cassandra's CompositeType.
#[inline]
pub(crate) fn build_key(
    key: &mut Vec<u8>,
    sources: &[Source],
    table: &Table,
    bound: &Bound<'_>,
) -> Result<(), Failure> {
    key.clear();
    if let ([source], [column]) = (sources, &table.partition[..]) {
        let value = bound.needed(source, &column.name)?;
        if value.is_empty() {
            return Err(Failure::invalid(format!("key {} is empty", column.name)));
        }
        key.extend_from_slice(value);
        return Ok(());
    }
    for (source, column) in sources.iter().zip(&table.partition) {
        let value = bound.needed(source, &column.name)?;
        let length = u16::try_from(value.len())
            .map_err(|_| Failure::invalid(format!("key {} is too long", column.name)))?;
        key.extend_from_slice(&length.to_be_bytes());
        key.extend_from_slice(value);
        key.push(0);
    }
    Ok(())
}

#[inline]
pub(crate) fn build_clustering(
    out: &mut Vec<u8>,
    columns: &[Column],
    sources: &[Source],
    bound: &Bound<'_>,
) -> Result<(), Failure> {
    out.clear();
    for (source, column) in sources.iter().zip(columns) {
        let value = bound.needed(source, &column.name)?;
        ordered::push(out, &column.kind, column.descending, value);
    }
    Ok(())
}
