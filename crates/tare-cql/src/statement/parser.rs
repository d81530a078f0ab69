//! Tokens to a statement, by recursive descent.

use super::lexer::{self, Kind, Token};
use super::{
    Comparison, CreateKeyspace, CreateTable, Insert, Literal, Order, ParseError, Parsed, Relation,
    Select, SelectItem, Selection, Selector, Statement, SyntaxProblem, TableName, Term, Test,
};
use crate::types::Type;

/// Levels of nested literals and types.
const NESTING_MAX: usize = 16;
/// The protocol counts values in 16 bits.
const MARKERS_MAX: usize = 65_535;

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

/// Statements that CQL has and this parser does not, with the words that name them.
const UNSUPPORTED: [(&str, &str); 11] = [
    ("update", "UPDATE statements"),
    ("delete", "DELETE statements"),
    ("begin", "batches"),
    ("apply", "batches"),
    ("alter", "ALTER statements"),
    ("grant", "permissions"),
    ("revoke", "permissions"),
    ("list", "roles and permissions"),
    ("add", "identities"),
    ("describe", "DESCRIBE statements"),
    ("desc", "DESCRIBE statements"),
];
/// The same for what stands after CREATE and DROP.
const UNSUPPORTED_OBJECTS: [(&str, &str); 10] = [
    ("index", "indexes"),
    ("custom", "indexes"),
    ("materialized", "materialized views"),
    ("type", "user-defined types"),
    ("function", "user-defined functions"),
    ("aggregate", "user-defined aggregates"),
    ("or", "user-defined functions"),
    ("trigger", "triggers"),
    ("role", "roles"),
    ("user", "users"),
];

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

/// Tokens, one by one.
impl<'t> Parser<'t> {
    fn peek_at(&self, ahead: usize) -> &Token<'t> {
        // The last token is `End`, and it stays the last.
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

    /// Takes the word if it stands there. Words are given in lower case.
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

