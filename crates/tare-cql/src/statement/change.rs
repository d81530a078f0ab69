//! What UPDATE and DELETE do to a column.

use super::Term;

/// An assignment of SET.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    pub column: String,
    pub change: ColumnChange,
}

/// What an assignment does to its column.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnChange {
    /// `c = value`
    Set(Term),
    /// `c = c + value` or `c += value`
    Add(Term),
    /// `c = value + c`
    Prepend(Term),
    /// `c = c - value` or `c -= value`
    Remove(Term),
    /// `c[key] = value`
    SetElement { key: Term, value: Term },
}

/// A column that DELETE names: `c`, or one element of it, `c[key]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Deletion {
    pub column: String,
    pub element: Option<Term>,
}
