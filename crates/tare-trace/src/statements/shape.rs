//! What a statement does, in the terms of a workload: which row, which columns.

use tare_cql::statement::{
    ColumnChange, Comparison, Modify, Relation, SelectItem, Selection, Statement as Cql, Subject,
    TableName, Term, Test, parse,
};
use tare_load::workload::QueryKind;

/// The name of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TableId {
    pub(crate) keyspace: String,
    pub(crate) table: String,
}

impl std::fmt::Display for TableId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.keyspace, self.table)
    }
}

impl TableId {
    /// Whether it is a table of the server itself, which drivers read.
    pub(crate) fn is_system(&self) -> bool {
        self.keyspace == "system" || self.keyspace.starts_with("system_")
    }
}

/// A statement.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// `None` without a keyspace, or for a statement without a table.
    pub(crate) table: Option<TableId>,
    pub(crate) form: Form,
    /// The names of the bind markers.
    pub(crate) markers: Vec<Option<String>>,
    /// The columns of the result, where they are known.
    pub(crate) result: Vec<String>,
}

/// A column with its value.
pub(crate) type Bound = (String, Term);

/// What a statement does.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    Insert(Vec<Bound>),
    Update {
        set: Vec<Bound>,
        key: Vec<Bound>,
    },
    Delete {
        key: Vec<Bound>,
    },
    Select {
        equal: Vec<Bound>,
        from: Vec<Term>,
        scans: bool,
    },
    /// No workload has it, for this reason.
    Refused(&'static str),
}

/// The primary key of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) partition: Vec<String>,
    pub(crate) clustering: Vec<String>,
}

/// A statement as a query of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) kind: QueryKind,
    /// The columns that it writes, with their values.
    pub(crate) written: Vec<Bound>,
    pub(crate) partition: Vec<Bound>,
    /// The values behind those of the partition that name a row; `None` if the statement is about
    /// a whole partition.
    pub(crate) row: Option<Vec<Term>>,
}

/// Reads a statement. `keyspace` is that of the connection.
pub(crate) fn statement(text: &str, keyspace: Option<&str>) -> Statement {
    let Ok(parsed) = parse(text) else {
        let form = Form::Refused("of statements that Tare cannot read");
        return Statement { table: None, form, markers: Vec::new(), result: Vec::new() };
    };
    let (table, form) = match parsed.statement {
        Cql::Modify(Modify::Insert(insert)) => {
            let bound = insert.columns.into_iter().zip(insert.values).collect();
            let form = unless_conditional(insert.condition.is_some(), Form::Insert(bound));
            (Some(insert.table), form)
        }
        Cql::Modify(Modify::Update(update)) => {
            let mut set = Vec::new();
            for assignment in update.assignments {
                if let ColumnChange::Set(term) = assignment.change {
                    set.push((assignment.column, term));
                }
            }
            let form = match (equal(&update.relations), set.is_empty()) {
                (Some(key), false) => Form::Update { set, key },
                _ => Form::Refused("of updates of counters, of parts of collections, or with IN"),
            };
            (Some(update.table), unless_conditional(update.condition.is_some(), form))
        }
        Cql::Modify(Modify::Delete(delete)) => {
            let form = match (equal(&delete.relations), delete.columns.is_empty()) {
                (Some(key), true) => Form::Delete { key },
                _ => Form::Refused("of deletes of columns or ranges"),
            };
            (Some(delete.table), unless_conditional(delete.condition.is_some(), form))
        }
        Cql::Select(select) => {
            let form = select_form(&select.relations);
            let result = columns_of(&select.selection);
            let (table, markers) = (id(select.table, keyspace), parsed.markers);
            return Statement { table, form, markers, result };
        }
        Cql::Batch(_) => (None, Form::Refused("of batches in the text of a statement")),
        _ => (None, Form::Refused("of changes of the schema and the like")),
    };
    let table = table.and_then(|table| id(table, keyspace));
    Statement { table, form, markers: parsed.markers, result: Vec::new() }
}

