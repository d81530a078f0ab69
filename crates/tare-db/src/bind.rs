//! Binds the values of a request to the markers of a statement, makes its calls of functions, and
//! builds keys and bounds from them.

use tare_cql::request::Values;
use tare_cql::statement::{Comparison, Function, function::Moment};
use tare_cql::token::Token;
use tare_cql::types::Type;
use tare_cql::wire::{Reader, Value};
use tare_store::read::successor;

use crate::catalog::{Column, Table};
use crate::failure::Failure;
use crate::ordered;
use crate::plan::{
    Alternatives, Choice, Edge, Prepared, Slices, Source, TokenBound, TokenValue, Tuple,
};
use crate::planner;

/// Values that are bound without an allocation.
const BOUND_INLINE: usize = 32;
/// Keys that the INs of one statement may make.
const COMBINATIONS_MAX: usize = 65_535;

/// The values of a request by position.
pub(crate) struct Bound<'a> {
    inline: [Value<'a>; BOUND_INLINE],
    more: Vec<Value<'a>>,
    /// What the functions returned.
    calls: Vec<Option<Vec<u8>>>,
}

/// One partition's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionKey {
    pub(crate) token: i64,
    pub(crate) key: Vec<u8>,
}

/// Clustering keys from the first up to and without the second.
pub(crate) type OwnedSlice = (Vec<u8>, Option<Vec<u8>>);

impl<'a> Bound<'a> {
    /// Brings the values into the order of the markers, checks them, and calls the functions.
    #[inline]
    pub(crate) fn new(
        prepared: &Prepared,
        values: &Values<'a>,
        moment: impl FnMut() -> Moment,
    ) -> Result<Self, Failure> {
        let inline = [Value::Unset; BOUND_INLINE];
        let mut bound = Self { inline, more: Vec::new(), calls: Vec::new() };
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
        if !prepared.calls.is_empty() {
            bound.call(prepared, moment)?;
        }
        Ok(bound)
    }

    fn call(
        &mut self,
        prepared: &Prepared,
        mut moment: impl FnMut() -> Moment,
    ) -> Result<(), Failure> {
        for call in &prepared.calls {
            let (argument, kind) = match &call.argument {
                Some((source, kind)) => match self.get(source) {
                    Value::Bytes(bytes) => (Some(bytes), kind),
                    Value::Null | Value::Unset => (None, kind),
                },
                None => (None, &Type::Blob),
            };
            let result = call.function.call(argument, kind, &moment());
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
            Source::Literal(Some(bytes)) => Value::Bytes(bytes),
            Source::Literal(None) => Value::Null,
            Source::Call(index) => match self.calls.get(usize::from(*index)) {
                Some(Some(bytes)) => Value::Bytes(bytes),
                _ => Value::Null,
            },
        }
    }

    /// A value that must be there, such as one of a key.
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

    /// A value of a key.
    #[inline]
    fn key_value<'s>(&'s self, source: &'s Source, column: &Column) -> Result<&'s [u8], Failure> {
        let value = self.needed(source, &column.name)?;
        check_key_value(value, column)?;
        Ok(value)
    }

    /// An int that must be positive where it is given, such as that of LIMIT.
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

