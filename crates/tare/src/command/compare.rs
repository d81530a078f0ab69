//! `tare compare`: compares records.

use std::io::Write;
use std::path::PathBuf;

use tare_lab::analysis::analyse;
use tare_lab::record::Record;
use tare_report::compare::{self, Comparison, Named};

use super::report;
use crate::cli::{Compare, FailOn};
use crate::exit::{Exit, ExitWith};
use crate::stream::{Written, write_file};
use crate::terminal::style;

pub(crate) fn run(options: &Compare, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut records = options
        .records
        .iter()
        .map(|path| report::read(path))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let pairs = compare::pair(&mut records, &options.pairs).exit_with(Exit::Usage)?;
    let named = |(path, record): (&PathBuf, Record)| {
        let analysis = analyse(&record);
        (path.display().to_string(), record, analysis)
    };
    let records: Vec<Named> = options.records.iter().zip(records).map(named).collect();
    let comparison = Comparison::paired(&records, &options.prices, pairs).exit_with(Exit::Usage)?;
    let differs =
        options.fail_on.is_some_and(|what| comparison.has_claimed_difference(what == FailOn::Rise));
    let code = if differs { Exit::Differs } else { Exit::Success };
    if let Some(path) = &options.html {
        let page = tare_report::html::comparison(&comparison);
        if write_file(path, &page, out)? == Written::Printed {
            return Ok(code);
        }
    }
    if options.json {
        writeln!(out, "{}", compare::json(&comparison))?;
    } else if options.csv {
        write!(out, "{}", compare::csv(&comparison))?;
    } else if options.markdown {
        write!(out, "{}", compare::markdown(&comparison))?;
    } else {
        write!(out, "{}", compare::terminal(&comparison, style()))?;
        if let Some(path) = &options.html {
            writeln!(out, "page: {}", path.display())?;
        }
    }
    Ok(code)
}
