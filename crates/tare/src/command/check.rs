//! `tare check`: whether costs are within their budgets.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context;
use tare_lab::analysis::{Analysis, analyse, analyse_costs};
use tare_lab::campaign::{Ending, Goal};
use tare_lab::record::{Record, free_path};
use tare_report::check::{self, Against, Budget, CheckError, Figure};
use tare_tune::plan::Options;

use super::report;
use crate::campaign::{CampaignConfig, run, study};
use crate::cli::{Annotate, Check};
use crate::exit::{self, Exit, ExitWith};
use crate::remote_run::place_loaders;
use crate::terminal::style;
use crate::{cleanup, live, signals, study_plan};

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
    let gate = Rc::new(Gate { budgets: options.budgets.clone(), against });
    let (path, ending) = if report::is_record(Path::new(&options.subject)) {
        (PathBuf::from(&options.subject), Measured::Before)
    } else {
        measure(options, &gate, state)?
    };
    let found = gate.check(&report::read(&path)?).exit_with(Exit::Usage)?;
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

/// The budgets and the older record, with its name.
struct Gate {
    budgets: Vec<Budget>,
    against: Option<(String, Analysis)>,
}

impl Gate {
    fn check(&self, record: &Record) -> Result<check::Check, CheckError> {
        let latencies = self.budgets.iter().flat_map(|one| &one.terms);
        let latencies = latencies.map(|term| term.figure).any(Figure::is_latency);
        // Latencies take most of the time of an analysis.
        let analysis = if latencies { analyse(record) } else { analyse_costs(record) };
        let older = self.against.as_ref().map(|(name, analysis)| Against { name, analysis });
        check::Check::new(record, &analysis, older, &self.budgets)
    }

    /// Whether a study that writes this record has measured enough.
    fn is_settled(&self, record: &Path) -> bool {
        let record = Record::read(record);
        record.is_ok_and(|record| self.check(&record).is_ok_and(|check| check.is_settled()))
    }
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

/// Runs the study until all budgets are decided or its time is over. Returns its record.
fn measure(options: &Check, gate: &Rc<Gate>, state: &Path) -> anyhow::Result<(PathBuf, Measured)> {
    let (mut study, study_text) = study::read(&options.subject, options.quick)?;
    place_loaders(&mut study, &[])?;
    study.add_runtime_controls();
    for budget in &options.budgets {
        check::places(&study, budget).exit_with(Exit::Usage)?;
        let limits_rise = budget.terms.iter().any(|term| term.rise);
        if limits_rise && options.against.is_none() {
            return Err(CheckError::NothingAgainst).exit_with(Exit::Usage);
        }
    }
    study::limit(&mut study, options.rounds, options.time);
    let seed = study::seed(options.seed, &mut study);
    let record = options
        .output
        .clone()
        .unwrap_or_else(|| free_path(Path::new(&format!("{}.tare", study.name))));
    let settled = Rc::clone(gate);
    let is_reached = Box::new(move |record: &Path| settled.is_settled(record));
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
        goal: Some(Goal { rounds: options.rounds, is_reached }),
        image: options.image.get(),
        page: None,
    };
    let stop = signals::stop_flag_with(live::restore)?;
    // A gate leaves out nothing for lack of time: it says how much more it needs.
    study_plan::fit_budget(&mut config, false, state)?;
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
