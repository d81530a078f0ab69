//! Parses a `Workload` from TOML. Unknown keys, types and values are refused with their place in
//! the file, as in studies. The format is in docs/reference/load-spec.md.

use tare_cql::types::Type;
use tare_toml::{Hint, Item, Problem, Source, Table as Toml, TomlError};

use super::{Query, QueryKind, Workload};
use crate::workload::column::Content;
use crate::workload::keys::Keys;
use crate::workload::rows::{COLUMNS_MAX, ROW_BYTES_MAX};
use crate::workload::table::{KeyColumn, Table, push_column};
use crate::workload::value::{Distribution, Form, SCALARS, SHORT_MAX};

const ROOT: &[&str] = &["title", "table", "partition", "clustering", "column", "query"];
const TABLE: &[&str] =
    &["keyspace", "name", "rows", "rows_per_partition", "interleave", "replication"];
const PARTITION: &[&str] = &["name", "type", "size", "prefix", "hashed"];
const CLUSTERING: &[&str] = &["name", "type", "size", "prefix", "values"];
const COLUMN: &[&str] = &["name", "type", "count", "size", "values", "compressed_to"];
const QUERY: &[&str] = &["name", "kind", "weight", "keys", "misses", "limit", "columns"];

/// The most rows of a slice or scan, and the most bytes of them: an answer has at most 16 MiB.
const LIMIT_MAX: u64 = 10_000;
const ANSWER_BYTES_MAX: u64 = 12 << 20;
/// The most rows of a workload.
const ROWS_MAX: u64 = 1 << 62;

/// Parses and checks a workload. `name` is its name; error messages name `file`.
///
/// # Errors
/// The first mistake, with line and column.
pub fn parse(text: &str, file: &str, name: &str) -> Result<Workload, TomlError> {
    let source = Source { file, text };
    let document = source.document()?;
    let root = source.root("the workload", &document, ROOT)?;
    let title = root.text("title")?.map_or_else(String::new, |(title, _)| title);
    let head = root.table("table", TABLE)?.ok_or_else(|| root.missing("table"))?;
    let rows = head.whole("rows", 1..=ROWS_MAX, 100_000)?;
    let mut table = Table {
        keyspace: identifier(&head, "keyspace")?,
        name: identifier(&head, "name")?,
        replication: head.whole_u32("replication", 1..=100, 1)?,
        partition: Vec::new(),
        clustering: Vec::new(),
        columns: Vec::new(),
        rows_per_partition: head.whole("rows_per_partition", 1..=1 << 40, 1)?,
        interleave: head.whole("interleave", 1..=1 << 20, 1)?,
    };
    let mut names = Vec::new();
    partition(&root, &mut table, &mut names, rows)?;
    clustering(&root, &mut table, &mut names)?;
    columns(&root, &mut table, &mut names)?;
    if let (true, Some(item)) = (table.clustering.is_empty(), head.get("rows_per_partition"))
        && table.rows_per_partition > 1
    {
        return Err(item.bad_value("a partition with several rows needs a [[clustering]] column"));
    }
    let queries = queries(&root, &table)?;
    Ok(Workload::new(name.into(), title, table, rows, queries))
}

/// Reads the name of a keyspace, table or column: letters, digits and underscores, a letter first.
fn identifier(table: &Toml<'_>, key: &str) -> Result<String, TomlError> {
    let item = table.need(key)?;
    let name = item.text()?;
    is_name(name).then(|| name.to_string()).ok_or_else(|| {
        item.bad_value("a name has up to 48 letters, digits and underscores, a letter first")
    })
}

/// Whether a workload can have this name of a keyspace, table or column.
pub fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= 48
}

/// Whether columns of this type have a size.
pub fn has_size(kind: &Type) -> bool {
    matches!(kind, Type::Blob | Type::Text | Type::Ascii)
}

/// Reads the name of a column, which must be unique.
fn column_name(table: &Toml<'_>, names: &mut Vec<String>) -> Result<String, TomlError> {
    let name = identifier(table, "name")?;
    unique(&table.need("name")?, &name, names)?;
    Ok(name)
}

