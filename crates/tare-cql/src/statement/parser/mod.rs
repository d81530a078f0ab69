//! Parses tokens into a statement, by recursive descent.

mod change;
mod condition;
mod describe;
mod modify;
mod relation;
mod schema;
mod select;
mod value;

use std::borrow::Cow;

use super::lexer::{self, Kind, Token};
use super::{ParseError, Parsed, Statement, SyntaxProblem, TableName};
use crate::types::Type;

/// Levels of nested literals, calls and types.
const NESTING_MAX: usize = 16;

/// Words that must be quoted to be names (Cassandra's `ReservedKeywords.java`), in order.
const RESERVED: [&str; 62] = [
    "add",
    "allow",
    "alter",
    "and",
    "apply",
    "asc",
    "authorize",
    "batch",
    "begin",
    "by",
    "columnfamily",
    "create",
    "default",
    "delete",
    "desc",
    "describe",
    "drop",
    "entries",
    "execute",
    "from",
    "full",
    "grant",
    "if",
    "in",
    "index",
    "infinity",
    "insert",
    "into",
    "is",
    "keyspace",
    "limit",
    "materialized",
    "mbean",
    "mbeans",
    "modify",
    "nan",
    "norecursive",
    "not",
    "null",
    "of",
    "on",
    "or",
    "order",
    "primary",
    "rename",
    "replace",
    "revoke",
    "schema",
    "select",
    "set",
    "table",
    "to",
    "token",
    "truncate",
    "unlogged",
    "unset",
    "update",
    "use",
    "using",
    "view",
    "where",
    "with",
];

/// Statements of CQL that this parser does not support, with the words that name them.
const UNSUPPORTED: [(&str, &str); 5] = [
    ("grant", "permissions"),
    ("revoke", "permissions"),
    ("list", "roles and permissions"),
    ("add", "identities"),
    ("prune", "materialized views"),
];

/// A name as a statement has to spell it: in double quotes unless it is a plain one.
pub fn quoted(name: &str) -> Cow<'_, str> {
    let is_plain = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        && !RESERVED.contains(&name);
    match is_plain {
        true => Cow::Borrowed(name),
        false => Cow::Owned(format!("\"{}\"", name.replace('"', "\"\""))),
    }
}

type Parse<T> = Result<T, ParseError>;

pub(super) fn parse(text: &str) -> Parse<Parsed> {
    let mut parser = Parser { text, tokens: lexer::tokens(text)?, at: 0, markers: Vec::new() };
    let statement = parser.statement()?;
    parser.mark(";");
    if parser.peek().kind != Kind::End {
        let input = parser.peek().text.to_owned();
        return Err(parser.error(SyntaxProblem::Extraneous { input }));
    }
    Ok(Parsed { statement, markers: parser.markers })
}

pub(super) fn parse_type(text: &str) -> Parse<Type> {
    let mut parser = Parser { text, tokens: lexer::tokens(text)?, at: 0, markers: Vec::new() };
    let kind = parser.column_type(NESTING_MAX)?;
    match parser.peek().kind {
        Kind::End => Ok(kind),
        _ => parser.no_alternative(),
    }
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token<'t>>,
    at: usize,
    markers: Vec<Option<String>>,
}

fn unsupported(what: impl Into<String>) -> ParseError {
    ParseError::Unsupported { what: what.into() }
}

fn named(list: &[(&str, &str)], word: &str) -> Option<ParseError> {
    list.iter().find(|(name, _)| *name == word).map(|(_, what)| unsupported(*what))
}

