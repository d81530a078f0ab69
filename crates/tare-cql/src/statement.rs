//! CQL statements: `parse` turns text into a tree. Names are not resolved and types not checked:
//! that is the business of who knows the schema.
//!
//! What is understood: USE, CREATE and DROP of keyspaces and tables, TRUNCATE, INSERT, SELECT. All
//! else of CQL is refused by name with `ParseError::Unsupported`, which a server answers as an
//! invalid request; `ParseError::Syntax` is worded as Cassandra words it.

mod lexer;
mod parser;
#[cfg(test)]
mod tests;

use crate::types::Type;
use std::fmt;

/// Why a text is no statement that can be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Lines count from 1, columns from 0, in characters, as in Cassandra.
    #[error("line {line}:{column} {problem}")]
    Syntax { line: usize, column: usize, problem: SyntaxProblem },
    #[error("{what} are not supported")]
    Unsupported { what: String },
}

/// What is wrong at a place in the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxProblem {
    #[error("no viable alternative at input '{input}'")]
    NoAlternative { input: String },
    #[error("mismatched input '{input}' expecting {expected}")]
    Mismatched { input: String, expected: &'static str },
    #[error("extraneous input '{input}' expecting EOF")]
    Extraneous { input: String },
    #[error("no viable alternative at character '{character}'")]
    Character { character: char },
    #[error("{what} has no end")]
    Unterminated { what: &'static str },
    #[error("literals or types are nested deeper than {limit} levels")]
    Nesting { limit: usize },
    #[error("more than 65535 bind markers")]
    Markers,
}

/// Parses one statement, which may end with a semicolon.
pub fn parse(text: &str) -> Result<Parsed, ParseError> {
    parser::parse(text)
}

/// A statement and the names of its bind markers in the order they stand in it; `?` has no name.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub statement: Statement,
    pub markers: Vec<Option<String>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    Use { keyspace: String },
    CreateKeyspace(CreateKeyspace),
    CreateTable(CreateTable),
    DropKeyspace { keyspace: String, if_exists: bool },
    DropTable { table: TableName, if_exists: bool },
    Truncate { table: TableName },
    Insert(Insert),
    Select(Select),
}

/// A table, in the keyspace in use unless it names one. Names are folded to lower case unless they
/// were quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    pub keyspace: Option<String>,
    pub table: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CreateKeyspace {
    pub keyspace: String,
    pub if_not_exists: bool,
    /// `WITH name = value AND ...`, such as `replication` and `durable_writes`.
    pub options: Vec<(String, Literal)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    pub table: TableName,
    pub if_not_exists: bool,
    /// In the order written.
    pub columns: Vec<(String, Type)>,
    pub partition_key: Vec<String>,
    /// Clustering columns; descending where CLUSTERING ORDER BY says so.
    pub clustering: Vec<(String, Order)>,
    pub options: Vec<(String, Literal)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    pub table: TableName,
    pub columns: Vec<String>,
    /// As many as there are columns.
    pub values: Vec<Term>,
    /// Seconds to live.
    pub ttl_s: Option<Term>,
    /// Time of writing in microseconds since the epoch.
    pub timestamp_us: Option<Term>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    pub table: TableName,
    pub distinct: bool,
    pub selection: Selection,
    pub relations: Vec<Relation>,
    pub order_by: Vec<(String, Order)>,
    pub limit: Option<Term>,
    pub allow_filtering: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    All,
    Items(Vec<Selector>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    pub item: SelectItem,
    /// `AS name`
    pub alias: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectItem {
    Column(String),
    /// `count(*)` or `count(1)`: a bigint named `count`.
    Count,
}

/// A condition of WHERE; all of them must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Relation {
    pub column: String,
    pub test: Test,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    Compare(Comparison, Term),
    /// `IN (a, b, ...)`
    In(Vec<Term>),
    /// `IN ?`, bound to a list.
    InMarker(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A value in the text, or the place of one that comes with the request.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    Literal(Literal),
    /// Position in `Parsed::markers`.
    Marker(usize),
}

/// A constant as written. `Literal::encode` turns it into the bytes of a column's type.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    Null,
    Boolean(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    Uuid([u8; 16]),
    Blob(Vec<u8>),
    /// `[a, b]`
    List(Vec<Literal>),
    /// `{a, b}`
    Set(Vec<Literal>),
    /// `{a: b}`; also the empty `{}`, which may be a set as well.
    Map(Vec<(Literal, Literal)>),
    /// `(a, b)`
    Tuple(Vec<Literal>),
}

/// What a bind marker stands for, from which who knows the schema finds its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerTarget<'a> {
    Column(&'a str),
    /// A list of the column's type.
    InList(&'a str),
    /// An int.
    Limit,
    /// An int.
    Ttl,
    /// A bigint.
    Timestamp,
}

/// The name that a nameless marker gets in the answer to PREPARE, as in Cassandra.
impl fmt::Display for MarkerTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(column) => f.write_str(column),
            Self::InList(column) => write!(f, "in({column})"),
            Self::Limit => f.write_str("[limit]"),
            Self::Ttl => f.write_str("[ttl]"),
            Self::Timestamp => f.write_str("[timestamp]"),
        }
    }
}

impl Parsed {
    /// What each marker stands for, in the order of `markers`.
    pub fn marker_targets(&self) -> Vec<MarkerTarget<'_>> {
        let mut targets = Vec::new();
        let mut add = |term: Option<&Term>, target| {
            if let Some(Term::Marker(position)) = term {
                targets.push((*position, target));
            }
        };
        match &self.statement {
            Statement::Insert(insert) => {
                for (column, value) in insert.columns.iter().zip(&insert.values) {
                    add(Some(value), MarkerTarget::Column(column));
                }
                add(insert.ttl_s.as_ref(), MarkerTarget::Ttl);
                add(insert.timestamp_us.as_ref(), MarkerTarget::Timestamp);
            }
            Statement::Select(select) => {
                for Relation { column, test } in &select.relations {
                    match test {
                        Test::Compare(_, term) => add(Some(term), MarkerTarget::Column(column)),
                        Test::In(terms) => {
                            for term in terms {
                                add(Some(term), MarkerTarget::Column(column));
                            }
                        }
                        Test::InMarker(position) => {
                            add(Some(&Term::Marker(*position)), MarkerTarget::InList(column));
                        }
                    }
                }
                add(select.limit.as_ref(), MarkerTarget::Limit);
            }
            Statement::Use { .. }
            | Statement::CreateKeyspace(_)
            | Statement::CreateTable(_)
            | Statement::DropKeyspace { .. }
            | Statement::DropTable { .. }
            | Statement::Truncate { .. } => {}
        }
        targets.sort_by_key(|(position, _)| *position);
        targets.into_iter().map(|(_, target)| target).collect()
    }
}