fn unless_conditional(is_conditional: bool, form: Form) -> Form {
    if is_conditional { Form::Refused("with conditions (IF)") } else { form }
}

fn id(table: TableName, keyspace: Option<&str>) -> Option<TableId> {
    let keyspace = table.keyspace.or_else(|| keyspace.map(String::from))?;
    Some(TableId { keyspace, table: table.table })
}

/// Returns the columns of a selection; none for all columns or anything but columns.
fn columns_of(selection: &Selection) -> Vec<String> {
    let Selection::Items(items) = selection else { return Vec::new() };
    let column = |item: &SelectItem| match item {
        SelectItem::Column(name) => Some(name.clone()),
        _ => None,
    };
    items.iter().map(|selector| column(&selector.item)).collect::<Option<_>>().unwrap_or_default()
}

/// Returns the columns that a WHERE compares for equality; `None` if it has anything else.
fn equal(relations: &[Relation]) -> Option<Vec<Bound>> {
    relations.iter().map(equality).collect()
}

fn equality(relation: &Relation) -> Option<Bound> {
    match (&relation.subject, &relation.test) {
        (Subject::Column(name), Test::Compare(Comparison::Equal, term)) => {
            Some((name.clone(), term.clone()))
        }
        _ => None,
    }
}

fn select_form(relations: &[Relation]) -> Form {
    let (mut bound, mut from, mut scans) = (Vec::new(), Vec::new(), relations.is_empty());
    for relation in relations {
        if let Some(one) = equality(relation) {
            bound.push(one);
            continue;
        }
        match (&relation.subject, &relation.test) {
            (_, Test::In(_) | Test::InMarker(_)) => return Form::Refused("of reads with IN"),
            (Subject::Token(_), _) => scans = true,
            (_, Test::Compare(_, Term::Tuple(terms))) => from.extend(terms.iter().cloned()),
            (_, Test::Compare(_, term)) => from.push(term.clone()),
        }
    }
    Form::Select { equal: bound, from, scans }
}

impl Statement {
    /// Returns the columns that the statement compares for equality in WHERE.
    pub(crate) fn compared(&self) -> &[Bound] {
        match &self.form {
            Form::Update { key, .. } | Form::Delete { key } => key,
            Form::Select { equal, .. } => equal,
            Form::Insert(_) | Form::Refused(_) => &[],
        }
    }

    /// Returns the statement as a query on a table with this key.
    ///
    /// # Errors
    /// Why no workload has it.
    pub(crate) fn shape(&self, key: &Key) -> Result<Shape, &'static str> {
        let whole = |bound: &[Bound]| -> Option<(Vec<Bound>, Vec<Term>)> {
            let partition = pick(bound, &key.partition)?;
            let row = pick(bound, &key.clustering)?;
            Some((partition, row.into_iter().map(|(_, term)| term).collect()))
        };
        let of_row = |kind, bound: &[Bound], written: Vec<Bound>, why| {
            let (partition, row) = whole(bound).ok_or(why)?;
            Ok(Shape { kind, written, partition, row: Some(row) })
        };
        let is_key = |name: &String| key.partition.contains(name) || key.clustering.contains(name);
        match &self.form {
            Form::Refused(why) => Err(why),
            Form::Insert(bound) => {
                let written = bound.iter().filter(|(name, _)| !is_key(name)).cloned().collect();
                of_row(QueryKind::Write, bound, written, "of writes without a whole key")
            }
            Form::Update { set, key } => {
                of_row(QueryKind::Update, key, set.clone(), "of updates without a whole key")
            }
            Form::Delete { key } => {
                of_row(QueryKind::Delete, key, Vec::new(), "of deletes of columns or ranges")
            }
            Form::Select { scans: true, equal, from } => {
                let partition = Vec::new();
                let row = equal.iter().map(|(_, term)| term).chain(from).cloned().collect();
                let row: Vec<Term> = row;
                let row = (!row.is_empty()).then_some(row);
                Ok(Shape { kind: QueryKind::Scan, written: Vec::new(), partition, row })
            }
            Form::Select { equal, from, .. } => {
                if let (Some((partition, row)), true) = (whole(equal), from.is_empty()) {
                    let row = Some(row);
                    return Ok(Shape {
                        kind: QueryKind::Read,
                        written: Vec::new(),
                        partition,
                        row,
                    });
                }
                let partition =
                    pick(equal, &key.partition).ok_or("of reads by other columns than the key")?;
                let row = (!from.is_empty()).then(|| from.clone());
                Ok(Shape { kind: QueryKind::Slice, written: Vec::new(), partition, row })
            }
        }
    }
}

