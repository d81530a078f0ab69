//! CQL statements: `parse` turns text into a tree. It resolves no names and checks no types,
//! because that needs the schema.
//!
//! The supported statements are USE; CREATE, ALTER and DROP of keyspaces and tables; TRUNCATE;
//! INSERT, UPDATE, DELETE and batches of them; SELECT; DESCRIBE. Other statements are refused by
//! name with `ParseError::Unsupported`, which a server answers as an invalid request;
//! `ParseError::Syntax` has Cassandra's wording.

mod change;
mod condition;
pub mod function;
mod lexer;
mod parser;
mod schema;
#[cfg(test)]
mod tests;

pub use change::{Assignment, ColumnChange, Deletion};
pub use condition::{ColumnCondition, ColumnTest, Condition};
pub use function::Function;
pub use parser::quoted;
pub use schema::{
    AlterKeyspace, AlterTable, CreateKeyspace, CreateTable, Describe, DescribeTarget, TableChange,
};

pub use crate::request::BatchKind;
pub use crate::types::Literal;
use crate::types::Type;

use std::fmt;

/// Why a text is no supported statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Lines count from 1, columns from 0, in characters, as in Cassandra.
    #[error("line {line}:{column} {problem}")]
    Syntax { line: usize, column: usize, problem: SyntaxProblem },
    #[error("{what} are not supported")]
    Unsupported { what: String },
}

/// The problem at a position in the text.
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
    #[error("literals, calls or types are nested deeper than {limit} levels")]
    Nesting { limit: usize },
    #[error("more than 65535 bind markers")]
    Markers,
}

/// Parses one statement, which may end with a semicolon.
///
/// ```
/// use tare_cql::statement::{Modify, Statement, parse};
///
/// let parsed = parse("INSERT INTO ks.t (k, v) VALUES (?, :value)")?;
/// assert_eq!(parsed.markers, [None, Some("value".to_string())]);
/// let Statement::Modify(Modify::Insert(insert)) = parsed.statement else { unreachable!() };
/// assert_eq!(insert.columns, ["k", "v"]);
///
/// let error = parse("SELECT FROM t WHERE").unwrap_err();
/// assert!(error.to_string().starts_with("line 1:"));
/// # Ok::<(), tare_cql::statement::ParseError>(())
/// ```
pub fn parse(text: &str) -> Result<Parsed, ParseError> {
    parser::parse(text)
}

/// Parses the type of a column, as CREATE TABLE has it.
///
/// ```
/// use tare_cql::statement::parse_type;
///
/// let kind = parse_type("map<int, frozen<set<text>>>")?;
/// assert_eq!(kind.to_string(), "map<int, frozen<set<text>>>");
/// # Ok::<(), tare_cql::statement::ParseError>(())
/// ```
pub fn parse_type(text: &str) -> Result<Type, ParseError> {
    parser::parse_type(text)
}

/// A statement and the names of its bind markers in their order; `?` has no name.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub statement: Statement,
    pub markers: Vec<Option<String>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    Use { keyspace: String },
    CreateKeyspace(CreateKeyspace),
    AlterKeyspace(AlterKeyspace),
    DropKeyspace { keyspace: String, if_exists: bool },
    CreateTable(CreateTable),
    AlterTable(AlterTable),
    DropTable { table: TableName, if_exists: bool },
    Truncate { table: TableName },
    Describe(Describe),
    Modify(Modify),
    Batch(Batch),
    Select(Select),
}

/// A table, with its keyspace if the statement names one. Names are in lower case unless they were
/// quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    pub keyspace: Option<String>,
    pub table: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

/// A statement that writes.
#[derive(Debug, Clone, PartialEq)]
pub enum Modify {
    Insert(Insert),
    Update(Update),
    Delete(Delete),
}

