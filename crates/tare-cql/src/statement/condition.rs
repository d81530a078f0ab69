//! The conditions of lightweight transactions.

use super::{Term, Test};

/// What must hold for a write to be applied.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// `IF NOT EXISTS`
    NotExists,
    /// `IF EXISTS`
    Exists,
    /// `IF column = value AND ...`: all of them must hold.
    Columns(Vec<ColumnCondition>),
}

/// A condition on the value of a column, or of one of its elements.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnCondition {
    pub column: String,
    /// The key of `column[key]`.
    pub element: Option<Term>,
    pub test: ColumnTest,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ColumnTest {
    Is(Test),
    /// `!= value`
    IsNot(Term),
}
