//! `tare report`: draws a record again, from the record alone.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::Context;
use tare_lab::analysis::analyse;
use tare_lab::record::{Record, read_stacks};
use tare_lab::stacks::StackSlice;
use tare_report::terminal::Style;

use crate::cli::Report;
use crate::exit::{Exit, ExitWith};
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
        if path == Path::new("-") {
            out.write_all(page.as_bytes())?;
            return Ok(Exit::Success);
        }
        fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.json {
        writeln!(out, "{}", tare_report::json::render(&record, &analysis, &stacks))?;
    } else if options.csv {
        write!(out, "{}", tare_report::csv::render(&record))?;
    } else if options.figures_csv {
        write!(out, "{}", tare_report::csv::figures(&analysis))?;
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

/// Reads a record; what cannot be used is an input error.
pub(crate) fn read(path: &Path) -> anyhow::Result<Record> {
    Record::read(path).exit_with(Exit::Input)
}

/// The stack slices of a record; none where none were sampled.
pub(crate) fn stacks(path: &Path) -> anyhow::Result<Vec<StackSlice>> {
    read_stacks(path).exit_with(Exit::Input)
}

/// Colour and width of the terminal that standard output is; plain and 160 wide elsewhere.
pub(crate) fn style() -> Style {
    const WIDTH_ELSEWHERE: u16 = 160;
    let terminal = std::io::stdout().is_terminal();
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let width = size.map(|size| size.ws_col).filter(|width| terminal && *width > 0);
    Style {
        colour: terminal && !no_colour,
        width: width.unwrap_or(WIDTH_ELSEWHERE),
        ..Style::default()
    }
}