/// `USING TTL ... AND TIMESTAMP ...`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Using {
    /// Seconds to live.
    pub ttl_s: Option<Term>,
    /// Time of writing in microseconds since the epoch.
    pub timestamp_us: Option<Term>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    pub table: TableName,
    pub columns: Vec<String>,
    /// One value for each column.
    pub values: Vec<Term>,
    pub using: Using,
    /// `IF NOT EXISTS` or none.
    pub condition: Option<Condition>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    pub table: TableName,
    pub using: Using,
    /// `SET column = value, ...`
    pub assignments: Vec<Assignment>,
    pub relations: Vec<Relation>,
    pub condition: Option<Condition>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Delete {
    pub table: TableName,
    /// The columns to delete; none means whole rows.
    pub columns: Vec<Deletion>,
    pub timestamp_us: Option<Term>,
    pub relations: Vec<Relation>,
    pub condition: Option<Condition>,
}

/// `BEGIN [UNLOGGED | COUNTER] BATCH ... APPLY BATCH`
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    pub kind: BatchKind,
    pub timestamp_us: Option<Term>,
    pub statements: Vec<Modify>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    pub table: TableName,
    pub distinct: bool,
    pub selection: Selection,
    pub relations: Vec<Relation>,
    /// The columns of GROUP BY.
    pub group_by: Vec<String>,
    pub order_by: Vec<(String, Order)>,
    pub per_partition_limit: Option<Term>,
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
    CountRows,
    /// `count(column)`: the number of rows that have a value in the column.
    Count(String),
    /// An aggregate of the values of a column.
    Aggregate(Aggregate, String),
    /// When the value was written, in microseconds: a bigint.
    WriteTime(String),
    /// The seconds that the value still lives: an int, null if it lives for ever.
    Ttl(String),
    /// The token of the partition: a bigint.
    Token(Vec<String>),
    Call(Function, Vec<SelectItem>),
}

/// A function of many values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    Min,
    Max,
    Sum,
    Avg,
}

impl Aggregate {
    const ALL: [Self; 4] = [Self::Min, Self::Max, Self::Sum, Self::Avg];

    /// The aggregate of a name in lower case.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|aggregate| aggregate.name() == name)
    }

    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Sum => "sum",
            Self::Avg => "avg",
        }
    }
}

/// The name of the column in the result, as in Cassandra.
impl fmt::Display for SelectItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(name) => f.write_str(name),
            Self::CountRows => f.write_str("count"),
            Self::Count(name) => write!(f, "system.count({name})"),
            Self::Aggregate(aggregate, name) => write!(f, "system.{}({name})", aggregate.name()),
            Self::WriteTime(name) => write!(f, "writetime({name})"),
            Self::Ttl(name) => write!(f, "ttl({name})"),
            Self::Token(names) => write!(f, "system.token({})", names.join(", ")),
            Self::Call(function, arguments) => {
                write!(f, "system.{}(", function.name())?;
                for (position, argument) in arguments.iter().enumerate() {
                    let comma = if position == 0 { "" } else { ", " };
                    write!(f, "{comma}{argument}")?;
                }
                f.write_str(")")
            }
        }
    }
}

/// A condition of WHERE; all of them must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Relation {
    pub subject: Subject,
    pub test: Test,
}

/// The left side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Column(String),
    /// `(a, b)`, compared with tuples.
    Columns(Vec<String>),
    /// `token(a, b)`, compared with a bigint.
    Token(Vec<String>),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(name) => f.write_str(name),
            Self::Columns(names) => write!(f, "({})", names.join(",")),
            Self::Token(names) => write!(f, "token({})", names.join(", ")),
        }
    }
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

impl Comparison {
    /// How CQL writes it.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

/// A value in the text, or the position of one that comes with the request.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    Literal(Literal),
    /// Position in `Parsed::markers`.
    Marker(usize),
    Call(Function, Vec<Term>),
    /// `token(a, b)` of values.
    Token(Vec<Term>),
    /// `(a, b)`, compared with several columns.
    Tuple(Vec<Term>),
}
