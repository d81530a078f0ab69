//! `tare compare`: compares records.

use std::io::Write;

use tare_lab::analysis::analyse;
use tare_report::compare::{self, Comparison, Named};

use super::report;
use crate::cli::{Compare, FailOn};
use crate::exit::{Exit, ExitWith};
use crate::stream::{Written, write_file};
use crate::terminal::style;

pub(crate) fn run(options: &Compare, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut records: Vec<Named> = Vec::new();
    for path in &options.records {
        let record = report::read(path)?;
        let analysis = analyse(&record);
        records.push((path.display().to_string(), record, analysis));
    }
    let comparison = Comparison::new(&records, &options.prices).exit_with(Exit::Usage)?;
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
