//! `tare check`: whether costs are within their budgets.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tare_lab::analysis::analyse;
use tare_lab::campaign::Ending;
use tare_lab::record::free_path;
use tare_report::check::{self, Against, CheckError};
use tare_tune::plan::Options;

use super::report;
use crate::campaign::{CampaignConfig, run, study};
use crate::cli::{Annotate, Check};
use crate::exit::{self, Exit, ExitWith};
use crate::terminal::style;
use crate::{cleanup, live, signals, study_plan};

/// The first bytes of every record.
const SQLITE: &[u8; 16] = b"SQLite format 3\0";

pub(crate) fn run(options: &Check, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match checked(options, state, out) {
        Ok(exit) => Ok(exit.of_check()),
        Err(error) => {
            let exit = exit::of_error(&error).of_check();
            Err(error).exit_with(exit)
        }
    }
}

/// Checks the costs. Its errors have the exit codes of other commands.
fn checked(options: &Check, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    // A wrong record or file must not be noticed only after the study.
    let against = match &options.against {
        Some(path) => Some((path.display().to_string(), analyse(&report::read(path)?))),
        None => None,
    };
    let (path, ending) = if is_record(&options.subject) {
        (PathBuf::from(&options.subject), Measured::Before)
    } else {
        measure(options, state)?
    };
    let record = report::read(&path)?;
    let analysis = analyse(&record);
    let older = against.as_ref().map(|(name, analysis)| Against { name, analysis });
    let found =
        check::Check::new(&record, &analysis, older, &options.budgets).exit_with(Exit::Usage)?;
    if let Some(file) = &options.junit {
        write(file, &check::junit(&found))?;
    }
    if let Some(file) = &options.code_quality {
        write(file, &check::code_quality(&found, &options.subject))?;
    }
    if options.json {
        writeln!(out, "{}", check::json(&found))?;
    } else if options.markdown {
        write!(out, "{}", check::markdown(&found))?;
    } else {
        write!(out, "{}", check::lines(&found, style()))?;
        if ending != Measured::Before {
            writeln!(out, "record: {}", path.display())?;
        }
        if options.annotate == Some(Annotate::Github) {
            write!(out, "{}", check::github(&found))?;
        }
    }
    Ok(match ending {
        Measured::Interrupted => Exit::Interrupted,
        Measured::Leaving => Exit::Failure,
        _ if found.is_exceeded() => Exit::BeyondBudget,
        _ if found.is_undecided() => Exit::Undecided,
        _ => Exit::Success,
    })
}

/// How the record came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    /// It existed.
    Before,
    Now,
    Interrupted,
    /// Something could not be removed from the host.
    Leaving,
}

/// Whether the subject is a record and not a study.
fn is_record(subject: &str) -> bool {
    let path = Path::new(subject);
    let mut start = [0; SQLITE.len()];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    path.extension().is_some_and(|ending| ending == "tare") || (read.is_ok() && start == *SQLITE)
}

/// Runs the study. Returns its record.
fn measure(options: &Check, state: &Path) -> anyhow::Result<(PathBuf, Measured)> {
    let (mut study, study_text) = study::read(&options.subject, options.quick)?;
    study.add_runtime_controls();
    for budget in &options.budgets {
        check::places(&study, budget).exit_with(Exit::Usage)?;
        let limits_rise = budget.terms.iter().any(|term| term.rise);
        if limits_rise && options.against.is_none() {
            return Err(CheckError::NothingAgainst).exit_with(Exit::Usage);
        }
    }
    study::limit(&mut study, options.rounds, options.time);
    let seed = study::seed(options.seed, &study);
    let record = options
        .output
        .clone()
        .unwrap_or_else(|| free_path(Path::new(&format!("{}.tare", study.name))));
    let mut config = CampaignConfig {
        study,
        study_text,
        resume: None,
        record,
        seed,
        plan_options: Options::default(),
        facts: Vec::new(),
        samples: None,
        destroy: options.destroy.destroy_data_on.clone(),
        progress: options.progress,
        page: None,
    };
    let stop = signals::stop_flag_with(live::restore)?;
    study_plan::fit_budget(&mut config, options.time.is_some())?;
    let (ending, left) = run::measure(&config, state, &stop)?;
    cleanup::warn_left(&left);
    let measured = match ending {
        Ending::Interrupted => Measured::Interrupted,
        _ if !left.is_empty() => Measured::Leaving,
        _ => Measured::Now,
    };
    Ok((config.record, measured))
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
