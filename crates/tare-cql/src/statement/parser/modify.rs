//! INSERT, UPDATE, DELETE and batches.

use super::{Parse, Parser, unsupported};
use crate::statement::{Batch, BatchKind, Condition, Delete, Insert, Modify, Update, Using};

/// Statements that a batch may have; the BATCH message counts them in 16 bits.
const BATCH_MAX: usize = 65_535;

impl Parser<'_> {
    /// One statement that writes.
    pub(super) fn modify(&mut self) -> Parse<Modify> {
        if self.word("insert") {
            self.insert().map(Modify::Insert)
        } else if self.word("update") {
            self.update().map(Modify::Update)
        } else if self.word("delete") {
            self.delete().map(Modify::Delete)
        } else {
            self.no_alternative()
        }
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
        let condition = self.condition(true)?.then_some(Condition::NotExists);
        let using = self.using()?;
        Ok(Insert { table, columns, values, using, condition })
    }

    fn update(&mut self) -> Parse<Update> {
        let table = self.table_name()?;
        let using = self.using()?;
        self.expect_word("set")?;
        let mut assignments = vec![self.assignment()?];
        while self.mark(",") {
            assignments.push(self.assignment()?);
        }
        let relations = self.required_relations()?;
        let condition = self.if_condition()?;
        Ok(Update { table, using, assignments, relations, condition })
    }

    fn delete(&mut self) -> Parse<Delete> {
        let mut columns = Vec::new();
        if !self.is_word(0, "from") {
            columns.push(self.deletion()?);
            while self.mark(",") {
                columns.push(self.deletion()?);
            }
        }
        self.expect_word("from")?;
        let table = self.table_name()?;
        let using = self.using()?;
        if using.ttl_s.is_some() {
            return self.mismatched("TIMESTAMP");
        }
        let relations = self.required_relations()?;
        let condition = self.if_condition()?;
        Ok(Delete { table, columns, timestamp_us: using.timestamp_us, relations, condition })
    }

    fn required_relations(&mut self) -> Parse<Vec<crate::statement::Relation>> {
        self.expect_word("where")?;
        self.relations()
    }

    /// `USING TTL n AND TIMESTAMP n`, in any order, or nothing.
    pub(super) fn using(&mut self) -> Parse<Using> {
        let mut using = Using::default();
        if !self.word("using") {
            return Ok(using);
        }
        loop {
            if self.word("ttl") {
                using.ttl_s = Some(self.term()?);
            } else if self.word("timestamp") {
                using.timestamp_us = Some(self.term()?);
            } else if self.word("timeout") {
                // This is Scylla's option; the server's own limits apply.
                self.term()?;
            } else {
                return self.mismatched("TTL or TIMESTAMP");
            }
            if !self.word("and") {
                return Ok(using);
            }
        }
    }

    /// Parses the part after BEGIN.
    pub(super) fn batch(&mut self) -> Parse<Batch> {
        if self.is_word(0, "transaction") {
            return Err(unsupported("transactions"));
        }
        let kind = if self.word("unlogged") {
            BatchKind::Unlogged
        } else if self.word("counter") {
            BatchKind::Counter
        } else {
            let _ = self.word("logged");
            BatchKind::Logged
        };
        self.expect_word("batch")?;
        let using = self.using()?;
        if using.ttl_s.is_some() {
            return Err(unsupported("batches with a TTL of their own"));
        }
        let mut statements = Vec::new();
        while !self.word("apply") {
            if statements.len() == BATCH_MAX {
                return Err(unsupported(format!("batches of more than {BATCH_MAX} statements")));
            }
            statements.push(self.modify()?);
            self.mark(";");
        }
        self.expect_word("batch")?;
        Ok(Batch { kind, timestamp_us: using.timestamp_us, statements })
    }
}
