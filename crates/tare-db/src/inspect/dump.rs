//! Prints a table file: its header, then its partitions, range tombstones and rows in order, as
//! text or as JSON lines.

use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

use serde_json::{Map, Value, json};
use tare_store::RangeTombstone;
use tare_store::cells::{self, Cell, Content, DELETION, MARKER};
use tare_store::table::{Cursor, FileSource, Start, Step, Table, TableError};

use super::names::SchemaNames;
use super::{InspectError, TableFile, used_bytes};

/// The output format of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    Text,
    /// One object per line: the file, then each range tombstone and each row.
    Json,
}

/// Prints a table file, with names and values if it lies in a data directory. Damage ends the dump.
pub fn dump(path: &Path, format: Format, out: &mut dyn Write) -> Result<(), InspectError> {
    let file = TableFile::open(path)?;
    let folder = || path.parent().unwrap_or(Path::new("")).into();
    let damaged = |source: TableError| InspectError::Table { folder: folder(), source };
    let print = |source: io::Error| InspectError::Print { source };
    let read = |source| InspectError::Read { path: path.into(), source };
    let bytes = used_bytes(&file.file).map_err(read)?;
    let table = Table::open(file.number, bytes, file.reader()).map_err(damaged)?;
    let names = SchemaNames::find(path, table.footer().table)?;
    let mut printer = Printer { format, names, out };
    printer.file(&table).map_err(print)?;
    // Everything is read at once, so that no block is ever missing.
    let mut source = FileSource::new(file.reader());
    let mut cursor = Cursor::new(Rc::new(table));
    let go = |step: Result<Step, TableError>| step.map(|_| ()).map_err(damaged);
    go(cursor.seek_partition(i64::MIN, &[], &mut source))?;
    while let Some((token, key)) = cursor.partition() {
        let partition = printer.partition(token, key).map_err(print)?;
        for range in cursor.ranges() {
            printer.range(&partition, &range).map_err(print)?;
        }
        go(cursor.seek_row(Start::From(&[]), &mut source))?;
        while let Some((clustering, cells)) = cursor.row() {
            printer.row(&partition, clustering, cells).map_err(print)?;
            go(cursor.advance(&mut source))?;
        }
        go(cursor.next_partition(&mut source))?;
    }
    Ok(())
}

struct Printer<'a> {
    format: Format,
    names: SchemaNames,
    out: &'a mut dyn Write,
}

/// The token and key of a partition, which every JSON line has.
struct Partition {
    token: i64,
    key: Vec<(String, String)>,
}

