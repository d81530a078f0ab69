//! CREATE, ALTER and DROP of keyspaces and tables.

use super::{NESTING_MAX, Parse, Parser, named, unsupported};
use crate::statement::lexer::Kind;
use crate::statement::{
    AlterKeyspace, AlterTable, CreateKeyspace, CreateTable, Literal, Order, Statement, TableChange,
};
use crate::types::Type;

/// Objects that CQL can create and drop and this parser cannot.
const UNSUPPORTED_OBJECTS: [(&str, &str); 12] = [
    ("service", "service levels"),
    ("identity", "identities"),
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

impl Parser<'_> {
    pub(super) fn create(&mut self) -> Parse<Statement> {
        if self.word("keyspace") || self.word("schema") {
            let if_not_exists = self.condition(true)?;
            let keyspace = self.name()?;
            let options = self.options()?;
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

    pub(super) fn alter(&mut self) -> Parse<Statement> {
        if self.word("keyspace") || self.word("schema") {
            let if_exists = self.condition(false)?;
            let keyspace = self.name()?;
            let options = self.options()?;
            return Ok(Statement::AlterKeyspace(AlterKeyspace { keyspace, if_exists, options }));
        }
        if self.word("table") || self.word("columnfamily") {
            let if_exists = self.condition(false)?;
            let table = self.table_name()?;
            let change = self.table_change()?;
            return Ok(Statement::AlterTable(AlterTable { table, if_exists, change }));
        }
        self.unsupported_object()
    }

    fn table_change(&mut self) -> Parse<TableChange> {
        if self.is_word(0, "with") {
            return self.options().map(TableChange::Options);
        }
        if self.word("drop") {
            return self.dropped_columns();
        }
        if !self.word("add") {
            let Kind::Word(word) = &self.peek().kind else { return self.no_alternative() };
            return match word.as_str() {
                "rename" => Err(unsupported("ALTER TABLE RENAME statements")),
                "alter" => Err(unsupported("changes of a column's type")),
                _ => self.mismatched("ADD, DROP or WITH"),
            };
        }
        let if_not_exists = self.condition(true)?;
        let mut statics = Vec::new();
        let mut added = |parser: &mut Self| parser.added_column(&mut statics);
        let columns = if self.mark("(") {
            self.list(")", added)?
        } else {
            let mut columns = vec![added(self)?];
            while self.mark(",") {
                columns.push(added(self)?);
            }
            columns
        };
        Ok(TableChange::Add { columns, statics, if_not_exists })
    }

    fn dropped_columns(&mut self) -> Parse<TableChange> {
        if self.is_word(0, "compact") && self.is_word(1, "storage") {
            return Err(unsupported("tables with compact storage"));
        }
        let if_exists = self.condition(false)?;
        let columns = match self.mark("(") {
            true => self.list(")", Self::name)?,
            false => {
                let mut columns = vec![self.name()?];
                while self.mark(",") {
                    columns.push(self.name()?);
                }
                columns
            }
        };
        if self.is_word(0, "using") {
            return Err(unsupported("USING clauses of ALTER TABLE DROP"));
        }
        Ok(TableChange::Drop { columns, if_exists })
    }

    /// A column's name and type. Its name is added to `statics` if the column is static.
    fn added_column(&mut self, statics: &mut Vec<String>) -> Parse<(String, Type)> {
        let name = self.name()?;
        let kind = self.column_type(NESTING_MAX)?;
        if self.word("static") {
            statics.push(name.clone());
        }
        if self.is_word(0, "masked") {
            return Err(unsupported("masked columns"));
        }
        Ok((name, kind))
    }

    pub(super) fn drop(&mut self) -> Parse<Statement> {
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
            statics: Vec::new(),
            partition_key: Vec::new(),
            clustering: Vec::new(),
            options: Vec::new(),
        };
        self.expect_mark("(")?;
        self.column_definition(&mut table)?;
        while self.mark(",") {
            // All columns but the first may be empty, as in Cassandra; its own load tool relies on
            // that.
            if !self.is_mark(0, ",") && !self.is_mark(0, ")") {
                self.column_definition(&mut table)?;
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
                // This is a second primary key.
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
        let (name, kind) = self.added_column(&mut table.statics)?;
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

    /// `WITH name = value AND ...`
    fn options(&mut self) -> Parse<Vec<(String, Literal)>> {
        self.expect_word("with")?;
        let mut options = vec![self.option()?];
        while self.word("and") {
            options.push(self.option()?);
        }
        Ok(options)
    }

    fn option(&mut self) -> Parse<(String, Literal)> {
        let name = self.name()?;
        self.expect_mark("=")?;
        Ok((name, self.literal(NESTING_MAX)?))
    }

    pub(super) fn ordering(&mut self) -> Parse<(String, Order)> {
        let name = self.name()?;
        let order = if self.word("desc") {
            Order::Descending
        } else {
            self.word("asc");
            Order::Ascending
        };
        Ok((name, order))
    }
}
