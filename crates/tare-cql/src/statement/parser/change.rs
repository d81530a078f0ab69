//! What UPDATE assigns and what DELETE names: columns and elements of collections.

use super::{Parse, Parser, unsupported};
use crate::statement::lexer::Kind;
use crate::statement::{Assignment, ColumnChange, Deletion, Term};

impl Parser<'_> {
    pub(super) fn assignment(&mut self) -> Parse<Assignment> {
        let column = self.name()?;
        if self.mark("[") {
            let key = self.element()?;
            self.expect_mark("=")?;
            let change = ColumnChange::SetElement { key, value: self.term()? };
            return Ok(Assignment { column, change });
        }
        if self.is_mark(0, ".") {
            return Err(unsupported("assignments to fields of a column"));
        }
        let change = if self.mark("+=") {
            ColumnChange::Add(self.term()?)
        } else if self.mark("-=") {
            ColumnChange::Remove(self.term()?)
        } else {
            self.expect_mark("=")?;
            self.assigned(&column)?
        };
        if self.is_mark(0, "+") || self.is_mark(0, "-") {
            return Err(unsupported("arithmetic operators"));
        }
        Ok(Assignment { column, change })
    }

    /// The right side of `column = `.
    fn assigned(&mut self, column: &str) -> Parse<ColumnChange> {
        let is_name = |parser: &Self| matches!(&parser.peek().kind, Kind::Word(name) | Kind::Quoted(name) if name == column);
        if is_name(self) && (self.is_mark(1, "+") || self.is_mark(1, "-")) {
            self.advance();
            return Ok(match self.mark("+") {
                true => ColumnChange::Add(self.term()?),
                false => {
                    self.expect_mark("-")?;
                    ColumnChange::Remove(self.term()?)
                }
            });
        }
        if is_name(self) && matches!(self.peek_at(1).kind, Kind::Integer(value) if value < 0) {
            // `c = c -1`: the sign belongs to the number.
            self.advance();
            return Ok(ColumnChange::Add(self.term()?));
        }
        let value = self.term()?;
        if self.is_mark(0, "+") {
            self.advance();
            if !is_name(self) {
                return Err(unsupported("arithmetic operators"));
            }
            self.advance();
            return Ok(ColumnChange::Prepend(value));
        }
        Ok(ColumnChange::Set(value))
    }

    pub(super) fn deletion(&mut self) -> Parse<Deletion> {
        let column = self.name()?;
        if self.is_mark(0, ".") {
            return Err(unsupported("deletions of fields of a column"));
        }
        let element = if self.mark("[") { Some(self.element()?) } else { None };
        Ok(Deletion { column, element })
    }

    /// The rest of `[key]`.
    pub(super) fn element(&mut self) -> Parse<Term> {
        let key = self.term()?;
        self.expect_mark("]")?;
        Ok(key)
    }
}