fn unique(item: &Item<'_>, name: &str, names: &mut Vec<String>) -> Result<(), TomlError> {
    if names.iter().any(|known| known == name) {
        return Err(item.bad_value("another column has this name"));
    }
    names.push(name.into());
    Ok(())
}

fn kind(table: &Toml<'_>) -> Result<Type, TomlError> {
    let item = table.need("type")?;
    let name = item.text()?;
    if name.eq_ignore_ascii_case("counter") {
        return Err(item.bad_value(
            "tare load cannot derive or verify the value of a counter, so counters are not supported",
        ));
    }
    let known = SCALARS.iter().any(|known| known.eq_ignore_ascii_case(name));
    Type::scalar(name).filter(|_| known).ok_or_else(|| {
        item.error(Problem::UnknownValue {
            key: "type".into(),
            value: name.into(),
            hint: Hint::new(name, &SCALARS),
        })
    })
}

/// Reads a size in bytes; only some types have one.
fn size(table: &Toml<'_>, kind: &Type, default: u64) -> Result<Distribution, TomlError> {
    let Some(item) = table.get("size") else { return Ok(Distribution::Fixed(default)) };
    if !has_size(kind) {
        return Err(item.bad_value(&format!("a {kind} has no size of its own")));
    }
    let spread = spread(&item)?;
    if spread.most() > ROW_BYTES_MAX {
        return Err(item.bad_value(&format!("a row has at most {ROW_BYTES_MAX} bytes")));
    }
    Ok(spread)
}

fn spread(item: &Item<'_>) -> Result<Distribution, TomlError> {
    item.scalar()?.parse().map_err(|error| item.bad_value(&format!("{error}")))
}

/// Reads the form of a key column: its type, size and prefix.
fn form(table: &Toml<'_>, kind: &Type) -> Result<Form, TomlError> {
    let prefix = table.text("prefix")?;
    if let Some((_, item)) = prefix.as_ref().filter(|_| !matches!(kind, Type::Text | Type::Ascii)) {
        return Err(item.bad_value("only text has a prefix"));
    }
    let prefix = prefix.map_or_else(String::new, |(prefix, _)| prefix);
    if !prefix.is_ascii() {
        return Err(table.need("prefix")?.bad_value("a prefix is in ASCII"));
    }
    let digits = if matches!(kind, Type::Blob) { 8 } else { 20 };
    let size = size(table, kind, digits + prefix.len() as u64)?;
    let bytes = match size {
        Distribution::Fixed(bytes) if bytes <= 64 => usize::try_from(bytes).unwrap_or(64),
        _ => return Err(table.need("size")?.bad_value("a key column has one size, at most 64")),
    };
    if bytes <= prefix.len() {
        let item = table.get("size").map_or_else(|| table.need("type"), Ok)?;
        return Err(item.bad_value("there must be room for a number"));
    }
    Form::of(kind, bytes, &prefix)
        .filter(|_| *kind != Type::Duration)
        .ok_or_else(|| missing_order(table, kind))
}

fn missing_order(table: &Toml<'_>, kind: &Type) -> TomlError {
    let error = |item: Item<'_>| item.bad_value(&format!("a {kind} cannot be part of a key"));
    table.need("type").map_or_else(|missing| missing, error)
}

fn partition(
    root: &Toml<'_>,
    table: &mut Table,
    names: &mut Vec<String>,
    rows: u64,
) -> Result<(), TomlError> {
    let tables = root.tables("partition", PARTITION)?;
    if tables.is_empty() {
        return Err(root.missing("partition"));
    }
    for entry in &tables {
        let (name, kind) = (column_name(entry, names)?, kind(entry)?);
        let (form, hashed) = (form(entry, &kind)?, entry.flag("hashed")?);
        if hashed && !(table.partition.is_empty() && form.holds_any()) {
            let item = entry.need("hashed")?;
            return Err(item.bad_value(
                "only the first column is hashed, and only a bigint, a blob of 8 bytes or text of 20 \
                 digits has room for it",
            ));
        }
        table.partition.push(KeyColumn { name, kind, form, hashed, step: 1, values: u64::MAX });
    }
    let most = table.rows_most();
    if rows > most {
        let item = tables[0].need("type")?;
        return Err(item.bad_value(&format!("its values have room for {most} of the {rows} rows")));
    }
    let key: usize = table.partition.iter().map(|key| key.form.bytes_most() + 3).sum();
    if key > SHORT_MAX {
        let most = format!("the partition key is at most {SHORT_MAX} bytes long");
        return Err(tables[tables.len() - 1].need("name")?.bad_value(&most));
    }
    Ok(())
}