    /// `item (, item)*` up to and with the closing mark.
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
        match word.as_str() {
            "select" => {
                self.advance();
                self.select().map(Statement::Select)
            }
            "insert" => {
                self.advance();
                self.insert().map(Statement::Insert)
            }
            "create" => {
                self.advance();
                self.create()
            }
            "drop" => {
                self.advance();
                self.drop()
            }
            "truncate" => {
                self.advance();
                if !self.word("table") {
                    self.word("columnfamily");
                }
                Ok(Statement::Truncate { table: self.table_name()? })
            }
            "use" => {
                self.advance();
                Ok(Statement::Use { keyspace: self.name()? })
            }
            other => match named(&UNSUPPORTED, other) {
                Some(error) => Err(error),
                None => self.no_alternative(),
            },
        }
    }

    fn create(&mut self) -> Parse<Statement> {
        if self.word("keyspace") || self.word("schema") {
            let if_not_exists = self.condition(true)?;
            let keyspace = self.name()?;
            self.expect_word("with")?;
            let mut options = vec![self.option()?];
            while self.word("and") {
                options.push(self.option()?);
            }
            return Ok(Statement::CreateKeyspace(CreateKeyspace {
                keyspace,
                if_not_exists,
                options,
            }));
        }
        if self.word("table") || self.word("columnfamily") {
            return self.create_table().map(Statement::CreateTable);
        }
        self.unsupported_object()
    }

    fn drop(&mut self) -> Parse<Statement> {
        if self.word("keyspace") || self.word("schema") {
            let if_exists = self.condition(false)?;
            return Ok(Statement::DropKeyspace { keyspace: self.name()?, if_exists });
        }
        if self.word("table") || self.word("columnfamily") {
            let if_exists = self.condition(false)?;
            return Ok(Statement::DropTable { table: self.table_name()?, if_exists });
        }
        self.unsupported_object()
    }

    fn unsupported_object<T>(&self) -> Parse<T> {
        if let Kind::Word(word) = &self.peek().kind
            && let Some(error) = named(&UNSUPPORTED_OBJECTS, word)
        {
            return Err(error);
        }
        self.no_alternative()
    }

    fn create_table(&mut self) -> Parse<CreateTable> {
        let if_not_exists = self.condition(true)?;
        let mut table = CreateTable {
            table: self.table_name()?,
            if_not_exists,
            columns: Vec::new(),
            partition_key: Vec::new(),
            clustering: Vec::new(),
            options: Vec::new(),
        };
        self.expect_mark("(")?;
        loop {
            self.column_definition(&mut table)?;
            if !self.mark(",") {
                break;
            }
        }
        self.expect_mark(")")?;
        if table.partition_key.is_empty() {
            return self.mismatched("PRIMARY KEY");
        }
        if self.word("with") {
            self.table_option(&mut table)?;
            while self.word("and") {
                self.table_option(&mut table)?;
            }
        }
        Ok(table)
    }

    fn column_definition(&mut self, table: &mut CreateTable) -> Parse<()> {
        if self.is_word(0, "primary") && self.is_word(1, "key") && self.is_mark(2, "(") {
            if !table.partition_key.is_empty() {
                // A second primary key.
                return self.no_alternative();
            }
            self.at += 3;
            table.partition_key =
                if self.mark("(") { self.list(")", Self::name)? } else { vec![self.name()?] };
            while self.mark(",") {
                table.clustering.push((self.name()?, Order::Ascending));
            }
            return self.expect_mark(")");
        }
        let name = self.name()?;
        let kind = self.column_type(NESTING_MAX)?;
        if kind == Type::Counter {
            return Err(unsupported("counters"));
        }
        if self.is_word(0, "static") {
            return Err(unsupported("static columns"));
        }
        if self.is_word(0, "primary") {
            if !table.partition_key.is_empty() {
                return self.no_alternative();
            }
            self.advance();
            self.expect_word("key")?;
            table.partition_key = vec![name.clone()];
        }
        table.columns.push((name, kind));
        Ok(())
    }

    fn column_type(&mut self, levels: usize) -> Parse<Type> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(self.error(SyntaxProblem::Nesting { limit: NESTING_MAX }));
        };
        if let Kind::Text(class) = &self.peek().kind {
            return Err(unsupported(format!("types by class such as '{class}'")));
        }
        let start = self.at;
        // The one type whose name is a reserved word.
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

    fn table_option(&mut self, table: &mut CreateTable) -> Parse<()> {
        if self.word("compact") {
            self.expect_word("storage")?;
            return Err(unsupported("tables with compact storage"));
        }
        if self.word("clustering") {
            self.expect_word("order")?;
            self.expect_word("by")?;
            self.expect_mark("(")?;
            for (name, order) in self.list(")", Self::ordering)? {
                let column = table.clustering.iter_mut().find(|(column, _)| *column == name);
                match column {
                    Some(column) => column.1 = order,
                    None => return self.no_alternative(),
                }
            }
            return Ok(());
        }
        let option = self.option()?;
        table.options.push(option);
        Ok(())
    }

    fn option(&mut self) -> Parse<(String, Literal)> {
        let name = self.name()?;
        self.expect_mark("=")?;
        Ok((name, self.literal(NESTING_MAX)?))
    }

    fn ordering(&mut self) -> Parse<(String, Order)> {
        let name = self.name()?;
        let order = if self.word("desc") {
            Order::Descending
        } else {
            self.word("asc");
            Order::Ascending
        };
        Ok((name, order))
    }

    fn insert(&mut self) -> Parse<Insert> {
        self.expect_word("into")?;
        let table = self.table_name()?;
        if self.is_word(0, "json") {
            return Err(unsupported("INSERT JSON statements"));
        }
        self.expect_mark("(")?;
        let columns = self.list(")", Self::name)?;
        self.expect_word("values")?;
        self.expect_mark("(")?;
        let values = self.list(")", Self::term)?;
        if values.len() != columns.len() {
            return self.no_alternative();
        }
        let mut insert = Insert { table, columns, values, ttl_s: None, timestamp_us: None };
        if self.is_word(0, "if") {
            return Err(unsupported("lightweight transactions (IF NOT EXISTS)"));
        }
        if self.word("using") {
            loop {
                if self.word("ttl") {
                    insert.ttl_s = Some(self.term()?);
                } else if self.word("timestamp") {
                    insert.timestamp_us = Some(self.term()?);
                } else {
                    return self.mismatched("TTL or TIMESTAMP");
                }
                if !self.word("and") {
                    break;
                }
            }
        }
        Ok(insert)
    }

    fn select(&mut self) -> Parse<Select> {
        // These words are names too, unless a selection follows.
        let is_modifier = !self.is_word(1, "from")
            && !self.is_word(1, "as")
            && !self.is_mark(1, ",")
            && !self.is_mark(1, "(");
        if self.is_word(0, "json") && is_modifier {
            return Err(unsupported("SELECT JSON statements"));
        }
        let distinct = is_modifier && self.word("distinct");
        let selection = if self.mark("*") {
            Selection::All
        } else {
            let mut items = vec![self.selector()?];
            while self.mark(",") {
                items.push(self.selector()?);
            }
            Selection::Items(items)
        };
        self.expect_word("from")?;
        let table = self.table_name()?;
        let mut select = Select {
            table,
            distinct,
            selection,
            relations: Vec::new(),
            order_by: Vec::new(),
            limit: None,
            allow_filtering: false,
        };
        if self.word("where") {
            select.relations.push(self.relation()?);
            while self.word("and") {
                select.relations.push(self.relation()?);
            }
        }
        if self.is_word(0, "group") {
            return Err(unsupported("GROUP BY clauses"));
        }
        if self.word("order") {
            self.expect_word("by")?;
            select.order_by.push(self.ordering()?);
            while self.mark(",") {
                select.order_by.push(self.ordering()?);
            }
        }
        if self.is_word(0, "per") {
            return Err(unsupported("PER PARTITION LIMIT clauses"));
        }
        if self.word("limit") {
            select.limit = Some(self.term()?);
        }
        if self.word("allow") {
            self.expect_word("filtering")?;
            select.allow_filtering = true;
        }
        if self.word("bypass") {
            // Scylla's hint; it changes no result.
            self.expect_word("cache")?;
        }
        if self.is_word(0, "using") {
            return Err(unsupported("USING clauses in SELECT"));
        }
        Ok(select)
    }

    fn selector(&mut self) -> Parse<Selector> {
        let item = if self.is_mark(1, "(") {
            let Kind::Word(function) = self.peek().kind.clone() else {
                return self.no_alternative();
            };
            let counts_rows = self.is_mark(2, "*") || self.peek_at(2).kind == Kind::Integer(1);
            if function != "count" || !counts_rows {
                return Err(unsupported(format!("calls of {function}()")));
            }
            self.at += 3;
            self.expect_mark(")")?;
            SelectItem::Count
        } else {
            SelectItem::Column(self.name()?)
        };
        if self.is_mark(0, ".") || self.is_mark(0, "[") {
            return Err(unsupported("selections of parts of a column"));
        }
        let alias = if self.word("as") { Some(self.name()?) } else { None };
        Ok(Selector { item, alias })
    }

    fn relation(&mut self) -> Parse<Relation> {
        if self.is_word(0, "token") {
            return Err(unsupported("ranges of token()"));
        }
        if self.is_mark(0, "(") {
            return Err(unsupported("relations of several columns"));
        }
        let column = self.name()?;
        const COMPARISONS: [(&str, Comparison); 5] = [
            ("=", Comparison::Equal),
            ("<", Comparison::Less),
            ("<=", Comparison::LessOrEqual),
            (">", Comparison::Greater),
            (">=", Comparison::GreaterOrEqual),
        ];
        for (mark, comparison) in COMPARISONS {
            if self.mark(mark) {
                return Ok(Relation { column, test: Test::Compare(comparison, self.term()?) });
            }
        }
        if self.word("in") {
            let test = if self.mark("(") {
                if self.mark(")") {
                    Test::In(Vec::new())
                } else {
                    Test::In(self.list(")", Self::term)?)
                }
            } else {
                match self.marker()? {
                    Some(position) => Test::InMarker(position),
                    None => return self.no_alternative(),
                }
            };
            return Ok(Relation { column, test });
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
}

/// Values.
impl Parser<'_> {
    fn term(&mut self) -> Parse<Term> {
        if let Some(position) = self.marker()? {
            return Ok(Term::Marker(position));
        }
        self.literal(NESTING_MAX).map(Term::Literal)
    }

    /// Takes `?` or `:name`.
    fn marker(&mut self) -> Parse<Option<usize>> {
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

    fn literal(&mut self, levels: usize) -> Parse<Literal> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(self.error(SyntaxProblem::Nesting { limit: NESTING_MAX }));
        };
        let literal = match self.peek().kind.clone() {
            Kind::Text(text) => Literal::Text(text),
            Kind::Integer(integer) => Literal::Integer(integer),
            Kind::HugeInteger => return Err(unsupported("integers of more than 128 bits")),
            Kind::Float(float) => Literal::Float(float),
            Kind::Uuid(uuid) => Literal::Uuid(uuid),
            Kind::Blob(blob) => Literal::Blob(blob),
            Kind::Duration => return Err(unsupported("duration literals")),
            Kind::Word(word) => match word.as_str() {
                "null" => Literal::Null,
                "true" => Literal::Boolean(true),
                "false" => Literal::Boolean(false),
                "nan" => Literal::Float(f64::NAN),
                "infinity" => Literal::Float(f64::INFINITY),
                _ if self.is_mark(1, "(") => {
                    return Err(unsupported(format!("calls of {word}()")));
                }
                _ => return self.no_alternative(),
            },
            Kind::Mark("-") if self.is_word(1, "nan") => {
                self.advance();
                Literal::Float(f64::NAN)
            }
            Kind::Mark("-") if self.is_word(1, "infinity") => {
                self.advance();
                Literal::Float(f64::NEG_INFINITY)
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
