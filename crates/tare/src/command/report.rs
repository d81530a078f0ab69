//! `tare report`: reports a record, from the record alone.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::Context;
use tare_lab::analysis::analyse;
use tare_lab::record::{Record, read_stacks};
use tare_lab::stacks::StackSlice;

use super::slide;
use crate::cli::Report;
use crate::exit::{Exit, ExitWith};
use crate::stream::{Written, write_file};
use crate::terminal::style;
use crate::{serve, signals};

pub(crate) fn run(options: &Report, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let record = read(&options.record)?;
    if options.stacks.stacks {
        return super::stacks::show(options, &record, out);
    }
    if let Some(page) = serve::listen(options.page.serve)? {
        let stop = signals::stop_flag()?;
        serve::report(&page, &options.record, &stop)?;
        return Ok(Exit::Success);
    }
    let analysis = analyse(&record);
    let stacks = stacks(&options.record)?;
    if let Some(path) = &options.html {
        let page = tare_report::html::page(&record, &analysis, &stacks);
        if write_file(path, &page, out)? == Written::Printed {
            return Ok(Exit::Success);
        }
    }
    if let Some(path) = &options.slide {
        slide::write(path, &record, &analysis)?;
        writeln!(out, "slide: {}", path.display())?;
        return Ok(Exit::Success);
    }
    if options.json {
        writeln!(out, "{}", tare_report::json::render(&record, &analysis, &stacks))?;
    } else if options.csv {
        write!(out, "{}", tare_report::csv::render(&record))?;
    } else if options.figures_csv {
        write!(out, "{}", tare_report::csv::figures(&analysis))?;
    } else if options.seconds_csv {
        write!(out, "{}", tare_report::csv::seconds(&record))?;
    } else if options.counters {
        write!(out, "{}", tare_report::counters::terminal(&record, style()))?;
    } else if options.markdown {
        write!(out, "{}", tare_report::markdown::render(&record, &analysis, &stacks))?;
    } else if options.prometheus {
        write!(out, "{}", tare_report::prometheus::render(&record, &analysis))?;
    } else if let Some(fleet) = &options.fleet {
        write!(out, "{}", tare_report::fleet::render(fleet, &record, &analysis, style()))?;
    } else {
        write!(out, "{}", tare_report::terminal::render(&record, &analysis, &stacks, style()))?;
        if let Some(path) = &options.html {
            writeln!(out, "page: {}", path.display())?;
        }
    }
    Ok(Exit::Success)
}

/// Returns whether a file is a SQLite database, by its first bytes, or has the name of a record.
/// Source: <https://www.sqlite.org/fileformat2.html>, "Magic Header String".
pub(crate) fn is_record(path: &Path) -> bool {
    const START: &[u8; 16] = b"SQLite format 3\0";
    let mut head = [0; START.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    path.extension().is_some_and(|ending| ending == "tare") || (read.is_ok() && head == *START)
}

/// Reads a record. Its errors have the exit code `Input`.
pub(crate) fn read(path: &Path) -> anyhow::Result<Record> {
    Record::read(path).exit_with(Exit::Input)
}

/// Reads the stack slices of a record; empty if none were sampled.
pub(crate) fn stacks(path: &Path) -> anyhow::Result<Vec<StackSlice>> {
    read_stacks(path).exit_with(Exit::Input)
}

/// Prints the result of a record that was just measured, and writes its page.
pub(crate) fn present(
    path: &Path,
    html: Option<&Path>,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let record = Record::read(path)?;
    let analysis = analyse(&record);
    let page = html.map_or_else(|| path.with_extension("html"), Path::to_path_buf);
    let stacks = read_stacks(path)?;
    fs::write(&page, tare_report::html::page(&record, &analysis, &stacks)).with_context(|| {
        format!("the record is complete, but cannot write the page {}", page.display())
    })?;
    if json {
        writeln!(out, "{}", tare_report::json::render(&record, &analysis, &stacks))?;
        return Ok(());
    }
    let text = tare_report::terminal::render(&record, &analysis, &stacks, style());
    write!(out, "{text}")?;
    writeln!(out, "\nrecord: {}\npage:   {}", path.display(), page.display())?;
    Ok(())
}