impl Printer<'_> {
    fn line(&mut self, object: &Value) -> io::Result<()> {
        writeln!(self.out, "{object}")
    }

    fn file(&mut self, table: &Table) -> io::Result<()> {
        let (footer, statistics) = (table.footer(), table.statistics());
        let name = self.names.table();
        if self.format == Format::Json {
            return self.line(&json!({
                "file": table.file(),
                "table": footer.table,
                "name": name,
                "file_bytes": table.file_bytes(),
                "plain_bytes": footer.plain_bytes,
                "data_blocks": footer.data_blocks,
                "token_min": footer.token_min,
                "token_max": footer.token_max,
                "partitions": statistics.partitions,
                "rows": statistics.rows,
                "ranges": statistics.ranges,
                "cells": statistics.cells,
                "dead_cells": statistics.dead_cells,
                "expiring_cells": statistics.expiring_cells,
                "timestamp_min": statistics.timestamp_min,
                "timestamp_max": statistics.timestamp_max,
            }));
        }
        let name = name.unwrap_or_else(|| format!("table {}", footer.table));
        writeln!(
            self.out,
            "{name}: {} bytes, {} before compression, {} data blocks; {} partitions with tokens \
             {} to {}, {} rows, {} range tombstones, {} cells, {} of them dead, {} expiring",
            table.file_bytes(),
            footer.plain_bytes,
            footer.data_blocks,
            statistics.partitions,
            footer.token_min,
            footer.token_max,
            statistics.rows,
            statistics.ranges,
            statistics.cells,
            statistics.dead_cells,
            statistics.expiring_cells,
        )
    }

    fn partition(&mut self, token: i64, key: &[u8]) -> io::Result<Partition> {
        let key = self.names.key(key);
        if self.format == Format::Text {
            writeln!(self.out, "{} (token {token})", text(&key))?;
        }
        Ok(Partition { token, key })
    }

    fn range(&mut self, partition: &Partition, range: &RangeTombstone<'_>) -> io::Result<()> {
        let from = self.names.clustering(range.from);
        let to = range.to.map(|to| self.names.clustering(to));
        let RangeTombstone { timestamp, deleted_s, .. } = range;
        if self.format == Format::Json {
            return self.line(&json!({
                "token": partition.token,
                "key": object(&partition.key),
                "range": { "from": object(&from), "to": to.as_deref().map(object) },
                "timestamp": timestamp,
                "deleted_s": deleted_s,
            }));
        }
        let from = if from.is_empty() { "the beginning".into() } else { text(&from) };
        let to = to.map_or_else(|| "the end".into(), |to| text(&to));
        writeln!(self.out, "  deleted from {from} up to {to} @ {timestamp}, at {deleted_s} s")
    }

    fn row(&mut self, partition: &Partition, clustering: &[u8], bytes: &[u8]) -> io::Result<()> {
        let clustering = self.names.clustering(clustering);
        if self.format == Format::Json {
            let cells: Vec<Value> = cells::iter(bytes).map(|cell| self.cell_json(&cell)).collect();
            return self.line(&json!({
                "token": partition.token,
                "key": object(&partition.key),
                "clustering": object(&clustering),
                "cells": cells,
            }));
        }
        let clustering = match clustering.is_empty() {
            true if self.names.has_statics() => "static columns".into(),
            true => "row".into(),
            false => text(&clustering),
        };
        let cells: Vec<String> = cells::iter(bytes).map(|cell| self.cell_text(&cell)).collect();
        writeln!(self.out, "  {clustering}: {}", cells.join("; "))
    }

    fn cell_json(&self, cell: &Cell<'_>) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| fields.insert(name.into(), value);
        put("column", self.column(cell.column).into());
        if let Some(path) = cell.path {
            put("element", self.names.element(cell.column, path).into());
        }
        put("timestamp", cell.timestamp.into());
        match cell.content {
            Content::Dead { since_s } => put("deleted_s", since_s.into()),
            // The cell only says that the row exists.
            Content::Live(_) if cell.column == MARKER => None,
            Content::Live(value) => put("value", self.names.value(cell, value).into()),
            Content::Expiring { value, ttl_s, expires_s } => {
                put("value", self.names.value(cell, value).into());
                put("ttl_s", ttl_s.into());
                put("expires_s", expires_s.into())
            }
        };
        Value::Object(fields)
    }

    fn cell_text(&self, cell: &Cell<'_>) -> String {
        let (mut column, timestamp) = (self.column(cell.column), cell.timestamp);
        if let Some(path) = cell.path {
            column = format!("{column}[{}]", self.names.element(cell.column, path));
        }
        match cell.content {
            Content::Dead { since_s } => format!("{column} deleted @ {timestamp}, at {since_s} s"),
            Content::Live(_) if cell.column == MARKER => format!("{column} @ {timestamp}"),
            Content::Live(value) => {
                format!("{column} = {} @ {timestamp}", self.names.value(cell, value))
            }
            Content::Expiring { value, ttl_s, expires_s } => format!(
                "{column} = {} @ {timestamp}, lives {ttl_s} s until {expires_s} s",
                self.names.value(cell, value)
            ),
        }
    }

    fn column(&self, number: u16) -> String {
        match number {
            DELETION => "row".into(),
            MARKER => "row marker".into(),
            number => self.names.column(number),
        }
    }
}

fn text(pairs: &[(String, String)]) -> String {
    let pairs: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    pairs.join(", ")
}

fn object(pairs: &[(String, String)]) -> Value {
    let pairs = pairs.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    Value::Object(pairs.collect())
}