/// The token stream.
impl<'t> Parser<'t> {
    fn peek_at(&self, ahead: usize) -> &Token<'t> {
        // The last token is `End`, and the position stays there.
        &self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> &Token<'t> {
        self.peek_at(0)
    }

    fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn error(&self, problem: SyntaxProblem) -> ParseError {
        lexer::syntax(self.text, self.peek().offset, problem)
    }

    fn no_alternative<T>(&self) -> Parse<T> {
        Err(self.error(SyntaxProblem::NoAlternative { input: self.peek().text.to_owned() }))
    }

    fn mismatched<T>(&self, expected: &'static str) -> Parse<T> {
        let input = self.peek().text.to_owned();
        Err(self.error(SyntaxProblem::Mismatched { input, expected }))
    }

    fn is_word(&self, ahead: usize, word: &str) -> bool {
        matches!(&self.peek_at(ahead).kind, Kind::Word(found) if found == word)
    }

    fn is_mark(&self, ahead: usize, mark: &str) -> bool {
        matches!(&self.peek_at(ahead).kind, Kind::Mark(found) if *found == mark)
    }

    /// Takes a word, given in lower case, if it is next.
    fn word(&mut self, word: &str) -> bool {
        let found = self.is_word(0, word);
        if found {
            self.advance();
        }
        found
    }

    fn mark(&mut self, mark: &str) -> bool {
        let found = self.is_mark(0, mark);
        if found {
            self.advance();
        }
        found
    }

    fn expect_word(&mut self, word: &'static str) -> Parse<()> {
        if self.word(word) { Ok(()) } else { self.mismatched(word) }
    }

    fn expect_mark(&mut self, mark: &'static str) -> Parse<()> {
        if self.mark(mark) { Ok(()) } else { self.mismatched(mark) }
    }

    /// `IF NOT EXISTS` or, without `not`, `IF EXISTS`.
    fn condition(&mut self, not: bool) -> Parse<bool> {
        if !self.word("if") {
            return Ok(false);
        }
        if not {
            self.expect_word("not")?;
        }
        self.expect_word("exists")?;
        Ok(true)
    }

    fn name(&mut self) -> Parse<String> {
        let name = match &self.peek().kind {
            Kind::Quoted(name) => name.clone(),
            Kind::Word(name) if !RESERVED.contains(&name.as_str()) => name.clone(),
            _ => return self.no_alternative(),
        };
        self.advance();
        Ok(name)
    }

    fn table_name(&mut self) -> Parse<TableName> {
        let first = self.name()?;
        Ok(if self.mark(".") {
            TableName { keyspace: Some(first), table: self.name()? }
        } else {
            TableName { keyspace: None, table: first }
        })
    }

    /// `item (, item)*`, including the closing mark.
    fn list<T>(
        &mut self,
        close: &'static str,
        mut item: impl FnMut(&mut Self) -> Parse<T>,
    ) -> Parse<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.mark(",") {
            items.push(item(self)?);
        }
        self.expect_mark(close)?;
        Ok(items)
    }
}

/// Statements.
impl Parser<'_> {
    fn statement(&mut self) -> Parse<Statement> {
        let Kind::Word(word) = self.peek().kind.clone() else { return self.no_alternative() };
        if let Some(error) = named(&UNSUPPORTED, &word) {
            return Err(error);
        }
        if matches!(word.as_str(), "insert" | "update" | "delete") {
            return self.modify().map(Statement::Modify);
        }
        let at = self.at;
        self.advance();
        match word.as_str() {
            "select" => self.select().map(Statement::Select),
            "begin" => self.batch().map(Statement::Batch),
            "create" => self.create(),
            "alter" => self.alter(),
            "drop" => self.drop(),
            "truncate" => {
                if !self.word("table") {
                    self.word("columnfamily");
                }
                let table = self.table_name()?;
                if self.is_word(0, "using") {
                    return Err(unsupported("USING clauses of TRUNCATE"));
                }
                Ok(Statement::Truncate { table })
            }
            "use" => Ok(Statement::Use { keyspace: self.name()? }),
            "describe" | "desc" => self.describe().map(Statement::Describe),
            _ => {
                self.at = at;
                self.no_alternative()
            }
        }
    }
}
