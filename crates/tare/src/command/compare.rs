//! `tare compare`: records side by side.

use std::io::Write;

use tare_lab::analysis::{Analysis, analyse};
use tare_lab::record::Record;

use super::report;
use crate::cli::Compare;
use crate::exit::Exit;

pub(crate) fn run(options: &Compare, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut records: Vec<(String, Record, Analysis)> = Vec::new();
    for path in &options.records {
        let record = report::read(path)?;
        let analysis = analyse(&record);
        records.push((path.display().to_string(), record, analysis));
    }
    if options.json {
        writeln!(out, "{}", tare_report::compare::json(&records))?;
    } else {
        write!(out, "{}", tare_report::compare::terminal(&records, report::style()))?;
    }
    Ok(Exit::Success)
}
