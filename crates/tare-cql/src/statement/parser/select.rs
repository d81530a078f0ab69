//! SELECT.

use super::{Parse, Parser, unsupported};
use crate::statement::lexer::Kind;
use crate::statement::{Comparison, Relation, Select, SelectItem, Selection, Selector, Test};

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
