//! Types, literals and bind markers.

use super::{NESTING_MAX, Parse, Parser, unsupported};
use crate::statement::lexer::Kind;
use crate::statement::{Function, Literal, SyntaxProblem, Term};
use crate::types::{Duration, Type};

/// The protocol counts values in 16 bits.
const MARKERS_MAX: usize = 65_535;

impl Parser<'_> {
    pub(super) fn column_type(&mut self, levels: usize) -> Parse<Type> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(self.error(SyntaxProblem::Nesting { limit: NESTING_MAX }));
        };
        if let Kind::Text(class) = &self.peek().kind {
            return Err(unsupported(format!("types by class such as '{class}'")));
        }
        let start = self.at;
        // `set` is the only type whose name is a reserved word.
        let name = if self.word("set") { "set".to_owned() } else { self.name()? };
        if !self.mark("<") {
            return match Type::scalar(&name) {
                Some(kind) => Ok(kind),
                None if ["list", "set", "map", "tuple", "frozen"].contains(&name.as_str()) => {
                    self.mismatched("<")
                }
                None => Err(unsupported(format!("user-defined types such as {name}"))),
            };
        }
        let kind = match name.as_str() {
            "list" => Type::List(Box::new(self.column_type(levels)?)),
            "set" => Type::Set(Box::new(self.column_type(levels)?)),
            "frozen" => Type::Frozen(Box::new(self.column_type(levels)?)),
            "map" => {
                let key = self.column_type(levels)?;
                self.expect_mark(",")?;
                Type::Map(Box::new(key), Box::new(self.column_type(levels)?))
            }
            "tuple" => {
                return self.list(">", |parser| parser.column_type(levels)).map(Type::Tuple);
            }
            "vector" => return Err(unsupported("vectors")),
            _ => {
                self.at = start;
                return self.no_alternative();
            }
        };
        self.expect_mark(">")?;
        Ok(kind)
    }

    pub(super) fn term(&mut self) -> Parse<Term> {
        self.nested_term(NESTING_MAX)
    }

    fn nested_term(&mut self, levels: usize) -> Parse<Term> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(self.error(SyntaxProblem::Nesting { limit: NESTING_MAX }));
        };
        if let Some(position) = self.marker()? {
            return Ok(Term::Marker(position));
        }
        if self.is_word(0, "system") && self.is_mark(1, ".") {
            self.at += 2;
        }
        if self.is_mark(1, "(")
            && let Kind::Word(name) = self.peek().kind.clone()
        {
            self.at += 2;
            let arguments = if self.mark(")") {
                Vec::new()
            } else {
                self.list(")", |parser| parser.nested_term(levels))?
            };
            return match Function::by_name(&name) {
                Some(function) => Ok(Term::Call(function, arguments)),
                None if name == "token" => Ok(Term::Token(arguments)),
                None => Err(unsupported(format!("calls of {name}()"))),
            };
        }
        // `(int) 5`
        if self.is_mark(0, "(")
            && self.is_mark(2, ")")
            && matches!(&self.peek_at(1).kind, Kind::Word(word) if Type::scalar(word).is_some())
        {
            return Err(unsupported("casts"));
        }
        self.literal(NESTING_MAX).map(Term::Literal)
    }

    /// Takes `?` or `:name`.
    pub(super) fn marker(&mut self) -> Parse<Option<usize>> {
        let name = if self.mark("?") {
            None
        } else if self.mark(":") {
            Some(self.name()?)
        } else {
            return Ok(None);
        };
        let position = self.markers.len();
        if position == MARKERS_MAX {
            return Err(self.error(SyntaxProblem::Markers));
        }
        self.markers.push(name);
        Ok(Some(position))
    }

    pub(super) fn literal(&mut self, levels: usize) -> Parse<Literal> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(self.error(SyntaxProblem::Nesting { limit: NESTING_MAX }));
        };
        let literal = match self.peek().kind.clone() {
            Kind::Text(text) => Literal::Text(text),
            Kind::Integer(integer) => Literal::Integer(integer),
            Kind::BigInteger(text) => Literal::BigInteger(text),
            Kind::Float(float) => Literal::Float(float),
            Kind::Uuid(uuid) => Literal::Uuid(uuid),
            Kind::Blob(blob) => Literal::Blob(blob),
            Kind::Duration(duration) => Literal::Duration(duration),
            Kind::Word(word) => match word.as_str() {
                "null" => Literal::Null,
                "true" => Literal::Boolean(true),
                "false" => Literal::Boolean(false),
                "nan" => Literal::Float("NaN".into()),
                "infinity" => Literal::Float("Infinity".into()),
                _ if self.is_mark(1, "(") => {
                    return Err(unsupported(format!("calls of {word}() within a literal")));
                }
                // A duration of ISO 8601, such as P1DT2H, looks like a name.
                _ => match Duration::parse(self.peek().text) {
                    Some(duration) if word.starts_with('p') => Literal::Duration(duration),
                    _ => return self.no_alternative(),
                },
            },
            Kind::Mark("-") if self.is_word(1, "nan") => {
                self.advance();
                Literal::Float("NaN".into())
            }
            Kind::Mark("-") if self.is_word(1, "infinity") => {
                self.advance();
                Literal::Float("-Infinity".into())
            }
            Kind::Mark("[") => {
                self.advance();
                if self.mark("]") {
                    return Ok(Literal::List(Vec::new()));
                }
                return self.list("]", |parser| parser.literal(levels)).map(Literal::List);
            }
            Kind::Mark("(") => {
                self.advance();
                return self.list(")", |parser| parser.literal(levels)).map(Literal::Tuple);
            }
            Kind::Mark("{") => {
                self.advance();
                return self.set_or_map(levels);
            }
            Kind::Mark("?" | ":") => {
                return Err(unsupported("bind markers within collections"));
            }
            _ => return self.no_alternative(),
        };
        self.advance();
        Ok(literal)
    }

    fn set_or_map(&mut self, levels: usize) -> Parse<Literal> {
        if self.mark("}") {
            return Ok(Literal::Map(Vec::new()));
        }
        let first = self.literal(levels)?;
        if !self.mark(":") {
            let mut items = vec![first];
            while self.mark(",") {
                items.push(self.literal(levels)?);
            }
            self.expect_mark("}")?;
            return Ok(Literal::Set(items));
        }
        let mut pairs = vec![(first, self.literal(levels)?)];
        while self.mark(",") {
            let key = self.literal(levels)?;
            self.expect_mark(":")?;
            pairs.push((key, self.literal(levels)?));
        }
        self.expect_mark("}")?;
        Ok(Literal::Map(pairs))
    }
}
