//! SELECT.

use super::{NESTING_MAX, Parse, Parser, unsupported};
use crate::statement::lexer::Kind;
use crate::statement::{
    Aggregate, Function, Select, SelectItem, Selection, Selector, SyntaxProblem,
};

impl Parser<'_> {
    pub(super) fn select(&mut self) -> Parse<Select> {
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
            group_by: Vec::new(),
            order_by: Vec::new(),
            per_partition_limit: None,
            limit: None,
            allow_filtering: false,
        };
        if self.word("where") {
            select.relations = self.relations()?;
        }
        if self.word("group") {
            self.expect_word("by")?;
            select.group_by.push(self.name()?);
            while self.mark(",") {
                select.group_by.push(self.name()?);
            }
        }
        if self.word("order") {
            self.expect_word("by")?;
            select.order_by.push(self.ordering()?);
            while self.mark(",") {
                select.order_by.push(self.ordering()?);
            }
        }
        if self.word("per") {
            self.expect_word("partition")?;
            self.expect_word("limit")?;
            select.per_partition_limit = Some(self.term()?);
        }
        if self.word("limit") {
            select.limit = Some(self.term()?);
        }
        if self.word("allow") {
            self.expect_word("filtering")?;
            select.allow_filtering = true;
        }
        if self.word("bypass") {
            // This is Scylla's hint; it changes no result.
            self.expect_word("cache")?;
        }
        let using = self.using()?;
        if using.ttl_s.is_some() || using.timestamp_us.is_some() {
            return Err(unsupported("USING TTL and USING TIMESTAMP in SELECT"));
        }
        Ok(select)
    }

    fn selector(&mut self) -> Parse<Selector> {
        let item = self.select_item(NESTING_MAX)?;
        let alias = if self.word("as") { Some(self.name()?) } else { None };
        Ok(Selector { item, alias })
    }

    fn select_item(&mut self, levels: usize) -> Parse<SelectItem> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(self.error(SyntaxProblem::Nesting { limit: NESTING_MAX }));
        };
        if self.is_mark(1, "(") {
            return self.call_item(levels);
        }
        if matches!(&self.peek().kind, Kind::Word(word) if word == "system") && self.is_mark(1, ".")
        {
            self.at += 2;
            return self.call_item(levels);
        }
        let is_name = matches!(self.peek().kind, Kind::Word(_) | Kind::Quoted(_));
        if !is_name && !matches!(self.peek().kind, Kind::Mark(_) | Kind::End) {
            return Err(unsupported("constants in a selection"));
        }
        let name = self.name()?;
        if self.is_mark(0, ".") || self.is_mark(0, "[") {
            return Err(unsupported("selections of parts of a column"));
        }
        if ["+", "-", "/", "%"].iter().any(|mark| self.is_mark(0, mark)) {
            return Err(unsupported("arithmetic operators"));
        }
        Ok(SelectItem::Column(name))
    }

    fn call_item(&mut self, levels: usize) -> Parse<SelectItem> {
        let Kind::Word(name) = self.peek().kind.clone() else { return self.no_alternative() };
        self.advance();
        self.expect_mark("(")?;
        let item = match name.as_str() {
            "count" if self.mark("*") => SelectItem::CountRows,
            "count" if self.peek().kind == Kind::Integer(1) => {
                self.advance();
                SelectItem::CountRows
            }
            "count" => SelectItem::Count(self.name()?),
            "writetime" => SelectItem::WriteTime(self.name()?),
            "ttl" => SelectItem::Ttl(self.name()?),
            "token" => return self.list(")", Self::name).map(SelectItem::Token),
            "cast" => return Err(unsupported("casts")),
            name => {
                if let Some(aggregate) = Aggregate::by_name(name) {
                    let column = self.name()?;
                    if self.is_mark(0, "(") {
                        return Err(unsupported("aggregates of calls"));
                    }
                    self.expect_mark(")")?;
                    return Ok(SelectItem::Aggregate(aggregate, column));
                }
                let Some(function) = Function::by_name(name) else {
                    return Err(unsupported(format!("calls of {name}()")));
                };
                if self.mark(")") {
                    return Ok(SelectItem::Call(function, Vec::new()));
                }
                let arguments = self.list(")", |parser| parser.select_item(levels))?;
                return Ok(SelectItem::Call(function, arguments));
            }
        };
        self.expect_mark(")")?;
        Ok(item)
    }
}
