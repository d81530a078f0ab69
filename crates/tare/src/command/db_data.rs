//! `tare db check`, `dump`, `snapshot` and `restore`: inspect and copy the data of a stopped
//! server.

use std::io::{BufWriter, Write};

use anyhow::Context;
use tare_db::inspect::{self, Finding, Format, InspectError};
use tare_db::snapshot::{self, CopySummary, Sharing};

use crate::cli::{DbCheck, DbCopy, DbDump};
use crate::exit::{Exit, ExitWith, exit_error};

/// Checks the data, and prints a line per finding. The exit code is 1 if any data is damaged.
pub(crate) fn check(options: &DbCheck, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut findings = Vec::new();
    let mut printed = Ok(());
    let mut note = |finding: &Finding| {
        let line = tare_host::error_line(finding);
        if options.json {
            findings.push(line);
        } else if printed.is_ok() {
            // Printed at once: the check of a large directory takes long.
            printed = writeln!(out, "{line}");
        }
    };
    let checked = inspect::check(&options.data, &mut note).map_err(with_exit)?;
    printed?;
    if options.json {
        let object = serde_json::json!({ "checked": checked, "findings": findings });
        writeln!(out, "{object}")?;
    } else {
        let verdict = match checked.damages {
            0 => "no damage".to_string(),
            damages => format!("damaged in {damages} places"),
        };
        writeln!(
            out,
            "shards {}, entries in commit logs {}, table files {} ({} bytes), partitions in them {}, \
             rows {}: {verdict}",
            checked.shards,
            checked.log_entries,
            checked.tables,
            checked.table_bytes,
            checked.partitions,
            checked.rows,
        )?;
    }
    Ok(if checked.damages == 0 { Exit::Success } else { Exit::Failure })
}

pub(crate) fn dump(options: &DbDump, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let format = if options.json { Format::Json } else { Format::Text };
    let mut out = BufWriter::new(out);
    inspect::dump(&options.file, format, &mut out).map_err(with_exit)?;
    out.flush().context("cannot print")?;
    Ok(Exit::Success)
}

/// Creates a snapshot of a data directory, or a data directory from a snapshot.
pub(crate) fn copy(options: &DbCopy, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let copied =
        snapshot::copy(&options.from, &options.to, Sharing::Needed).exit_with(Exit::Input)?;
    let CopySummary { shards, linked, linked_bytes, copied, copied_bytes } = copied;
    writeln!(
        out,
        "{}: shards {shards}, files shared {linked} ({linked_bytes} bytes), files copied {copied} \
         ({copied_bytes} bytes)",
        options.to.display(),
    )?;
    Ok(Exit::Success)
}

/// Adds the exit code to an error: `Input` for missing files, not for damage. `exit::of` handles
/// closed output.
fn with_exit(error: InspectError) -> anyhow::Error {
    match &error {
        InspectError::NoData { .. } | InspectError::NoTable { .. } | InspectError::Read { .. } => {
            exit_error(error, Exit::Input)
        }
        _ => error.into(),
    }
}