    /// All values that a choice allows, each with one part for every column.
    fn alternatives<'s>(
        &'s self,
        choice: &'s Choice,
        columns: &[Column],
    ) -> Result<Vec<Vec<&'s [u8]>>, Failure> {
        match &choice.values {
            Alternatives::Listed(tuples) => {
                tuples.iter().map(|tuple| self.parts(tuple, columns)).collect()
            }
            Alternatives::Marker(source) => {
                let name = columns.first().map_or("", |column| &column.name);
                let items = list(self.needed(source, name)?);
                let item = |item: Option<&'s [u8]>| {
                    let null = || {
                        Failure::invalid(format!(
                            "Invalid null value in condition for column {name}"
                        ))
                    };
                    let bytes = item.ok_or_else(null)?;
                    match columns {
                        [column] => {
                            check_key_value(bytes, column)?;
                            Ok(vec![bytes])
                        }
                        columns => parts_of(bytes, columns),
                    }
                };
                items.map(item).collect()
            }
        }
    }

    fn parts<'s>(&'s self, tuple: &'s Tuple, columns: &[Column]) -> Result<Vec<&'s [u8]>, Failure> {
        match tuple {
            Tuple::Parts(sources) => {
                let parts = sources.iter().zip(columns);
                parts.map(|(source, column)| self.key_value(source, column)).collect()
            }
            Tuple::Whole(source) => {
                let name = columns.first().map_or("", |column| &column.name);
                parts_of(self.needed(source, name)?, columns)
            }
        }
    }

    /// Every combination of what the first columns may be.
    fn combinations<'s>(
        &'s self,
        choices: &'s [Choice],
        columns: &[Column],
    ) -> Result<Vec<Vec<&'s [u8]>>, Failure> {
        let mut all: Vec<Vec<&[u8]>> = vec![Vec::new()];
        let mut next = 0;
        for choice in choices {
            let alternatives = self.alternatives(choice, &columns[next..next + choice.columns])?;
            next += choice.columns;
            if all.len().saturating_mul(alternatives.len()) > COMBINATIONS_MAX {
                return Err(Failure::Invalid(format!(
                    "the IN conditions make more than {COMBINATIONS_MAX} combinations"
                )));
            }
            let with = |known: &Vec<&'s [u8]>| {
                let known = known.clone();
                alternatives.iter().map(move |more| [&known[..], more].concat()).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        Ok(all)
    }

    /// The keys of all partitions that choices allow, in the order of their values, each once.
    pub(crate) fn keys(
        &self,
        choices: &[Choice],
        table: &Table,
    ) -> Result<Vec<PartitionKey>, Failure> {
        let mut keys = Vec::new();
        for values in self.combinations(choices, &table.partition)? {
            let mut order = Vec::new();
            for (value, column) in values.iter().zip(&table.partition) {
                ordered::push(&mut order, &column.kind, false, value);
            }
            let mut key = Vec::new();
            serialise(&mut key, &values)?;
            keys.push((order, PartitionKey { token: Token::of(&key).0, key }));
        }
        keys.sort_by(|(a, _), (b, _)| a.cmp(b));
        keys.dedup_by(|(a, _), (b, _)| a == b);
        Ok(keys.into_iter().map(|(_, key)| key).collect())
    }

    /// The beginnings of clustering keys that choices allow, ascending, each once.
    pub(crate) fn prefixes(
        &self,
        choices: &[Choice],
        table: &Table,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let mut prefixes = Vec::new();
        for values in self.combinations(choices, &table.clustering)? {
            let mut prefix = Vec::new();
            push_values(&mut prefix, &table.clustering, &values);
            prefixes.push(prefix);
        }
        prefixes.sort();
        prefixes.dedup();
        Ok(prefixes)
    }

    /// Slices of a partition, ascending; none of them is empty.
    pub(crate) fn slices(
        &self,
        slices: &Slices,
        table: &Table,
    ) -> Result<Vec<OwnedSlice>, Failure> {
        let first: usize = slices.equal.iter().map(|choice| choice.columns).sum();
        let descending = table.clustering.get(first).is_some_and(|column| column.descending);
        // A descending column turns its bounds around.
        let (low, high) = match descending {
            false => (&slices.low, &slices.high),
            true => (&slices.high, &slices.low),
        };
        let edge = |edge: &Option<Edge>| -> Result<Option<(Vec<u8>, bool)>, Failure> {
            let Some(edge) = edge else { return Ok(None) };
            let columns = &table.clustering[first..first + edge.columns];
            let mut bytes = Vec::new();
            push_values(&mut bytes, columns, &self.parts(&edge.values, columns)?);
            Ok(Some((bytes, edge.inclusive)))
        };
        let (low, high) = (edge(low)?, edge(high)?);
        let mut found = Vec::new();
        for prefix in self.prefixes(&slices.equal, table)? {
            let from = match &low {
                None => prefix.clone(),
                Some((bytes, true)) => [&prefix[..], bytes].concat(),
                // No row is before all keys that follow the greatest one.
                Some((bytes, false)) => match after([&prefix[..], bytes].concat()) {
                    Some(from) => from,
                    None => continue,
                },
            };
            let to = match &high {
                None => after(prefix),
                Some((bytes, false)) => Some([&prefix[..], bytes].concat()),
                Some((bytes, true)) => after([&prefix[..], bytes].concat()),
            };
            if to.as_ref().is_none_or(|to| *to > from) {
                found.push((from, to));
            }
        }
        Ok(found)
    }

    /// First and last token of a part of the ring; `None` if it is empty.
    pub(crate) fn tokens(
        &self,
        bounds: &[TokenBound],
        table: &Table,
    ) -> Result<Option<(i64, i64)>, Failure> {
        let (mut first, mut last) = (i64::MIN, i64::MAX);
        for TokenBound { comparison, value } in bounds {
            let token = match value {
                TokenValue::Number(source) => {
                    let bytes = self.needed(source, "partition key token")?.try_into();
                    i64::from_be_bytes(bytes.map_err(|_| Failure::invalid("a token is a bigint"))?)
                }
                TokenValue::Of(sources) => {
                    let mut key = Vec::new();
                    self.key(&mut key, sources, table)?;
                    Token::of(&key).0
                }
            };
            let below = token.checked_sub(1);
            let above = token.checked_add(1);
            match comparison {
                Comparison::Equal => (first, last) = (first.max(token), last.min(token)),
                Comparison::GreaterOrEqual => first = first.max(token),
                Comparison::Greater => match above {
                    Some(above) => first = first.max(above),
                    None => return Ok(None),
                },
                // The least token is the end of the ring as well as its start.
                Comparison::Less | Comparison::LessOrEqual if token == i64::MIN => {}
                Comparison::LessOrEqual => last = last.min(token),
                Comparison::Less => last = last.min(below.unwrap_or(token)),
            }
        }
        Ok((first <= last).then_some((first, last)))
    }

    /// Serialises the partition key, which is cleared first: one component as it is, several as
    /// Cassandra's CompositeType.
    #[inline]
    pub(crate) fn key(
        &self,
        key: &mut Vec<u8>,
        sources: &[Source],
        table: &Table,
    ) -> Result<(), Failure> {
        key.clear();
        if let ([source], [column]) = (sources, &table.partition[..]) {
            let value = self.key_value(source, column)?;
            check_single(value)?;
            key.extend_from_slice(value);
            return Ok(());
        }
        for (source, column) in sources.iter().zip(&table.partition) {
            push_part(key, self.key_value(source, column)?)?;
        }
        Ok(())
    }

    /// Builds a whole clustering key, which is cleared first.
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
            ordered::push(out, &column.kind, column.descending, value);
        }
        Ok(())
    }
}

