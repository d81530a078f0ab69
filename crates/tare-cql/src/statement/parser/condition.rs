//! The IF of INSERT, UPDATE and DELETE.

use super::{Parse, Parser, unsupported};
use crate::statement::{ColumnCondition, ColumnTest, Condition, Subject};

impl Parser<'_> {
    /// `IF EXISTS`, `IF column = value AND ...`, or nothing.
    pub(super) fn if_condition(&mut self) -> Parse<Option<Condition>> {
        if !self.word("if") {
            return Ok(None);
        }
        if self.word("exists") {
            return Ok(Some(Condition::Exists));
        }
        let mut columns = vec![self.column_condition()?];
        while self.word("and") {
            columns.push(self.column_condition()?);
        }
        Ok(Some(Condition::Columns(columns)))
    }

    fn column_condition(&mut self) -> Parse<ColumnCondition> {
        let column = self.name()?;
        if self.is_mark(0, ".") {
            return Err(unsupported("conditions on fields of a column"));
        }
        let element = if self.mark("[") { Some(self.element()?) } else { None };
        if self.is_word(0, "contains") {
            return Err(unsupported("conditions with CONTAINS"));
        }
        let test = match self.mark("!=") {
            true => ColumnTest::IsNot(self.term()?),
            false => match self.test(&Subject::Column(column.clone()))? {
                Some(test) => ColumnTest::Is(test),
                None => return self.no_alternative(),
            },
        };
        Ok(ColumnCondition { column, element, test })
    }
}