fn clustering(
    root: &Toml<'_>,
    table: &mut Table,
    names: &mut Vec<String>,
) -> Result<(), TomlError> {
    let tables = root.tables("clustering", CLUSTERING)?;
    for (position, entry) in tables.iter().enumerate() {
        let (name, kind) = (column_name(entry, names)?, kind(entry)?);
        if kind == Type::Uuid {
            let item = entry.need("type")?;
            return Err(item.bad_value("a uuid has no order of its own; take a timeuuid"));
        }
        let form = form(entry, &kind)?;
        let values = match (position, entry.get("values")) {
            (0, None) => table.rows_per_partition,
            (0, Some(item)) => {
                return Err(item.bad_value("the first column takes what the others leave"));
            }
            (_, Some(item)) => item.whole(1..=table.rows_per_partition)?,
            (_, None) => return Err(entry.missing("values")),
        };
        table.clustering.push(KeyColumn { name, kind, form, hashed: false, step: 1, values });
    }
    // The last one changes fastest.
    let mut step = 1u64;
    for (key, entry) in table.clustering.iter_mut().zip(&tables).rev() {
        key.step = step;
        if key.values == table.rows_per_partition && step > 1 {
            key.values = table.rows_per_partition.div_ceil(step);
        }
        step = step.saturating_mul(key.values);
        if key.values > key.form.capacity() {
            let why =
                format!("it has {} values, of {} that are needed", key.form.capacity(), key.values);
            return Err(entry.need("type")?.bad_value(&why));
        }
    }
    Ok(())
}

fn columns(root: &Toml<'_>, table: &mut Table, names: &mut Vec<String>) -> Result<(), TomlError> {
    let tables = root.tables("column", COLUMN)?;
    if tables.is_empty() {
        return Err(root.missing("column"));
    }
    for entry in &tables {
        let name = identifier(entry, "name")?;
        let kind = kind(entry)?;
        let content = content(entry, &kind)?;
        let item = entry.need("name")?;
        match entry.get("count") {
            None => {
                unique(&item, &name, names)?;
                push_column(&mut table.columns, name, kind, content);
            }
            Some(count) => {
                for number in 0..count.whole(1..=u64::from(COLUMNS_MAX))? {
                    let name = format!("{name}{number}");
                    unique(&item, &name, names)?;
                    push_column(&mut table.columns, name, kind.clone(), content.clone());
                }
            }
        }
        let (bytes, count) = (table.row_bytes_most(), table.columns.len());
        if bytes > ROW_BYTES_MAX || count > COLUMNS_MAX as usize {
            let most = format!("a row has at most {COLUMNS_MAX} columns and {ROW_BYTES_MAX} bytes");
            return Err(item.bad_value(&most));
        }
    }
    Ok(())
}

fn content(entry: &Toml<'_>, kind: &Type) -> Result<Content, TomlError> {
    let size = size(entry, kind, 64)?;
    let random_share = entry.share("compressed_to", 1.0)?;
    if let Some(item) = entry.get("compressed_to") {
        if !has_size(kind) {
            return Err(item.bad_value(&format!("a {kind} is as long as it is")));
        }
        if random_share < 1.0 && (size.least() as f64) * random_share < 8.0 {
            return Err(item.bad_value("fewer than 8 bytes would be left of a value"));
        }
    }
    if let Some(item) = entry.get("values").filter(|_| has_size(kind)) {
        return Err(item.bad_value("only numbers have a range of values; give a size"));
    }
    Ok(match kind {
        Type::Blob => Content::Blob { size, random_share },
        Type::Text | Type::Ascii => Content::Text { size, random_share },
        _ => {
            let form = Form::of(kind, 0, "").ok_or_else(|| missing_order(entry, kind))?;
            let range = entry.get("values").map(|item| spread(&item)).transpose()?;
            if let Some(item) = entry.get("values")
                && range.is_some_and(|range| range.most() >= form.capacity())
            {
                let most = form.capacity() - 1;
                return Err(item.bad_value(&format!("a {kind} takes numbers up to {most}")));
            }
            Content::Number { form, range }
        }
    })
}