#[inline]
fn check_key_value(value: &[u8], column: &Column) -> Result<(), Failure> {
    if ordered::is_too_long(&column.kind, value) {
        return Err(Failure::Invalid(format!(
            "{}: a {} of a key has at most {} bytes",
            column.name,
            column.kind,
            ordered::NUMBER_BYTES_MAX
        )));
    }
    Ok(())
}

#[inline]
fn check_single(value: &[u8]) -> Result<(), Failure> {
    if value.is_empty() {
        return Err(Failure::invalid("Key may not be empty"));
    }
    Ok(())
}

#[inline]
fn push_part(key: &mut Vec<u8>, value: &[u8]) -> Result<(), Failure> {
    if tare_cql::token::append_key_part(key, value) {
        return Ok(());
    }
    let length = value.len();
    Err(Failure::Invalid(format!("Key length of {length} is longer than maximum of 65535")))
}

fn serialise(key: &mut Vec<u8>, values: &[&[u8]]) -> Result<(), Failure> {
    if let [value] = values {
        check_single(value)?;
        key.extend_from_slice(value);
        return Ok(());
    }
    values.iter().try_for_each(|value| push_part(key, value))
}

fn push_values(out: &mut Vec<u8>, columns: &[Column], values: &[&[u8]]) {
    for (value, column) in values.iter().zip(columns) {
        ordered::push(out, &column.kind, column.descending, value);
    }
}

/// The least key above all that start with a prefix; `None` if there is none.
pub(crate) fn after(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    successor(&mut prefix).then_some(prefix)
}

/// The items of a list that was checked: a count, then `[bytes]` each.
pub(crate) fn list(bytes: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut reader = Reader::new(bytes);
    let count = reader.count("number of items").unwrap_or(0);
    (0..count).map_while(move |_| reader.bytes("item").ok())
}

/// The parts of a tuple that was checked.
fn parts_of<'b>(bytes: &'b [u8], columns: &[Column]) -> Result<Vec<&'b [u8]>, Failure> {
    let mut reader = Reader::new(bytes);
    let mut parts = Vec::new();
    for column in columns {
        let name = &column.name;
        let part = reader.bytes("part of a tuple").map_err(|_| {
            Failure::Invalid(format!("Expected {} elements in a tuple", columns.len()))
        })?;
        let null = || format!("Invalid null value in condition for column {name}");
        let part = part.ok_or_else(|| Failure::Invalid(null()))?;
        check_key_value(part, column)?;
        parts.push(part);
    }
    Ok(parts)
}
