//! The types that a column may have. The errors are those of Cassandra.

use tare_cql::types::Type;

use crate::query::failure::Failure;

/// The type of a column with this declared type. As in Cassandra, everything within `frozen<>` is
/// frozen too, a tuple always is, and a collection within a collection has to be.
pub(crate) fn column_type(declared: &Type) -> Result<Type, Failure> {
    Declared { whole: declared }.column(declared)
}

struct Declared<'t> {
    /// The type of the column, which errors name.
    whole: &'t Type,
}

impl Declared<'_> {
    fn column(&self, kind: &Type) -> Result<Type, Failure> {
        match kind {
            Type::Frozen(within) if matches!(**within, Type::Tuple(_)) => self.column(within),
            Type::Frozen(within) if within.is_multi_cell() => {
                Ok(Type::Frozen(Box::new(self.collection(within, true)?)))
            }
            Type::Frozen(within) => Err(Failure::Invalid(format!(
                "frozen<> is only allowed on collections, tuples, and user-defined types (got \
                 {within})"
            ))),
            kind if kind.is_multi_cell() => self.collection(kind, false),
            Type::Tuple(fields) => {
                let fields = fields.iter().map(|field| self.part(field, true));
                let fields = fields.collect::<Result<_, _>>()?;
                Ok(Type::Frozen(Box::new(Type::Tuple(fields))))
            }
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
        Type::Tuple(fields) => fields.iter().any(has_duration),
        _ => false,
    }
}
