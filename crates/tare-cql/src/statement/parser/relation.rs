//! The conditions of WHERE.

use super::{Parse, Parser, unsupported};
use crate::statement::lexer::Kind;
use crate::statement::{Comparison, Relation, Subject, Term, Test};

const COMPARISONS: [Comparison; 5] = [
    Comparison::Equal,
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
];

impl Parser<'_> {
    /// `relation AND relation ...`
    pub(super) fn relations(&mut self) -> Parse<Vec<Relation>> {
        let mut relations = vec![self.relation()?];
        while self.word("and") {
            relations.push(self.relation()?);
        }
        Ok(relations)
    }

    fn relation(&mut self) -> Parse<Relation> {
        let subject = self.subject()?;
        if let Some(test) = self.test(&subject)? {
            return Ok(Relation { subject, test });
        }
        let Kind::Word(word) = &self.peek().kind else {
            if self.is_mark(0, "!=") || self.is_mark(0, "[") {
                return Err(unsupported(format!("relations with {}", self.peek().text)));
            }
            return self.no_alternative();
        };
        match word.as_str() {
            "contains" | "like" | "is" | "between" | "not" => {
                Err(unsupported(format!("relations with {}", word.to_ascii_uppercase())))
            }
            _ => self.no_alternative(),
        }
    }

    /// `= value`, `IN (value, ...)` and so on; `None` if something else is next.
    pub(super) fn test(&mut self, subject: &Subject) -> Parse<Option<Test>> {
        for comparison in COMPARISONS {
            if self.mark(comparison.sign()) {
                return Ok(Some(Test::Compare(comparison, self.compared(subject)?)));
            }
        }
        if !self.word("in") {
            return Ok(None);
        }
        if matches!(subject, Subject::Token(_)) {
            return Err(unsupported("relations with IN on token()"));
        }
        Ok(Some(if self.mark("(") {
            if self.mark(")") {
                Test::In(Vec::new())
            } else {
                Test::In(self.list(")", |parser| parser.compared(subject))?)
            }
        } else {
            match self.marker()? {
                Some(position) => Test::InMarker(position),
                None => return self.no_alternative(),
            }
        }))
    }

    fn subject(&mut self) -> Parse<Subject> {
        if self.is_word(0, "token") && self.is_mark(1, "(") {
            self.at += 2;
            return self.list(")", Self::name).map(Subject::Token);
        }
        if self.mark("(") {
            return self.list(")", Self::name).map(Subject::Columns);
        }
        self.name().map(Subject::Column)
    }

    /// Parses the right side of a comparison: tuples for several columns.
    fn compared(&mut self, subject: &Subject) -> Parse<Term> {
        match subject {
            Subject::Columns(_) if self.mark("(") => self.list(")", Self::term).map(Term::Tuple),
            Subject::Columns(_) => match self.marker()? {
                Some(position) => Ok(Term::Marker(position)),
                None => self.mismatched("("),
            },
            Subject::Column(_) | Subject::Token(_) => self.term(),
        }
    }
}