/// Returns the values of these columns in their order; `None` if one is missing.
fn pick(bound: &[Bound], names: &[String]) -> Option<Vec<Bound>> {
    names.iter().map(|name| bound.iter().find(|(known, _)| known == name).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_kinds_of_queries() {
        let key = Key { partition: vec!["p".into()], clustering: vec!["c".into()] };
        let check = |text: &str, expect: &str| {
            let found = statement(text, Some("ks"));
            let shape = match found.shape(&key) {
                Ok(shape) => format!("{} {}", shape.kind.name(), shape.written.len()),
                Err(why) => why.to_string(),
            };
            assert_eq!(shape, expect, "{text}");
        };
        check("INSERT INTO t (p, c, v, w) VALUES (?, ?, ?, ?)", "write 2");
        check("INSERT INTO t (p, c, v) VALUES (?, 5, ?)", "write 1");
        check("INSERT INTO t (p, v) VALUES (?, ?)", "of writes without a whole key");
        check("INSERT INTO t (p, c) VALUES (?, ?) IF NOT EXISTS", "with conditions (IF)");
        check("UPDATE t SET v = ? WHERE p = ? AND c = ?", "update 1");
        let parts = "of updates of counters, of parts of collections, or with IN";
        check("UPDATE t SET v = v + ? WHERE p = ? AND c = ?", parts);
        check("DELETE FROM t WHERE p = ? AND c = ?", "delete 0");
        check("DELETE FROM t WHERE p = ?", "of deletes of columns or ranges");
        check("SELECT v FROM t WHERE p = ? AND c = ?", "read 0");
        check("SELECT v FROM t WHERE p = ?", "slice 0");
        check("SELECT v FROM t WHERE p = ? AND (c) >= (?) LIMIT ?", "slice 0");
        check("SELECT v FROM t WHERE p = ? AND c > ? AND c < ?", "slice 0");
        check("SELECT v FROM t WHERE token(p) >= token(?) LIMIT ?", "scan 0");
        check("SELECT v FROM t", "scan 0");
        check("SELECT v FROM t WHERE v = ?", "of reads by other columns than the key");
        check("SELECT v FROM t WHERE p IN (?, ?)", "of reads with IN");
        check("TRUNCATE t", "of changes of the schema and the like");
        check("GRANT SELECT ON t TO ann", "of statements that Tare cannot read");
    }

    #[test]
    fn tables_have_the_keyspace_of_the_connection() {
        let table = |text, keyspace| statement(text, keyspace).table.map(|table| table.to_string());
        assert_eq!(table("SELECT v FROM t", Some("ks")), Some("ks.t".into()));
        assert_eq!(table("SELECT v FROM o.t", Some("ks")), Some("o.t".into()));
        assert_eq!(table("SELECT v FROM t", None), None);
        assert!(statement("SELECT v FROM system.local", None).table.unwrap().is_system());
        assert_eq!(statement("SELECT a, b FROM t", None).result, ["a", "b"]);
        assert!(statement("SELECT count(*) FROM t", None).result.is_empty());
    }
}