fn queries(root: &Toml<'_>, table: &Table) -> Result<Vec<Query>, TomlError> {
    let tables = root.tables("query", QUERY)?;
    if tables.is_empty() {
        return Err(root.missing("query"));
    }
    let kinds: Vec<String> = QueryKind::ALL.iter().map(|(name, _)| (*name).into()).collect();
    let mut queries: Vec<Query> = Vec::new();
    for entry in &tables {
        let word = entry.word("kind", &kinds)?.ok_or_else(|| entry.missing("kind"))?;
        let kind = QueryKind::ALL.iter().find(|(name, _)| *name == word);
        let kind = kind.map_or(QueryKind::Read, |(_, kind)| *kind);
        let weight = entry.get("weight").map_or(Ok(1.0), |item| item.number(0.0..=1e9))?;
        let keys = match entry.text("keys")? {
            None => Keys::Uniform,
            Some((text, item)) => {
                text.parse::<Keys>().map_err(|error| item.bad_value(&error.to_string()))?
            }
        };
        let mut query = Query::new(kind, weight, keys);
        if let Some((name, _)) = entry.text("name")? {
            query.name = name;
        }
        let only = |key: &str, allowed: bool, why: &str| match entry.get(key) {
            Some(item) if !allowed => Err(item.bad_value(why)),
            _ => Ok(()),
        };
        only("keys", kind != QueryKind::Insert, "new rows come one after the other")?;
        only("misses", kind.reads(), "only reads can miss")?;
        only("limit", kind.reads_many(), "only slices and scans read several rows")?;
        let some = matches!(kind, QueryKind::Update | QueryKind::ReadModifyWrite);
        only("columns", some, "only updates write some columns")?;
        query.misses = entry.share("misses", 0.0)?;
        if kind.reads_many() {
            let item = entry.need("limit")?;
            query.limit = spread(&item)?;
            let bytes = query.limit.most().saturating_mul(table.row_bytes_most() + 128);
            if !(1..=LIMIT_MAX).contains(&query.limit.most()) || query.limit.least() == 0 {
                return Err(item.out_of_range(&format!("from 1 to {LIMIT_MAX}")));
            }
            if bytes > ANSWER_BYTES_MAX {
                return Err(item.bad_value("so many rows may have more than 12 MiB"));
            }
        }
        if kind == QueryKind::Slice && table.clustering.is_empty() {
            return Err(entry.need("kind")?.bad_value("a slice needs a [[clustering]] column"));
        }
        let all = table.columns.len() as u64;
        if let Some(item) = entry.get("columns") {
            query.columns = usize::try_from(item.whole(1..=all)?).unwrap_or_default();
        } else if kind == QueryKind::Update {
            query.columns = table.columns.len();
        }
        if queries.iter().any(|other| other.name == query.name) {
            return Err(entry.need("kind")?.bad_value("there are two of it; give each a \"name\""));
        }
        let inserts = queries.iter().filter(|other| other.kind == QueryKind::Insert).count();
        if kind == QueryKind::Insert && inserts > 0 {
            return Err(entry.need("kind")?.bad_value("there is one query at most that inserts"));
        }
        queries.push(query);
    }
    if queries.len() > 16 || queries.iter().all(|query| query.weight <= 0.0) {
        let item = tables[tables.len() - 1].need("kind")?;
        return Err(
            item.bad_value("there are 1 to 16 queries, and one at least has a weight above 0")
        );
    }
    Ok(queries)
}
