//! The types that a column may have. The errors are those of Cassandra.

use tare_cql::types::Type;

use crate::query::failure::Failure;

/// The type of a column with this declared type. As in Cassandra, everything within `frozen<>` is
/// frozen too, and a collection within a collection has to be.
pub(crate) fn column_type(name: &str, declared: &Type) -> Result<Type, Failure> {
    if has_tuple(declared) {
        return Err(Failure::Invalid(format!(
            "tuples as columns are not supported: column {name} of type {declared}"
        )));
    }
    Declared { whole: declared }.column(declared)
}

fn has_tuple(kind: &Type) -> bool {
    match kind {
        Type::Tuple(_) => true,
        Type::Frozen(within) | Type::List(within) | Type::Set(within) => has_tuple(within),
        Type::Map(key, value) => has_tuple(key) || has_tuple(value),
        _ => false,
    }
}

struct Declared<'t> {
    /// The type of the column, which errors name.
    whole: &'t Type,
}

impl Declared<'_> {
    fn column(&self, kind: &Type) -> Result<Type, Failure> {
        match kind {
            Type::Frozen(within) if within.is_multi_cell() => {
                Ok(Type::Frozen(Box::new(self.collection(within, true)?)))
            }
            Type::Frozen(within) => Err(Failure::Invalid(format!(
                "frozen<> is only allowed on collections, tuples, and user-defined types (got \
                 {within})"
            ))),
            kind if kind.is_multi_cell() => self.collection(kind, false),
            kind => Ok(kind.clone()),
        }
    }

    /// A collection; `frozen` freezes the collections in it.
    fn collection(&self, kind: &Type, frozen: bool) -> Result<Type, Failure> {
        let part = |kind: &Type| self.part(kind, frozen).map(Box::new);
        Ok(match kind {
            Type::Set(element) if has_duration(element) => {
                return self.refused("Durations are not allowed inside sets");
            }
            Type::Map(key, _) if has_duration(key) => {
                return self.refused("Durations are not allowed as map keys");
            }
            Type::List(element) => Type::List(part(element)?),
            Type::Set(element) => Type::Set(part(element)?),
            Type::Map(key, value) => Type::Map(part(key)?, part(value)?),
            kind => kind.clone(),
        })
    }

    /// A type within a collection.
    fn part(&self, kind: &Type, frozen: bool) -> Result<Type, Failure> {
        match kind {
            Type::Counter => self.refused("Counters are not allowed inside collections"),
            kind if kind.is_multi_cell() && !frozen => {
                self.refused("Non-frozen collections are not allowed inside collections")
            }
            kind if kind.is_multi_cell() => {
                Ok(Type::Frozen(Box::new(self.collection(kind, frozen)?)))
            }
            kind => self.column(kind),
        }
    }

    fn refused<T>(&self, why: &str) -> Result<T, Failure> {
        Err(Failure::Invalid(format!("{why}: {}", self.whole)))
    }
}

fn has_duration(kind: &Type) -> bool {
    match kind {
        Type::Duration => true,
        Type::Frozen(within) | Type::List(within) | Type::Set(within) => has_duration(within),
        Type::Map(key, value) => has_duration(key) || has_duration(value),
        _ => false,
    }
}
