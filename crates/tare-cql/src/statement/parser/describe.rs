//! DESCRIBE, in the forms of Cassandra 4.0.

use super::{Parse, Parser};
use crate::statement::lexer::Kind;
use crate::statement::{Describe, DescribeTarget};

/// Kinds of objects that a name may follow, and that the server does not have.
const OTHERS: [(&str, &str); 4] = [
    ("type", "user defined type"),
    ("function", "user defined function"),
    ("aggregate", "user defined aggregate"),
    ("index", "index"),
];

impl Parser<'_> {
    /// Parses the part after DESCRIBE.
    pub(super) fn describe(&mut self) -> Parse<Describe> {
        let target = self.describe_target()?;
        let internals = self.word("with");
        if internals {
            self.expect_word("internals")?;
        }
        Ok(Describe { target, internals })
    }

    fn describe_target(&mut self) -> Parse<DescribeTarget> {
        if self.word("cluster") {
            return Ok(DescribeTarget::Cluster);
        }
        if self.word("full") {
            self.expect_word("schema")?;
            return Ok(DescribeTarget::Schema { full: true });
        }
        if self.word("schema") {
            return Ok(DescribeTarget::Schema { full: false });
        }
        if self.word("keyspaces") {
            return Ok(DescribeTarget::Keyspaces);
        }
        if self.word("tables") {
            return Ok(DescribeTarget::Tables);
        }
        if self.word("types") || self.word("functions") || self.word("aggregates") {
            return Ok(DescribeTarget::Nothing);
        }
        let only = self.word("only");
        if self.word("keyspace") {
            let named = matches!(self.peek().kind, Kind::Word(_) | Kind::Quoted(_))
                && !self.is_word(0, "with");
            let name = if named { Some(self.name()?) } else { None };
            return Ok(DescribeTarget::Keyspace { name, only });
        }
        if only {
            return self.mismatched("KEYSPACE");
        }
        if self.word("table") || self.word("columnfamily") {
            return self.table_name().map(DescribeTarget::Table);
        }
        if self.is_word(0, "materialized") && self.is_word(1, "view") {
            self.at += 2;
            let name = self.table_name()?;
            return Ok(DescribeTarget::Other { kind: "materialized view", name });
        }
        for (word, kind) in OTHERS {
            if self.is_word(0, word) && !matches!(self.peek_at(1).kind, Kind::End | Kind::Mark(_)) {
                self.advance();
                return Ok(DescribeTarget::Other { kind, name: self.table_name()? });
            }
        }
        self.table_name().map(DescribeTarget::Any)
    }
}
